"""Opens the folder of a history's path: the only module that imports all kinds of folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rocketmq_verify.history.folders import Folder, HistoryError, LocalFolder

_ARROW: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""Schemes that pyarrow supports itself, by the schemes that people write."""


def open_folder(path: str, hadoop: Callable[[str], Folder] | None = None) -> Folder:
    """The folder that `path` names.

    A path without a scheme or with `file:` is a local one. `s3://` (also as `s3a://`), `gs://` and `abfss://` go
    through pyarrow, without a jar or a Spark session; it finds credentials as the clouds' own tools do (environment,
    web identity of a service account, metadata server), and takes `?endpoint_override=` for private stores. Everything
    else (`hdfs://`, `viewfs://`, ...) goes through Hadoop's client in Spark's JVM.

    Args:
        hadoop: opens a folder there at its first use; None without a Spark session.

    Raises:
        HistoryError: no file system has this scheme (Hadoop's: at the first use).
    """
    scheme = urlsplit(path).scheme.lower()
    if scheme in {"", "file"}:
        return LocalFolder(Path(urlsplit(path).path if scheme else path).expanduser())
    if scheme in _ARROW:
        from rocketmq_verify.history.arrow import ArrowFolder  # noqa: PLC0415 - loads the clouds' clients

        return ArrowFolder.at(_ARROW[scheme] + path[len(scheme) :])
    if hadoop is None:
        raise HistoryError(
            f"{path}: only Spark's Hadoop client may support {scheme}://; give a directory, s3://, gs:// or abfss://, "
            "or run with Spark"
        )
    return _LaterFolder(lambda: hadoop(path))


class _LaterFolder:
    """Opened at its first use: Spark starts only when there is something to compare."""

    def __init__(self, open_it: Callable[[], Folder]) -> None:
        self._open_it = open_it
        self._folder: Folder | None = None

    def _opened(self) -> Folder:
        if self._folder is None:
            self._folder = self._open_it()
        return self._folder

    def names(self, folder: str) -> list[str]:
        return self._opened().names(folder)

    def read(self, folder: str, name: str, longest: int) -> bytes:
        return self._opened().read(folder, name, longest)

    def write(self, folder: str, name: str, data: bytes) -> None:
        self._opened().write(folder, name, data)

    def remove(self, folder: str, name: str) -> None:
        self._opened().remove(folder, name)
