"""Saves what the observing sidecar has seen: `.sidecar.observed` in storePathRootDir, JSON, replaced as a whole.

Durable before anything depends on it, so that an identity once seen is never forgotten.
"""

from pathlib import Path

import msgspec

from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, FileSystem, read_file
from rocketmq_sidecar.domain.observing.identity import ObservedReplica

FILE_NAME = ".sidecar.observed"
MAX_LENGTH = 64 * 1024


class ObservedFileError(Exception):
    """The file is damaged; the text says what to do."""


class ObservedFile:
    """The only writer of the file."""

    def __init__(self, folder: Path, *, disk: FileSystem = OS) -> None:
        self.path = folder / FILE_NAME
        self.observed = ObservedReplica()
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
            self.observed = msgspec.json.decode(data[:MAX_LENGTH], type=ObservedReplica)  # cut off, it is damaged
        except msgspec.DecodeError as error:
            raise ObservedFileError(
                f"{self.path} is damaged ({error}): remove it, it is created again from brokerIdentity"
            ) from error

    def save(self, observed: ObservedReplica) -> None:
        """Replace it; on disk when this returns.

        Raises:
            StorageError: not written; what was there still is.
        """
        if observed != self.observed:
            write_atomically(self.path, msgspec.json.encode(observed), filesystem=self._disk)
            self.observed = observed
