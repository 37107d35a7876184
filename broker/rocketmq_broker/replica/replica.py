"""The broker's half of the replica: carries out the sidecar's messages (replica_link.py) on store, role and waiting
sends.

Messages are carried out one at a time and in order. Releasing the writer lock may have to wait for the flush thread;
messages that arrive until then are queued. `app.py` builds it and registers listeners.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import structlog

from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.replica.dispatching import Dispatching, Visible
from rocketmq_broker.replica.link import SidecarLink
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.replica_link import (
    MAX_REGISTERED,
    PROTOCOL,
    Alive,
    Appended,
    Copied,
    CopyFrom,
    CopyKey,
    Following,
    FromSidecar,
    Grant,
    Held,
    Hello,
    Hold,
    Lease,
    LogState,
    MasterKnown,
    NamedSettings,
    NoRole,
    Others,
    Prepare,
    Prepared,
    Probe,
    Registered,
    Release,
    Released,
    Repaired,
    Replicated,
    Replication,
    Retained,
    RoleNotice,
    Status,
    Suspected,
    Truncate,
    Truncated,
    Welcome,
)
from rocketmq_runtime import background
from rocketmq_runtime.config.settings import group_values
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_store.errors import LogDamagedError, StoreDamagedError, StoreError, StoreFullError
from rocketmq_store.flush import Flusher
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Stop

log = structlog.get_logger(__name__)

_ENVIRONMENT = (OSError, StorageError, StoreDamagedError, StoreFullError)
"""Not this program's fault, so that a traceback would say nothing."""

UNAWAITED_PROGRESS_SECONDS = 0.002
"""Between two progress messages where sends are acknowledged without them: reporting every single message to the
sidecar and all slaves would cost more than the messages themselves."""


async def _do_nothing(_offset: int) -> None:
    pass


class Replica:
    """Implements `link.LinkHandler`. Parts that are built after it take their events before `start`: they set the
    `on_...` that is theirs."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        address: str,
        store: MessageStore,
        flusher: Flusher,
        role: ReplicaRole,
        waiting: WaitingSends,
        on_role_change: Callable[[], None],
        on_visible: Visible,
        on_cut: Callable[[int], Awaitable[None]] = _do_nothing,
        on_master_known: Callable[[], None] = lambda: None,
        traffic: Traffic | None = None,
    ) -> None:
        """`address`: as registered. `on_role_change`: master, slave or neither now, or another epoch. `on_cut`: returns
        when what the tables know of the log behind an offset is forgotten durably; raises `StorageError`.
        `on_master_known`: a slave's role has heard that there is a master again, or none any longer."""
        self._settings = settings
        self._address = address
        self._store = store
        self._flusher = flusher
        self._role = role
        self._waiting = waiting
        self._traffic = traffic or Traffic()
        self._on_role_change = on_role_change
        self._on_cut, self._on_master_known = on_cut, on_master_known
        self.on_members: Callable[[], None] = lambda: None
        """A master's role has heard who is in the SyncStateSet, or may enter it."""
        self.on_copy_from: Callable[[], None] = lambda: None
        """A slave's role has heard whose tables to copy."""
        self.on_others: Callable[[Others], None] = lambda _: None
        """Whom to ask for newer tables in an epoch for which this replica was elected."""
        self.on_prepared: Callable[[int], Awaitable[None]] | None = None
        """Returns, in any case and soon, when this replica has the tables with which to serve in an epoch; cancelled if
        it is not to."""
        self.on_hold: Callable[[], Awaitable[None]] | None = None
        """Returns, in any case, when others have what a master has to leave to them."""
        self.on_repaired: Callable[[int], None] = lambda _: None
        """From this offset on the log should be read again."""
        self.on_suspected: Callable[[int], None] = lambda _: None
        """There the log should be read again."""
        self.unregistered: Callable[[], str | None] = lambda: None
        """Why no name server lists this broker."""
        self._holding: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._link = SidecarLink(settings.socket_path, self)
        self._sync_flush = settings.flush_disk_type == "SYNC_FLUSH"
        self._progress_apart = UNAWAITED_PROGRESS_SECONDS if settings.put_ok.alone else 0.0
        self._inbox: deque[FromSidecar] = deque()
        self._busy: asyncio.Task[None] | None = None
        """Releases the lock, forgets what is behind a cut, or completes the tables of a new master: messages that
        arrive during that wait in `_inbox`."""
        self._preparing: asyncio.Task[None] | None = None
        """The last of these, `_busy` too."""
        self._dispatching = Dispatching(
            store,
            role,
            on_visible=on_visible,
            on_stop=self._report_log_state,
            on_failed=lambda error: self._leave_group("making messages visible", error),
        )
        self._checked, self._log_state = LogState(), LogState()
        """What the scrubber has reported, and what the sidecar knows."""
        self._registered: Registered | None = None
        self._stopping = self._noticed = False
        self.status: Status | None = None
        """The answer to 1007 and 907; None until the sidecar has sent it."""
        self.named_settings: str | None = None
        """What a master's 906 names; None until the sidecar has sent it."""

    @property
    def connected(self) -> bool:
        return self._link.connected

    def start(self) -> None:
        """Connect to the sidecar; the store is open and the writer lock released."""
        self._link.start()

    async def stop(self) -> None:
        """Leave the group: nothing is appended or acknowledged after this."""
        self._stopping = True
        self._lose_role("the broker is stopping")
        await self._settled()
        await self._link.stop()

    # for the rest of the broker

    def log_grew(self) -> None:
        """The send path has appended."""
        self._link.progress(self._progress, apart=self._progress_apart)

    def on_flushed(self, _offset: int) -> None:
        """More of the log is on disk."""
        if self._role.role is Role.MASTER:
            self._link.progress(self._progress)
            if self._sync_flush:
                self._waiting.release()

    def on_deleted(self, min_offset: int) -> None:
        """Expired files were deleted."""
        self._link.send(Retained(min_offset))

    def on_log_state(self, state: LogState) -> None:
        """The log was read again, or has to be; what was found."""
        self._checked = state
        self._report_log_state()

    def on_registered(self, addresses: Mapping[int, str]) -> None:
        """Without controllers: a name server has said who is in the group."""
        registered = Registered(dict(sorted(addresses.items())[:MAX_REGISTERED]))
        if registered != self._registered:
            self._registered = registered
            self._link.send(registered)

    def copied(self, message: Copied) -> None:
        """Slaves that may enter the SyncStateSet have this master's tables."""
        self._link.send(message)

    def role_notice(self) -> None:
        """1008 came; the sidecar asks the controllers. Several in one turn of the loop are sent as one."""
        if not self._noticed:
            self._noticed = True
            self._loop.call_soon(self._send_role_notice)

    def _send_role_notice(self) -> None:
        self._noticed = False
        self._link.send(RoleNotice())

    # link.LinkHandler

    async def hello(self) -> Hello:
        store = self._store
        try:
            # a sidecar that died may have acknowledged more than it reported
            search = store.find_end()
            end = next(search)
            for reached in search:
                end = reached
                await asyncio.sleep(0)
        except StoreError as error:
            raise OSError(str(error)) from error
        max_offset, damage = end
        if damage is not None and damage != self._dispatching.stopped:
            log.error("the log is damaged, with whole records behind it", offset=damage.offset, reason=damage.reason)
            self._dispatching.stop_at(damage)
        return Hello(
            protocol=PROTOCOL,
            cluster_name=self._settings.broker_cluster_name,
            broker_name=self._settings.name,
            address=self._address,
            min_offset=store.min_offset,
            max_offset=max_offset,
            confirm_offset=store.confirm_offset,
            file_size=self._settings.mapped_file_size_commit_log,
            log=self._log_state,
            settings=group_values(self._settings),
            registered=self._registered,
            controllers=self._settings.enable_controller_mode,
        )

    def on_message(self, message: FromSidecar) -> None:
        if isinstance(message, Probe):
            # at once, whatever else is running
            unregistered = self.unregistered()
            self._traffic.counts.unregistered = int(unregistered is not None)
            refuses = self._store.disk_space.refuses
            self._link.send(Alive(self._traffic.counts, refuses, self._role.acting, unregistered))
            return
        if isinstance(message, Others):
            self.on_others(message)
            return
        if self._busy is not None:
            self._inbox.append(message)
            return
        try:
            self._handle(message)
        except (StoreError, OSError) as error:
            self._leave_group(type(message).__name__, error)

    def on_link_lost(self, reason: str) -> None:
        self._inbox.clear()
        self.status = self.named_settings = None
        if self._holding is not None:
            self._holding.cancel()
        self._lose_role(f"link to the sidecar lost: {reason}")
        self._role.forget_epoch()
        if not self._stopping:
            background.start(self._reconnect(), "link to the sidecar")

    # inside

    def _report_log_state(self) -> None:
        """A log whose messages do not become visible counts as damaged, whatever its checksums say: as master this
        replica could not serve them."""
        state, stopped = self._checked, self._dispatching.stopped
        if stopped is not None and state.damage < 0:
            reason = f"messages from offset {stopped.offset} on do not become visible: {stopped.reason}"
            state = LogState(state.checked, stopped.offset, reason, stopped=True)
        self._traffic.counts.log_damaged = int(state.damage >= 0)
        if state != self._log_state:
            self._log_state = state
            self._link.send(state)

    async def _reconnect(self) -> None:
        await self._settled()
        if not self._stopping:
            self._link.start()

    def _handle(self, message: FromSidecar) -> None:  # noqa: C901, PLR0912 - one branch per message, nothing else
        match message:
            case Replication():
                if self._role.replicated(message):
                    self._waiting.release()
                    self.on_members()
                    self._dispatching.confirmed(message.confirm_offset)
            case Lease():
                if self._role.extend_lease(message.epoch, message.until):
                    self._waiting.release()
            case Replicated():
                self._dispatching.replicated(message.max_offset, message.confirm_offset)
            case Welcome():
                if message.broker_id != self._role.broker_id:
                    log.info("broker id received from the sidecar", broker_id=message.broker_id)
                    self._role.welcomed(message.broker_id)
                    self._on_role_change()
            case CopyKey():
                self._role.copy_key = message
            case NamedSettings():
                self.named_settings = message.text
            case Prepare():
                self._prepare(message.epoch)
            case Grant():
                self._granted(message)
            case Following():
                self._follow(message)
            case CopyFrom():
                if self._role.copy_from(message.master_address):
                    self.on_copy_from()
            case MasterKnown():
                if self._role.master_is_known(message.known):
                    self._on_master_known()
            case Hold():
                self._hold(message)
            case Release():
                self._lose_role("the sidecar took mastership back", report=True)
            case NoRole():
                self._lose_role(message.reason)
            case Truncate():
                self._dispatching.cut(message.offset)
                self._store.truncate(message.offset)
                self._busy = background.start(self._truncated(message.offset), "cut")
            case Repaired():
                self._store.repaired(message.start, message.end)
                self.on_repaired(message.start)
                self._dispatching.soon()
            case Suspected():
                self.on_suspected(message.offset)
            case Status():
                self.status = message

    def _prepare(self, epoch: int) -> None:
        self._fail_waiting()
        if not self._role.prepare(epoch):
            self._link.drop(f"the sidecar prepares epoch {epoch}, this broker has seen {self._role.epoch}")
            return
        self._on_role_change()
        began = time.perf_counter()
        self._store.writer.acquire()
        try:
            max_offset = self._store.cut_tail()
        except LogDamagedError as error:
            self._dispatching.stop_at(Stop(error.offset, error.reason))
            raise
        log.info("prepared to be master", epoch=epoch, max_offset=max_offset, seconds=time.perf_counter() - began)
        self._link.send(Prepared(epoch, max_offset))
        if self.on_prepared is not None:
            self._busy = self._preparing = background.start(self._complete_tables(epoch), "tables")

    def _granted(self, message: Grant) -> None:
        was = (self._role.role, self._role.epoch)
        if not self._role.grant(message.epoch, message.lease_until):
            log.warning("unexpected grant ignored", epoch=message.epoch, role=str(was[0]), own_epoch=was[1])
        elif was != (self._role.role, self._role.epoch):
            log.info("master", epoch=message.epoch, max_offset=self._store.max_offset)
            self._on_role_change()
            self._link.progress(self._progress)
        else:
            self._waiting.release()

    def _hold(self, hold: Hold) -> None:
        before = self._role.held
        self._role.hold(hold)
        if hold.kind is not None:
            log.warning("sends are refused from now on", why=str(hold.kind), reason=hold.reason)
        elif before is not None:
            log.info("sends are no longer refused", why=str(before.kind))
        if self._holding is not None:
            self._holding.cancel()  # its answer would be outdated
        self._holding = background.start(self._held(hold), "hold")

    async def _held(self, hold: Hold) -> None:
        """Nothing is appended from now on; replication continues."""
        if hold.kind is not None and self.on_hold is not None:
            await self.on_hold()
        self._link.send(Held(hold.serial, self._store.max_offset))

    def _follow(self, message: Following) -> None:
        self._fail_waiting()
        self._role.follow(message.epoch, message.master_address)
        log.info("slave", epoch=message.epoch, master=message.master_address)
        self._on_role_change()
        self._dispatching.soon()  # what was confirmed while there was no role
        self._give_up()

    def _lose_role(self, reason: str, *, report: bool = False) -> None:
        self._abandon_tables()
        changed = self._role.role is not Role.NONE
        self._role.lose_role(reason)
        self._fail_waiting()
        if changed:
            log.warning("neither master nor slave", reason=reason)
            self._on_role_change()
        self._give_up(report=report)

    def _fail_waiting(self) -> None:
        """Unlike FLUSH_SLAVE_TIMEOUT, the code makes producers send again, elsewhere: whether the message survives is
        decided by an election that has begun already."""
        self._waiting.fail_all(
            ResponseCode.SERVICE_NOT_AVAILABLE, "this broker ceased to be master before all copies were confirmed"
        )

    def _give_up(self, *, report: bool = False) -> None:
        """Release the writer lock once the flush thread does not need it; `Released` after that."""
        if self._busy is not None:
            return
        if self._store.writer.held:
            self._busy = background.start(self._release_lock(report=report), "release")
        elif report:
            self._link.send(Released(self._store.max_offset))

    async def _release_lock(self, *, report: bool) -> None:
        try:
            await self._flusher.idle()
        finally:
            self._store.writer.release()
            self._busy = None
        if report:
            self._link.send(Released(self._store.max_offset))
        self._handle_inbox()

    async def _complete_tables(self, epoch: int) -> None:
        """The epoch is written to disk during that; the grant that follows is not carried out before."""
        assert self.on_prepared is not None
        await self.on_prepared(epoch)
        self._busy = self._preparing = None
        self._handle_inbox()

    def _abandon_tables(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            self._busy = self._preparing = None

    async def _truncated(self, offset: int) -> None:
        try:
            await self._on_cut(offset)
        except Exception as error:  # noqa: BLE001 - not even a defect may keep the sidecar waiting
            self._busy = None
            self._leave_group("forgetting what is behind a cut", error)
            return
        self._busy = None
        self._link.send(Truncated(offset))
        self._handle_inbox()

    def _handle_inbox(self) -> None:
        while self._inbox and self._busy is None:
            self.on_message(self._inbox.popleft())

    async def _settled(self) -> None:
        while self._busy is not None:
            await asyncio.wait([self._busy])

    def _progress(self) -> Appended:
        """Called once per turn of the loop in which the log grew."""
        if self._sync_flush and self._role.role is Role.MASTER:
            self._flusher.flushed(self._store.max_offset).add_done_callback(_ignore_result)
        return Appended(self._store.max_offset, self._store.flushed_offset)

    def _leave_group(self, doing: str, error: Exception) -> None:
        """A step that the group relies on failed here: leave the group, so that another replica takes over."""
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, _ENVIRONMENT):
            log.error("this replica cannot continue: it leaves the group; check its disk", doing=doing, reason=reason)
        else:
            log.error("this replica cannot continue: it leaves the group", doing=doing, reason=reason, exc_info=error)
        self._lose_role(reason)
        self._link.drop(reason)


def _ignore_result(flushed: asyncio.Future[None]) -> None:
    """`Flusher.on_failed` stops the broker after a failed sync."""
    if not flushed.cancelled():
        flushed.exception()
