"""AckedSurvives without a lease: a strict group whose controllers are away, its old masters that know nothing, and new
ones that die between two steps of their way. Each step of the argument in docs/architecture.md ("Without a lease") is
taken away once, and its absence is found.
"""

import gc
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import pytest

from rocketmq_controller.domain.requests import policy
from rocketmq_sidecar.domain.control.role import ReplicationState, RoleMachine
from rocketmq_sidecar.domain.replication import confirm, mastership
from rocketmq_sidecar.domain.replication.confirm import AckRule, members_hold
from rocketmq_sidecar.domain.replication.sync_set import SyncSet
from rocketmq_sidecar.replication.follower import Follower
from tests.sim.checks import Violation
from tests.sim.groups.checks import accepts
from tests.sim.groups.controllers import NAMES
from tests.sim.groups.replica import STEPS, SimReplica
from tests.sim.groups.scripts import acknowledging, both_ways, down, lose_controllers, restart_controllers
from tests.sim.groups.world import GroupWorld, run
from tests.sim.stories import run_all

CHUNKS, SEEDS = 4, 12
SECONDS = 10.0
FOUND = (24001752,)
"""Of 10,000: no one heard of an election but who was elected, and a slave followed the old master until the controllers
were back."""
PATIENCE = 240
"""Seeds within which a defect has to be found."""
_run = partial(run, outages=True, seconds=SECONDS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_promises_hold_while_controllers_come_and_go(chunk: int) -> None:
    run_all(_run, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    gc.collect()


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_was_broken_once(seed: int) -> None:
    _run(seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_whole_strict_group_continues_for_as_long_as_there_are_no_controllers(seed: int) -> None:
    with acknowledging(seed) as (world, master, _):
        epoch = max(world.checker.granted)
        lose_controllers(world)
        for _ in range(60):
            acked = len(world.checker.acked)
            world.schedule.run_until(world.schedule.now + 2)
            assert accepts(master)
            assert len(world.checker.acked) > acked
        restart_controllers(world)
        world.until(world.well, 30)
        assert (world.master(), max(world.checker.granted)) == (master, epoch)


@pytest.mark.parametrize("seed", range(4))
def test_a_member_that_is_cut_off_stops_the_sends_until_it_is_back(seed: int) -> None:
    """The set cannot shrink. The member needs no controller to follow again."""
    with acknowledging(seed) as (world, master, slaves):
        lose_controllers(world)
        world.schedule.run_until(world.schedule.now + 3)
        world.network.block(both_ways(master, slaves[0].name))
        world.schedule.run_until(world.schedule.now + 5)
        acked = len(world.checker.acked)
        for _ in range(20):
            world.schedule.run_until(world.schedule.now + 0.2)
            assert not accepts(master)
        assert len(world.checker.acked) == acked
        world.network.heal()
        world.until(lambda: accepts(master) and len(world.checker.acked) > acked, 10)
        restart_controllers(world)


@pytest.mark.parametrize("half", ["both", "sidecar"])
@pytest.mark.parametrize("seed", range(3))
def test_a_member_that_dies_stops_the_sends_until_the_controllers_are_back(half: str, seed: int) -> None:
    """One that starts again follows when it has registered, which it cannot without controllers. Then nothing is lost,
    and the master is the same one."""
    with acknowledging(seed) as (world, master, slaves):
        epoch = max(world.checker.granted)
        lose_controllers(world)
        world.schedule.run_until(world.schedule.now + 3)
        if half == "both":
            down(world, slaves[0], 1.0)
        else:
            assert slaves[0].sidecar is not None
            world.kill(slaves[0], slaves[0].sidecar, after=1.0)
        world.schedule.run_until(world.schedule.now + 5)
        acked = len(world.checker.acked)
        for _ in range(20):
            world.schedule.run_until(world.schedule.now + 0.5)
            assert not accepts(master)
        assert len(world.checker.acked) == acked
        restart_controllers(world)
        world.until(lambda: len(world.checker.acked) > acked, 15)
        world.until(world.well, 30)
        assert (world.master(), max(world.checker.granted)) == (master, epoch)


def _isolate(world: GroupWorld, master: SimReplica) -> None:
    """It learns nothing from the controllers, and they hear it."""
    world.network.block({(name, master.name) for name in NAMES})


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("step", STEPS)
def test_a_new_master_that_dies_before_a_step_takes_nothing_with_it(step: str, seed: int) -> None:
    """The old one, cut off from the controllers, continues; the new one had less than the third."""
    with acknowledging(seed, slave_timeout=3000) as (world, master, slaves):
        behind = world.rng.choice(slaves)
        world.stumble(behind, step)
        world.network.block({(master.name, behind.name)})
        world.schedule.run_until(world.schedule.now + 0.3)
        if seed % 3:
            _isolate(world, master)
        else:
            world.network.block(both_ways(master, *NAMES))
        world.elect(behind)
        world.until(lambda: world.stumbled > 0, 10)
        if seed % 2:
            lose_controllers(world)
        world.network.heal({(master.name, behind.name)})
        world.schedule.run_until(world.schedule.now + world.rng.uniform(0.1, 4))
        world.network.heal()
        restart_controllers(world)


def _who_is_there(own_id: int, own_max: int, members: AbstractSet[int], acks: Mapping[int, int]) -> int | None:
    return members_hold(own_id, own_max, members & acks.keys(), acks)


def _agreed_only(rule: AckRule, group: SyncSet, own: int, acks: Mapping[int, int]) -> tuple[int | None, int | None]:
    held = members_hold(group.own_id, own, group.members, acks)
    return (held if len(group.members) > 1 else None), held


async def _keeps_following(follower: Follower) -> None:
    """Only the writer lock is given back."""
    follower._lock.release()


def _not_in_the_set(elect: Callable[..., Any]) -> Callable[..., Any]:
    def elected(group: Any, view: Any, options: Any, *, preferred: Any = None) -> Any:
        return preferred if preferred in group.replicas else elect(group, view, options, preferred=preferred)

    return elected


def _forgets_what_it_asked_for(propose: Callable[..., Any]) -> Callable[..., Any]:
    def proposed(group: SyncSet, now: float, timeout: float, holders: AbstractSet[int]) -> frozenset[int] | None:
        wanted: frozenset[int] | None = propose(group, now, timeout, holders)
        group.union = group.union if wanted is None else wanted
        return wanted

    return proposed


def _prepares_at_once(become_master: Callable[..., Any]) -> Callable[..., Any]:
    def become(role: RoleMachine, *arguments: Any) -> Any:
        if role.replicating is ReplicationState.FOLLOWING:
            role.replicating = ReplicationState.IDLE
        return become_master(role, *arguments)

    return become


DEFECTS: dict[str, tuple[Any, str, Callable[..., Any], tuple[str, ...]]] = {
    "members that are not there are not waited for": (confirm, "members_hold", _who_is_there, ("AckedSurvives",)),
    "the set that was asked for does not count": (mastership, "offsets", _agreed_only, ("AckedSurvives",)),
    "an elected member continues to follow": (
        Follower,
        "stop",
        _keeps_following,
        ("AckedSurvives", "PrefixAligned", "WholeRecords", "OneWriter", "NoBugs", "QueuesComplete"),
    ),
    "the agreed set does not count while another is asked for": (
        SyncSet,
        "propose",
        _forgets_what_it_asked_for(SyncSet.propose),
        ("AckedSurvives",),
    ),
    "who is not in the set is elected": (
        policy,
        "elect",
        _not_in_the_set(policy.elect),
        ("AckedSurvives", "KeepsElectable", "MasterFromSyncSet"),
    ),
    "the broker gets the log from a replica that follows": (
        RoleMachine,
        "_become_master",
        _prepares_at_once(RoleMachine._become_master),
        ("NoBugs", "OneWriter"),
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_step_that_is_left_out_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, instead, broken = DEFECTS[defect]
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(Violation) as found:
        run_all(_run, range(PATIENCE))
    assert found.value.invariant in broken
