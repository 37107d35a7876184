"""Where the observing sidecar keeps its note: `.sidecar.observed` in storePathRootDir, JSON, replaced as a whole.

Durable before anything follows from it: an identity that was once seen is known for ever.
"""

from pathlib import Path

import msgspec

from rocketmq_runtime.atomic_file import write_atomically
from rocketmq_runtime.filesystem import OS, FileSystem, read_file
from rocketmq_sidecar.domain.observer_note import Note

FILE_NAME = ".sidecar.observed"
MAX_LENGTH = 64 * 1024


class NoteError(Exception):
    """The note is damaged; the text says what to do."""


class NoteFile:
    """The one writer of the note."""

    def __init__(self, folder: Path, *, disk: FileSystem = OS) -> None:
        self.path = folder / FILE_NAME
        self.note = Note()
        self._disk = disk

    def load(self) -> None:
        """Read it.

        Raises:
            StorageError: it cannot be read.
            NoteError: it is damaged.
        """
        data = read_file(self.path, filesystem=self._disk)
        if data is None:
            return
        try:
            self.note = msgspec.json.decode(data[:MAX_LENGTH], type=Note)  # cut off, it is damaged
        except msgspec.DecodeError as error:
            raise NoteError(
                f"{self.path} is damaged ({error}): remove it, it is made anew from brokerIdentity"
            ) from error

    def save(self, note: Note) -> None:
        """Replace it; on disk when this returns.

        Raises:
            StorageError: not written; what was there still is.
        """
        if note != self.note:
            write_atomically(self.path, msgspec.json.encode(note), filesystem=self._disk)
            self.note = note
