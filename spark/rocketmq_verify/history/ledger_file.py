"""A ledger in a file of its own (`--ledger`), in the form of those of a history: a file of one can be copied here."""

from pathlib import Path

from rocketmq_runtime.files.atomic_file import keep_unread, write_atomically
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_verify.domain.inquiry.ledger import Ledger
from rocketmq_verify.history.folders import HistoryError
from rocketmq_verify.history.rows import LONGEST_FILE, FileError, LedgerRow, decode, encode, ledger_row
from rocketmq_verify.history.runs import Group


class LedgerFile:
    """One writer at a time."""

    def __init__(self, path: Path, *, saved_ms: int) -> None:
        """`saved_ms`: of what is written, in milliseconds since 1970."""
        self._path, self._saved_ms = path.expanduser(), saved_ms
        self._group: Group | None = None

    def load_ledger(self, group: Group) -> tuple[Ledger | None, str]:
        """What the file has, and what to tell about it if it cannot be trusted: then it is kept beside, and the ledger
        begins again. None: no file.

        Raises:
            HistoryError: it cannot be read, or is of another group.
        """
        try:
            with self._path.open("rb") as file:
                data = file.read(LONGEST_FILE + 1)
                if len(data) > LONGEST_FILE:
                    raise HistoryError(f"{self._path}: no ledger: longer than {LONGEST_FILE} bytes")
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            raise HistoryError(f"{self._path}: cannot be read: {error.strerror}") from error
        try:
            (row,) = decode(data, LedgerRow, None)
            found = row.ledger()
        except (FileError, ValueError) as error:
            return None, f"{self._path} is damaged, it is now {self._aside(data)} and the ledger begins again: {error}"
        theirs = Group(row.cluster, row.broker_name)
        if _differ(group.broker_name, theirs.broker_name) or _differ(group.cluster, theirs.cluster):
            raise HistoryError(
                f"{self._path}: the ledger of {theirs.cluster}/{theirs.broker_name}, another group than "
                f"{group.cluster}/{group.broker_name}"
            )
        self._group = theirs if theirs.broker_name else None
        return found, ""

    def save_ledger(self, group: Group, run_id: str, ledger: Ledger) -> None:
        """Replace the file, durably.

        Raises:
            HistoryError: it is not kept.
        """
        row = ledger_row(self._group or group, run_id, self._saved_ms, ledger)
        try:
            write_atomically(self._path, encode([row], LedgerRow))
        except StorageError as error:
            raise HistoryError(f"{error}; does the folder exist, writable and not full?") from error

    def _aside(self, data: bytes) -> Path:
        """Raises `HistoryError`: it would be lost."""
        try:
            return keep_unread(self._path, data)
        except StorageError as error:
            raise HistoryError(f"{self._path} is damaged, and cannot be kept beside: {error}") from error


def _differ(one: str, other: str) -> bool:
    return bool(one and other and one != other)
