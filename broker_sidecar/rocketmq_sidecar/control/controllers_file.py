"""The file `.controllers.meta` in storePathRootDir, beside both engines: the name of the group of controllers
(controllerDLegerGroup) at which this replica has registered, UTF-8. Its brokerId and its epochs are from there.

It is written atomically and durably, and removed only by an operator, who accepts another group by it.
"""

from pathlib import Path

from rocketmq_formats.broker_identity import IdentityError
from rocketmq_runtime.files import atomic_file, filesystem
from rocketmq_runtime.files.filesystem import OS, FileSystem
from rocketmq_sidecar.domain.controllers.leader import MAX_GROUP

FILE_NAME = ".controllers.meta"


class ControllersFile:
    """The group of one replica. Blocks on the disk."""

    def __init__(self, folder: Path, *, disk: FileSystem = OS) -> None:
        """`folder` is storePathRootDir."""
        self._path = folder / FILE_NAME
        self._disk = disk

    def load(self) -> str | None:
        """The saved group; None without a file.

        Raises:
            StorageError: it cannot be read.
            IdentityError: it is damaged; the text says what to do.
        """
        text = filesystem.read_file(self._path, filesystem=self._disk)
        if text is None:
            return None
        try:
            group = text.decode()
        except UnicodeDecodeError:
            group = ""
        if not 1 <= len(group) <= MAX_GROUP:
            raise IdentityError(
                f"{self._path} is damaged: it holds the name of a group of controllers, 1 to {MAX_GROUP} characters."
                " Delete it: the group at which this replica registers next is written"
            )
        return group

    def save(self, group: str) -> None:
        """This replica has registered there. Raises `StorageError`."""
        atomic_file.write_atomically(self._path, group.encode(), filesystem=self._disk)
