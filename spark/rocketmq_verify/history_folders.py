"""Where the history's files are: a folder on disk (a PVC too), an object store, or any file system that Hadoop knows.

Used by `history` alone, which needs no more than names, whole files and an order of names. A file is there whole or not
at all: on disk by `rocketmq_runtime.atomic_file`; in object stores an object appears when its upload is complete; on
Hadoop's file systems by a rename. Which of them a path means, its scheme says (`open_folder`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from rocketmq_runtime.atomic_file import write_atomically
from rocketmq_runtime.filesystem import OS, StorageError

MOST_FILES: Final = 100_000
"""Names read of one folder; more are none of ours."""
LONGEST_NAME: Final = 200
_ARROW: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""Schemes that pyarrow speaks itself, by the schemes that people write."""


class HistoryError(Exception):
    """The history could not be read or written; says where and what to do. The cause, if any, is the `__cause__`."""


class Folder(Protocol):
    """Files by a folder under the root, `/` between its parts, and a name. Everything raises `HistoryError`."""

    def names(self, folder: str) -> list[str]:
        """Of its files, ascending; none if there is no such folder. At most `MOST_FILES`."""

    def read(self, folder: str, name: str, longest: int) -> bytes:
        """A whole file; of one that is longer than `longest` the first `longest + 1` bytes."""

    def write(self, folder: str, name: str, data: bytes) -> None:
        """A new file, whole and durable when this returns."""

    def remove(self, folder: str, name: str) -> None:
        """One that is not there (any more) is fine."""


def open_folder(path: str, hadoop: Callable[[str], Folder] | None = None) -> Folder:
    """The folder that `path` names.

    A path without a scheme or with `file:` is a local one. `s3://` (also as `s3a://`), `gs://` and `abfss://` are
    spoken by pyarrow, without a jar or a Spark session; it takes credentials as the clouds' own tools do (environment,
    web identity of a service account, metadata server), and `?endpoint_override=` for stores of one's own. Everything
    else (`hdfs://`, `viewfs://`, ...) goes through Hadoop's client in Spark's JVM.

    Args:
        hadoop: makes a folder there, when it is first used; None where there is no Spark session.

    Raises:
        HistoryError: no file system has this scheme (of Hadoop's: when it is first used).
    """
    scheme = urlsplit(path).scheme.lower()
    if scheme in {"", "file"}:
        return LocalFolder(Path(urlsplit(path).path if scheme else path).expanduser())
    if scheme in _ARROW:
        from rocketmq_verify.history_arrow import ArrowFolder  # noqa: PLC0415 - loads the clouds' clients

        return ArrowFolder.at(_ARROW[scheme] + path[len(scheme) :])
    if hadoop is None:
        raise HistoryError(
            f"{path}: only Spark's Hadoop client could know {scheme}://; give a directory, s3://, gs:// or abfss://, "
            "or run with Spark"
        )
    return _LaterFolder(lambda: hadoop(path))


class _LaterFolder:
    """Opened when it is first used: Spark starts only when it is known that there is something to compare."""

    def __init__(self, open_it: Callable[[], Folder]) -> None:
        self._open_it = open_it
        self._folder: Folder | None = None

    def _opened(self) -> Folder:
        if self._folder is None:
            self._folder = self._open_it()
        return self._folder

    def names(self, folder: str) -> list[str]:
        """See `Folder`."""
        return self._opened().names(folder)

    def read(self, folder: str, name: str, longest: int) -> bytes:
        """See `Folder`."""
        return self._opened().read(folder, name, longest)

    def write(self, folder: str, name: str, data: bytes) -> None:
        """See `Folder`."""
        self._opened().write(folder, name, data)

    def remove(self, folder: str, name: str) -> None:
        """See `Folder`."""
        self._opened().remove(folder, name)


def path_part(name: str) -> str:
    """A name from outside as one part of a path: percent-encoded but for letters, digits, `-`, `_`, `~` and dots.

    Never empty, never hidden (Spark skips names that begin with a dot or `_`), the same for the same name, and another
    one for another name.

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
    """A directory, made when something is written."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        """See `Folder`."""
        try:
            found = (self._root / folder).iterdir()
            return sorted(name for name, _ in zip((path.name for path in found), range(MOST_FILES), strict=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HistoryError(f"{self._root / folder}: cannot be listed: {error.strerror}") from error

    def read(self, folder: str, name: str, longest: int) -> bytes:
        """See `Folder`."""
        path = self._root / folder / name
        try:
            if not path.is_file():
                raise HistoryError(f"{path}: no file")
            with path.open("rb") as file:
                return file.read(longest + 1)
        except OSError as error:
            raise HistoryError(f"{path}: cannot be read: {error.strerror}") from error

    def write(self, folder: str, name: str, data: bytes) -> None:
        """See `Folder`."""
        target = self._root / folder
        try:
            made = [one for one in (target, *target.parents) if not one.exists()]
            OS.mkdir(target)
            for one in reversed(made):
                OS.fsync_directory(one.parent)
            write_atomically(target / name, data)
        except OSError as error:
            raise HistoryError(f"{target}: cannot be made: {error.strerror}; is it mounted and writable?") from error
        except StorageError as error:
            raise HistoryError(f"{error}; is it mounted, writable and not full?") from error

    def remove(self, folder: str, name: str) -> None:
        """See `Folder`."""
        path = self._root / folder / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise HistoryError(f"{path}: cannot be removed: {error.strerror}") from error
