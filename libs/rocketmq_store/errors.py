"""What the store refuses, by type; texts name the file or the value, and the way out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketmq_runtime.files.filesystem import DISK_FULL_ERRNOS


class StoreError(Exception):
    """Base of everything the store raises."""


class StoreFullError(StoreError):
    """No room on the disk for the requested write; nothing was changed, reads continue, the same call may succeed
    later."""


class StoreDamagedError(StoreError):
    """Files that cannot be a store of ours or Java's, or not with this configuration. The process must not start."""

    def __init__(self, path: Path, problem: str, way_out: str) -> None:
        super().__init__(f"{path}: {problem}; {way_out}")
        self.path = path


class LogDamagedError(StoreDamagedError):
    """No whole record is at `offset`, but the log has to continue. It is not cut there, and no master may begin with
    it."""

    def __init__(self, path: Path, offset: int, reason: str, continues: str) -> None:
        super().__init__(
            path,
            f"no whole record at offset {offset} ({reason}), but {continues}",
            "this replica copies the record again when it follows a master; if no other member has it, restart this"
            " broker",
        )
        self.offset = offset
        self.reason = reason


class StoreInUseError(StoreError):
    """Another process has this store open."""


class RecoveryInterruptedError(StoreError):
    """The caller stopped the recovery. The next one starts from the beginning; nothing is lost."""


class WriterLockHeldError(StoreError):
    """Another process appends to this log (invariant OneWriter)."""


class NotWriterError(StoreError):
    """A change of the log without the writer lock: a defect of the caller."""


class OutOfRangeError(StoreError):
    """An offset that is not in the log (no longer, or not yet)."""


class MessageIllegalError(StoreError):
    """A message the log cannot hold (MESSAGE_ILLEGAL, response code 13): topic or body too long."""


class QueueIllegalError(MessageIllegalError):
    """There can be no such topic or queue."""


class PropertiesSizeExceededError(MessageIllegalError):
    """More than 32767 bytes of properties (PROPERTIES_SIZE_EXCEEDED, response code 13)."""


@contextmanager
def full_disk_errors(path: Path) -> Iterator[None]:
    """Around calls that need room for `path`: a full disk, or one without room for another name, raises
    `StoreFullError`; other errors of the system stay what they are."""
    try:
        yield
    except OSError as error:
        raise_full(path, error)
        raise


def raise_full(path: Path, error: OSError) -> None:
    """`full_disk_errors` where a context manager takes too long: raises `StoreFullError` if that is what `error`
    says."""
    if error.errno in DISK_FULL_ERRNOS:
        raise StoreFullError(f"{path}: no room; free disk space or lower fileReservedTime") from error
