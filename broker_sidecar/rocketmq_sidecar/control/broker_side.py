"""The agent's interface to its broker: the link, the watch on it, and the messages between broker and replication that
bypass the control machine: progress of the log, truncation, status.

Messages about identity and role go to the agent as events.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from rocketmq_formats.remoting.ha_info import encode_settings
from rocketmq_formats.replica_link import (
    Alive,
    Appended,
    Copied,
    CopyKey,
    Counts,
    FromBroker,
    FromSidecar,
    Grant,
    Held,
    Hello,
    Lease,
    LogState,
    NamedSettings,
    Prepared,
    Registered,
    Released,
    Repaired,
    Replicated,
    Retained,
    RoleNotice,
    Status,
    Suspected,
    Truncate,
    Truncated,
)
from rocketmq_formats.replica_link import Replication as Progress
from rocketmq_sidecar.control.broker_link import BrokerLink
from rocketmq_sidecar.control.broker_watch import BrokerWatch
from rocketmq_sidecar.control.replication_worker import ReplicationPort
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)


REPLICATED_SECONDS = 0.01
"""Between two `Replicated` messages to a slave's broker. It makes messages visible in portions: consumers are at the
master, and the CPU is better spent on copying."""
MAX_UNREPORTED_BYTES = 2 * 1024 * 1024
"""Bytes of the log since the last `Replicated`, after which the next one is sent at once."""


class LinkLostError(ConnectionError):
    """The broker's link broke before it answered; replication tries again if the replica still follows."""


class BrokerEvents(Protocol):
    """Events for the agent."""

    def on_hello(self, hello: Hello) -> None:
        """The broker has connected."""

    def on_role_message(self, message: Prepared | Released | RoleNotice | Held) -> None:
        """It reported its role, or that it refuses sends."""

    def on_store(self, refuses: str | None) -> None:
        """Why its store refuses messages at present; None if it accepts them. Several times a second."""

    def on_log(self, state: LogState) -> None:
        """It has checked the log's bytes."""

    def on_registered(self, registered: Registered) -> None:
        """Name servers list other members than before."""

    def on_disconnect(self) -> None:
        """The link has broken."""


class BrokerSide:
    """Implements `broker_link.LinkHandler`."""

    def __init__(
        self,
        settings: SidecarSettings,
        events: BrokerEvents,
        replication: Callable[[], ReplicationPort],
        clock: Callable[[], float],
        copy_key: CopyKey | None = None,
    ) -> None:
        """`replication` is a function because replication is built later, with methods of this class as callbacks."""
        self.link = BrokerLink(settings.socket_path, self)
        self._settings = settings
        self._copy_key = copy_key
        self._events = events
        self._replication = replication
        self._watch = BrokerWatch(
            self.link,
            limit=settings.broker_hang_timeout_ms / 1000,
            outlast_promises=settings.durability == "relaxed" and settings.enable_controller_mode,
            clock=clock,
        )
        self.counts: Counts | None = None
        """What the broker has done since its start, as last reported; None without a broker."""
        self.acting = False
        """The broker is a slave that serves consumers in a master's place, as last reported."""
        self.unregistered: str | None = None
        """Why no name server lists the broker, as last reported."""
        self._progress: Progress | None = None
        self._status: Status | None = None
        self._truncating: dict[int, asyncio.Future[None]] = {}
        self._replicated: Replicated | None = None
        """Not sent yet."""
        self._sent_offset = 0
        self._send_timer: asyncio.TimerHandle | None = None

    async def stop(self) -> None:
        """Send what was waiting, then close the link."""
        self._send_replicated()
        self._watch.stop()
        await self.link.stop()

    def send(self, message: FromSidecar) -> None:
        """Send `message` to the broker, if there is one."""
        if isinstance(message, Lease) and self._watch.silent:
            return  # a broker that hangs would find a lease that has ended when it wakes up
        self._send_replicated()
        self.link.send(message)
        if isinstance(message, Grant):
            self._watch.promised(message.lease_until)
            if self._progress is not None and self._progress.epoch == message.epoch:
                self.link.send(self._progress)  # it ignores progress before it is master
        elif isinstance(message, Lease):
            self._watch.promised(message.until)

    # broker_link.LinkHandler

    def on_hello(self, hello: Hello) -> str | None:
        """The broker is connected, its store recovered. Returns why it cannot be this replica's, or None."""
        settings = self._settings
        names = settings.broker_cluster_name, settings.name
        if (hello.cluster_name, hello.broker_name) != names:
            return (
                f"it belongs to {hello.cluster_name}#{hello.broker_name}, this sidecar to {'#'.join(names)}: correct"
                " brokerClusterName or brokerName in one of their files"
            )
        if hello.file_size != settings.mapped_file_size_commit_log:
            return (
                f"its mappedFileSizeCommitLog is {hello.file_size}, this sidecar's"
                f" {settings.mapped_file_size_commit_log}: set both to the same value"
            )
        if hello.controllers is not settings.enable_controller_mode:
            return "enableControllerMode differs in its file and this sidecar's: set both to the same value"
        log.info("broker connected", address=hello.address, min_offset=hello.min_offset, max_offset=hello.max_offset)
        self._progress = None
        self._sent_offset = hello.max_offset
        self._watch.start()
        self.link.send(NamedSettings(encode_settings(settings.group_settings(hello.settings))))
        if self._copy_key is not None:
            self.link.send(self._copy_key)
        if self._status is not None:
            self.link.send(self._status)
        self._events.on_hello(hello)
        return None

    def on_message(self, message: FromBroker) -> None:
        """The broker sent a message."""
        self._watch.on_message()
        match message:
            case Alive():
                self.counts, self.acting, self.unregistered = message.counts, message.acting, message.unregistered
                self._events.on_store(message.refuses)
            case LogState():
                self._events.on_log(message)
            case Registered():
                self._events.on_registered(message)
            case Appended():
                self._replication().appended(message.max_offset, message.flushed_offset)
            case Retained():
                self._replication().retained(message.min_offset)
            case Copied():
                self._replication().copied(message.epoch, message.joins)
            case Truncated():
                done = self._truncating.pop(message.offset, None)
                if done is not None and not done.done():
                    done.set_result(None)
            case Released():
                # As a slave, replication needs the real end of the log.
                self._replication().appended(message.max_offset, 0)
                self._events.on_role_message(message)
            case Prepared() | RoleNotice() | Held():
                self._events.on_role_message(message)
            case Hello():
                raise AssertionError("the link takes one hello")

    def on_disconnect(self, reason: str) -> None:
        """The link broke."""
        log.warning("broker lost: leaving the group until it is back", reason=reason)
        self._watch.stop()
        self.counts, self.acting, self.unregistered = None, False, None
        self._replicated = None  # the next broker reports the end of the log itself
        for done in self._truncating.values():
            if not done.done():
                done.set_exception(LinkLostError(reason))
                done.exception()  # the waiting task may have been cancelled
        self._truncating.clear()
        self._events.on_disconnect()

    # Replication's callbacks

    def progressed(self, progress: Progress) -> None:
        """Master: what the replicas hold."""
        self._progress = progress
        self.link.send_now(progress)

    def replicated(self, max_offset: int, confirm_offset: int) -> None:
        """Slave: the log grew, or more of it is confirmed."""
        self._replicated = Replicated(max_offset, confirm_offset)
        if abs(max_offset - self._sent_offset) > MAX_UNREPORTED_BYTES:
            self._send_replicated()
        elif self._send_timer is None:
            self._send_timer = asyncio.get_running_loop().call_later(REPLICATED_SECONDS, self._send_replicated)

    def _send_replicated(self) -> None:
        """Called before any other message to the broker, and by the timer."""
        latest, self._replicated = self._replicated, None
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        if latest is not None:
            self._sent_offset = latest.max_offset
            self.link.send(latest)

    async def truncate(self, offset: int) -> None:
        """Slave: returns when the broker no longer refers to anything at or behind `offset`.

        Raises:
            LinkLostError: the link broke.
        """
        if not self.link.connected:
            raise LinkLostError("no broker is connected")
        done = self._truncating.get(offset)
        if done is None or done.done():
            done = self._truncating[offset] = asyncio.get_running_loop().create_future()
            self._send_replicated()
            self.link.send(Truncate(offset))
        await asyncio.shield(done)

    def repaired(self, start: int, end: int) -> None:
        """Slave: damaged records were copied again."""
        self.send(Repaired(start, end))

    def suspected(self, offset: int) -> None:
        """The log may be damaged there."""
        self.send(Suspected(offset))

    def status_changed(self, epochs: bytes, ha: bytes) -> None:
        """What the broker answers to 1007 and 907."""
        self._status = Status(epochs, ha)
        self.link.send(self._status)
