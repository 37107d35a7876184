"""What keeps the epochs of a strict group apart: a story for each step, which is repeated without it. Where two
steps prevent the same loss, the story holds without either of them and fails without both.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from rocketmq_broker.domain.role import Refusal, ReplicaRole
from rocketmq_controller.domain.requests import alter_sync_state_set
from rocketmq_formats.replica_link import Grant
from rocketmq_sidecar.domain.actions import Actions, BeginEpoch, SendToBroker
from rocketmq_sidecar.domain.control.role import BrokerState, RoleMachine
from rocketmq_sidecar.domain.replication.ha_slave import SlaveSession
from rocketmq_sidecar.domain.replication.mastership import Mastership
from rocketmq_sidecar.replication import replication
from tests.sim.checks import Violation
from tests.sim.groups.controllers import NAMES
from tests.sim.groups.replica import SimReplica
from tests.sim.groups.scripts import (
    PATIENT,
    acknowledging,
    acks,
    begun,
    both_ways,
    down,
    elect_again,
    log_end,
    mastership,
    replaced,
)
from tests.sim.groups.world import GroupWorld

SEEDS = 4


def _members(world: GroupWorld) -> frozenset[int]:
    return frozenset() if world.checker.group is None else world.checker.group.sync_state_set


def _acknowledges(world: GroupWorld, master: SimReplica) -> None:
    """It becomes master, and something new is acknowledged."""
    world.until(lambda: world.master() is master, 10)
    acked = len(world.checker.acked)
    world.until(lambda: len(world.checker.acked) > acked + 5, 10)


def _dies_while_it_writes_the_epoch(seed: int) -> None:
    """A slave with less than the master is elected. Its disk is slow, and its sidecar dies before the epoch is on it.
    Then the old master is elected again, which has never heard of that epoch."""
    with acknowledging(seed, **PATIENT) as (world, master, (behind, _)):
        world.network.block({(master.name, behind.name)})
        world.until(lambda: log_end(master) > log_end(behind) + 2000, 10)
        end = log_end(behind)

        def disk(delay: float) -> None:
            behind.host.disk_delay = delay

        def slow_disk(step: str) -> bool:
            if step == "BeginEpoch":  # only this write
                disk(8.0)
                world.schedule.after(0.01, lambda: disk(0.001))
            return False

        behind.dies_before = slow_disk
        world.elect(behind)
        _soon(world, lambda: log_end(behind) > end + 1000, 0.7)
        behind.dies_before = lambda _step: False
        assert behind.sidecar is not None
        world.kill(behind, behind.sidecar, after=0.1)
        world.elect(master)
        world.schedule.run_until(world.schedule.now + 1)
        world.network.heal()


def _proposes_too_late(seed: int) -> None:
    """A master proposes a set with a third replica. That arrives when it is master again, in its next epoch but one,
    and the third lacks what was acknowledged since."""
    with acknowledging(seed) as (world, master, (other, third)):
        down(world, third, 4)
        world.until(lambda: third.broker_id not in _members(world) and len(_members(world)) == 2, 10)
        to_controllers = {(master.name, name) for name in NAMES}
        proposed: list[str] = []

        def cut_off(step: str) -> bool:
            if step == "1001" and not proposed:
                world.network.block(to_controllers)
                proposed.append(step)
            return False

        master.dies_before = cut_off
        world.until(lambda: bool(proposed), 15)
        world.schedule.run_until(world.schedule.now + 0.05)
        world.network.block(both_ways(third, master.name, other.name))
        assert master.sidecar is not None
        world.kill(master, master.sidecar, after=0.2)
        world.network.blocked -= to_controllers  # for new connections; the old one holds what was sent
        world.elect(other)
        _acknowledges(world, other)
        world.elect(master)
        _acknowledges(world, master)
        assert len(_members(world)) == 2
        world.network.heal(set())
        world.schedule.run_until(world.schedule.now + 0.3)
        world.network.heal()


def _connects_again(seed: int) -> None:
    """A slave truncates its log in an epoch of which its master never hears, since its sidecar is stopped. That one is
    elected again and has not noticed the end of the slave's connection; the slave connects to it once more, and is cut
    off before it acknowledges anything. Then the master hears of its second election."""
    with acknowledging(seed, **PATIENT) as (world, master, (behind, ahead)):
        network, sidecar = world.network, master.sidecar
        assert sidecar is not None
        network.block({(master.name, behind.name)})
        world.until(lambda: acks(master).get(ahead.broker_id or 0, 0) > log_end(behind), 10)
        world.clients_stop = True
        world.until(lambda: acks(master).get(ahead.broker_id or 0, 0) == log_end(master) > log_end(behind), 10)
        before = _connection(master, ahead)
        network.block({(ahead.name, master.name)})
        sidecar.pause()
        epoch = replaced(world, behind, ahead)
        elect_again(world, master, epoch + 1)
        network.blocked -= {(ahead.name, master.name)}  # for new connections; the old one holds its end
        network.block({(name, master.name) for name in NAMES})
        sidecar.resume()
        assert ahead.sidecar is not None
        network.reset(ahead.sidecar)  # so it asks who is master
        _soon(world, lambda: _connection(master, ahead) not in {None, before}, 10)
        network.block(both_ways(ahead, master.name))
        network.heal({(master.name, behind.name), *both_ways(behind, *NAMES), *both_ways(master, *NAMES)})
        _soon(world, lambda: begun(master) == epoch + 1 and _confirmed(master) == log_end(master), 10)
        if _confirmed(master) > log_end(ahead) and ahead.broker_id in _members(world):
            raise Violation("AckedSurvives: confirmed, and a member of the SyncStateSet does not have it")
        world.clients_stop = False
        world.schedule.after(0, world.client)
        network.heal()


def _hears_too_late(seed: int) -> None:
    """A master is elected again, right after another one. A slave asks between the two elections and is answered when
    it has found its master once more, in the later epoch. Then it follows the other one."""
    with acknowledging(seed, **PATIENT) as (world, master, (other, slave)):
        network, epoch = world.network, max(world.checker.granted)
        world.clients_stop = True
        world.until(lambda: log_end(other) == log_end(slave) == log_end(master), 10)
        to_slave = {(name, slave.name) for name in NAMES}
        network.block(to_slave | both_ways(other, master.name))
        world.elect(other)
        world.until(lambda: begun(other) == epoch + 1 and begun(master) is None, 5)
        network.block({(name, other.name) for name in NAMES})
        world.elect(master)
        world.clients_stop = False
        world.schedule.after(0, world.client)
        acked = len(world.checker.acked)
        _soon(world, lambda: len(world.checker.acked) > acked, 0.4)
        network.heal(to_slave)
        network.block(to_slave)
        world.schedule.run_until(world.schedule.now + 0.3)
        network.heal()


def _soon(world: GroupWorld, what: Callable[[], bool], seconds: float) -> None:
    """Advance the time until `what`, for `seconds` at most; what follows comes at that very moment."""
    until = world.schedule.now + seconds
    while world.schedule.now < until and not what():
        world.schedule.run_until(world.schedule.now + 0.0002)


def _confirmed(master: SimReplica) -> int:
    leads = mastership(master)
    return 0 if leads is None else leads.confirm


def _connection(master: SimReplica, slave: SimReplica) -> object:
    """By which it has identified itself last."""
    server = None if master.agent is None else master.agent.replication._server
    return None if server is None else server._by_id.get(slave.broker_id or 0)


STORIES = (_dies_while_it_writes_the_epoch, _proposes_too_late, _connects_again, _hears_too_late)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("story", STORIES)
def test_the_promises_hold(story: Callable[[int], None], seed: int) -> None:
    story(seed)


# Steps left out


async def _in_background(work: Awaitable[Any], _: str) -> None:
    asyncio.ensure_future(work)  # noqa: RUF006 - the simulated loop keeps it


def _grants_at_once(begin: Callable[..., Actions]) -> Callable[..., Actions]:
    def begins(role: RoleMachine, wanted: Any, now: float, lease_until: float) -> Actions:
        actions = begin(role, wanted, now, lease_until)
        if lease_until <= now or not any(isinstance(action, BeginEpoch) for action in actions):
            return actions
        role.broker = BrokerState.MASTER
        return (*actions, SendToBroker(Grant(wanted.epoch, lease_until)))

    return begins


def _needs_nobody(refusal: Callable[..., Refusal | None]) -> Callable[..., Refusal | None]:
    def refuses(role: ReplicaRole, now: float) -> Refusal | None:
        why = refusal(role, now)
        return None if why is Refusal.TOO_FEW_IN_SYNC else why

    return refuses


def _of_any_master_epoch(wrong_master: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(group: Any, request: Any, body: Any) -> Any:
        return wrong_master(group, msgspec.structs.replace(request, master_epoch=group.master_epoch), body)

    return wrong


def _of_any_set_epoch(wrong_master: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(group: Any, request: Any, body: Any) -> Any:
        return wrong_master(
            group, request, msgspec.structs.replace(body, sync_state_set_epoch=group.sync_state_set_epoch)
        )

    return wrong


def _keeps_acks(on_handshake: Callable[..., None]) -> Callable[..., None]:
    def takes(master: Mastership, slave: Any) -> None:
        kept = dict(master.acks)
        on_handshake(master, slave)
        master.acks.update(kept)

    return takes


def _follows_any_epoch(on_handshake: Callable[..., Any]) -> Callable[..., Any]:
    def follows(session: SlaveSession, answer: Any) -> Any:
        if session._followed is not None:
            session._followed = max(session._followed, answer.last_epoch)
        return on_handshake(session, answer)

    return follows


Step = tuple[object, str, Callable[[Any], Any]]
"""Where it is, and what makes of it that which stands there instead."""
SERVES_LATER: Step = replication, "completed", lambda _: _in_background
GRANTS_LATER: Step = RoleMachine, "_begin", _grants_at_once
NEEDS_REPLICAS: Step = ReplicaRole, "refusal", _needs_nobody
COMPARES_MASTER_EPOCHS: Step = alter_sync_state_set, "_wrong_master", _of_any_master_epoch
COMPARES_SET_EPOCHS: Step = alter_sync_state_set, "_wrong_master", _of_any_set_epoch
FORGETS_ACKS: Step = Mastership, "on_handshake", _keeps_acks
AWAITS_EPOCH: Step = SlaveSession, "on_handshake", _follows_any_epoch
SKIPS_NO_EPOCH: Step = Mastership, "continues_in", lambda _: lambda *_: True

Defect = tuple[Callable[[int], None], tuple[Step, ...], tuple[str, ...]]
DEFECTS: dict[str, Defect] = {
    "slaves are served before the epoch is on disk": (
        _dies_while_it_writes_the_epoch,
        (SERVES_LATER,),
        ("Alive", "PrefixAligned", "WholeRecords"),
    ),
    "sends are accepted before the epoch is on disk, and with no other replica in sync": (
        _dies_while_it_writes_the_epoch,
        (GRANTS_LATER, NEEDS_REPLICAS),
        ("PrefixAligned",),
    ),
    "a proposal of an older masterEpoch is accepted, and of an older syncStateSetEpoch": (
        _proposes_too_late,
        (COMPARES_MASTER_EPOCHS, COMPARES_SET_EPOCHS),
        ("AckedSurvives",),
    ),
    "acknowledgements are kept over a handshake, and over an epoch that was skipped": (
        _connects_again,
        (FORGETS_ACKS, SKIPS_NO_EPOCH),
        ("AckedSurvives",),
    ),
    "a slave follows into an epoch of which it has not heard": (_hears_too_late, (AWAITS_EPOCH,), ("AckedSurvives",)),
}


def _leave_out(patch: pytest.MonkeyPatch, *steps: Step) -> None:
    for place, name, instead in steps:
        patch.setattr(place, name, instead(getattr(place, name)))


def _all(story: Callable[[int], None]) -> None:
    for seed in range(SEEDS):
        story(seed)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_step_that_is_left_out_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes two, each of them alone keeps the story well."""
    story, steps, broken = DEFECTS[defect]
    for step in steps if len(steps) > 1 else ():
        with monkeypatch.context() as patch:
            _leave_out(patch, step)
            _all(story)
    _leave_out(monkeypatch, *steps)
    with pytest.raises(Violation) as found:
        _all(story)
    assert found.value.invariant in broken
