"""A history on a file system that only Hadoop's client supports (HDFS, ViewFS, Ozone), through Spark's JVM.

See `folders.py`. Java objects have no types in Python, so they stay in this module.
"""

import secrets
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from rocketmq_verify.history.folders import MOST_FILES, HistoryError

_PIECE = 1 << 20


class HadoopFolder:
    """A folder of the session's file system for this URI, created at the first write."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        # neither py4j nor pyspark has a public way
        self._jvm: Any = session._jvm  # noqa: SLF001
        context: Any = session.sparkContext._jsc  # noqa: SLF001
        self._uri = uri.rstrip("/")
        try:
            self._system: Any = self._path().getFileSystem(context.hadoopConfiguration())
        except Py4JError as error:
            raise HistoryError(f"{uri}: {_java_message(error)}") from error

    def names(self, folder: str) -> list[str]:
        found: list[str] = []
        try:
            if not self._system.exists(self._path(folder)):
                return []
            files = self._system.listStatusIterator(self._path(folder))
            while len(found) < MOST_FILES and files.hasNext():
                status = files.next()
                if status.isFile():
                    found.append(str(status.getPath().getName()))
        except Py4JError as error:
            raise HistoryError(f"{self._uri}/{folder}: cannot be listed: {_java_message(error)}") from error
        return sorted(found)

    def read(self, folder: str, name: str, longest: int) -> bytes:
        try:
            path = self._path(folder, name)
            length = min(int(self._system.getFileStatus(path).getLen()), longest + 1)
            stream = self._system.open(path)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, length))
            finally:
                stream.close()
        except Py4JError as error:
            raise HistoryError(f"{self._uri}/{folder}/{name}: cannot be read: {_java_message(error)}") from error

    def write(self, folder: str, name: str, data: bytes) -> None:
        """See `Folder`: under another name first, then renamed."""
        try:
            unfinished = self._path(folder, f".{name}.{secrets.token_hex(4)}.tmp")
            stream = self._system.create(unfinished, True)
            try:
                for at in range(0, len(data), _PIECE):
                    stream.write(data[at : at + _PIECE])
                stream.hsync()
            finally:
                stream.close()
            if not self._system.rename(unfinished, self._path(folder, name)):
                self._system.delete(unfinished, False)
                raise HistoryError(f"{self._uri}/{folder}/{name}: cannot be renamed to; is there one already?")
        except Py4JError as error:
            raise HistoryError(f"{self._uri}/{folder}/{name}: cannot be written: {_java_message(error)}") from error

    def remove(self, folder: str, name: str) -> None:
        try:
            self._system.delete(self._path(folder, name), False)
        except Py4JError as error:
            raise HistoryError(f"{self._uri}/{folder}/{name}: cannot be removed: {_java_message(error)}") from error

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join((self._uri, *parts)))


def _java_message(error: Py4JError) -> str:
    """Java's message in one line."""
    cause = getattr(error, "java_exception", None)
    return str(error if cause is None else cause.toString()).partition("\n")[0][:500]
