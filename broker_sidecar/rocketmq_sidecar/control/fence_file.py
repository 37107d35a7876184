"""The file that keeps a fence (`domain/control/fence.py`): `.fenced` in storePathRootDir. It exists while sends are
refused.

It is written atomically and durably before the fence takes effect. A file that cannot be read or understood counts as a
fence: the reason says what is wrong with it, and ending the fence removes it.
"""

from contextlib import suppress
from pathlib import Path

from rocketmq_formats.errors import FormatError
from rocketmq_runtime.files import atomic_file, filesystem
from rocketmq_runtime.files.filesystem import OS, FileSystem, StorageError
from rocketmq_sidecar.domain.control import fence
from rocketmq_sidecar.domain.control.fence import Fence

FILE_NAME = ".fenced"


class FenceFile:
    """The fence of one replica. Blocks on the disk: call it in a thread."""

    def __init__(self, folder: Path, *, disk: FileSystem = OS) -> None:
        """`folder` is storePathRootDir."""
        self._folder = folder
        self._path = folder / FILE_NAME
        self._disk = disk

    def load(self) -> Fence | None:
        """The saved fence; None without a file."""
        try:
            text = filesystem.read_file(self._path, filesystem=self._disk)
            return None if text is None else fence.decode(text)
        except (FormatError, StorageError) as error:
            return Fence(f"the fence file {self._path} cannot be read, which counts as a fence: {error}", 0)

    def save(self, kept: Fence | None) -> None:
        """Save it, or remove the file. Raises `StorageError`; then it is not certain what the next start finds."""
        if kept is not None:
            atomic_file.write_atomically(self._path, fence.encode(kept), filesystem=self._disk)
            return
        with filesystem.storage_errors(self._path, "remove"):
            with suppress(FileNotFoundError):
                self._disk.unlink(self._path)
            self._disk.fsync_directory(self._folder)
