"""Keeps a table of the broker in its file under `{storePathRootDir}/config`: topics, groups, offsets.

A change requests a write. Texts are made and written in a thread, one at a time per file, and one write covers all
changes before it began. A caller that may answer only when its change is on disk awaits `saved`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Final, TypeVar

import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.json.bodies import Body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.steps import Steps
from rocketmq_formats.store.config_files import ConfigFileError, read_config
from rocketmq_runtime import background
from rocketmq_runtime.files.atomic_file import keep_unread, write_atomically
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.remoting.slow_lane import Pace, in_steps

log = structlog.get_logger(__name__)

MOST_NAMED: Final = 20
"""Entries of a table in one line."""
MAY_LACK: Final = frozenset({"topicConfigTable", "subscriptionGroupTable", "forbiddenTable"})
"""Fields of which an entry may be left out. A consumer without its offset would go to the end of its queue, and slaves
copy the table that a dataVersion belongs to."""
RETRY_SECONDS = 10.0
"""After a failed write: without a retry, a table that does not change again would be lost at the next restart."""

F = TypeVar("F", bound=Body)

Render = Callable[[], bytes]
"""Gives a file's whole content, in a thread."""
Snapshot = Callable[[], Render | Steps[Render]]
"""Called in the event loop: quick, or in steps. What it returns holds the table as it is at the end of that."""


class TableFile:
    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        self._path = path
        self._snapshot = snapshot
        self._loop = asyncio.get_running_loop()
        self._wanted = 0
        self._saved = 0
        self._writer: asyncio.Task[None] | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._retry: asyncio.TimerHandle | None = None
        """The last write failed."""

    def changed(self) -> None:
        """Write the table soon."""
        self._wanted += 1
        if self._writer is None:
            self._writer = background.start(self._write(), f"write of {self._path.name}")

    async def saved(self) -> None:
        """Until every change reported so far is on disk.

        Raises:
            StorageError: the write failed; it is retried.
        """
        if self._retry is not None:
            self.changed()  # the last write failed
        if self._saved < self._wanted:
            done = self._loop.create_future()
            self._waiters.append((self._wanted, done))
            await done

    async def close(self) -> None:
        """Finish what is wanted; a failure has been logged. What failed before is tried again."""
        if self._writer is not None:
            await self._writer
        if self._retry is not None:
            self._wanted += 1
            await self._write()
            self._forget_retry()

    async def _write(self) -> None:
        try:
            while self._saved < self._wanted:
                version = self._wanted
                error = await self._write_once()
                self._saved = version
                self._report(error)
                self._forget_retry()
                if error is not None:
                    self._retry = self._loop.call_later(RETRY_SECONDS, self.changed)
                self._settle(version, error)
        finally:
            self._writer = None

    async def _write_once(self) -> StorageError | None:
        """What went wrong."""
        try:
            made = self._snapshot()
            render = await in_steps(made, Pace(time.perf_counter)) if isinstance(made, Generator) else made
            await self._loop.run_in_executor(None, _write, self._path, render)
        except StorageError as error:
            return error
        except Exception as error:
            # a defect must not keep those that wait for `saved` waiting forever
            if self._retry is None:
                log.exception("table cannot be made", path=str(self._path))
            return StorageError(self._path, f"{type(error).__name__}: {error}")
        return None

    def _report(self, error: StorageError | None) -> None:
        """One line when it begins and one when it ends, not one per change."""
        failed_before = self._retry is not None
        if error is not None and not failed_before:
            log.error("table not written: free the disk or repair it", path=str(self._path), reason=str(error))
        elif error is None and failed_before:
            log.info("table written again", path=str(self._path))

    def _forget_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _settle(self, version: int, error: StorageError | None) -> None:
        waiters, self._waiters = self._waiters, []
        for wanted, done in waiters:
            if wanted > version:
                self._waiters.append((wanted, done))
            elif not done.done():
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)


def _write(path: Path, render: Render) -> None:
    write_atomically(path, render())


Barrier = Callable[[], Awaitable[str | None]]
"""Returns None when a change is as durable as configured, or why it may be lost."""
MakeBarrier = Callable[[], Barrier]
"""Called when the change is made."""


def no_barrier() -> Barrier:
    """A `MakeBarrier` that does not wait for other replicas."""
    return _no_wait


async def _no_wait() -> str | None:
    return None


async def _nothing_else() -> None:
    pass


async def answer_when_durable(
    request: RemotingCommand, file: TableFile, barrier: Barrier, also: Callable[[], Awaitable[None]] = _nothing_else
) -> RemotingCommand:
    """The answer to a tool that changed, or repeated a change of, what `file` keeps. `also`: returns when other files
    that changed are on disk, and raises as `saved`."""
    try:
        await file.saved()
        await also()
    except StorageError as error:
        return response(request, ResponseCode.SYSTEM_ERROR, f"the change holds only until a restart: {error}")
    problem = await barrier()
    if problem is not None:
        log.warning("a change is not at all replicas in sync", code=request.code, reason=problem)
        return response(request, ResponseCode.SYSTEM_BUSY, problem)
    return response(request, ResponseCode.SUCCESS)


def check_may_edit(role: ReplicaRole) -> None:
    """Raises `RequestRefusedError` where a tool's change of topics or groups would not last."""
    problem = role.edit_refusal
    if problem is not None:
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, problem)


class TableDamagedError(Exception):
    """A table's file cannot be read, and neither can its `.bak`; the process must not start with an empty table."""


def load_table(path: Path, file_type: type[F]) -> F | None:
    """A table's file, or else the copy that Java keeps beside it (`.bak`); None if there is neither.

    An entry that cannot be read is taken from that copy, or left out if it is of `MAY_LACK`. The file with it is kept
    beside the table, which the next change writes without it.

    Raises:
        TableDamagedError: the file is no table, lacks what it may not lack, or cannot be kept.
        OSError: it cannot be read.
    """
    problem: ConfigFileError | None = None
    copy = path.with_name(path.name + ".bak")
    for candidate in (path, copy):
        try:
            data = candidate.read_bytes()
            table, left_out = read_config(file_type, data)
        except FileNotFoundError:
            continue
        except ConfigFileError as error:
            log.error("table cannot be read, its copy is tried", path=str(candidate), reason=str(error))
            problem = error
            continue
        if not left_out:
            return table
        spare = _readable(copy, file_type)
        if spare is not None:
            table, left_out = read_config(file_type, data, spare)
        for one in left_out:
            if not one.replaced and one.field not in MAY_LACK:
                raise damaged(candidate, ConfigFileError(str(one)))
        log.error(
            "entries of a table cannot be read: correct them in the file that is kept, stop the broker, move it back",
            path=str(candidate),
            kept=str(_keep(candidate, data)),
            entries=[str(one) for one in left_out[:MOST_NAMED]],
            count=len(left_out),
            instead=None if spare is None else f"those of {copy.name}, where it has them",
        )
        return table
    if problem is None:
        return None
    raise damaged(path, problem)


def damaged(path: Path, problem: Exception) -> TableDamagedError:
    """The error that ends a start, with what to do."""
    return TableDamagedError(
        f"{path}: {problem}; put back a good copy, or delete it on a slave, which copies its master's"
    )


def _readable(path: Path, file_type: type[F]) -> F | None:
    """What of a table's copy can be read."""
    try:
        return read_config(file_type, path.read_bytes())[0]
    except (OSError, ConfigFileError):
        return None


def _keep(path: Path, data: bytes) -> Path:
    try:
        return keep_unread(path, data)
    except StorageError as error:
        raise TableDamagedError(f"{path} has entries that cannot be read, and no copy can be kept: {error}") from error
