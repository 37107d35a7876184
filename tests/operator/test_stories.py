"""Whole stories in the model world: many orders of events, and an operator killed after each single effect."""

from collections.abc import Callable

import pytest

from rocketmq_resources import names
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import BAD_IMAGE, World

SEEDS = range(6)


def running(seed: int, **spec: object) -> Driver:
    """A group that has come up."""
    driver = Driver(World({"replicas": 3, **spec}, seed=seed))
    driver.run(well)
    driver.world.history.clear()
    driver.effects = 0
    return driver


def ids(world: World) -> dict[int, int | None]:
    return {ordinal: disk.broker_id for ordinal, disk in world.disks.items()}


Story = Callable[[World], None]


def update(world: World) -> None:
    world.edit(config={"fileReservedTime": "48"})


def restart(world: World) -> None:
    world.annotate(names.ANNOTATION_RESTARTED_AT, "2026-11-21T19:00:00Z")


def grow(world: World) -> None:
    world.edit(replicas=5)


def shrink(world: World) -> None:
    world.edit(replicas=2)


def shrink_and_update(world: World) -> None:
    world.edit(replicas=2, config={"fileReservedTime": "48"})


def rebuild(world: World) -> None:
    assert world.master is not None
    slave = next(ordinal for ordinal in world.disks if ordinal != world.ordinal_of_id(world.master))
    world.annotate(names.ANNOTATION_REBUILD, f"g-{slave}")


def lose_a_claim(world: World) -> None:
    world.delete_claim(1)


def larger(world: World) -> None:
    world.edit(storage={"size": "20Gi"})


def fence(world: World) -> None:
    world.edit(fenced=True)


def hibernate(world: World) -> None:
    world.edit(hibernated=True)


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (update, restart, grow, shrink, shrink_and_update, rebuild, lose_a_claim, larger, fence, hibernate)
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_a_change_is_carried_out_in_any_order_of_events(story: Story, seed: int) -> None:
    driver = running(seed)
    story(driver.world)
    driver.run(well)


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


@pytest.mark.parametrize("seed", SEEDS)
def test_an_update_keeps_every_id_and_replaces_every_pod_once(seed: int) -> None:
    driver = running(seed)
    before, pods = ids(driver.world), {pod.uid for pod in driver.world.pods.values()}
    update(driver.world)
    driver.run(well)
    assert ids(driver.world) == before
    assert not pods & {pod.uid for pod in driver.world.pods.values()}
    deleted = [line for line in driver.world.history if line.startswith("DeletePod")]
    assert len(deleted) == 3
    assert driver.world.cleaned == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("before", "after"), [("off", "reads"), ("reads", "readsAndEscape"), ("readsAndEscape", "off")]
)
def test_another_acting_master_restarts_one_replica_after_the_other_and_the_master_last(
    seed: int, before: str, after: str
) -> None:
    """`Driver` sees to it that no two are away and that the master hands over first."""
    driver = running(seed, actingMaster=before)
    world = driver.world
    assert world.master is not None
    master = f"g-{world.ordinal_of_id(world.master)}"
    world.edit(actingMaster=after)
    driver.run(well)
    deleted = [line.split("'")[1] for line in world.history if line.startswith("DeletePod(name=")]
    assert sorted(deleted) == ["g-0", "g-1", "g-2"]
    assert deleted[-1] == master


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_wakes_as_it_was_put_to_sleep(seed: int) -> None:
    driver = running(seed)
    before = ids(driver.world)
    hibernate(driver.world)
    driver.run(well)
    assert ("PodDisruptionBudget", "g") not in driver.world.objects
    assert driver.world.status["phase"] == "Hibernated"
    driver.world.edit(hibernated=False)
    driver.run(well)
    assert ids(driver.world) == before
    assert ("PodDisruptionBudget", "g") in driver.world.objects


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_that_wakes_with_fewer_replicas_first_runs_the_newest_copies(seed: int) -> None:
    driver = running(seed, replicas=5)
    driver.world.edit(hibernated=True)
    driver.run(well)
    driver.world.edit(hibernated=False, replicas=2)
    driver.run(well)
    assert len(driver.world.records) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_scaled_away_ids_are_cleaned_and_never_given_again(seed: int) -> None:
    driver = running(seed, replicas=5, storage={"reclaimPolicy": "Delete"})
    first = set(driver.world.records)
    driver.world.edit(replicas=3)
    driver.run(well)
    assert len(driver.world.cleaned) == 2
    assert sorted(driver.world.disks) == [0, 1, 2]
    driver.world.edit(replicas=5)
    driver.run(well)
    assert len(first | set(driver.world.records)) == 7
    assert driver.world.status["retiredBrokerIds"] == sorted(driver.world.cleaned)


def test_retained_volumes_of_forgotten_replicas_stand_in_the_way_until_they_are_deleted() -> None:
    driver = running(3, replicas=4)
    driver.world.edit(replicas=3)
    driver.run(well)
    assert 3 in driver.world.disks
    driver.world.edit(replicas=4)
    driver.run(lambda world: world.replicas == 3)
    assert driver.world.status["phase"] == "Degraded"
    assert "data-g-3" in str(driver.world.status["phaseReason"])
    driver.world.delete_claim(3)
    driver.run(well)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rebuilt_replica_has_a_new_id_and_the_old_one_is_forgotten(seed: int) -> None:
    driver = running(seed)
    before = ids(driver.world)
    rebuild(driver.world)
    driver.run(well)
    after = ids(driver.world)
    changed = [ordinal for ordinal in before if before[ordinal] != after[ordinal]]
    assert len(changed) == 1
    assert driver.world.cleaned == [before[changed[0]]]
    assert len(driver.world.records) == 3
    metadata = driver.world.body["metadata"]
    assert isinstance(metadata, dict)
    assert names.ANNOTATION_REBUILD not in metadata["annotations"]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_only_slave_of_a_strict_group_is_rebuilt(seed: int) -> None:
    """Its master, without other slaves, keeps it in the SyncStateSet; its volume can still be deleted."""
    driver = running(seed, replicas=2)
    rebuild(driver.world)
    driver.run(well)


def test_the_master_is_not_rebuilt() -> None:
    driver = running(2)
    world = driver.world
    assert world.master is not None
    world.annotate(names.ANNOTATION_REBUILD, f"g-{world.ordinal_of_id(world.master)}")
    driver.run(lambda world: world.status["phase"] == "Degraded")
    assert "RebuildRefused" in {one["reason"] for one in world.status["conditions"]}
    assert not [line for line in world.history if line.startswith("Delete")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bad_image_stops_after_one_replica_and_the_next_edit_mends_it(seed: int) -> None:
    driver = running(seed)
    driver.world.edit(image={"broker": BAD_IMAGE})
    driver.run(lambda world: any(pod.revision in world.bad_templates for pod in world.pods.values()))
    serving = [ordinal for ordinal in driver.world.pods if driver.world.is_ready(ordinal)]
    assert len(serving) == 2
    driver.world.edit(image={})
    driver.run(well)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_that_never_started_is_mended_by_an_edit(seed: int) -> None:
    driver = Driver(World({"replicas": 3, "image": {"broker": BAD_IMAGE}}, seed=seed))
    driver.run(lambda world: len(world.pods) == 3)
    driver.world.edit(image={})
    driver.run(well)


def test_supervised_waits_for_a_switchover() -> None:
    driver = running(4, updateStrategy="supervised")
    world = driver.world
    master = world.master
    update(world)
    driver.run(lambda world: world.status["phase"] == "Updating")
    assert world.master == master
    assert "WaitingForSwitchover" in {one["reason"] for one in world.status["conditions"]}
    assert sum(pod.revision == world.template for pod in world.pods.values()) == 2
    assert master is not None
    other = next(one for one in world.in_sync if one != master)
    world._elect(other)
    driver.run(well)


def test_two_replicas_that_both_have_to_be_in_sync_are_updated_all_the_same() -> None:
    driver = running(5, replicas=2)
    update(driver.world)
    driver.run(well)


def test_a_single_replica_is_restarted_in_place() -> None:
    driver = running(6, replicas=1, durability="relaxed")
    update(driver.world)
    driver.run(well)
    assert not [line for line in driver.world.history if line.startswith("HandOver")]


def test_fence_reaches_every_sidecar_and_is_taken_back() -> None:
    driver = running(7)
    fence(driver.world)
    driver.run(well)
    assert all(disk.fenced for disk in driver.world.disks.values())
    driver.world.edit(fenced=False)
    driver.run(well)
    assert not any(disk.fenced for disk in driver.world.disks.values())


def test_a_paused_group_is_left_alone_and_its_status_updated() -> None:
    driver = running(8)
    driver.world.edit(paused=True, replicas=5, config={"fileReservedTime": "48"})
    driver.run(lambda world: world.replicas == 3)
    assert driver.world.history == []
    driver.world.edit(paused=False)
    driver.run(well)


@pytest.mark.parametrize("seed", SEEDS)
def test_volumes_grow_and_the_stateful_set_is_made_again_around_its_pods(seed: int) -> None:
    driver = running(seed)
    pods = {pod.uid for pod in driver.world.pods.values()}
    larger(driver.world)
    driver.run(well)
    assert {disk.size for disk in driver.world.disks.values()} == {20 * 2**30}
    assert pods == {pod.uid for pod in driver.world.pods.values()}
    driver.world.edit(replicas=4)
    driver.run(well)
    assert driver.world.disks[3].size == 20 * 2**30


def test_a_class_that_does_not_expand_is_reported_and_replicas_are_rebuilt_into_larger_volumes() -> None:
    driver = running(9)
    world = driver.world
    world.expandable = False
    larger(world)
    update(world)
    driver.run(lambda world: all(pod.revision == world.template for pod in world.pods.values()))
    assert "StorageNotExpandable" in {one["reason"] for one in world.status["conditions"]}
    for _ in range(3):
        small = [ordinal for ordinal, disk in world.disks.items() if disk.size < 20 * 2**30]
        assert world.master is not None
        slaves = [ordinal for ordinal in small if ordinal != world.ordinal_of_id(world.master)]
        if not slaves:
            world._elect(next(one for one in sorted(world.in_sync) if one != world.master))
            driver.run(well)
            slaves = small
        world.annotate(names.ANNOTATION_REBUILD, f"g-{slaves[0]}")
        driver.run(well)
    assert {disk.size for disk in world.disks.values()} == {20 * 2**30}
    assert world.status["phase"] == "Running"


@pytest.mark.parametrize("reachable", [True, False])
def test_deletion_with_delete_forgets_the_group_or_gives_up_in_time(reachable: bool) -> None:
    driver = running(10, storage={"reclaimPolicy": "Delete"})
    world = driver.world
    driver.now = 1_700_000_000.0
    world.reachable = reachable
    world.delete()
    driver.run(lambda world: world.gone)
    assert bool(world.records) != reachable
    assert driver.now >= 1_700_000_120.0 or reachable
    assert not world.disks


def test_deletion_with_retain_holds_nothing_up() -> None:
    driver = running(11)
    driver.world.delete()
    assert driver.world.gone
    assert len(driver.world.disks) == 3


def wreck(world: World) -> None:
    """A random fault or user action. Only the operator's own actions have to keep the guarantees."""
    dice = world.random
    pods = [ordinal for ordinal, pod in world.pods.items() if not pod.deleting]
    match dice.randrange(8):
        case 0 if pods:
            world.crash(dice.choice(pods))
        case 1 if pods:
            world.pods[dice.choice(pods)].deleting = True
        case 2:
            world.reachable = not world.reachable
        case 3:
            world.edit(replicas=dice.choice([2, 3, 4, 5]))
        case 4:
            world.edit(config={"fileReservedTime": str(dice.randrange(10, 99))})
        case 5:
            world.edit(hibernated=dice.random() < 0.3)
        case 6:
            world.edit(fenced=dice.random() < 0.3)
        case 7 if pods:
            world.annotate(names.ANNOTATION_REBUILD, f"g-{dice.choice(pods)}")


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_nothing_acknowledged_is_lost_and_all_is_well_in_the_end(seed: int) -> None:
    driver = running(seed, storage={"reclaimPolicy": "Delete"})
    driver.churn(300, wreck, often=0.1)
    driver.world.reachable = True
    driver.world.edit(hibernated=False, fenced=False)
    metadata = driver.world.body["metadata"]
    assert isinstance(metadata, dict)
    metadata["annotations"] = {}
    driver.run(well)
