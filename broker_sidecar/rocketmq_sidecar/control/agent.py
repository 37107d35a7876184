"""Drives the control machine: passes events to it and performs its actions, with the links, the identity files and
replication. Built by `app`.

The machine's events are handled in the event loop, one after another. If an action causes an event at once, that event
is queued, never nested.
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
from rocketmq_formats.replica_link import CopyKey, Held, Hello, LogState, Prepared, Registered, Released, RoleNotice
from rocketmq_formats.replica_link import Replication as Progress
from rocketmq_runtime import background
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.control.broker_side import BrokerSide
from rocketmq_sidecar.control.controller_link import ControllerLink
from rocketmq_sidecar.control.meta_files import IdentityFiles, SavedIdentity
from rocketmq_sidecar.control.replication_worker import ReplicationPort, ReplicationWorker
from rocketmq_sidecar.control.waiters import Waiters
from rocketmq_sidecar.domain.acting import ACTING, with_acting
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Disconnect,
    ForgetApplied,
    HandedOver,
    Heartbeat,
    LogLine,
    Request,
    SaveApplied,
    SaveControllers,
    SaveIdentity,
    SendToBroker,
    Stored,
)
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.control.hand_over import Outcome
from rocketmq_sidecar.domain.control.machine import STOP_HAND_OVER, ControlMachine
from rocketmq_sidecar.domain.control.role import BrokerState
from rocketmq_sidecar.domain.control.unfit_store import UnfitStore
from rocketmq_sidecar.evidence.given_up_file import remark_of
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)

LOAD_RETRY = 2.0
"""Seconds between two reads of identity files that were refused; an operator has to fix them."""
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FENCE_PATIENCE = 2.0
"""Seconds that a broker may take to confirm that it refuses or accepts sends."""
MAKE_ROOM_SECONDS = 20.0
"""For a hand-over because the store refuses messages, or the log is damaged."""
STOP_PATIENCE = STOP_HAND_OVER + 2.0
"""Seconds that an orderly stop waits for a hand-over and for the broker to release its mastership."""


def write_log_line(line: LogLine) -> None:
    """Perform the machine's `LogLine`."""
    log.log(_LEVELS[line.level], line.text, **line.values)


class Agent:
    """One per process; implements `broker_side.BrokerEvents` and takes replication's callbacks that concern roles."""

    def __init__(
        self,
        settings: SidecarSettings,
        make_replication: "Callable[[Agent], ReplicationPort]",
        *,
        copy_key: CopyKey | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """Nothing is opened yet. Needs a running event loop. `make_replication` gets this agent for its callbacks;
        `copy_key` is for the broker."""
        self.settings = settings
        self.machine: ControlMachine | None = None
        self.fatal: BaseException | None = None
        """What a bug raised; the process must end, because the state of the replica is not known."""
        self.failed = asyncio.Event()
        self.trouble: str | None = "the identity files have not been read yet"
        """Why there is no machine yet, or why replication cannot follow without an operator."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._files = IdentityFiles(
            settings.root,
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            java_file=settings.java_identity_file,
        )
        self.controllers = ControllerLink()
        self.broker = BrokerSide(settings, self, lambda: self.replication, clock, copy_key)
        self.replication = make_replication(self)
        self._worker = ReplicationWorker(
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
        self._waiters = Waiters()
        self._full_store, self._damaged_log = UnfitStore(), UnfitStore(patience=0.0)
        self._unfit_hand_over: asyncio.Task[None] | None = None
        self._fenced: Fence | None = None
        self._in_sync = 0, 0
        self.stopping = False

    async def start(self, fence: Fence | None = None) -> None:
        """Read the identity (waiting for an operator if it is refused), then accept the broker, with the fence if there
        is one.

        Raises:
            OSError: the HA port is taken, or the socket cannot be made.
            ReplicationError: the epoch file is unreadable.
        """
        self._fenced = fence
        kept = await self._load()
        self.machine = ControlMachine(
            self.settings.options,
            identity=kept.identity,
            applied=kept.applied,
            controllers=kept.controllers,
            fence=self._fenced,
        )
        self.trouble = None
        self._worker.start()
        await self.replication.start()
        await self.broker.link.start()

    async def stop(self) -> None:
        """Hand over if master, then close the connections; at that moment at the latest the controllers elect another
        master."""
        self.stopping = True
        if self.machine is not None and self.fatal is None:
            was_master = self.machine.role.master_of
            self._event(lambda machine: machine.on_stop(self._clock()))
            try:
                async with asyncio.timeout(STOP_PATIENCE):
                    await self._rested.wait()
                    if (farewell := self.machine.final_heartbeat(self._clock())) is not None:
                        self._send_heartbeat(farewell)
                        await self.controllers.settled()
            except TimeoutError:
                log.warning("broker did not release its mastership in time", seconds=STOP_PATIENCE)
            if was_master is not None:
                log.info("mastership handed over: sends are refused here from now on", master_epoch=was_master)
        if self._timer is not None:
            self._timer.cancel()
        if self._unfit_hand_over is not None:
            self._unfit_hand_over.cancel()
        await self.controllers.close()
        await self._worker.stop()
        await self.replication.stop(orderly=self.machine is not None and self.fatal is None and self.machine.at_rest)
        await self.broker.stop()

    def unready(self) -> str | None:
        """None, or why this replica does not do its part."""
        if self.machine is None:
            return self.trouble
        following = self.machine.role.slave_of is not None
        reason = self.machine.unready(self._clock()) or (self.trouble if following else None)
        return with_acting(reason, acting=self.broker.acting)

    def remark(self) -> str | None:
        """What an operator should know although this replica is not `unready`."""
        if self.machine is None:
            return None
        differences = "; ".join(self.replication.differences)
        unregistered = self.broker.unregistered
        remarks = (
            remark_of(lambda: self.replication.given_up),
            self.machine.remark(self._clock()),
            f"settings differ from the master's: {differences}" if differences else None,
            ACTING if self.broker.acting else None,
            f"no name server lists this broker, so clients cannot find it: {unregistered}" if unregistered else None,
        )
        return "; ".join(filter(None, remarks)) or None

    @property
    def controllers_group(self) -> str | None:
        """The group of the controllers, once it is known."""
        controllers = None if self.machine is None else self.machine.controllers
        return None if controllers is None else controllers.finder.group

    # broker_side.BrokerEvents

    def on_hello(self, hello: Hello) -> None:
        """The broker is there, its store recovered."""
        check_code = f"{hello.address};{time.time_ns() // 1_000_000}"
        self._event(lambda machine: machine.on_hello(hello, check_code, self._clock()))

    def on_role_message(self, message: Prepared | Released | RoleNotice | Held) -> None:
        """The broker reported its role, or that it refuses sends."""
        self._event(lambda machine: machine.on_broker_message(message, self._clock()))

    def on_store(self, refuses: str | None) -> None:
        """The broker's store refuses messages, or accepts them again: another replica may have room."""
        machine = self.machine
        leads = machine is not None and machine.role.broker is BrokerState.MASTER and not self.stopping
        if self._full_store.on_report(refuses, self._clock(), leads=leads):
            log.warning("this master's store takes nothing: handing over", reason=refuses)
            self._hand_over_unfit(self._full_store, "no other replica took over: make room on this disk")
        damage = None if machine is None or machine.session.log.damage < 0 else machine.session.log.reason
        if self._damaged_log.on_report(damage, self._clock(), leads=leads):
            log.warning("this master's log is damaged: handing over", reason=damage)
            self._hand_over_unfit(
                self._damaged_log, "no other replica took over: this one stays master with a damaged log"
            )

    def on_log(self, state: LogState) -> None:
        """The broker has checked the log's bytes."""
        self.replication.log_state(state)
        self._event(lambda machine: machine.on_log(state, self._clock()))

    def on_registered(self, registered: Registered) -> None:
        """Name servers list other members of the group than before."""
        self._event(lambda machine: machine.on_registered(registered, self._clock()))

    def _hand_over_unfit(self, cause: UnfitStore, failure: str) -> None:
        async def hand_over() -> None:
            ended = await self.hand_over(None, MAKE_ROOM_SECONDS)
            if ended.outcome == Outcome.ELECTED:
                cause.handed_over(self._clock())
            else:
                log.warning(failure, reason=ended.reason)

        if self._unfit_hand_over is None or self._unfit_hand_over.done():
            self._unfit_hand_over = background.start(hand_over(), "hand-over of an unfit store")

    def on_disconnect(self) -> None:
        """The link broke: this replica counts as dead until the broker is back."""
        self._event(lambda machine: machine.on_broker_gone(self._clock()))

    # For operators

    async def fence(self, fence: Fence | None) -> None:
        """Have the broker refuse sends, or accept them; returns when it does, or at once without a broker.

        Raises:
            TimeoutError: it does not answer.
        """
        self._fenced = fence
        self._event(lambda machine: machine.on_fence(fence, self._clock()))
        await self._waiters.until(lambda: self.machine is None or self.machine.holds.answered, FENCE_PATIENCE)

    async def hand_over(self, broker_id: int | None, seconds: float) -> HandedOver:
        """How it ended; once begun it continues without its caller. Needs a machine."""
        machine = self.machine
        assert machine is not None

        def begin() -> int:
            self._event(lambda machine: machine.on_hand_over(broker_id, seconds, self._clock()))
            return machine.hand_over.number

        return await self._waiters.handed_over(begin)

    # Replication's callbacks

    def replicas_caught_up(self, watch: int, caught_up: frozenset[int], acked: bool) -> None:  # noqa: FBT001 - a callback
        """Master: which replicas have reached the offset that a hand-over waits for."""
        self._event(lambda machine: machine.on_replicas_caught_up(watch, caught_up, self._clock(), acked=acked))

    def progressed(self, progress: Progress) -> None:
        """Master: what the replicas hold, for the broker; the machine needs the number in sync."""
        self.broker.progressed(progress)
        in_sync = progress.epoch, progress.in_sync
        if in_sync != self._in_sync:
            self._in_sync = in_sync
            self._event(lambda machine: machine.on_in_sync(*in_sync, self._clock()))

    def aligned(self, master_address: str) -> None:
        """Slave: the log of the connected master there continues this one; empty: none does any longer."""
        self._event(lambda machine: machine.on_aligned(master_address, self._clock()))

    def caught_up(self) -> None:
        """Slave: the log has what the master has."""
        self._event(lambda machine: machine.on_caught_up(self._clock()))

    def propose_sync_set(self, wanted: SyncStateSet) -> None:
        """Master: propose this set to the controllers."""
        self._event(lambda machine: machine.on_proposal(wanted, self._clock()))

    def master_lost(self) -> None:
        """Slave: the connection to the master broke."""
        self._event(lambda machine: machine.on_master_lost(self._clock()))

    def master_heard(self, heard: bool) -> None:  # noqa: FBT001 - a callback
        """Slave: the connected master has been silent for too long to count as alive, or is heard again."""
        self._event(lambda machine: machine.on_master_heard(self._clock(), heard=heard))

    def troubled(self, reason: str | None) -> None:
        """Slave: why it cannot follow, now or without an operator; None when it can again."""
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
        self._waiters.notify()
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
            case SendToBroker():
                self.broker.send(action.message)
            case Request():
                self.controllers.send(action, self._answered)
            case Heartbeat():
                self._send_heartbeat(action)
            case SaveApplied() | SaveIdentity() | ForgetApplied() | SaveControllers():
                self._store(action)
            case Disconnect():
                self.controllers.disconnect()
            case LogLine():
                write_log_line(action)
            case HandedOver():
                self._waiters.on_handed_over(action)
            case _:
                self._worker.put(action)

    def _send_heartbeat(self, heartbeat: Heartbeat) -> None:
        settings, replication = self.settings, self.replication
        max_offset = replication.max_offset
        if heartbeat.whole_to is not None:
            max_offset = min(heartbeat.whole_to, max_offset)
        header = BrokerHeartbeatRequestHeader(
            cluster_name=settings.broker_cluster_name,
            broker_addr=heartbeat.broker_address,
            broker_name=settings.name,
            broker_id=heartbeat.broker_id,
            epoch=replication.last_epoch,
            max_offset=max_offset,
            confirm_offset=replication.confirm_offset,
            heartbeat_timeout_mills=settings.declared_timeout_mills,
            election_priority=settings.broker_election_priority,
            write_lease_millis=None if heartbeat.lease is None else round(1000 * heartbeat.lease),
            strict_durability=True if settings.durability == "strict" else None,
            unproven=heartbeat.unproven or None,
            is_learner=settings.async_learner or None,
        )

        def done(address: str, *, accepted: bool) -> None:
            sent_at = heartbeat.sent_at
            self._event(lambda machine: machine.on_heartbeat(address, sent_at, self._clock(), accepted=accepted))

        self.controllers.heartbeat(heartbeat.addresses, header, done)

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
                    log.info("broker id applied for belongs to another broker, requesting the next one")
                case SaveControllers(group):
                    self._files.save_controllers(group)
                    log.info("group of controllers kept", group=group)
        except StorageError as problem:
            error = str(problem)
        self._event(lambda machine: machine.on_stored(action, error, self._clock()))

    # How actions ended

    def _answered(self, request: Request, answer: RemotingCommand | None) -> None:
        self._event(lambda machine: machine.on_answer(request, answer, self._clock()))

    def _opened(self, hello: Hello, lost: str | None) -> None:
        unproven = self.replication.unproven
        self._event(lambda machine: machine.on_log_opened(hello, lost, self._clock(), unproven=unproven))

    def _begun(self, epoch: int, error: str | None) -> None:
        self._event(lambda machine: machine.on_begun(epoch, error, self._clock()))

    def _stopped(self) -> None:
        self._event(lambda machine: machine.on_replication_stopped(self._clock()))

    def _fail(self, error: BaseException) -> None:
        log.critical("sidecar cannot continue", exc_info=error)
        self.fatal = self.fatal or error
        self.failed.set()

    async def _load(self) -> SavedIdentity:
        while True:
            try:
                return self._files.load()
            except (IdentityError, StorageError) as error:
                if str(error) != self.trouble:
                    log.error("identity refused, waiting until it is fixed", reason=str(error))
                self.trouble = str(error)
            await asyncio.sleep(LOAD_RETRY)
