"""The agent's two identity files, by RocketMQ's names, written so that no crash loses an identity.

Java deletes the old file before it writes the new one; here the new one is durable first.
"""

from contextlib import suppress
from pathlib import Path

from rocketmq_formats import broker_identity
from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity, IdentityError
from rocketmq_runtime import atomic_file, filesystem
from rocketmq_runtime.filesystem import OS, FileSystem


class IdentityFiles:
    """One broker's folder."""

    def __init__(self, folder: Path, disk: FileSystem = OS) -> None:
        self._folder = folder
        self._identity = folder / broker_identity.FILE_NAME
        self._applied = folder / broker_identity.TEMPORARY_FILE_NAME
        self._disk = disk

    def load(self, cluster_name: str, broker_name: str) -> tuple[BrokerIdentity | None, AppliedIdentity | None]:
        """What is kept; a text that cannot be read, or names somebody else, is refused and never overwritten.

        Raises:
            StorageError, IdentityError: it cannot be read, is no identity, or belongs to another group.
        """
        kept = filesystem.read_file(self._identity, filesystem=self._disk)
        asked = filesystem.read_file(self._applied, filesystem=self._disk)
        identity = None if kept is None else broker_identity.decode_identity(kept)
        applied = None if asked is None else broker_identity.decode_applied(asked)
        for one in (identity, None if applied is None else applied.identity):
            if one is not None and (one.cluster_name, one.broker_name) != (cluster_name, broker_name):
                owner = f"{one.cluster_name}#{one.broker_name}"
                raise IdentityError(f"{self._folder} belongs to {owner}, not to {cluster_name}#{broker_name}")
        return identity, applied

    def save_applied(self, applied: AppliedIdentity) -> None:
        """Before the id is applied for: a restart has to ask with the same check code. Raises `StorageError`."""
        atomic_file.write_atomically(self._applied, broker_identity.encode_applied(applied), filesystem=self._disk)

    def save_identity(self, identity: BrokerIdentity) -> None:
        """The id is ours. The temporary file goes last: with both, the identity counts. Raises `StorageError`."""
        atomic_file.write_atomically(self._identity, broker_identity.encode_identity(identity), filesystem=self._disk)
        self.forget_applied()

    def forget_applied(self) -> None:
        """Remove the temporary file. Raises `StorageError`."""
        with filesystem.storage_errors(self._applied, "remove"):
            with suppress(FileNotFoundError):
                self._disk.unlink(self._applied)
            self._disk.fsync_directory(self._folder)
