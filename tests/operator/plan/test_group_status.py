"""The status of a group: the phase of each state of the world, and the Events of a change."""

from collections.abc import Callable

import msgspec
import pytest

from rocketmq_api.group_view import Liveness
from rocketmq_operator.domain.conditions import Condition, condition, merge
from rocketmq_operator.domain.observed import ObservedGroup, Reference
from rocketmq_operator.domain.plan.groups.fencing import ANSWERED_SECONDS, IDLE_REQUEUE_SECONDS, REQUEUE_SECONDS
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.groups.status import events_of, without_offsets
from rocketmq_operator.domain.plan.step import PlanSettings
from rocketmq_resources.broker_group import parse_broker_group
from rocketmq_resources.decoding import Json
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW, World

Change = Callable[[ObservedGroup], ObservedGroup]


@pytest.fixture(scope="module")
def world() -> World:
    driver = Driver(World({"replicas": 3}, seed=3))
    driver.run(well)
    return driver.world


def status_of(observed: ObservedGroup) -> Json:
    status = plan_group(observed, PlanSettings(), NOW).status
    assert status is not None
    return status


def reasons(status: Json) -> dict[str, str]:
    conditions = status["conditions"]
    assert isinstance(conditions, list)
    return {one["type"]: f"{one['status']} {one['reason']}" for one in conditions}


def unheard(observed: ObservedGroup) -> ObservedGroup:
    return msgspec.structs.replace(
        observed, controllers=msgspec.structs.replace(observed.controllers, reachable=False, group=None)
    )


def without_master(observed: ObservedGroup) -> ObservedGroup:
    view = observed.controllers.group
    assert view is not None
    dead = tuple(
        msgspec.structs.replace(one, liveness=Liveness.DEAD) if one.broker_id == view.master_broker_id else one
        for one in view.replicas
    )
    view = msgspec.structs.replace(view, replicas=dead)
    return msgspec.structs.replace(observed, controllers=msgspec.structs.replace(observed.controllers, group=view))


def alone(observed: ObservedGroup) -> ObservedGroup:
    view = observed.controllers.group
    assert view is not None
    only = tuple(msgspec.structs.replace(one, in_sync=one.broker_id == view.master_broker_id) for one in view.replicas)
    view = msgspec.structs.replace(view, replicas=only)
    return msgspec.structs.replace(observed, controllers=msgspec.structs.replace(observed.controllers, group=view))


def unready(observed: ObservedGroup) -> ObservedGroup:
    pods = tuple(msgspec.structs.replace(pod, ready=pod.ordinal != 1) for pod in observed.pods)
    return msgspec.structs.replace(observed, pods=pods)


def fenced(observed: ObservedGroup) -> ObservedGroup:
    spec = msgspec.structs.replace(observed.group.spec, fenced=True)
    return msgspec.structs.replace(observed, group=msgspec.structs.replace(observed.group, spec=spec))


def master_uid(observed: ObservedGroup) -> str:
    view = observed.controllers.group
    assert view is not None
    return next(uid for uid, sidecar in observed.sidecars.items() if sidecar.broker_id == view.master_broker_id)


def still_fenced(observed: ObservedGroup) -> ObservedGroup:
    uid = master_uid(observed)
    told = {**observed.sidecars, uid: msgspec.structs.replace(observed.sidecars[uid], fenced=True)}
    return msgspec.structs.replace(observed, sidecars=told)


def silent(observed: ObservedGroup) -> ObservedGroup:
    uid = master_uid(observed)
    told = {one: sidecar for one, sidecar in observed.sidecars.items() if one != uid}
    return msgspec.structs.replace(observed, sidecars=told)


def master_stops(observed: ObservedGroup) -> ObservedGroup:
    """Its sidecar is not asked any longer."""
    uid = master_uid(observed)
    pods = tuple(msgspec.structs.replace(pod, deleting=pod.uid == uid) for pod in observed.pods)
    return msgspec.structs.replace(silent(observed), pods=pods)


def missing(observed: ObservedGroup) -> ObservedGroup:
    return msgspec.structs.replace(observed, bad_references={Reference("NameServer", "ns", "n"): ""})


def same(observed: ObservedGroup) -> ObservedGroup:
    return observed


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (same, ("Running", "True AllInSync", "True MasterServes", "False AsWanted")),
        (
            unheard,
            (
                "Degraded",
                "Unknown ControllersUnreachable",
                "Unknown ControllersUnreachable",
                "True ControllersUnreachable",
            ),
        ),
        (without_master, ("Degraded", "False NoMaster", "False NoMaster", "True ReplicasMissing")),
        (alone, ("Degraded", "False TooFewInSync", "False TooFewInSync", "True ReplicasMissing")),
        (unready, ("Degraded", "False PodsNotReady", "True MasterServes", "False AsWanted")),
        (still_fenced, ("Updating", "False Fenced", "False Fenced", "False AsWanted")),
        (silent, ("Running", "Unknown SidecarSilent", "Unknown SidecarSilent", "False AsWanted")),
        (master_stops, ("Degraded", "Unknown MasterStopping", "Unknown MasterStopping", "False AsWanted")),
        (fenced, ("Updating", "False Fenced", "False Fenced", "False AsWanted")),
        (missing, ("Degraded", "False ReferenceNotFound", "True MasterServes", "True ReferenceNotFound")),
    ],
)
def test_what_it_is_called(world: World, change: Change, expected: tuple[str, str, str, str]) -> None:
    status = status_of(change(world.observe()))
    found = reasons(status)
    assert (status["phase"], found["Ready"], found["Available"], found["Degraded"]) == expected


CONTROLLER = {"controllerRef": {"name": "c"}}
NONE_EMBEDDED = "ControllerCluster ns/c has no embedded name servers: set spec.nameServerRef or spec.namesrvAddr"
NO_CLUSTER, NO_NAMES = "ControllerCluster ns/c does not exist", "NameServer ns/n does not exist"


@pytest.mark.parametrize(
    ("spec", "controller_addr", "namesrv_addr", "message"),
    [
        (CONTROLLER, "c:9878", None, NONE_EMBEDDED),
        (CONTROLLER, None, None, NO_CLUSTER),
        ({**CONTROLLER, "namesrvAddr": "n:9876"}, None, "n:9876", NO_CLUSTER),
        ({**CONTROLLER, "nameServerRef": {"name": "n"}}, "c:9878", None, NO_NAMES),
        ({**CONTROLLER, "nameServerRef": {"name": "n"}}, None, None, f"{NO_CLUSTER}; {NO_NAMES}"),
    ],
)
def test_what_is_missing_is_named(
    spec: Json, controller_addr: str | None, namesrv_addr: str | None, message: str
) -> None:
    group = parse_broker_group({"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": spec})
    observed = ObservedGroup(group=group, controller_addr=controller_addr, namesrv_addr=namesrv_addr)
    conditions = status_of(observed)["conditions"]
    assert isinstance(conditions, list)
    (degraded,) = (one for one in conditions if one["type"] == "Degraded")
    reason = "ReferenceInvalid" if message == NONE_EMBEDDED else "ReferenceNotFound"
    assert (degraded["reason"], degraded["message"]) == (reason, message)


def test_a_lifted_fence_is_shown_soon(world: World) -> None:
    """No event reports what a sidecar has answered."""
    plan = plan_group(still_fenced(world.observe()), PlanSettings(), NOW)
    assert [type(action).__name__ for action in plan.actions] == ["SetFenced"]
    assert plan.requeue == ANSWERED_SECONDS


def test_a_lifted_fence_is_shown_soon_though_a_slave_is_silent(world: World) -> None:
    observed = still_fenced(world.observe())
    uid = master_uid(observed)
    plan = plan_group(msgspec.structs.replace(observed, sidecars={uid: observed.sidecars[uid]}), PlanSettings(), NOW)
    assert [type(action).__name__ for action in plan.actions] == ["SetFenced"]
    assert plan.requeue == ANSWERED_SECONDS


def test_the_silent_master_of_a_paused_group_is_asked_soon(world: World) -> None:
    observed = world.observe()
    spec = msgspec.structs.replace(observed.group.spec, paused=True)
    paused = msgspec.structs.replace(observed, group=msgspec.structs.replace(observed.group, spec=spec))
    assert plan_group(paused, PlanSettings(), NOW).requeue is None
    assert plan_group(silent(paused), PlanSettings(), NOW).requeue == REQUEUE_SECONDS


def test_a_master_whose_sidecar_is_silent_is_asked_soon(world: World) -> None:
    """No one else waits for a slave's."""
    observed = world.observe()
    assert plan_group(silent(observed), PlanSettings(), NOW).requeue == REQUEUE_SECONDS
    master = {master_uid(observed): observed.sidecars[master_uid(observed)]}
    others = msgspec.structs.replace(observed, sidecars=master)
    assert plan_group(others, PlanSettings(), NOW).requeue == IDLE_REQUEUE_SECONDS


def test_equal_worlds_have_equal_statuses(world: World) -> None:
    observed = world.observe()
    assert status_of(observed) == world.status
    later = plan_group(observed, PlanSettings(), NOW + 3600).status
    assert later == world.status


def test_the_facts(world: World) -> None:
    status = status_of(world.observe())
    assert status["inSync"] == "3/3"
    assert status["readyReplicas"] == 3
    replicas = status["replicaStatuses"]
    assert isinstance(replicas, list)
    assert [one["pod"] for one in replicas] == ["g-0", "g-1", "g-2"]
    assert sorted(one["role"] for one in replicas) == ["master", "slave", "slave"]
    assert {one["brokerId"] for one in replicas} == {1, 2, 3}
    assert all(one["inSync"] and one["alive"] and one["ready"] and one["upToDate"] for one in replicas)
    assert status["master"] == next(one["pod"] for one in replicas if one["role"] == "master")


def test_the_last_known_master_stays_while_the_controllers_are_unreachable(world: World) -> None:
    status = status_of(unheard(world.observe()))
    assert status["master"] == world.status["master"]
    assert status["masterEpoch"] == world.status["masterEpoch"]


def test_offsets_alone_are_no_news(world: World) -> None:
    status = status_of(world.observe())
    replicas = status["replicaStatuses"]
    assert isinstance(replicas, list)
    moved = {**status, "replicaStatuses": [{**one, "maxOffset": 10**9} for one in replicas]}
    assert without_offsets(moved) == without_offsets(status)


def test_a_new_master_causes_one_event(world: World) -> None:
    observed = world.observe()
    before = msgspec.structs.replace(observed.group, status={**world.status, "master": "g-9"})
    told = events_of(before, status_of(observed))
    assert [event.reason for event in told] == ["MasterChanged"]
    assert events_of(observed.group, status_of(observed)) == ()


def test_a_problem_is_a_warning_and_its_end_an_event(world: World) -> None:
    observed = world.observe()
    bad = status_of(alone(observed))
    told = events_of(observed.group, bad)
    assert {event.reason for event in told if event.warning} == {"ReplicasMissing", "TooFewInSync"}
    after = msgspec.structs.replace(observed.group, status=bad)
    told = events_of(after, status_of(observed))
    assert {event.reason for event in told} == {"Recovered", "Available", "Running"}


def test_a_condition_keeps_its_time_until_its_status_flips() -> None:
    def one(*, holds: bool, reason: str) -> tuple[Condition, ...]:
        return (condition("Ready", holds=holds, reason=reason),)

    first = merge(None, one(holds=True, reason="A"), generation=1, now=NOW)
    second = merge(first, one(holds=True, reason="B"), generation=2, now=NOW + 60)
    assert second[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert (second[0]["reason"], second[0]["observedGeneration"]) == ("B", 2)
    third = merge(second, one(holds=False, reason="B"), generation=2, now=NOW + 60)
    assert third[0]["lastTransitionTime"] == "2023-11-14T22:14:20Z"


@pytest.mark.parametrize("previous", [None, 7, "x", [7], [{"type": 3}]])
def test_whatever_was_in_the_status_before_is_survived(previous: object) -> None:
    assert len(merge(previous, (condition("Ready", holds=None, reason="A"),), generation=1, now=NOW)) == 1
