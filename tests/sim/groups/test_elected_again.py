"""A master that is elected again, after another epoch of which it has not heard: what slaves acknowledge in two epochs
is never added up. Each story is found where the step that prevents it is left out.
"""

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_sidecar.domain.replication.ha_slave import SlaveSession
from rocketmq_sidecar.domain.replication.mastership import Mastership
from tests.sim.checks import Violation
from tests.sim.groups.controllers import NAMES
from tests.sim.groups.scripts import PATIENT, acknowledging, acks, begun, elect_again, log_end, mastership, replaced

SEEDS = 6


def _hears_nothing(seed: int) -> None:
    """A master that hears its slaves only. One of them is elected, with less than the other, which follows it and
    truncates its log; the old master does not hear that this connection is closed. Then the old one is elected again,
    and the first slave follows it while it is still in the old epoch."""
    with acknowledging(seed, **PATIENT) as (world, master, slaves):
        (behind, ahead), network = slaves, world.network
        network.block({(master.name, behind.name)})
        world.until(lambda: acks(master).get(ahead.broker_id or 0, 0) > log_end(behind), 10)
        network.block({(ahead.name, master.name)} | {(name, master.name) for name in NAMES})
        epoch = replaced(world, behind, ahead)
        elect_again(world, master, epoch + 1)
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
        world.until(lambda: acks(master).get(ahead.broker_id or 0, 0) > log_end(behind), 10)
        world.clients_stop = True
        world.until(lambda: acks(master).get(ahead.broker_id or 0, 0) == log_end(master) > log_end(behind), 10)
        network.block({(ahead.name, master.name)})
        sidecar.pause()
        epoch = replaced(world, behind, ahead)
        elect_again(world, master, epoch + 1)
        sidecar.resume()
        network.heal({(behind.name, name) for name in NAMES} | {(master.name, behind.name)})
        world.until(lambda: begun(master) == epoch + 1 and behind.broker_id in acks(master), 10)
        world.schedule.run_until(world.schedule.now + 0.2)
        leads = mastership(master)
        assert leads is not None
        if ahead.broker_id in leads.sync_set.union:
            assert leads.confirm <= log_end(ahead), "confirmed, and a member of the SyncStateSet does not have it"
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
