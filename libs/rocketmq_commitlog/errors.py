"""What can be wrong with a log that is read without owning it; callers decide by type."""

from pathlib import Path


class LogReadError(Exception):
    """The log could not be read as requested; the text names the path and, if there is one, the way out."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class NotALogError(LogReadError):
    """There is no commit log here, or none that could be one replica's: names, lengths, too many files."""


class NoFolderError(NotALogError):
    """There is no such folder: most likely a wrong path."""


class UnreadableError(LogReadError):
    """The operating system refuses to read: rights, a broken disk. The `OSError` is the `__cause__`."""


class SmallFileError(LogReadError):
    """The epoch file and its backup, or the note of lost messages, cannot be understood."""


class AbsentError(LogReadError):
    """The requested bytes are not in the log."""


class SegmentGoneError(AbsentError):
    """Their file is not there (any more): expired, deleted, or not made yet."""


class SegmentShortError(AbsentError):
    """Their file is there and ends before them."""
