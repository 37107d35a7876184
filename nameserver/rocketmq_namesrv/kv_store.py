"""The KV configuration with its file: a change is on disk before it is answered or seen."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.nameserver import KVTable
from rocketmq_namesrv.config import write_with_folder
from rocketmq_namesrv.domain.kv import KVTables
from rocketmq_namesrv.domain.model import TableFullError
from rocketmq_runtime import background
from rocketmq_runtime.files.atomic_file import keep_unread
from rocketmq_runtime.files.filesystem import StorageError, storage_errors
from rocketmq_runtime.log_limiter import LogLimiter

log = structlog.get_logger(__name__)

MAX_FILE: Final = 64 * 1024 * 1024
"""Bytes of kvConfig.json that are read."""
MAX_WAITING: Final = 256
MAX_WAITING_OF_HOST: Final = 32
"""Changes that wait for a write."""
DISK_SHARE: Final = 0.25
"""Of the time, that may go into writes: others share the disk, as the journal of an embedded controller."""
MOST_NAMED: Final = 20
"""Entries in one line."""
LOG_SECONDS, EVENT_LINES = 60.0, 200
"""At most EVENT_LINES lines about one kind of change in LOG_SECONDS."""


class KVStore:
    """One per process, used in the event loop only. Anyone who reaches the port may change it: a thread writes, and all
    changes that wait are one write."""

    def __init__(self, path: Path, *, write: Callable[[Path, bytes], None] = write_with_folder) -> None:
        """Read the file, if it is there. `write`: replaces it durably, or raises StorageError; called in a thread.

        Raises:
            StorageError: it cannot be read, or is not what `put` writes: a start with empty tables would overwrite it.
        """
        self._path, self._write = path, write
        self._loop = asyncio.get_running_loop()
        self._may_log = LogLimiter(self._loop.time, LOG_SECONDS, lines=EVENT_LINES)
        self.tables = _read(path) if path.exists() else KVTables()
        """On disk."""
        self.accepted = self.tables
        """With the changes that wait."""
        self._as_on_disk = True
        """False after a failed write, which may have left its change in the file."""
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        """Hosts and promises of the next write."""
        self._of_host: Counter[str] = Counter()
        """Changes of the next write and of the one under way."""
        self._writer: asyncio.Task[None] | None = None
        self._rest_until = self._loop.time()
        self._lists: dict[str, bytes] = {}

    def put(self, namespace: str, key: str, value: str, *, host: str) -> "asyncio.Future[None]":
        """Set one entry, for a request from `host`. Done when it is on disk; StorageError: nothing was changed.

        Raises:
            TableRefusedError: the tables do not take it, or too many changes wait.
        """
        change = self._change(self.accepted.put(namespace, key, value), host)
        if self._may_log("set"):
            log.info("KV entry set", namespace=namespace, key=key, value=value[:200])
        return change

    def delete(self, namespace: str, key: str, *, host: str) -> "asyncio.Future[None]":
        """Remove one entry, if it is there; as `put`.

        Raises:
            TableFullError: too many changes wait.
        """
        tables = self.accepted.delete(namespace, key)
        change = self._change(tables, host)
        if tables is not self.tables and self._may_log("removed"):
            log.info("KV entry removed", namespace=namespace, key=key)
        return change

    def listing(self, namespace: str) -> bytes | None:
        """Everything under `namespace` as the body of an answer; None if nothing ever was."""
        body = self._lists.get(namespace)
        if body is None and (table := self.tables.namespace(namespace)) is not None:
            body = self._lists[namespace] = encode_body(KVTable(table=table))
        return body

    def _change(self, tables: KVTables, host: str) -> "asyncio.Future[None]":
        change: asyncio.Future[None] = self._loop.create_future()
        if tables is self.tables and self.accepted is self.tables and self._as_on_disk:
            change.set_result(None)
            return change
        if self._of_host.total() >= MAX_WAITING or self._of_host[host] >= MAX_WAITING_OF_HOST:
            raise TableFullError("too many changes of the KV configuration wait to be written: try again")
        self.accepted = tables
        self._waiting.append((host, change))
        self._of_host[host] += 1
        if self._writer is None:
            self._writer = background.start(self._write_all(), "KV configuration")
        return change

    async def _write_all(self) -> None:
        try:
            await self._write_waiting()
        finally:
            self._writer = None

    async def _write_waiting(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._rest_until - self._loop.time())
            changes, self._waiting = self._waiting, []
            tables, began = self.accepted, self._loop.time()
            try:
                await asyncio.to_thread(self._encode_and_write, tables)
            except Exception as error:  # noqa: BLE001 - whatever it was, each change has an answer
                failure = error if isinstance(error, StorageError) else StorageError(self._path, repr(error))
                self._as_on_disk = False
                self.accepted = self.tables
                changes, self._waiting = changes + self._waiting, []  # the later ones were made to what failed
                for _, change in changes:
                    if not change.done():
                        change.set_exception(failure)
            else:
                self._as_on_disk = True
                self.tables = tables
                self._lists.clear()
                for _, change in changes:
                    if not change.done():
                        change.set_result(None)
            self._of_host -= Counter(host for host, _ in changes)
            now = self._loop.time()
            self._rest_until = now + (now - began) * (1 / DISK_SHARE - 1)

    def _encode_and_write(self, tables: KVTables) -> None:
        self._write(self._path, tables.encode())


def _read(path: Path) -> KVTables:
    with storage_errors(path, "read"):
        if path.stat().st_size > MAX_FILE:
            raise StorageError(path, f"larger than {MAX_FILE} bytes: not a KV configuration of ours")
        data = path.read_bytes()
    try:
        tables, left_out = KVTables.decode(data)
    except BodyError as error:
        raise StorageError(path, f"no KV configuration ({error}): restore it, or move it away") from error
    if left_out:
        log.error(
            "KV entries cannot be read: correct them in the file that is kept, stop the name server, move it back",
            path=str(path),
            kept=str(keep_unread(path, data)),
            entries=left_out[:MOST_NAMED],
            count=len(left_out),
        )
    return tables
