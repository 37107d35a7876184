"""Ready and the phase Running are shown only for a generation that was carried out: one difference at a time."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rocketmq_operator.domain.conditions import find
from rocketmq_operator.domain.observed import Claim, ObservedGroup, ObservedNameServer, Pod, StatefulSet
from rocketmq_operator.domain.plan.controller_cluster import plan_controller_cluster
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.name_server import plan_name_server
from rocketmq_operator.domain.plan.step import PlanSettings
from rocketmq_resources import names
from rocketmq_resources.decoding import Json
from rocketmq_resources.name_server import parse_name_server
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW, World
from tests.operator.plan.test_controller_cluster_plan import Quorum

replace = msgspec.structs.replace


def ready(status: Json | None) -> str:
    assert status is not None
    found = find(status["conditions"], "Ready")
    return f"{found['status']} {found['reason']}"


# A BrokerGroup


@pytest.fixture(scope="module")
def running() -> ObservedGroup:
    driver = Driver(World({"replicas": 3}, seed=3))
    driver.run(well)
    return driver.world.observe()


def spec(observed: ObservedGroup, **changes: Any) -> ObservedGroup:
    group = observed.group
    return replace(observed, group=replace(group, spec=replace(group.spec, **changes)))


def sts(observed: ObservedGroup, **changes: Any) -> ObservedGroup:
    assert observed.stateful_set is not None
    return replace(observed, stateful_set=replace(observed.stateful_set, **changes))


def unsettled(observed: ObservedGroup) -> ObservedGroup:
    return sts(observed, settled=False, update_revision="")


def outdated(observed: ObservedGroup) -> ObservedGroup:
    return sts(observed, update_revision="newer")


def growing_and_outdated(observed: ObservedGroup) -> ObservedGroup:
    """The StatefulSet waits to be recreated, which is busy; pods have to be replaced behind it."""
    return sts(outdated(observed), claim_sizes={"data": 1}, created=NOW - 1)


def replicas_wanted(observed: ObservedGroup) -> ObservedGroup:
    return spec(observed, replicas=4)


def one_leaves(observed: ObservedGroup) -> ObservedGroup:
    return sts(spec(observed, replicas=2), replicas=2)


def one_claim_small(observed: ObservedGroup) -> ObservedGroup:
    first = observed.claims[0]
    return replace(observed, claims=(replace(first, requested=1), *observed.claims[1:]))


def no_finalizer(observed: ObservedGroup) -> ObservedGroup:
    return spec(observed, storage=replace(observed.group.spec.storage, reclaim_policy="Delete"))


def deleting(observed: ObservedGroup) -> ObservedGroup:
    """Another client's finalizer holds it."""
    group = observed.group
    return replace(observed, group=replace(group, metadata=replace(group.metadata, deletion_timestamp="x")))


def paused(observed: ObservedGroup) -> ObservedGroup:
    return spec(observed, paused=True)


def paused_halfway(observed: ObservedGroup) -> ObservedGroup:
    return paused(outdated(observed))


def paused_and_deleting(observed: ObservedGroup) -> ObservedGroup:
    """A pause does not hold up a deletion."""
    return paused(deleting(observed))


def one_pod_away(observed: ObservedGroup) -> ObservedGroup:
    return replace(observed, pods=observed.pods[:2])


def waits_for_its_user(observed: ObservedGroup) -> ObservedGroup:
    view = observed.controllers.group
    assert view is not None
    pods = tuple(
        replace(pod, revision="newer") if f"{pod.ip}:{names.PORT_BROKER}" != master_address(observed) else pod
        for pod in observed.pods
    )
    return replace(spec(outdated(observed), update_strategy="supervised"), pods=pods)


def master_address(observed: ObservedGroup) -> str:
    view = observed.controllers.group
    assert view is not None
    return next(one.address for one in view.replicas if one.broker_id == view.master_broker_id)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (unsettled, "False RollingUpdate"),
        (outdated, "False RollingUpdate"),
        (growing_and_outdated, "False StorageGrowing"),
        (replicas_wanted, "False ReplicasMissing"),
        (one_leaves, "False ScalingDown"),
        (one_claim_small, "False StorageGrowing"),
        (no_finalizer, "False Finalizer"),
        (deleting, "False Deleting"),
        (one_pod_away, "False ReplicasMissing"),
        (waits_for_its_user, "False WaitingForSwitchover"),
        (paused, "Unknown Paused"),
        (paused_halfway, "Unknown Paused"),
        (paused_and_deleting, "False Deleting"),
    ],
)
def test_a_group(running: ObservedGroup, change: Callable[[ObservedGroup], ObservedGroup], expected: str) -> None:
    assert ready(plan_group(running, PlanSettings(), NOW).status) == "True AllInSync"
    status = plan_group(change(running), PlanSettings(), NOW).status
    assert status is not None
    assert ready(status) == expected
    if change is not paused:
        assert status["phase"] != "Running"
    if change not in (paused, one_pod_away):
        assert find(status["conditions"], "Progressing")["reason"] != "Complete"


def test_a_refused_rebuild_is_not_of_the_spec(running: ObservedGroup) -> None:
    group = running.group
    metadata = replace(group.metadata, annotations={names.ANNOTATION_REBUILD: "g-9"})
    status = plan_group(replace(running, group=replace(group, metadata=metadata)), PlanSettings(), NOW).status
    assert status is not None
    assert find(status["conditions"], "Degraded")["reason"] == "RebuildRefused"
    assert ready(status) == "True AllInSync"


# A ControllerCluster


def old_revision(quorum: Quorum) -> None:
    quorum.revision = "two"


def old_revision_behind_a_deletion(quorum: Quorum) -> None:
    """The volume of a former member is deleted, which is busy."""
    old_revision(quorum)
    quorum.left = (Claim(name="data-c-controller-4", volume="data", ordinal=4, uid="p4", requested=2**30),)


def not_settled(quorum: Quorum) -> None:
    quorum.settled = False


def more_members(quorum: Quorum) -> None:
    quorum.spec = {**quorum.spec, "members": 5}


def larger(quorum: Quorum) -> None:
    quorum.spec = {**quorum.spec, "storage": {"size": "2Gi"}}


def stopped(quorum: Quorum) -> None:
    quorum.spec = {**quorum.spec, "paused": True}


def stopped_with_a_pod_that_is_not_ready(quorum: Quorum) -> None:
    """It is connected: its readiness has another reason."""
    stopped(quorum)
    quorum.unready = {1}


def stopped_halfway(quorum: Quorum) -> None:
    old_revision(quorum)
    stopped(quorum)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (old_revision, "False RollingUpdate"),
        (old_revision_behind_a_deletion, "False RollingUpdate"),
        (not_settled, "False RollingUpdate"),
        (more_members, "False MembersMissing"),
        (larger, "False StorageGrowing"),
        (stopped, "Unknown Paused"),
        (stopped_halfway, "Unknown Paused"),
        (stopped_with_a_pod_that_is_not_ready, "False PodsNotReady"),
    ],
)
def test_a_controller_cluster(change: Callable[[Quorum], None], expected: str) -> None:
    quorum = Quorum()
    plan = plan_controller_cluster(quorum.observe(), PlanSettings(), NOW)
    assert ready(plan.status) == "True AllConnected"
    assert plan.status is not None
    quorum.status = dict(plan.status)
    change(quorum)
    status = plan_controller_cluster(quorum.observe(), PlanSettings(), NOW).status
    assert status is not None
    assert ready(status) == expected
    assert (status["phase"] == "Running") == (change is stopped)
    if change in (stopped, stopped_halfway):
        assert find(status["conditions"], "Progressing")["status"] == "False"


# A NameServer


def name_server(
    *, settled: bool = True, revision: str = "one", replicas: int = 2, of_the_set: int = 2, paused: bool = False
) -> ObservedNameServer:
    body = {
        "metadata": {"name": "n", "namespace": "ns", "uid": "u", "generation": 2},
        "spec": {"replicas": replicas, "paused": paused},
        "status": {"phase": "Running"},
    }
    return ObservedNameServer(
        name_server=parse_name_server(body),
        stateful_set=StatefulSet(
            name="n-namesrv", uid="s", replicas=of_the_set, update_revision=revision, settled=settled
        ),
        pods=tuple(
            Pod(name=f"n-namesrv-{ordinal}", ordinal=ordinal, uid=str(ordinal), revision="one", ready=True)
            for ordinal in range(2)
        ),
    )


@pytest.mark.parametrize(
    ("observed", "expected", "progressing"),
    [
        (name_server(), "True AllReady", "False Complete"),
        (name_server(settled=False), "False Updating", "True Updating"),
        (name_server(revision="two"), "False Updating", "True Updating"),
        (name_server(replicas=1), "False Scaling", "True Scaling"),
        (name_server(replicas=1, of_the_set=1), "False Scaling", "True Scaling"),
        (name_server(of_the_set=3), "False Scaling", "True Scaling"),
        (name_server(replicas=3, of_the_set=3), "False PodsNotReady", "False Complete"),
        (name_server(paused=True), "Unknown Paused", "False Complete"),
        (name_server(paused=True, revision="two"), "Unknown Paused", "True Updating"),
    ],
)
def test_a_name_server(observed: ObservedNameServer, expected: str, progressing: str) -> None:
    status = plan_name_server(observed, PlanSettings(), NOW).status
    assert status is not None
    assert ready(status) == expected
    found = find(status["conditions"], "Progressing")
    assert f"{found['status']} {found['reason']}" == progressing
