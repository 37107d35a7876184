"""Drives the control machine: feeds it what happens and does what it asks for, with the links, the identity files and
replication. Built by `app`.

Machine events happen in the event loop, one after another; an action that leads to the next event at once is queued,
never nested.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

import structlog

from rocketmq_formats.broker_identity import IdentityError
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader, SyncStateSet
from rocketmq_formats.replica_link import Held, Hello, Prepared, Released, RoleNotice
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.broker_side import BrokerSide
from rocketmq_sidecar.controller_link import ControllerLink
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Ask,
    Beat,
    Disconnect,
    ForgetApplied,
    HandedOver,
    Note,
    SaveApplied,
    SaveIdentity,
    Stored,
    Tell,
)
from rocketmq_sidecar.domain.fence import Fence
from rocketmq_sidecar.domain.machine import STOP_HAND_OVER, ControlMachine
from rocketmq_sidecar.meta_files import IdentityFiles, Kept
from rocketmq_sidecar.replicator import ReplicationPort, Replicator
from rocketmq_sidecar.settings import SidecarSettings
from rocketmq_sidecar.waiting import Waiting

log = structlog.get_logger(__name__)

LOAD_RETRY = 2.0
"""Seconds between two looks at identity files that were refused: somebody has to put them right."""
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FENCE_PATIENCE = 2.0
"""Seconds that a broker may take to do what it was told about refusing sends."""
STOP_PATIENCE = STOP_HAND_OVER + 2.0
"""Seconds that an orderly end waits for a hand-over and for the broker to let go of its mastership."""


def log_note(note: Note) -> None:
    """Write the line that the machine wants written."""
    log.log(_LEVELS[note.level], note.text, **note.values)


class Agent:
    """One per process; implements `broker_side.BrokerEvents` and takes replication's callbacks that concern roles."""

    def __init__(
        self,
        settings: SidecarSettings,
        make_replication: "Callable[[Agent], ReplicationPort]",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is opened yet. Needs a running event loop. `make_replication` gets this agent for its callbacks."""
        self.settings = settings
        self.machine: ControlMachine | None = None
        self.fatal: BaseException | None = None
        """What a bug raised; the process has to end, since the state of the replica is not known."""
        self.failed = asyncio.Event()
        self.trouble: str | None = "the identity files have not been read yet"
        """What keeps the machine from existing, or replication from following, until an operator helps."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._files = IdentityFiles(
            settings.root,
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            java_file=settings.java_identity_file,
        )
        self.controllers = ControllerLink()
        self.broker = BrokerSide(settings, self, lambda: self.replication, clock)
        self.replication = make_replication(self)
        self._replicator = Replicator(
            self.replication,
            on_opened=self._opened,
            on_begun=self._begun,
            on_stopped=self._stopped,
            on_failed=self._fail,
        )
        self._events: deque[Callable[[ControlMachine], Actions]] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._rested = asyncio.Event()
        self._waiting = Waiting()
        self._fenced: Fence | None = None
        self.stopping = False

    async def start(self, fence: Fence | None = None) -> None:
        """Read the identity (waiting for an operator if it is refused), then let the broker in, with the order to
        refuse sends if there is one.

        Raises:
            OSError: the HA port is taken, or the socket cannot be made.
            ReplicationError: the epoch file is unreadable.
        """
        self._fenced = fence
        kept = await self._load()
        self.machine = ControlMachine(
            self.settings.options, identity=kept.identity, applied=kept.applied, fence=self._fenced
        )
        self.trouble = None
        self._replicator.start()
        await self.replication.start()
        await self.broker.link.start()

    async def stop(self) -> None:
        """Hand over if master, then leave: the controllers elect another at the latest as the connections close."""
        self.stopping = True
        if self.machine is not None and self.fatal is None:
            was_master = self.machine.role.master_of
            self._event(lambda machine: machine.on_stop(self._clock()))
            try:
                async with asyncio.timeout(STOP_PATIENCE):
                    await self._rested.wait()
                    if (farewell := self.machine.farewell(self._clock())) is not None:
                        self._beat(farewell)
                        await self.controllers.settled()
            except TimeoutError:
                log.warning("broker did not let go of its mastership in time", seconds=STOP_PATIENCE)
            if was_master is not None:
                log.info("mastership handed over: sends are refused here from now on", master_epoch=was_master)
        if self._timer is not None:
            self._timer.cancel()
        await self.controllers.close()
        await self._replicator.stop()
        await self.replication.stop()
        await self.broker.stop()

    def unready(self) -> str | None:
        """None, or why this replica does not do its part."""
        if self.machine is None:
            return self.trouble
        following = self.machine.role.slave_of is not None
        return self.machine.unready(self._clock()) or (self.trouble if following else None)

    # broker_side.BrokerEvents

    def on_hello(self, hello: Hello) -> None:
        """The broker is there, its store recovered."""
        check_code = f"{hello.address};{time.time_ns() // 1_000_000}"
        self._event(lambda machine: machine.on_hello(hello, check_code, self._clock()))

    def on_said(self, message: Prepared | Released | RoleNotice | Held) -> None:
        """The broker said something about its role, or about refusing sends."""
        self._event(lambda machine: machine.on_broker_said(message, self._clock()))

    def on_gone(self) -> None:
        """The link broke: this replica is dead until the broker is back."""
        self._event(lambda machine: machine.on_broker_gone(self._clock()))

    # For operators

    async def fence(self, fence: Fence | None) -> None:
        """Have the broker refuse sends, or accept them; returns when it does, as far as there is one.

        Raises:
            TimeoutError: it does not answer.
        """
        self._fenced = fence
        self._event(lambda machine: machine.on_fence(fence, self._clock()))
        await self._waiting.until(lambda: self.machine is None or self.machine.holds.answered, FENCE_PATIENCE)

    async def hand_over(self, broker_id: int | None, seconds: float) -> HandedOver:
        """How it ended; once begun it goes on without a caller. Needs a machine."""
        machine = self.machine
        assert machine is not None

        def ask() -> int:
            self._event(lambda machine: machine.on_hand_over(broker_id, seconds, self._clock()))
            return machine.hand_over.number

        return await self._waiting.handed_over(ask)

    # Replication's callbacks

    def level(self, watch: int, level: frozenset[int], acked: bool) -> None:  # noqa: FBT001 - Replication's callback
        """Master: which replicas have what a hand-over waits for."""
        self._event(lambda machine: machine.on_level(watch, level, self._clock(), acked=acked))

    def sync_set_wanted(self, wanted: SyncStateSet) -> None:
        """The controllers should agree to this set."""
        self._event(lambda machine: machine.on_sync_set_wanted(wanted, self._clock()))

    def master_lost(self) -> None:
        """Slave: the connection to the master broke."""
        self._event(lambda machine: machine.on_master_lost(self._clock()))

    def troubled(self, reason: str | None) -> None:
        """Slave: why it cannot follow without an operator; None when it can again."""
        self.trouble = reason

    # Driving the machine

    def _event(self, event: Callable[[ControlMachine], Actions]) -> None:
        machine = self.machine
        if machine is None or self.fatal is not None:
            return
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for action in self._events.popleft()(machine):
                    self._do(action)
        except Exception as error:  # noqa: BLE001 - reported, and the process ends
            self._fail(error)
        finally:
            self._busy = False
        if machine.at_rest:
            self._rested.set()
        else:
            self._rested.clear()
        self._waiting.look()
        self._arm(machine)

    def _arm(self, machine: ControlMachine) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = machine.wake_at
        if wake_at != float("inf"):
            # A little late rather than early: the loop counts in whole milliseconds.
            delay = max(wake_at - self._clock(), 0.0) + 0.001
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._event(lambda machine: machine.on_tick(self._clock()))

    def _do(self, action: Action) -> None:
        match action:
            case Tell():
                self.broker.tell(action.message)
            case Ask():
                self.controllers.ask(action, self._answered)
            case Beat():
                self._beat(action)
            case SaveApplied() | SaveIdentity() | ForgetApplied():
                self._store(action)
            case Disconnect():
                self.controllers.disconnect()
            case Note():
                log_note(action)
            case HandedOver():
                self._waiting.on_handed_over(action)
            case _:
                self._replicator.put(action)

    def _beat(self, beat: Beat) -> None:
        settings, replication = self.settings, self.replication
        header = BrokerHeartbeatRequestHeader(
            cluster_name=settings.broker_cluster_name,
            broker_addr=beat.broker_address,
            broker_name=settings.name,
            broker_id=beat.broker_id,
            epoch=replication.last_epoch,
            max_offset=replication.max_offset,
            confirm_offset=replication.confirm_offset,
            heartbeat_timeout_mills=settings.declared_timeout_mills,
            election_priority=settings.broker_election_priority,
            write_lease_millis=None if beat.lease is None else round(1000 * beat.lease),
        )

        def done(address: str, *, taken: bool) -> None:
            self._event(lambda machine: machine.on_beat(address, beat.sent_at, self._clock(), taken=taken))

        self.controllers.beat(beat.addresses, header, done)

    def _store(self, action: Stored) -> None:
        error: str | None = None
        try:
            match action:
                case SaveApplied(applied):
                    self._files.save_applied(applied)
                    log.info("broker id applied for", broker_id=applied.identity.broker_id)
                case SaveIdentity(identity):
                    self._files.save_identity(identity)
                    log.info("broker id kept", broker_id=identity.broker_id)
                case ForgetApplied():
                    self._files.forget_applied()
                    log.info("broker id applied for belongs to another broker, asking for the next one")
        except StorageError as problem:
            error = str(problem)
        self._event(lambda machine: machine.on_stored(action, error, self._clock()))

    # How actions ended

    def _answered(self, ask: Ask, answer: RemotingCommand | None) -> None:
        self._event(lambda machine: machine.on_answer(ask, answer, self._clock()))

    def _opened(self, hello: Hello, lost: str | None) -> None:
        self._event(lambda machine: machine.on_opened(hello, lost, self._clock()))

    def _begun(self, epoch: int, error: str | None) -> None:
        self._event(lambda machine: machine.on_begun(epoch, error, self._clock()))

    def _stopped(self) -> None:
        self._event(lambda machine: machine.on_replication_stopped(self._clock()))

    def _fail(self, error: BaseException) -> None:
        log.critical("sidecar cannot go on", exc_info=error)
        self.fatal = self.fatal or error
        self.failed.set()

    async def _load(self) -> Kept:
        while True:
            try:
                return self._files.load()
            except (IdentityError, StorageError) as error:
                if str(error) != self.trouble:
                    log.error("identity refused, waiting until it is put right", reason=str(error))
                self.trouble = str(error)
            await asyncio.sleep(LOAD_RETRY)
