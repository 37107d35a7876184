"""Everything that the operator writes into status is a field of crds/, and what the columns show is written."""

from typing import Any

import msgspec
import pytest

from rocketmq_api.group_view import GroupView, Liveness, MemberView, QuorumView, ReplicaStanding
from rocketmq_operator.domain.observed import (
    Controllers,
    ObservedCluster,
    ObservedGroup,
    ObservedNameServer,
    Pod,
    SidecarState,
    StatefulSet,
)
from rocketmq_operator.domain.plan.controller_cluster import plan_controller_cluster
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.groups.status import refused
from rocketmq_operator.domain.plan.name_server import plan_name_server
from rocketmq_operator.domain.plan.step import PlanSettings
from rocketmq_operator.kubernetes.parse import stateful_set_of
from rocketmq_resources.broker_group import parse_broker_group
from rocketmq_resources.controller_cluster import parse_controller_cluster
from rocketmq_resources.decoding import Json
from rocketmq_resources.name_server import parse_name_server
from tests.operator.resources.schema_check import problems

NOW = 1_795_000_000.0
SETTINGS = PlanSettings()
METADATA = {"name": "a", "namespace": "shop", "uid": "u", "generation": 4}


def pods(stateful_set: str, count: int) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            name=f"{stateful_set}-{ordinal}",
            ordinal=ordinal,
            uid=f"u{ordinal}",
            ip=f"10.0.0.{ordinal + 1}",
            node="node-1",
            revision="r1",
            ready=True,
            running=True,
        )
        for ordinal in range(count)
    )


def made(name: str, replicas: int) -> StatefulSet:
    return StatefulSet(name=name, uid="s", replicas=replicas, update_revision="r1", image="example.org/image:1")


def group_world(spec: dict[str, Any], *, told: bool) -> ObservedGroup:
    """Three replicas in sync, the first one master; `told`: the controllers are heard."""
    group = parse_broker_group({"metadata": METADATA, "spec": {"controllerRef": {"name": "main"}, **spec}})
    running = pods("a", 3)
    standings = tuple(
        ReplicaStanding(
            broker_id=pod.ordinal + 1,
            address=f"{pod.ip}:10911",
            in_sync=True,
            liveness=Liveness.ALIVE,
            max_offset=1000 - pod.ordinal,
        )
        for pod in running
    )
    view = GroupView(
        cluster_name="DefaultCluster",
        broker_name="a",
        master_epoch=3,
        sync_state_set_epoch=5,
        master_broker_id=1,
        master_address="10.0.0.1:10911",
        replicas=standings,
        next_broker_id=5,
    )
    return ObservedGroup(
        group=group,
        stateful_set=made("a", 3),
        pods=running,
        controllers=Controllers(reachable=told, group=view if told else None),
        controller_addr="c:9878",
        namesrv_addr="n:9876",
        sidecars={pod.uid: SidecarState(broker_id=pod.ordinal + 1) for pod in running},
        disruption_budget=True,
    )


def status_of(world: ObservedGroup) -> Json:
    status = plan_group(world, SETTINGS, NOW).status
    assert status is not None
    return status


def test_a_healthy_group_fills_every_column_and_every_field_of_a_replica() -> None:
    status = status_of(group_world({}, told=True))
    assert problems("BrokerGroup", "status", status) == []
    for field in ("master", "masterEpoch", "inSync", "phase", "image", "selector", "replicas"):
        assert status.get(field), field
    replicas: Any = status["replicaStatuses"]
    assert set(replicas[1]) == {
        "pod",
        "brokerId",
        "role",
        "address",
        "node",
        "maxOffset",
        "lag",
        "inSync",
        "alive",
        "ready",
        "upToDate",
        "fenced",
    }
    conditions: Any = status["conditions"]
    assert {condition["type"] for condition in conditions} == {
        "Ready",
        "Available",
        "ActingMaster",
        "SyncStateSetHealthy",
        "LogsAligned",
        "Progressing",
        "Paused",
        "Degraded",
    }


def test_an_acting_master() -> None:
    world = group_world({"actingMaster": "reads"}, told=False)
    sidecars = {**world.sidecars, "u1": SidecarState(broker_id=2, acting=True)}
    status = status_of(msgspec.structs.replace(world, sidecars=sidecars))
    assert problems("BrokerGroup", "status", status) == []
    assert status["actingMaster"] == "a-1"


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("spec", [{}, {"paused": True}, {"hibernated": True}, {"fenced": True}, {"replicas": 5}])
def test_a_group_in_other_states(spec: dict[str, Any], told: bool) -> None:
    assert problems("BrokerGroup", "status", status_of(group_world(spec, told=told))) == []


def test_a_group_of_which_nothing_is_there() -> None:
    group = parse_broker_group({"metadata": METADATA, "spec": {"controllerRef": {"name": "main"}}})
    assert problems("BrokerGroup", "status", status_of(ObservedGroup(group=group))) == []


@pytest.mark.parametrize("kind", ["BrokerGroup", "ControllerCluster", "NameServer"])
def test_a_refused_spec(kind: Any) -> None:
    status = refused({}, generation=1, reason="InvalidSpec", message="spec.replicas: wrong", now=NOW)
    assert problems(kind, "status", status) == []


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("heard", [True, False])
def test_a_controller_cluster(embedded: bool, heard: bool) -> None:
    cluster = parse_controller_cluster({"metadata": METADATA, "spec": {"embeddedInNameServer": embedded}})
    members = tuple(
        MemberView(id=f"n{ordinal}", address=f"m{ordinal}:9878", is_leader=ordinal == 0, connected=True, match_index=9)
        for ordinal in range(3)
    )
    quorum = QuorumView(group="g", answered_by="n0", leader_id="n0", term=2, members=members) if heard else None
    stateful_set = made("a-controller", 3)
    world = ObservedCluster(cluster=cluster, stateful_set=stateful_set, pods=pods("a-controller", 3), quorum=quorum)
    status = plan_controller_cluster(world, SETTINGS, NOW).status
    assert status is not None
    assert problems("ControllerCluster", "status", status) == []
    assert status["image"] == "example.org/image:1"
    assert ("namesrvAddr" in status) == embedded
    assert ("leader" in status) == heard


def test_a_name_server() -> None:
    server = parse_name_server({"metadata": METADATA, "spec": {}})
    world = ObservedNameServer(name_server=server, stateful_set=made("a-namesrv", 2), pods=pods("a-namesrv", 2))
    status = plan_name_server(world, SETTINGS, NOW).status
    assert status is not None
    assert problems("NameServer", "status", status) == []
    assert (status["ready"], status["image"]) == ("2/2", "example.org/image:1")


def test_the_image_is_that_of_the_main_container() -> None:
    containers = [{"name": "sidecar", "image": "sidecar:1"}, {"name": "broker", "image": "broker:1"}]
    body = {"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": containers}}}}
    assert stateful_set_of(body).image == "broker:1"
    assert stateful_set_of({"metadata": {"name": "a"}}).image == ""


def test_what_a_schema_does_not_know_is_found() -> None:
    wrong = {"phase": 1, "unknown": "", "replicaStatuses": [{"role": "master"}], "conditions": [{"status": "Maybe"}]}
    found = "\n".join(problems("BrokerGroup", "status", wrong))
    for problem in (
        "status.phase: 1 is not of type string",
        "status.unknown: not in the schema",
        "status.replicaStatuses[0].pod: required",
        "status.conditions[0].status: 'Maybe' is none of",
    ):
        assert problem in found
