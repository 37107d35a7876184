"""100 stories of a broker group in trouble, each from its seed, with the invariants checked after every turn of any
of its processes; and proof that the checks notice what they are for. .ci/run tells others each day (`make sim`).

A failing seed is printed with its story; `python -m tests.sim --kind groups --seed N` tells it again.
"""

import gc
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_controller.domain.requests import elect_master as election
from rocketmq_controller.domain.requests import policy as elect
from rocketmq_sidecar.control.meta_files import IdentityFiles, SavedIdentity
from rocketmq_sidecar.domain.control.holds import Holds
from rocketmq_sidecar.domain.control.unfollowed import Unfollowed
from rocketmq_sidecar.domain.replication import ha_slave, mastership
from rocketmq_sidecar.domain.replication.confirm import offsets
from rocketmq_sidecar.domain.replication.mastership import CatchUpWatch, Mastership
from rocketmq_sidecar.domain.replication.sync_set import SyncSet
from rocketmq_sidecar.evidence.boot_file import BootFile
from rocketmq_sidecar.evidence.log_mark import LogMark
from rocketmq_sidecar.replication.epoch_store import EpochStore
from tests.sim.checks import Violation
from tests.sim.groups.scripts import acknowledging, down
from tests.sim.groups.world import GroupWorld, finish, run, staged
from tests.sim.stories import run_all

CHUNKS, SEEDS = 8, 12
GENTLE_CHUNKS = 4
PATIENCE = 200
"""Seeds within which a defect has to be found."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_promises_hold_in_every_story(chunk: int) -> None:
    run_all(run, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    gc.collect()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(GENTLE_CHUNKS))
def test_hand_overs_and_orderly_ends_lose_nothing_whatever_the_durability(chunk: int) -> None:
    run_all(partial(run, gentle=True), range(chunk * SEEDS, (chunk + 1) * SEEDS))
    gc.collect()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1795490882, id="a member that lost its log waits for a poll"),
        pytest.param(40001201, id="confirmed, not yet acknowledged, and lost with the power of all"),
        pytest.param(40001432, id="a relaxed master with a whole log that no other has"),
        pytest.param(40003320, id="whole after a power cut, without knowing it"),
    ],
)
def test_these_were_false_alarms(seed: int) -> None:
    run(seed)


def test_a_seed_is_the_same_story_every_time() -> None:
    assert run(3) == run(3)


@pytest.mark.parametrize("seed", range(5))
def test_slaves_that_were_down_while_their_master_died_for_good_are_electable(seed: int) -> None:
    with acknowledging(seed) as (world, master, slaves):
        for slave in slaves:
            down(world, slave, 5)
        world.schedule.run_until(world.schedule.now + 3)
        world.bury(master)


@pytest.mark.parametrize("seed", range(5))
def test_the_third_is_elected_when_two_masters_die_one_after_the_other(seed: int) -> None:
    with acknowledging(seed) as (world, master, slaves):
        down(world, master, 12)
        world.until(lambda: world.master() in slaves, 5)
        second = world.master()
        assert second is not None
        down(world, second, 12)
        world.until(lambda: world.master() not in {None, second}, 5)


def _no_slave_reaches_the_master(seed: int) -> None:
    """It and its slaves see the controllers, the slaves see each other: one of them takes its place."""
    with acknowledging(seed) as (world, master, slaves):
        pairs = {(master.name, slave.name) for slave in slaves}
        world.network.block(pairs | {(to, one) for one, to in pairs})
        world.until(lambda: world.master() in slaves, 8)
        acked = len(world.checker.acked)
        world.until(lambda: len(world.checker.acked) > acked, 5)
        world.network.heal()


@pytest.mark.parametrize("seed", range(4))
def test_a_master_that_no_slave_reaches_makes_room_for_one_of_them(seed: int) -> None:
    _no_slave_reaches_the_master(seed)


def test_a_master_that_keeps_its_place_without_a_follower_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unfollowed, "step", lambda *_: ())
    with pytest.raises(Violation) as found:
        _no_slave_reaches_the_master(0)
    assert found.value.invariant == "Alive"


@pytest.mark.parametrize("seed", range(2))
def test_mastership_circulates_slowly_without_any_follower(seed: int) -> None:
    with acknowledging(seed) as (world, _, _):
        names = [one.name for one in world.replicas]
        world.network.block({(one, other) for one in names for other in names if one != other})
        epoch = max(world.checker.granted)
        world.schedule.run_until(world.schedule.now + 60)
        assert 1 <= max(world.checker.granted) - epoch <= 12
        world.network.heal()


@contextmanager
def _before_power_cut(seed: int, flush: str = "ASYNC_FLUSH", **options: Any) -> Iterator[GroupWorld]:
    """Three replicas that acknowledge, strict if `options` do not say otherwise, then what the test does, then all must
    be well."""
    options = {"durability": "strict", "flush_disk_type": flush, "flush_interval_commit_log": 500} | options
    with staged(seed, replicas=3, **options) as world:
        world.schedule.after(0, world.client)
        world.until(world.well, 30)
        world.until(lambda: len(world.checker.acked) > 25, 30)
        yield world
        finish(world)


def _cut_all(seed: int, flush: str = "ASYNC_FLUSH") -> int:
    """How many replicas had acknowledged what none has any longer; each has noted that."""
    lost: dict[str, tuple[int, int]] = {}
    with _before_power_cut(seed, flush) as world:
        for replica in list(world.replicas):
            world.power_cut(replica, after=world.rng.uniform(0.1, 3))
        if not world.sync:
            kept = world.checker.kept()
            lost = {one.name: (kept, one.disk.acked) for one in world.replicas if one.disk.acked > kept}
            world.checker.give_up(kept)
    noted = {one.name: (note.start, note.end) for one in world.replicas for note in one.disk.given_up}
    if noted != lost:
        raise Violation(f"LossesNoted: {noted}, lost are {lost}")
    return len(lost)


def _cut_slaves(seed: int, *, master_dies_after: float = 0, **options: Any) -> None:
    with _before_power_cut(seed, **options) as world:
        master = world.master()
        assert master is not None
        for replica in list(world.replicas):
            if replica is not master:
                world.power_cut(replica, after=master_dies_after + world.rng.uniform(0.1, 3))
        world.schedule.run_until(world.schedule.now + master_dies_after)
        down(world, master, world.rng.uniform(0.1, 4))


def _cuts(seeds: int) -> None:
    for seed in range(seeds):
        _cut_slaves(seed)
        _cut_all(seed)


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_of_all_takes_only_what_no_disk_has(seed: int) -> None:
    _cut_all(seed)


def test_some_of_these_power_cuts_take_what_was_acknowledged() -> None:
    assert sum(_cut_all(seed) for seed in range(4)) > 0


@pytest.mark.parametrize("seed", range(8))
def test_with_sync_flush_a_power_cut_of_all_takes_nothing(seed: int) -> None:
    _cut_all(seed, "SYNC_FLUSH")


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_of_the_slaves_takes_nothing_from_a_master_that_was_only_killed(seed: int) -> None:
    _cut_slaves(seed)


@pytest.mark.parametrize("seed", range(8))
def test_nor_where_relaxed_replicas_acknowledge_what_all_in_sync_have(seed: int) -> None:
    """The controllers miss the slaves first: a relaxed election leaves no one but the elected one in the set, so it
    must not elect one that has lost power and was not missed yet."""
    _cut_slaves(
        seed,
        master_dies_after=1.0,
        durability="relaxed",
        all_ack_in_sync_state_set=True,
        ha_max_time_slave_not_catchup=5000,
    )


@pytest.mark.parametrize(
    ("place", "name", "instead", "broken"),
    [
        (BootFile, "begin", lambda *_, **__: None, "Alive"),
        (elect, "_proven", lambda _group, _view, candidates: candidates, "PrefixAligned"),
    ],
    ids=["a power cut is not noticed", "who comes back first is elected"],
)
def test_a_defect_is_found_by_power_cuts(
    place: Any, name: str, instead: Callable[..., Any], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(Violation) as found:
        _cuts(8)
    assert found.value.invariant == broken


def _forgetful(store: EpochStore, epochs: Any) -> None:
    store.epochs = epochs


def _run_all(seeds: int, *, gentle: bool = False) -> None:
    for seed in range(seeds):
        run(seed, gentle=gentle)


def _all_caught_up(watch: CatchUpWatch, master: Mastership) -> tuple[frozenset[int], bool] | None:
    now = frozenset(master.acks), True
    before, watch._reported = watch._reported, now
    return None if now == before else now


def _gives_up(group: SyncSet, now: float, timeout: float, holders: AbstractSet[int]) -> frozenset[int] | None:
    there = {one for one in group.members if now - group._caught_up.get(one, float("-inf")) <= timeout}
    wanted = frozenset({group.own_id, *there, *(group.joins.keys() & holders)})
    group.present, group.union = len(wanted), group.union | wanted
    return None if wanted == group.members else wanted


DEFECTS: dict[str, tuple[Any, str, Callable[..., Any], tuple[str, ...]]] = {
    "acknowledged before anybody else has it": (
        mastership,
        "offsets",
        lambda rule, group, own, acks: (own, offsets(rule, group, own, acks)[1]),
        ("AckedSurvives",),
    ),
    "answered before it is acknowledged": (ReplicaRole, "releasable", lambda *_: 2**62, ("AckedSurvives",)),
    "logs that part are not cut": (
        ha_slave,
        "consistent_point",
        lambda _epochs, _start, end, master: min(end, master.max_offset),
        ("AckedSurvives", "PrefixAligned", "QueuesComplete", "Alive", "WholeRecords"),
    ),
    "anybody connected is in sync": (Mastership, "qualifies", lambda *_: True, ("AckedSurvives",)),
    "epochs are not written": (
        EpochStore,
        "save_now",
        _forgetful,
        ("AckedSurvives", "PrefixAligned", "QueuesComplete", "Alive", "WholeRecords"),
    ),
    "an emptied log is not noticed": (LogMark, "missing", lambda *_, **__: None, ("AckedSurvives",)),
    "an election gives up all but the winner": (
        election,
        "_members",
        lambda _group, master, **_: frozenset((master,)),
        ("Alive", "KeepsElectable"),
    ),
    "a master that is alone gives up the others": (SyncSet, "propose", _gives_up, ("KeepsElectable",)),
    "the identity is not read": (IdentityFiles, "load", lambda _: SavedIdentity(None, None), ("IdentityForever",)),
}


GENTLE_DEFECTS: dict[str, tuple[Any, str, Callable[..., Any], tuple[str, ...]]] = {
    "who is elected need not have caught up": (CatchUpWatch, "check", _all_caught_up, ("AckedSurvives",)),
    "the broker is not told to refuse sends": (Holds, "next", lambda _, *, handing_over: None, ("Fenced",)),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", GENTLE_DEFECTS)
def test_a_defect_is_found_without_anything_that_kills(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, instead, broken = GENTLE_DEFECTS[defect]
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(Violation) as found:
        _run_all(PATIENCE, gentle=True)
    assert found.value.invariant in broken


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, instead, broken = DEFECTS[defect]
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(Violation) as found:
        _run_all(PATIENCE)
    assert found.value.invariant in broken
