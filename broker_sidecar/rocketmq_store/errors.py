"""What the store refuses, by type; texts name the file or the value, and the way out."""

from pathlib import Path


class StoreError(Exception):
    """Base of everything the store raises."""


class StoreFullError(StoreError):
    """No room on the disk for what was asked; nothing was changed, reads go on, the same call may succeed later."""


class StoreDamagedError(StoreError):
    """Files that cannot be a store of ours or Java's, or not with this configuration. The process must not start."""

    def __init__(self, path: Path, problem: str, way_out: str) -> None:
        super().__init__(f"{path}: {problem}; {way_out}")
        self.path = path


class StoreInUseError(StoreError):
    """Another process has this store open."""


class WriterLockHeldError(StoreError):
    """Another process appends to this log (invariant OneWriter)."""


class NotWriterError(StoreError):
    """Something wanted to change the log without holding the writer lock: a defect of the caller."""


class OutOfRangeError(StoreError):
    """An offset that the log does not hold (any more, or yet)."""


class MessageIllegalError(StoreError):
    """A message the log cannot hold (MESSAGE_ILLEGAL, response code 13): topic or body too long."""


class PropertiesSizeExceededError(MessageIllegalError):
    """More than 32767 bytes of properties (PROPERTIES_SIZE_EXCEEDED, response code 13)."""
