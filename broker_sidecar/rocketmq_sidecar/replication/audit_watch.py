"""Starts the comparison and repair of a slave's log (`log_audit`) with each connection to a master: both with a native
master, only the repair with an official one. Used by `replication`.

A slave whose broker has stopped dispatching has a copy that it cannot use, so it acknowledges nothing: each connection
attempts the repair, has the broker try again, and ends without an acknowledgement if that changes nothing, later each
time. Only where the master's log is damaged too it follows: that master has to hand over, and the others need copies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from rocketmq_commitlog.errors import LogReadError
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replica_link import LogState
from rocketmq_runtime import background
from rocketmq_runtime.defects import survive_defects
from rocketmq_sidecar.audit.audit_link import AuditLink
from rocketmq_sidecar.audit.ha_reader import HaReader
from rocketmq_sidecar.audit.log_audit import DamageFoundError, LogAudit
from rocketmq_sidecar.domain.replication.log_judge import LogsDivergedError
from rocketmq_sidecar.replication.ha_client import MasterConnection
from rocketmq_store.errors import StoreError
from rocketmq_store.log.segments import MappedFiles

log = structlog.get_logger()

HOLD_FIRST: Final = 1.0
HOLD_LAST: Final = 60.0
"""Seconds that a connection waits, after a repair, for a broker that has stopped dispatching."""

OpenLink = Callable[[], Awaitable[AuditLink]]
"""Opens a connection for audit requests to a native master."""


class DispatchingStoppedError(ConnectionError):
    """Nothing is acknowledged over this connection."""


class AuditWatch:
    """One per replica, for its present connection."""

    def __init__(self, audit: LogAudit) -> None:
        self.audit = audit
        self._connection: MasterConnection | None = None
        self._files: MappedFiles | None = None
        self._open_link: OpenLink | HaReader | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._stopped_at = -1
        """Where the broker's dispatching has stopped; -1: it has not."""
        self._reported = asyncio.Event()
        self._hold = HOLD_FIRST

    def watch(self, connection: MasterConnection, files: MappedFiles, open_link: OpenLink | HaReader) -> None:
        """A connection to a master was made."""
        if self._comparing is not None:
            self._comparing.cancel()
        self._connection, self._files, self._open_link = connection, files, open_link
        connection.before_acknowledging = self._repair

    def on_log_state(self, state: LogState) -> None:
        """The broker has found damage, or no longer has any."""
        found = state.damage >= 0 and state.damage != self.audit.damage
        self.audit.damage = state.damage
        self._stopped_at = state.damage if state.stopped else -1
        if not state.stopped:
            self._hold = HOLD_FIRST
        self._reported.set()
        connection = self._connection
        if found and connection is not None and connection.aligned and not connection.ended.is_set():
            connection.end(DamageFoundError(f"damage at offset {state.damage} is repaired before more arrives"))

    def caught_up(self) -> None:
        """The connection has all that its master had."""
        compares = self._open_link is not None and not isinstance(self._open_link, HaReader)
        if compares and self._connection is not None and not self._connection.ended.is_set():
            self._comparing = background.start(self._compare(self._connection), "comparison of the log")

    async def stop(self) -> None:
        """The replica no longer follows."""
        self._connection = self._files = self._open_link = None
        comparing, self._comparing = self._comparing, None
        if comparing is not None:
            comparing.cancel()
            await asyncio.gather(comparing, return_exceptions=True)

    async def _repair(self, end: int) -> None:
        if self._open_link is None or self._files is None:
            return
        self._reported.clear()
        stopped = self._files.min_offset <= self._stopped_at < end
        if stopped:
            self.audit.damage = self._stopped_at  # even if nothing differs there, the broker tries again
        official = isinstance(self._open_link, HaReader)
        looked = official or self.audit.has_compared_first
        if end <= self._files.min_offset or (looked and not self.audit.has_work):
            return
        shared = False
        try:
            if isinstance(self._open_link, HaReader):
                shared = await self.audit.repair(self._open_link, self._files, end)
            else:
                with await self._open_link() as link:
                    shared = await self.audit.compare_and_repair(link, self._files, end)
        except (LogsDivergedError, DamageFoundError):
            raise
        except (OSError, TimeoutError, FrameError, StoreError, LogReadError) as error:
            # follow without the repair: new messages need every copy
            log.warning(
                "cannot compare or repair the end of the log for now", reason=str(error) or type(error).__name__
            )
        if stopped and not shared:
            if self.audit.damage >= 0:  # the repair was not possible, and the reason may have passed nevertheless
                self.audit.try_again()
            await self._await_dispatching()

    async def _await_dispatching(self) -> None:
        """Raises `DispatchingStoppedError`."""
        hold, self._hold = self._hold, min(2 * self._hold, HOLD_LAST)
        with suppress(TimeoutError):
            async with asyncio.timeout(hold):
                await self._reported.wait()
        if self._stopped_at >= 0:
            raise DispatchingStoppedError(
                f"this replica acknowledges nothing, because at its broker messages from offset {self._stopped_at} on"
                " do not become visible: rebuild it if that stays"
            )

    async def _compare(self, connection: MasterConnection) -> None:
        assert self._files is not None
        assert self._open_link is not None
        assert not isinstance(self._open_link, HaReader)
        with survive_defects(log, "unexpected error while comparing the log"):
            try:
                with await self._open_link() as link:
                    await self.audit.compare(link, self._files, connection.session.max_offset)
            except (DamageFoundError, LogsDivergedError) as error:
                connection.end(error)
            except (OSError, TimeoutError, FrameError, StoreError, LogReadError) as error:
                log.info("the comparison of the log stopped early", reason=str(error) or type(error).__name__)
