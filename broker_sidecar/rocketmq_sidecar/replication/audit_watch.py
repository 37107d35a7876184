"""Starts the comparison and repair of a slave's log (`log_audit`) with each connection to a master: both with a native
master, only the repair with an official one. Used by `replication`."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rocketmq_commitlog.errors import LogReadError
from rocketmq_formats.errors import FrameError
from rocketmq_runtime.defects import survive_defects
from rocketmq_sidecar.audit.audit_link import AuditLink
from rocketmq_sidecar.audit.ha_reader import HaReader
from rocketmq_sidecar.audit.log_audit import DamageFoundError, LogAudit
from rocketmq_sidecar.domain.replication.log_judge import LogsDivergedError
from rocketmq_sidecar.replication.ha_client import MasterConnection
from rocketmq_store.errors import StoreError
from rocketmq_store.log.segments import MappedFiles

log = structlog.get_logger()

OpenLink = Callable[[], Awaitable[AuditLink]]
"""Opens a connection for audit requests to a native master."""


class AuditWatch:
    """One per replica, for its present connection."""

    def __init__(self, audit: LogAudit) -> None:
        self.audit = audit
        self._connection: MasterConnection | None = None
        self._files: MappedFiles | None = None
        self._open_link: OpenLink | HaReader | None = None
        self._comparing: asyncio.Task[None] | None = None

    def watch(self, connection: MasterConnection, files: MappedFiles, open_link: OpenLink | HaReader) -> None:
        """A connection to a master was made."""
        if self._comparing is not None:
            self._comparing.cancel()
        self._connection, self._files, self._open_link = connection, files, open_link
        connection.before_acknowledging = self._repair

    def damaged(self, offset: int) -> None:
        """The broker has found damage at `offset`; -1: the log has no known damage."""
        found = offset >= 0 and offset != self.audit.damage
        self.audit.damage = offset
        connection = self._connection
        if found and connection is not None and connection.aligned and not connection.ended.is_set():
            connection.end(DamageFoundError(f"damage at offset {offset} is repaired before more arrives"))

    def caught_up(self) -> None:
        """The connection has all that its master had."""
        compares = self._open_link is not None and not isinstance(self._open_link, HaReader)
        if compares and self._connection is not None and not self._connection.ended.is_set():
            self._comparing = asyncio.get_running_loop().create_task(self._compare(self._connection))

    async def stop(self) -> None:
        """The replica no longer follows."""
        self._connection = self._files = self._open_link = None
        comparing, self._comparing = self._comparing, None
        if comparing is not None:
            comparing.cancel()
            await asyncio.gather(comparing, return_exceptions=True)

    async def _repair(self, end: int) -> None:
        if not self.audit.has_work or self._open_link is None or self._files is None:
            return
        try:
            if isinstance(self._open_link, HaReader):
                await self.audit.repair(self._open_link, self._files, end)
                return
            with await self._open_link() as link:
                await self.audit.repair(link, self._files, end)
        except (LogsDivergedError, DamageFoundError):
            raise
        except (OSError, TimeoutError, FrameError, StoreError, LogReadError) as error:
            # follow without the repair: new messages need every copy
            log.warning("cannot repair damage in the log for now", reason=str(error) or type(error).__name__)

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
