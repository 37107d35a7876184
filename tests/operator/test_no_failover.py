"""A group without controllers (spec.failover.mode none): stories in the model world, and what the operator refuses."""

from collections.abc import Callable

import msgspec
import pytest

from rocketmq_api.group_view import Liveness
from rocketmq_api.replica_view import ReplicaRole, ReplicaView
from rocketmq_operator.domain.actions import DeletePod
from rocketmq_operator.domain.observed import Controllers, ObservedGroup, Pod, SidecarState
from rocketmq_operator.domain.plan.groups.acting import ASK_SECONDS
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.groups.without_controllers import view_of_sidecars
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_resources import names
from tests.operator.model.driver import Driver, well
from tests.operator.model.fixed_world import FixedWorld
from tests.operator.model.world import NOW, actions_of
from tests.operator.test_stories import SEEDS, STORIES, Story, ids, update

NEVER = {"HandOver", "CleanBrokerData"}
"""Actions for which a group needs controllers."""


def running(seed: int = 3, **spec: object) -> Driver:
    """A group that has come up."""
    driver = Driver(FixedWorld({"replicas": 3, **spec}, seed=seed))
    driver.run(well)
    driver.world.history.clear()
    driver.effects = 0
    return driver


def done(driver: Driver) -> list[str]:
    """Kinds of the actions so far."""
    return [line.partition("(")[0] for line in driver.world.history]


def planned(observed: ObservedGroup) -> Plan:
    return plan_group(observed, PlanSettings(), NOW)


def reason(plan: Plan, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    assert plan.status is not None
    conditions = plan.status["conditions"]
    assert isinstance(conditions, list)
    [found] = [one for one in conditions if one["type"] == kind]
    return found["status"], found["reason"], found["message"]


def known(driver: Driver) -> ObservedGroup:
    """What the operator sees of it, with the status that it wrote."""
    return driver.world.observe()


def says(observed: ObservedGroup, ordinal: int, **said: object) -> ObservedGroup:
    """A sidecar's next answer is another one."""
    uid = observed.pods[ordinal].uid
    sidecar = observed.sidecars[uid]
    assert sidecar.replica is not None
    replica = msgspec.structs.replace(sidecar.replica, **said)
    acting = bool(said.get("acting_master", sidecar.acting))
    told = {**observed.sidecars, uid: msgspec.structs.replace(sidecar, replica=replica, acting=acting)}
    return seen(observed, told)


def seen(observed: ObservedGroup, sidecars: dict[str, SidecarState]) -> ObservedGroup:
    view = view_of_sidecars(observed.group, observed.pods, sidecars)
    return msgspec.structs.replace(
        observed, sidecars=sidecars, controllers=Controllers(reachable=True, group=view), acting_master_shown=True
    )


# Stories


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_a_change_is_carried_out_in_any_order_of_events(story: Story, seed: int) -> None:
    """`Driver` sees to it that the master is deleted last, when all others are back, and keeps its volume."""
    driver = running(seed)
    story(driver.world)
    driver.run(well)
    assert not NEVER & set(done(driver))
    assert ids(driver.world) == {ordinal: ordinal for ordinal in driver.world.disks}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_an_operator_killed_after_any_effect_is_followed_by_one_that_finishes(story: Story) -> None:
    whole = running(1)
    story(whole.world)
    whole.run(well)
    for kill_after in range(1, whole.effects + 1):
        driver = running(1)
        story(driver.world)
        driver.kill_after = kill_after
        driver.run(well)


@pytest.mark.parametrize("spec", [{}, {"replicas": 2}, {"durability": "relaxed", "replicas": 1}], ids=str)
def test_an_update_restarts_the_master_last(spec: dict[str, object]) -> None:
    driver = running(**spec)
    update(driver.world)
    driver.run(well)
    deleted = [line for line in driver.world.history if line.startswith("DeletePod")]
    assert len(deleted) == driver.world.replicas
    assert "name='g-0'" in deleted[-1]


def test_a_supervised_update_leaves_the_master_to_the_user() -> None:
    driver = running(updateStrategy="supervised")
    update(driver.world)
    driver.run(lambda world: [one for one, pod in world.pods.items() if pod.revision != world.template] == [0])
    status, why, message = reason(planned(known(driver)), "Progressing")
    assert (status, why) == ("True", "WaitingForRestart")
    assert message == "g-0 is always master: delete the pod to have it updated, sends wait until it is back"
    driver.world.pods[0].deleting = True
    driver.run(well)


def test_a_master_that_does_not_serve_is_updated_first() -> None:
    """Its slaves are not in sync without it, so nothing would ever be updated after it."""
    driver = running()
    update(driver.world)
    driver.reconcile()
    driver.world.settled = True
    dead = says(known(driver), 0, role=ReplicaRole.NONE, ready_reason="the log is shorter than it was")
    [deletion] = [action for action in planned(dead).actions if isinstance(action, DeletePod)]
    assert deletion.name == "g-0"
    assert deletion.message == "Deleting pod g-0 to update it: it has no role: the log is shorter than it was"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_replica_that_comes_back_after_it_was_scaled_down_is_the_same(policy: str) -> None:
    """With controllers its id is never used again, and its volume has to be deleted first."""
    driver = running(storage={"reclaimPolicy": policy})
    driver.world.edit(replicas=2)
    driver.run(well)
    assert (2 in driver.world.disks) == (policy == "Retain")
    driver.world.edit(replicas=3)
    driver.run(well)
    assert ids(driver.world) == {0: 0, 1: 1, 2: 2}


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_deleted_group_is_forgotten_by_itself(policy: str) -> None:
    driver = running(storage={"reclaimPolicy": policy})
    driver.world.delete()
    driver.run(lambda world: world.gone and not world.pods)
    assert not NEVER & set(done(driver))
    assert bool(driver.world.disks) == (policy == "Retain")


# What is refused


def test_the_master_is_not_rebuilt() -> None:
    driver = running()
    driver.world.annotate(names.ANNOTATION_REBUILD, "g-0")
    plan = planned(known(driver))
    expected = ("True", "RebuildRefused", "g-0 is the master: without failover no other replica takes its place")
    assert reason(plan, "Degraded") == expected
    assert actions_of(plan) == []


def test_a_master_whose_volume_would_go_with_its_pod_keeps_it() -> None:
    driver = running()
    update(driver.world)
    driver.world.delete_claim(0)
    for _ in range(50):
        driver.reconcile()
        driver.world.step()
    assert "DeletePod" not in done(driver)
    status, why, message = reason(planned(known(driver)), "Degraded")
    assert (status, why) == ("True", "VolumeBeingDeleted")
    assert message == "g-0 is always master and keeps its pod: its volume is deleted as soon as the pod stops"


def test_nothing_is_removed_while_no_sidecar_answers() -> None:
    driver = running()
    driver.world.edit(replicas=2, config={"fileReservedTime": "48"})
    driver.reconcile()
    driver.world.settled = True
    silent = seen(known(driver), {})
    plan = planned(silent)
    assert set(actions_of(plan)) == {"LabelPod"}
    assert reason(plan, "Available") == ("False", "NotRegistered", "no sidecar answers")
    assert reason(plan, "Degraded")[:2] == ("True", "GroupUnknown")


# What is reported


def test_the_status_is_what_the_sidecars_say() -> None:
    plan = planned(known(running()))
    assert plan.status is not None
    assert [plan.status[key] for key in ("phase", "master", "masterBrokerId", "masterEpoch", "inSync")] == [
        "Running",
        "g-0",
        0,
        1,
        "3/3",
    ]
    assert reason(plan, "Available")[1] == "MasterServes"
    assert "retiredBrokerIds" not in plan.status
    assert plan.requeue == ASK_SECONDS, "no event reports a change"


def lost(observed: ObservedGroup) -> ObservedGroup:
    """The master does not answer."""
    return seen(observed, {uid: one for uid, one in observed.sidecars.items() if uid != observed.pods[0].uid})


def without_pod(observed: ObservedGroup) -> ObservedGroup:
    return msgspec.structs.replace(lost(observed), pods=observed.pods[1:])


def without_role(observed: ObservedGroup) -> ObservedGroup:
    return says(observed, 0, role=ReplicaRole.NONE, ready_reason="name servers list 10.0.0.9:10911 with brokerId 0")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lost, "has no role: its sidecar does not answer"),
        (without_pod, "has no pod"),
        (without_role, "has no role: name servers list 10.0.0.9:10911 with brokerId 0"),
    ],
)
def test_a_missing_master_is_named_with_its_problem(
    change: Callable[[ObservedGroup], ObservedGroup], problem: str
) -> None:
    observed = known(running())
    plan = planned(change(observed))
    assert plan.status is not None
    assert "master" not in plan.status
    assert reason(plan, "Available") == ("False", "NoMaster", f"g-0 is always master and {problem}")
    assert actions_of(plan) == ["LabelPod"] * len([one for one in change(observed).pods if one.name == "g-0"])


def test_a_slave_that_acts_is_named() -> None:
    observed = lost(says(known(running(actingMaster="reads")), 1, acting_master=True))
    plan = planned(observed)
    assert plan.status is not None
    assert plan.status["actingMaster"] == "g-1"
    assert reason(plan, "ActingMaster")[1] == "ServesConsumers"
    assert (
        reason(plan, "Available")[2]
        == "g-0 is always master and has no role: its sidecar does not answer; g-1 serves consumers"
    )


def test_a_strict_master_alone_takes_nothing() -> None:
    plan = planned(says(known(running()), 0, sync_state_set=(0,)))
    assert reason(plan, "Available")[:2] == ("False", "TooFewInSync")


# The view


def test_a_view_is_made_of_answers_that_have_an_id() -> None:
    group = FixedWorld({}).group
    pods = [Pod(name=f"g-{ordinal}", ordinal=ordinal, uid=f"u{ordinal}") for ordinal in range(3)]
    starting = ReplicaView(cluster_name="DefaultCluster", broker_name="g")
    assert view_of_sidecars(group, pods, {}) is None
    assert view_of_sidecars(group, pods, {"u0": SidecarState(), "u1": SidecarState(replica=starting)}) is None
    slave = msgspec.structs.replace(starting, broker_id=1, role=ReplicaRole.SLAVE, address="a:1", max_offset=7)
    view = view_of_sidecars(group, pods, {"u1": SidecarState(broker_id=1, replica=slave)})
    assert view is not None
    assert (view.master_broker_id, view.master_address) == (0, "")
    [standing] = view.replicas
    assert (standing.broker_id, standing.address, standing.max_offset) == (1, "a:1", 7)
    assert (standing.liveness, standing.in_sync) == (Liveness.ALIVE, False)
