"""This half of the replica: does what the sidecar says (replica_link.py) with the store, the role and whatever waits.

One message is carried out at a time and in order. Giving up the writer lock may have to wait for the flush thread;
messages that come meanwhile are kept. `app.py` builds it and registers listeners.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection

import structlog

from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.link import SidecarLink
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.traffic import Traffic
from rocketmq_broker.waiting import WaitingSends
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.replica_link import (
    PROTOCOL,
    Alive,
    Appended,
    Fenced,
    Following,
    FromSidecar,
    Grant,
    Held,
    Hello,
    Hold,
    Lease,
    Prepare,
    Prepared,
    Probe,
    Release,
    Released,
    Replicated,
    Replication,
    Retained,
    RoleNotice,
    Status,
    Truncate,
    Truncated,
    Welcome,
)
from rocketmq_store.errors import StoreError, StoreFullError
from rocketmq_store.flush import Flusher
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)

DISPATCH_RETRY_SECONDS = 1.0
"""After a full disk kept messages from becoming visible."""

UNAWAITED_PROGRESS_SECONDS = 0.002
"""Between two words on how far the log reaches, where sends are acknowledged without them: telling the sidecar and all
slaves of every single message would take more of the machine than the messages do."""

Visible = Callable[[Collection[tuple[str, int]]], None]
"""Takes the (topic, queue id) that have new messages for consumers."""


class Replica:
    """Implements `link.LinkHandler`."""

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
        traffic: Traffic | None = None,
    ) -> None:
        """`address`: as registered. `on_role_change`: master, slave or fenced now, or another epoch."""
        self._settings = settings
        self._address = address
        self._store = store
        self._flusher = flusher
        self._role = role
        self._waiting = waiting
        self._traffic = traffic or Traffic()
        self._on_role_change = on_role_change
        self._on_visible = on_visible
        self._loop = asyncio.get_running_loop()
        self._link = SidecarLink(settings.socket_path, self)
        self._sync_flush = settings.flush_disk_type == "SYNC_FLUSH"
        self._progress_apart = UNAWAITED_PROGRESS_SECONDS if settings.put_ok.alone else 0.0
        self._inbox: deque[FromSidecar] = deque()
        self._giving_up: asyncio.Task[None] | None = None
        self._dispatching: asyncio.Handle | None = None
        self._confirmed = 0
        """The confirm offset that the sidecar said last, and on a slave the max offset."""
        self._max_offset = 0
        self._stopping = False
        self.status: Status | None = None
        """What 1007 and 907 are answered with; None until the sidecar has said it."""

    @property
    def connected(self) -> bool:
        return self._link.connected

    def start(self) -> None:
        """Connect to the sidecar; the store is open and the writer lock released."""
        self._link.start()

    async def stop(self) -> None:
        """Leave the group: nothing is appended or acknowledged after this."""
        self._stopping = True
        self._fence("the broker is stopping")
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

    def role_notice(self, notice: RoleNotice) -> None:
        """A controller told us (1008); the sidecar decides."""
        self._link.send(notice)

    # link.LinkHandler

    def hello(self) -> Hello:
        store = self._store
        try:
            max_offset = store.find_end()  # a sidecar that died had perhaps acknowledged more than it told us of
        except StoreError as error:
            raise OSError(str(error)) from error
        return Hello(
            protocol=PROTOCOL,
            cluster_name=self._settings.broker_cluster_name,
            broker_name=self._settings.name,
            address=self._address,
            min_offset=store.min_offset,
            max_offset=max_offset,
            confirm_offset=store.confirm_offset,
            file_size=self._settings.mapped_file_size_commit_log,
        )

    def on_message(self, message: FromSidecar) -> None:
        if isinstance(message, Probe):
            self._link.send(Alive(self._traffic.counts()))  # whatever else is under way
            return
        if self._giving_up is not None:
            self._inbox.append(message)
            return
        try:
            self._obey(message)
        except (StoreError, OSError) as error:
            self._broken(type(message).__name__, error)

    def on_link_lost(self, reason: str) -> None:
        self._inbox.clear()
        self.status = None
        self._fence(f"link to the sidecar lost: {reason}")
        self._role.forget_epoch()
        if not self._stopping:
            self._loop.create_task(self._reconnect())

    # inside

    async def _reconnect(self) -> None:
        await self._settled()
        if not self._stopping:
            self._link.start()

    def _obey(self, message: FromSidecar) -> None:  # noqa: C901, PLR0912 - one branch per message, nothing else
        match message:
            case Replication():
                if self._role.replicated(message):
                    self._waiting.release()
                    self._confirmed = message.confirm_offset
                    self._dispatch_soon()
            case Lease():
                if self._role.extend_lease(message.epoch, message.until):
                    self._waiting.release()
            case Replicated():
                self._confirmed = message.confirm_offset
                self._max_offset = message.max_offset
                self._dispatch_soon()
            case Welcome():
                if message.broker_id != self._role.broker_id:
                    log.info("the sidecar knows who we are", broker_id=message.broker_id)
                    self._role.welcomed(message.broker_id)
                    self._on_role_change()
            case Prepare():
                self._prepare(message.epoch)
            case Grant():
                self._granted(message)
            case Following():
                self._follow(message)
            case Hold():
                self._hold(message)
            case Release():
                self._fence("the sidecar took mastership back", tell=True)
            case Fenced():
                self._fence(message.reason)
            case Truncate():
                self._forget_dispatch()
                self._store.truncate(message.offset)
                self._link.send(Truncated(message.offset))
            case Status():
                self.status = message

    def _prepare(self, epoch: int) -> None:
        self._fail_waiting()
        if not self._role.prepare(epoch):
            self._link.drop(f"the sidecar prepares epoch {epoch}, this broker has seen {self._role.epoch}")
            return
        self._role_changed()
        began = time.perf_counter()
        self._store.writer.acquire()
        max_offset = self._store.cut_tail()
        log.info("prepared to be master", epoch=epoch, max_offset=max_offset, seconds=time.perf_counter() - began)
        self._link.send(Prepared(epoch, max_offset))

    def _granted(self, message: Grant) -> None:
        was = (self._role.role, self._role.epoch)
        if not self._role.grant(message.epoch, message.lease_until):
            log.warning("a grant that fits nothing is ignored", epoch=message.epoch, role=str(was[0]), own_epoch=was[1])
        elif was != (self._role.role, self._role.epoch):
            log.info("master", epoch=message.epoch, max_offset=self._store.max_offset)
            self._role_changed()
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
        self._link.send(Held(hold.serial, self._store.max_offset))

    def _follow(self, message: Following) -> None:
        self._fail_waiting()
        self._role.follow(message.epoch, message.master_address)
        log.info("slave", epoch=message.epoch, master=message.master_address)
        self._role_changed()
        self._give_up()

    def _fence(self, reason: str, *, tell: bool = False) -> None:
        changed = self._role.role is not Role.FENCED
        self._role.fence(reason)
        self._fail_waiting()
        if changed:
            log.warning("neither master nor slave", reason=reason)
            self._role_changed()
        self._give_up(tell=tell)

    def _role_changed(self) -> None:
        self._forget_dispatch()
        self._on_role_change()

    def _fail_waiting(self) -> None:
        """Unlike FLUSH_SLAVE_TIMEOUT, the code makes producers send again, elsewhere: whether the message survives is
        decided by an election that has begun already."""
        self._waiting.fail_all(
            ResponseCode.SERVICE_NOT_AVAILABLE, "this broker ceased to be master before all copies were confirmed"
        )

    def _give_up(self, *, tell: bool = False) -> None:
        """Release the writer lock once the flush thread does not need it; `Released` after that."""
        if self._giving_up is not None:
            return
        if self._store.writer.held:
            self._giving_up = self._loop.create_task(self._release_lock(tell=tell))
        elif tell:
            self._link.send(Released(self._store.max_offset))

    async def _release_lock(self, *, tell: bool) -> None:
        try:
            await self._flusher.idle()
        finally:
            self._store.writer.release()
            self._giving_up = None
        if tell:
            self._link.send(Released(self._store.max_offset))
        while self._inbox and self._giving_up is None:
            self.on_message(self._inbox.popleft())

    async def _settled(self) -> None:
        while self._giving_up is not None:
            await asyncio.wait([self._giving_up])

    def _progress(self) -> Appended:
        """Called once per turn of the loop in which the log grew."""
        if self._sync_flush and self._role.role is Role.MASTER:
            self._flusher.flushed(self._store.max_offset).add_done_callback(_seen)
        return Appended(self._store.max_offset, self._store.flushed_offset)

    def _dispatch_soon(self) -> None:
        """Once for all that comes in this turn of the loop, and after the answers that have become due in it."""
        if self._dispatching is None:
            self._dispatching = self._loop.call_soon(self._dispatch)

    def _forget_dispatch(self) -> None:
        """What was said before is not true any more."""
        if self._dispatching is not None:
            self._dispatching.cancel()
            self._dispatching = None

    def _dispatch(self) -> None:
        self._dispatching = None
        role = self._role.role
        try:
            if role is Role.MASTER:
                visible = self._store.dispatch(self._confirmed)
            elif role is Role.SLAVE:
                visible = self._store.extend(self._max_offset, self._confirmed)
            else:
                return
        except StoreFullError:  # the store has said so
            self._dispatching = self._loop.call_later(DISPATCH_RETRY_SECONDS, self._dispatch)
        except (StoreError, OSError) as error:
            self._broken("making messages visible", error)
        else:
            if visible:
                self._on_visible(visible)
            if self._store.unfinished:
                # others have their turn before the next portion
                self._dispatching = self._loop.call_later(0, self._dispatch)

    def _broken(self, doing: str, error: Exception) -> None:
        """Something that the group relies on cannot be done here: leave it, so that another takes over."""
        reason = f"{type(error).__name__}: {error}"
        log.error("this replica cannot go on: the group is left", doing=doing, reason=reason, exc_info=error)
        self._fence(reason)
        self._link.drop(reason)


def _seen(flushed: asyncio.Future[None]) -> None:
    """A failed sync stops the broker elsewhere (`Flusher.on_failed`)."""
    if not flushed.cancelled():
        flushed.exception()
