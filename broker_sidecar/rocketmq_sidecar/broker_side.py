"""The agent's side towards its broker: the link, the watch on it, and what passes between broker and replication
without the control machine: progress of the log, truncation, status.

What concerns identity and role goes to the agent as events.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from rocketmq_formats.replica_link import (
    Alive,
    Appended,
    Counts,
    FromBroker,
    FromSidecar,
    Grant,
    Held,
    Hello,
    Lease,
    Prepared,
    Released,
    Replicated,
    Retained,
    RoleNotice,
    Status,
    Truncate,
    Truncated,
)
from rocketmq_formats.replica_link import Replication as Progress
from rocketmq_sidecar.broker_link import BrokerLink
from rocketmq_sidecar.broker_watch import BrokerWatch
from rocketmq_sidecar.replicator import ReplicationPort
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)


REPLICATED_SECONDS = 0.01
"""Between two words to a slave's broker on what arrived: it makes messages visible in portions, because consumers are
the master's and the CPU is better spent on copying."""
UNTOLD_BYTES = 2 * 1024 * 1024
"""Bytes of the log that the broker has not been told of: no more arrive before it is."""


class LinkLostError(ConnectionError):
    """The broker went while its answer was awaited; whoever replicates tries again, if it is still to."""


class BrokerEvents(Protocol):
    """What the agent is told."""

    def on_hello(self, hello: Hello) -> None:
        """The broker is there."""

    def on_said(self, message: Prepared | Released | RoleNotice | Held) -> None:
        """It said something about its role, or about refusing sends."""

    def on_gone(self) -> None:
        """It is gone."""


class BrokerSide:
    """Implements `broker_link.LinkHandler`."""

    def __init__(
        self,
        settings: SidecarSettings,
        events: BrokerEvents,
        replication: Callable[[], ReplicationPort],
        clock: Callable[[], float],
    ) -> None:
        """`replication` is asked for when it is needed: it is built with this side's methods as callbacks."""
        self.link = BrokerLink(settings.socket_path, self)
        self._settings = settings
        self._events = events
        self._replication = replication
        self._watch = BrokerWatch(
            self.link,
            limit=settings.broker_hang_timeout_ms / 1000,
            outlast_promises=settings.durability == "relaxed",
            clock=clock,
        )
        self.counts: Counts | None = None
        """What the broker has done since its start, as it said last; None while none is there."""
        self._progress: Progress | None = None
        self._status: Status | None = None
        self._truncating: dict[int, asyncio.Future[None]] = {}
        self._replicated: Replicated | None = None
        """Not told yet."""
        self._told_offset = 0
        self._telling: asyncio.TimerHandle | None = None

    async def stop(self) -> None:
        """Close the link; nothing is reported any more but what was waiting."""
        self._tell_replicated()
        self._watch.stop()
        await self.link.stop()

    def tell(self, message: FromSidecar) -> None:
        """Say `message` to the broker, if there is one."""
        if isinstance(message, Lease) and self._watch.silent:
            return  # it would find a promise when it wakes up that holds no more
        self._tell_replicated()
        self.link.send(message)
        if isinstance(message, Grant):
            self._watch.promised(message.lease_until)
            if self._progress is not None and self._progress.epoch == message.epoch:
                self.link.send(self._progress)  # what it heard before it was master, it ignored
        elif isinstance(message, Lease):
            self._watch.promised(message.until)

    # broker_link.LinkHandler

    def on_hello(self, hello: Hello) -> str | None:
        """The broker is there, its store recovered; or why it cannot be this replica's."""
        settings = self._settings
        names = settings.broker_cluster_name, settings.name
        if (hello.cluster_name, hello.broker_name) != names:
            return (
                f"it is of {hello.cluster_name}#{hello.broker_name}, this sidecar of {'#'.join(names)}: correct"
                " brokerClusterName or brokerName in one of their files"
            )
        if hello.file_size != settings.mapped_file_size_commit_log:
            return (
                f"its mappedFileSizeCommitLog is {hello.file_size}, this sidecar's"
                f" {settings.mapped_file_size_commit_log}: set both alike"
            )
        log.info("broker connected", address=hello.address, min_offset=hello.min_offset, max_offset=hello.max_offset)
        self._progress = None
        self._told_offset = hello.max_offset
        self._watch.start()
        if self._status is not None:
            self.link.send(self._status)
        self._events.on_hello(hello)
        return None

    def on_message(self, message: FromBroker) -> None:
        """The broker said something."""
        self._watch.heard()
        match message:
            case Alive():
                self.counts = message.counts
            case Appended():
                self._replication().appended(message.max_offset, message.flushed_offset)
            case Retained():
                self._replication().retained(message.min_offset)
            case Truncated():
                done = self._truncating.pop(message.offset, None)
                if done is not None and not done.done():
                    done.set_result(None)
            case Released():
                # As a slave, replication has to know where the log really ends.
                self._replication().appended(message.max_offset, 0)
                self._events.on_said(message)
            case Prepared() | RoleNotice() | Held():
                self._events.on_said(message)
            case Hello():
                raise AssertionError("the link takes one hello")

    def on_gone(self, reason: str) -> None:
        """The link broke."""
        log.warning("broker lost: leaving the group until it is back", reason=reason)
        self._watch.stop()
        self.counts = None
        self._replicated = None  # the next one says where the log ends as far as it sees
        for done in self._truncating.values():
            if not done.done():
                done.set_exception(LinkLostError(reason))
                done.exception()  # whoever waited may have gone
        self._truncating.clear()
        self._events.on_gone()

    # Replication's callbacks

    def progressed(self, progress: Progress) -> None:
        """Master: what the replicas hold."""
        self._progress = progress
        self.link.send(progress)

    def replicated(self, max_offset: int, confirm_offset: int) -> None:
        """Slave: the log grew, or more of it is confirmed."""
        self._replicated = Replicated(max_offset, confirm_offset)
        if abs(max_offset - self._told_offset) > UNTOLD_BYTES:
            self._tell_replicated()
        elif self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(REPLICATED_SECONDS, self._tell_replicated)

    def _tell_replicated(self) -> None:
        """Before anything else is said to the broker, or when it is time."""
        latest, self._replicated = self._replicated, None
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if latest is not None:
            self._told_offset = latest.max_offset
            self.link.send(latest)

    async def truncate(self, offset: int) -> None:
        """Slave: returns when the broker refers to nothing at or behind `offset` any more.

        Raises:
            LinkLostError: it went meanwhile.
        """
        if not self.link.connected:
            raise LinkLostError("no broker is connected")
        done = self._truncating.get(offset)
        if done is None or done.done():
            done = self._truncating[offset] = asyncio.get_running_loop().create_future()
            self._tell_replicated()
            self.link.send(Truncate(offset))
        await asyncio.shield(done)

    def status_changed(self, epochs: bytes, ha: bytes) -> None:
        """What the broker answers to 1007 and 907."""
        self._status = Status(epochs, ha)
        self.link.send(self._status)
