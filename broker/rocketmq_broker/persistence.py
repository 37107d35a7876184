"""Keeps a table of the broker in its file under `{storePathRootDir}/config`: topics, groups, offsets.

A change asks for a write; writes happen in a thread, one at a time per file, and one write covers all the changes that
came before it began. Who must not answer before its change is on disk awaits `saved`.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from rocketmq_formats.remoting.bodies import Body
from rocketmq_formats.store.config_files import ConfigFileError, decode_config
from rocketmq_runtime.atomic_file import write_atomically
from rocketmq_runtime.filesystem import StorageError

log = structlog.get_logger(__name__)

F = TypeVar("F", bound=Body)


class TableFile:
    """One file; `render` gives its whole content and is called in the event loop."""

    def __init__(self, path: Path, render: Callable[[], bytes]) -> None:
        self._path = path
        self._render = render
        self._loop = asyncio.get_running_loop()
        self._wanted = 0
        self._saved = 0
        self._writer: asyncio.Task[None] | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def changed(self) -> None:
        """Write the table soon."""
        self._wanted += 1
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())

    async def saved(self) -> None:
        """Until every change reported so far is on disk.

        Raises:
            StorageError: the write failed; the next change tries again.
        """
        if self._saved < self._wanted:
            done = self._loop.create_future()
            self._waiters.append((self._wanted, done))
            await done

    async def close(self) -> None:
        """Finish what is wanted; a failure has been logged."""
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        try:
            while self._saved < self._wanted:
                version, data = self._wanted, self._render()
                error: StorageError | None = None
                try:
                    await self._loop.run_in_executor(None, write_atomically, self._path, data)
                except StorageError as failure:
                    error = failure
                    log.error("table not written: free the disk or repair it", path=str(self._path), reason=str(error))
                self._saved = version
                self._settle(version, error)
        finally:
            self._writer = None

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


class TableDamagedError(Exception):
    """A table's file cannot be read, and neither can its `.bak`; the process must not start with an empty table."""


def load_table(path: Path, file_type: type[F]) -> F | None:
    """A table's file, or else the copy that Java keeps beside it (`.bak`); None if there is neither.

    Raises:
        TableDamagedError: what is there is no such table.
        OSError: it cannot be read.
    """
    problem: ConfigFileError | None = None
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            table = decode_config(file_type, candidate.read_bytes())
        except FileNotFoundError:
            continue
        except ConfigFileError as error:
            log.error("table cannot be read, its copy is tried", path=str(candidate), reason=str(error))
            problem = error
        else:
            return table
    if problem is None:
        return None
    raise TableDamagedError(
        f"{path}: {problem}; put back a good copy, or delete it on a slave, which copies its master's"
    )
