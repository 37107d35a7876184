"""Records that a log was cut where it had been durable, because of a damaged record: the file `.log.cut` in
storePathRootDir, one line of text.

Recovery writes it before the cut; the sidecar reads it, keeps the replica out of elections until a master has made the
log whole, and then removes it. So a damaged replica starts and repairs itself, but is not elected with a shorter log.
"""

from pathlib import Path
from typing import Final

from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, DiskFullError, FileSystem, StorageError, read_file, storage_errors
from rocketmq_store.errors import StoreFullError

FILE_NAME: Final = ".log.cut"


class LogCut:
    def __init__(self, root: Path, *, filesystem: FileSystem = OS) -> None:
        self.path = root / FILE_NAME
        self._filesystem = filesystem

    def write(self, text: str) -> None:
        """Durable when it returns. Raises `StoreFullError`, `OSError`."""
        try:
            write_atomically(self.path, f"{text}\n".encode(), filesystem=self._filesystem)
        except DiskFullError as error:
            raise StoreFullError(str(error)) from error
        except StorageError as error:
            raise OSError(error.errno, str(error)) from error

    def read(self) -> str | None:
        """The text; None without the file. Raises `StorageError`."""
        data = read_file(self.path, filesystem=self._filesystem)
        return None if data is None else data.decode("utf-8", "replace").strip() or "the log was cut"

    def forget(self) -> None:
        """The log is whole again, or what it lacks is given up; durable when it returns. Raises `StorageError`."""
        if self.read() is not None:
            with storage_errors(self.path, "remove it"):
                self._filesystem.unlink(self.path)
                self._filesystem.fsync_directory(self.path.parent)
