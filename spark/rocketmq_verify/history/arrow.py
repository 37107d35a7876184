"""A history in an object store, through pyarrow's own clients: no jar, no Spark session. See `folders.py`."""

from typing import Self

import pyarrow as pa
from pyarrow import fs

from rocketmq_verify.history.folders import MOST_FILES, HistoryError


class ArrowFolder:
    """A prefix in a bucket, or a folder of any file system of pyarrow whose files appear whole."""

    def __init__(self, system: fs.FileSystem, root: str) -> None:
        self._system, self._root = system, root.rstrip("/")

    @classmethod
    def at(cls, uri: str) -> Self:
        """Raises `HistoryError`."""
        try:
            return cls(*fs.FileSystem.from_uri(uri))
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{_plain(uri)}: {error}") from error

    def names(self, folder: str) -> list[str]:
        path = f"{self._root}/{folder}"
        try:
            found = self._system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{path}: cannot be listed: {error}") from error
        return sorted(info.base_name for info in found if info.type == fs.FileType.File)[-MOST_FILES:]

    def read(self, folder: str, name: str, longest: int) -> bytes:
        path = f"{self._root}/{folder}/{name}"
        try:
            with self._system.open_input_stream(path) as file:
                return file.read(longest + 1)
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{path}: cannot be read: {error}") from error

    def write(self, folder: str, name: str, data: bytes) -> None:
        path = f"{self._root}/{folder}/{name}"
        try:
            self._system.create_dir(f"{self._root}/{folder}", recursive=True)
            with self._system.open_output_stream(path) as file:
                file.write(data)
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{path}: cannot be written: {error}") from error

    def remove(self, folder: str, name: str) -> None:
        path = f"{self._root}/{folder}/{name}"
        try:
            self._system.delete_file(path)
        except FileNotFoundError:
            pass
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{path}: cannot be removed: {error}") from error


def _plain(uri: str) -> str:
    """The URI without parts that may be secret."""
    head, _, _ = uri.partition("?")
    scheme, _, rest = head.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme == "s3" else head
