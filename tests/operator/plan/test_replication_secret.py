"""The secret of a group's replicas: made once, and asked for from the moment on in which every replica has it."""

from typing import Any

import msgspec
import pytest

from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain.observed import ObservedGroup, Pod
from rocketmq_operator.domain.plan.groups.objects import ObjectMemory
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.step import PlanSettings
from rocketmq_operator.kubernetes.parse import pod_of
from rocketmq_resources.broker_group import parse_broker_group

NOW = 1000.0
SECRET = "g-replication"
REQUIRED = "ROCKETMQ_HAREPLICATIONSECRETREQUIRED"


def observed(*secrets: str, **spec: object) -> ObservedGroup:
    """A group with a running pod for each of `secrets`, which it was made with."""
    body = {
        "metadata": {"name": "g", "namespace": "ns", "uid": "u", "finalizers": ["rocketmq-ha.io/claims"]},
        "spec": {"controllerRef": {"name": "main"}, "nameServerRef": {"name": "main"}, **spec},
    }
    pods = tuple(
        Pod(name=f"g-{ordinal}", ordinal=ordinal, uid=str(ordinal), running=True, replication_secret=secret)
        for ordinal, secret in enumerate(secrets)
    )
    return ObservedGroup(group=parse_broker_group(body), pods=pods, controller_addr="c:9878", namesrv_addr="n:9876")


def first(world: ObservedGroup) -> tuple[act.Action, ...]:
    return plan_group(world, PlanSettings(), NOW).first


def template(world: ObservedGroup, memory: ObjectMemory | None = None) -> dict[str, Any]:
    """The pod template that is applied."""
    [made] = [one for one in plan_group(world, PlanSettings(), NOW, memory).objects if one["kind"] == "StatefulSet"]
    found: dict[str, Any] = msgspec.convert(made, dict[str, Any])["spec"]["template"]
    return found


def environment(pod: dict[str, Any], container: str) -> dict[str, str]:
    [found] = [one for one in pod["spec"]["containers"] if one["name"] == container]
    return {entry["name"]: entry.get("value", "") for entry in found["env"]}


def test_a_new_group_has_its_secret_made_before_its_pods() -> None:
    assert first(observed()) == (act.EnsureReplicationSecret(SECRET),)
    assert first(msgspec.structs.replace(observed(), secret_checked=True)) == ()


@pytest.mark.parametrize(
    ("secrets", "may_create"), [(("", "", ""), True), (("", SECRET), False), ((SECRET, SECRET, SECRET), False)]
)
def test_a_lost_secret_is_not_made_again_behind_replicas_that_run_on_it(
    secrets: tuple[str, ...], may_create: bool
) -> None:
    assert first(observed(*secrets)) == (act.EnsureReplicationSecret(SECRET, may_create=may_create),)


def test_a_users_own_secret_and_official_brokers_are_left_alone() -> None:
    assert first(observed(replicationSecretName="mine")) == ()
    assert template(observed(replicationSecretName="mine"))["spec"]["volumes"][-1] == {
        "name": "replication-secret",
        "secret": {"secretName": "mine", "defaultMode": 0o440},
    }
    apache = observed(engine="apache")
    assert first(apache) == ()
    assert "replication-secret" not in str(template(apache))


@pytest.mark.parametrize(
    ("secrets", "required"),
    [((), "true"), (("", "", ""), "false"), ((SECRET, SECRET, ""), "false"), ((SECRET, SECRET, SECRET), "true")],
)
def test_it_is_asked_for_once_every_replica_has_it(secrets: tuple[str, ...], required: str) -> None:
    pod = template(observed(*secrets))
    assert environment(pod, "sidecar")[REQUIRED] == required
    assert REQUIRED not in environment(pod, "broker"), "the broker has no use for it"
    # what is seen of such a pod is that it has the secret
    made = pod_of({"metadata": {**pod["metadata"], "name": "g-0"}})
    assert made is not None
    assert made.replication_secret == SECRET


def test_the_memory_of_objects_notices_the_last_replica() -> None:
    memory = ObjectMemory()
    assert environment(template(observed("", SECRET), memory), "sidecar")[REQUIRED] == "false"
    assert environment(template(observed(SECRET, SECRET), memory), "sidecar")[REQUIRED] == "true"
