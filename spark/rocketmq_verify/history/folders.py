"""Where the history's files are: a folder on disk (a PVC too), an object store, or any file system of Hadoop's.

The history needs names, whole files and an order of names. A file exists whole or not at all: on disk by
`rocketmq_runtime.files.atomic_file`; in object stores an object appears when its upload is complete; on Hadoop's file
systems by a rename. `open_folder.py` chooses one by the path's scheme.
"""

from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, StorageError

MOST_FILES: Final = 100_000
"""Names read of one folder; a history never has more."""
LONGEST_NAME: Final = 200


class HistoryError(Exception):
    """The history could not be read or written; the message has the place and what to do. The cause, if any, is the
    `__cause__`."""


class UnreadLedgerError(HistoryError):
    """There is a ledger, and it cannot be read now: another one must not take its place."""


class Folder(Protocol):
    """Files by a folder under the root, `/` between its parts, and a name. Everything raises `HistoryError`."""

    def names(self, folder: str) -> list[str]:
        """Names of its files, ascending, at most `MOST_FILES`; empty if the folder does not exist."""

    def read(self, folder: str, name: str, longest: int) -> bytes:
        """A whole file; of one that is longer than `longest` the first `longest + 1` bytes."""

    def write(self, folder: str, name: str, data: bytes) -> None:
        """A new file, whole and durable when this returns."""

    def remove(self, folder: str, name: str) -> None:
        """Delete a file; fine if it does not exist."""


def path_part(name: str) -> str:
    """A name from outside as one part of a path: percent-encoded except letters, digits, `-`, `_`, `~` and dots.

    Never empty, never hidden (Spark skips names that begin with a dot or `_`), the same for the same name, and
    different for different names.

    Raises:
        HistoryError: too long.
    """
    plain = quote(name, safe="", errors="surrogatepass") or "%"
    if plain[0] in "._":
        plain = f"%{ord(plain[0]):02X}{plain[1:]}"
    if len(plain) > LONGEST_NAME:
        raise HistoryError(f"{name[:80]!r}...: {len(plain)} characters are too long for a folder's name")
    return plain


class LocalFolder:
    """A directory, created at the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        try:
            found = (self._root / folder).iterdir()
            return sorted(name for name, _ in zip((path.name for path in found), range(MOST_FILES), strict=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HistoryError(f"{self._root / folder}: cannot be listed: {error.strerror}") from error

    def read(self, folder: str, name: str, longest: int) -> bytes:
        path = self._root / folder / name
        try:
            if not path.is_file():
                raise HistoryError(f"{path}: not a file")
            with path.open("rb") as file:
                return file.read(longest + 1)
        except OSError as error:
            raise HistoryError(f"{path}: cannot be read: {error.strerror}") from error

    def write(self, folder: str, name: str, data: bytes) -> None:
        target = self._root / folder
        try:
            made = [parent for parent in (target, *target.parents) if not parent.exists()]
            OS.mkdir(target)
            for missing in reversed(made):
                OS.fsync_directory(missing.parent)
            write_atomically(target / name, data)
        except OSError as error:
            raise HistoryError(f"{target}: cannot be created: {error.strerror}; is it mounted and writable?") from error
        except StorageError as error:
            raise HistoryError(f"{error}; is it mounted, writable and not full?") from error

    def remove(self, folder: str, name: str) -> None:
        path = self._root / folder / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise HistoryError(f"{path}: cannot be removed: {error.strerror}") from error
