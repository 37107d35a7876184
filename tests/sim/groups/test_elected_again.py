"""A master that is elected again, after another epoch of which it has not heard: what slaves acknowledge in two epochs
is never added up. Each story is found where the step that prevents it is left out.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rocketmq_sidecar.domain.replication.ha_slave import SlaveSession
from rocketmq_sidecar.domain.replication.mastership import Mastership
from tests.sim.checks import Violation
from tests.sim.groups.controllers import NAMES
from tests.sim.groups.replica import SimReplica
from tests.sim.groups.scripts import acknowledging
from tests.sim.groups.world import GroupWorld

SEEDS = 6
PATIENT = {"slave_timeout": 30_000, "ha_housekeeping_interval": 20_000}
"""Neither sends nor connections time out during a story."""


def _mastership(master: SimReplica) -> Mastership | None:
    server = None if master.agent is None else master.agent.replication._server
    return None if server is None else server.mastership


def _acks(master: SimReplica) -> Mapping[int, int]:
    mastership = _mastership(master)
    return {} if mastership is None else mastership.acks


def _end(replica: SimReplica) -> int:
    """Of its log, as its sidecar has it."""
    return 0 if replica.agent is None else replica.agent.replication.max_offset


def _begun(replica: SimReplica) -> int | None:
    """The epoch that it has begun as master."""
    machine = None if replica.agent is None else replica.agent.machine
    return None if machine is None else machine.role.begun


def _replaced(world: GroupWorld, behind: SimReplica, ahead: SimReplica) -> int:
    """`behind` is elected and begins its epoch, `ahead` truncates its log to follow it; then the new master is cut off
    from the controllers, before it can request another set. Returns its epoch."""
    epoch = max(world.checker.granted) + 1
    cut_off: list[str] = []

    def dies_before(step: str) -> bool:
        if step == "1001":
            world.network.block({(behind.name, name) for name in NAMES})
            cut_off.append(step)
        return False

    behind.dies_before = dies_before
    world.elect(behind)
    world.until(lambda: bool(cut_off) and _begun(behind) == epoch and _end(ahead) == _end(behind), 5)
    behind.dies_before = lambda _step: False
    return epoch


def _elect_again(world: GroupWorld, master: SimReplica, epoch: int) -> None:
    world.elect(master)
    world.until(lambda: world.checker.group is not None and world.checker.group.master_epoch == epoch, 2)


def _hears_nothing(seed: int) -> None:
    """A master that hears its slaves only. One of them is elected, with less than the other, which follows it and
    truncates its log; the old master does not hear that this connection is closed. Then the old one is elected again,
    and the first slave follows it while it is still in the old epoch."""
    with acknowledging(seed, **PATIENT) as (world, master, slaves):
        (behind, ahead), network = slaves, world.network
        network.block({(master.name, behind.name)})
        world.until(lambda: _acks(master).get(ahead.broker_id or 0, 0) > _end(behind), 10)
        network.block({(ahead.name, master.name)} | {(name, master.name) for name in NAMES})
        epoch = _replaced(world, behind, ahead)
        _elect_again(world, master, epoch + 1)
        network.heal({(behind.name, name) for name in NAMES} | {(master.name, behind.name)})
        world.schedule.run_until(world.schedule.now + 1.5)
        network.heal()


def _skips_an_epoch(seed: int) -> None:
    """A master whose sidecar is stopped for a moment, as above; it learns of its second election and of no other. Then
    the slave that truncated its log is to become master."""
    with acknowledging(seed, **PATIENT) as (world, master, slaves):
        (behind, ahead), network, sidecar = slaves, world.network, master.sidecar
        assert sidecar is not None
        network.block({(master.name, behind.name)})
        world.until(lambda: _acks(master).get(ahead.broker_id or 0, 0) > _end(behind), 10)
        world.clients_stop = True
        world.until(lambda: _acks(master).get(ahead.broker_id or 0, 0) == _end(master) > _end(behind), 10)
        network.block({(ahead.name, master.name)})
        sidecar.pause()
        epoch = _replaced(world, behind, ahead)
        _elect_again(world, master, epoch + 1)
        sidecar.resume()
        network.heal({(behind.name, name) for name in NAMES} | {(master.name, behind.name)})
        world.until(lambda: _begun(master) == epoch + 1 and behind.broker_id in _acks(master), 10)
        world.schedule.run_until(world.schedule.now + 0.2)
        mastership = _mastership(master)
        assert mastership is not None
        if ahead.broker_id in mastership.sync_set.union:
            assert mastership.confirm <= _end(ahead), "confirmed, and a member of the SyncStateSet does not have it"
        world.elect(ahead)
        world.clients_stop = False
        world.schedule.after(0, world.client)
        world.schedule.run_until(world.schedule.now + 2)
        network.heal()


def _all(story: Callable[[int], None]) -> None:
    for seed in range(SEEDS):
        story(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("story", [_hears_nothing, _skips_an_epoch])
def test_acknowledgements_of_two_epochs_are_not_added_up(story: Callable[[int], None], seed: int) -> None:
    story(seed)


def _following_any_epoch(on_handshake: Callable[[SlaveSession, Any], object]) -> Callable[[SlaveSession, Any], object]:
    def follows(session: SlaveSession, master: Any) -> object:
        followed, session._followed = session._followed, master.last_epoch
        try:
            return on_handshake(session, master)
        finally:
            session._followed = followed

    return follows


def test_a_slave_that_follows_into_a_past_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlaveSession, "on_handshake", _following_any_epoch(SlaveSession.on_handshake))
    with pytest.raises(Violation) as found:
        _all(_hears_nothing)
    assert found.value.invariant == "AckedSurvives"


def test_a_master_that_skips_an_epoch_and_keeps_acknowledgements_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mastership, "continues_in", lambda *_: True)
    with pytest.raises(AssertionError, match="a member of the SyncStateSet does not have it"):
        _all(_skips_an_epoch)
