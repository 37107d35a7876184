"""One replica's log loses what was acknowledged while its processes are down, and nothing else of its machine shows
that: it is not elected while those that have everything are away. Each rule that prevents it is taken away once."""

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_sidecar.evidence.log_proof import LogProof
from rocketmq_store.log_cut import LogCut
from tests.sim.checks import Violation
from tests.sim.groups.checks import proven
from tests.sim.groups.replica import SimAckedOffsetFile, SimReplica
from tests.sim.groups.scripts import acknowledging, down
from tests.sim.groups.world import GroupWorld

AWAY = 8.0
"""Seconds that the others are away."""


def _places(world: GroupWorld) -> list[int]:
    """Where acknowledged messages begin, in the log's order."""
    return sorted(start for start, _ in world.checker.acked.values())


def _tail_is_lost(world: GroupWorld, replica: SimReplica) -> None:
    """As by a tool that zeroed it; no reset of the machine explains that."""
    _zero(replica, _places(world)[-3], world.checker.acked_end)


def _record_is_damaged(world: GroupWorld, replica: SimReplica) -> None:
    """Within what was durable, and the files that would show how far that was are gone."""
    place = _places(world)[-6]
    _zero(replica, place, place + 8)
    replica.disk.acked = 0
    replica.disk.checkpoint[:] = replica.disk.durable_checkpoint[:] = bytes(len(replica.disk.checkpoint))


def _zero(replica: SimReplica, start: int, end: int) -> None:
    disk = replica.disk
    for segment in disk.segments.values():
        for image in (segment.image, segment.durable):
            low, high = max(start - segment.start, 0), min(end - segment.start, len(image))
            if low < high:
                image[low:high] = bytes(high - low)
    disk.changed(start)


def _comes_back_alone(seed: int, lose: Callable[[GroupWorld, SimReplica], None]) -> None:
    with acknowledging(seed) as (world, master, slaves):
        world.until(lambda: len(world.checker.acked) > 25, 30)
        world.clients_stop = True
        loser = slaves[0]
        world.checker.ever_lost = True
        for replica in (master, slaves[1]):
            down(world, replica, AWAY)
        down(world, loser, 1.0)
        world.checker.cut.add(loser.name)
        lose(world, loser)
        world.clients_stop = False
        world.schedule.run_until(world.schedule.now + AWAY - 1)
        if world.master() is loser:
            raise Violation(f"AckedSurvives: {loser.name} is elected and lacks what was acknowledged")


STORIES = {"a lost tail": _tail_is_lost, "a damaged record": _record_is_damaged}


@pytest.mark.parametrize("story", STORIES)
def test_a_replica_that_lost_what_was_acknowledged_waits_for_the_others(story: str) -> None:
    _comes_back_alone(0, STORIES[story])


@pytest.mark.parametrize(
    ("place", "name", "instead", "story"),
    [
        (SimAckedOffsetFile, "raise_to", lambda *_: None, "a lost tail"),
        (LogCut, "read", lambda _: None, "a damaged record"),
    ],
    ids=[".broker.acked is not written", ".log.cut is not read"],
)
def test_a_rule_that_is_taken_away_is_missed(
    place: type, name: str, instead: Callable[..., Any], story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(Violation) as found:
        _comes_back_alone(0, STORIES[story])
    assert found.value.invariant == "AckedSurvives"


def _all_lose_the_tail(seed: int) -> None:
    with acknowledging(seed) as (world, _, _):
        world.until(lambda: len(world.checker.acked) > 25, 30)
        end, lost_from = world.checker.acked_end, _places(world)[-3]
        world.checker.ever_lost = True
        for replica in world.replicas:
            world.checker.cut.add(replica.name)
            down(world, replica, world.rng.uniform(0.1, 3))
            _zero(replica, lost_from, end)
        acked = {one.name: one.disk.acked for one in world.replicas}
        world.checker.give_up(lost_from)
        world.until(lambda: world.well() and all(map(proven, world.replicas)), 60)
        noted = {one.name: one.disk.given_up for one in world.replicas}
        for replica in world.replicas:
            down(world, replica, 0.5)
    for name, notes in noted.items():
        if [(one.start, one.end) for one in notes] != [(lost_from, acked[name])]:
            raise Violation(f"LossesNoted: {name} has {notes}, lost is {lost_from} to {acked[name]}")
    assert len({one.epoch for notes in noted.values() for one in notes}) == 1
    assert {one.name: one.disk.given_up for one in world.replicas} == noted


@pytest.mark.parametrize("seed", range(4))
def test_what_all_have_lost_is_noted_and_stays_noted(seed: int) -> None:
    _all_lose_the_tail(seed)


def test_a_loss_that_is_forgotten_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogProof, "give_up", lambda *_: None)
    with pytest.raises(Violation) as found:
        _all_lose_the_tail(0)
    assert found.value.invariant == "LossesNoted"
