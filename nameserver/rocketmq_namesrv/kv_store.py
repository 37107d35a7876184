"""The KV configuration with its file: a change is on disk before it is answered or seen."""

import time
from pathlib import Path

import structlog

from rocketmq_formats.errors import BodyError
from rocketmq_namesrv.config import make_parent
from rocketmq_namesrv.domain.kv import KVTables
from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import StorageError, storage_errors
from rocketmq_runtime.log_limiter import LogLimiter

log = structlog.get_logger(__name__)

MAX_FILE = 64 * 1024 * 1024
"""Bytes of kvConfig.json that are read."""
LOG_SECONDS, EVENT_LINES = 60.0, 200
"""At most EVENT_LINES lines about one kind of change in LOG_SECONDS."""


class KVStore:
    """One per process, used in the event loop only; writes block it for one small synced file, at a tool's request."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there.

        Raises:
            StorageError: it cannot be read, or is not what `put` writes: a start with empty tables would overwrite it.
        """
        self._path = path
        self._may_log = LogLimiter(time.monotonic, LOG_SECONDS, lines=EVENT_LINES)
        self.tables = KVTables()
        if path.is_file():
            self.tables = _read(path)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one entry.

        Raises:
            TableRefusedError: the tables do not take it.
            StorageError: the file cannot be written; nothing was changed.
        """
        self._keep(self.tables.put(namespace, key, value))
        if self._may_log("set"):
            log.info("KV entry set", namespace=namespace, key=key, value=value[:200])

    def delete(self, namespace: str, key: str) -> None:
        """Remove one entry; nothing happens if it is not there.

        Raises:
            StorageError: the file cannot be written; nothing was changed.
        """
        tables = self.tables.delete(namespace, key)
        if tables is not self.tables:
            self._keep(tables)
            if self._may_log("removed"):
                log.info("KV entry removed", namespace=namespace, key=key)

    def _keep(self, tables: KVTables) -> None:
        make_parent(self._path)
        write_atomically(self._path, tables.encode())
        self.tables = tables


def _read(path: Path) -> KVTables:
    with storage_errors(path, "read"):
        if path.stat().st_size > MAX_FILE:
            raise StorageError(path, f"larger than {MAX_FILE} bytes: not a KV configuration of ours")
        data = path.read_bytes()
    try:
        return KVTables.decode(data)
    except BodyError as error:
        raise StorageError(path, f"no KV configuration ({error}): restore it, or move it away") from error
