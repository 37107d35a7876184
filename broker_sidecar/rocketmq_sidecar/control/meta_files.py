"""The identity files of a native replica, `.broker.meta` and `.broker.meta.temp` in storePathRootDir, written so that
no crash loses an identity (invariant IdentityForever). Beside them is `.controllers.meta`.

Texts as 5.3.3 writes them (`rocketmq_formats.broker_identity`), names as its documentation has them. Java
deletes the old file before it writes the new one; here the new one is durable first. A store that a Java broker has
used keeps its identity: its `brokerIdentity` is taken over when there is neither of ours.
Source: rocketmq-all-5.3.3: MetadataFile.java, persistent_unique_broker_id.md.

A file that cannot be this replica's is refused and never overwritten; the error says what to do.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from rocketmq_formats import broker_identity
from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity, IdentityError
from rocketmq_runtime.files import atomic_file, filesystem
from rocketmq_runtime.files.filesystem import OS, FileSystem
from rocketmq_sidecar.control.controllers_file import ControllersFile

log = structlog.get_logger(__name__)

Text = TypeVar("Text")

FILE_NAME = ".broker.meta"
TEMPORARY_FILE_NAME = ".broker.meta.temp"


class SavedIdentity(msgspec.Struct, frozen=True):
    """The content of the files."""

    identity: BrokerIdentity | None
    applied: AppliedIdentity | None
    """An id that was requested with this check code and may or may not have been granted."""
    controllers: str | None = None
    """The group of controllers."""


class IdentityFiles:
    """The files of one replica."""

    def __init__(
        self, folder: Path, *, cluster_name: str, broker_name: str, java_file: Path | None = None, disk: FileSystem = OS
    ) -> None:
        """`folder` is storePathRootDir, `java_file` storePathBrokerIdentity (None: `brokerIdentity` in `folder`)."""
        self._names = (cluster_name, broker_name)
        self._folder = folder
        self._identity = folder / FILE_NAME
        self._applied = folder / TEMPORARY_FILE_NAME
        self._controllers = ControllersFile(folder, disk=disk)
        self._java = java_file or folder / broker_identity.FILE_NAME
        self._disk = disk

    def load(self) -> SavedIdentity:
        """What is saved. Completes what a crash interrupted.

        Raises:
            StorageError: a file cannot be read, or an identity taken over from Java not be written.
            IdentityError: a text is no identity, names another group, or contradicts the other file.
        """
        kept = self._read(self._identity)
        asked = self._read(self._applied)
        identity = None if kept is None else self._decoded(self._identity, broker_identity.decode_identity, kept)
        applied = None if asked is None else self._decoded(self._applied, broker_identity.decode_applied, asked)
        if identity is not None:
            self._owned(self._identity, identity)
        if applied is not None:
            self._owned(self._applied, applied.identity)
        controllers = self._controllers.load()
        if identity is None and applied is None:
            return SavedIdentity(self._from_java(), None, controllers)
        if identity is not None and applied is not None:
            if identity != applied.identity:
                raise IdentityError(
                    f"{self._identity} holds brokerId {identity.broker_id}, {self._applied} holds"
                    f" {applied.identity.broker_id}: files of two replicas. Delete the one that is not this replica's"
                    " (the controllers' getSyncStateSet shows which ids are alive elsewhere)"
                )
            self.forget_applied()
            applied = None
        return SavedIdentity(identity, applied, controllers)

    def save_applied(self, applied: AppliedIdentity) -> None:
        """Before the id is applied for: a restart has to ask with the same check code. Raises `StorageError`."""
        atomic_file.write_atomically(self._applied, broker_identity.encode_applied(applied), filesystem=self._disk)

    def save_identity(self, identity: BrokerIdentity) -> None:
        """The id is ours. The temporary file goes last: with both, the identity counts. Raises `StorageError`."""
        atomic_file.write_atomically(self._identity, broker_identity.encode_identity(identity), filesystem=self._disk)
        self.forget_applied()

    def save_controllers(self, group: str) -> None:
        """This replica has registered there. Raises `StorageError`."""
        self._controllers.save(group)

    def forget_applied(self) -> None:
        """Remove the temporary file. Raises `StorageError`."""
        with filesystem.storage_errors(self._applied, "remove"):
            with suppress(FileNotFoundError):
                self._disk.unlink(self._applied)
            self._disk.fsync_directory(self._folder)

    def _from_java(self) -> BrokerIdentity | None:
        text = self._read(self._java)
        if text is None:
            return None
        identity = self._owned(self._java, self._decoded(self._java, broker_identity.decode_identity, text))
        self.save_identity(identity)
        log.info("identity of a Java broker taken over", file=str(self._java), broker_id=identity.broker_id)
        return identity

    def _read(self, path: Path) -> bytes | None:
        return filesystem.read_file(path, filesystem=self._disk)

    def _decoded(self, path: Path, decode: Callable[[bytes], Text], text: bytes) -> Text:
        try:
            return decode(text)
        except IdentityError as error:
            way_out = (
                "Delete it: the id that was applied for stays unused"
                if path == self._applied
                else f"Restore it ({'#'.join(self._names)}#brokerId; the controllers' getSyncStateSet shows the id"
                " beside this replica's address); or, to join as a new replica, move this replica's store away"
            )
            raise IdentityError(f"{path} is damaged: {error}. {way_out}") from error

    def _owned(self, path: Path, identity: BrokerIdentity) -> BrokerIdentity:
        if (identity.cluster_name, identity.broker_name) != self._names:
            raise IdentityError(
                f"{path} belongs to {identity.cluster_name}#{identity.broker_name}, not to {'#'.join(self._names)}:"
                " correct brokerClusterName, brokerName or storePathRootDir"
            )
        return identity
