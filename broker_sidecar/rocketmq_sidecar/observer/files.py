"""The Java broker's small files, read again at every poll, and the sidecar's own files: what it has observed, and the
fence.

Java writes its files in place, so a poll may read half of one: an error counts only when the next poll finds it again.
The broker's files are never written here.
"""

import asyncio

import msgspec
import structlog

from rocketmq_formats import broker_identity
from rocketmq_formats.broker_identity import BrokerIdentity, IdentityError
from rocketmq_formats.remoting.controller import EpochEntry
from rocketmq_formats.store import checkpoint
from rocketmq_formats.store.epoch_file import EpochFileError, decode_epochs
from rocketmq_runtime.files.filesystem import OS, FileSystem, StorageError, read_file, storage_errors
from rocketmq_sidecar.control.controllers_file import ControllersFile
from rocketmq_sidecar.control.fence_file import FenceFile
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.observing.identity import ObservedReplica, damaged_epochs, find_identity
from rocketmq_sidecar.observer.observed_file import ObservedFile, ObservedFileError
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)


class ReplicaFiles:
    """The files' content at the last poll."""

    def __init__(self, settings: SidecarSettings, *, disk: FileSystem = OS) -> None:
        root = settings.root
        self.identity: BrokerIdentity | None = None
        self.trouble: str | None = None
        """What is wrong with the identity, or with the sidecar's own file."""
        self.damaged: str | None = "the sidecar's file has not been read yet"
        """What is wrong with the sidecar's own file: then the broker is neither fenced nor released."""
        self.fence: Fence | None = None
        """As it is on disk."""
        self.epochs: tuple[EpochEntry, ...] = ()
        self.epochs_trouble: str | None = None
        self.controllers: str | None = None
        """The group of controllers at which the broker has registered, if it is known."""
        self.confirm_offset = 0
        """As the broker last wrote it, some seconds ago."""
        self._disk, self._root = disk, root
        self._observed_file = ObservedFile(root, disk=disk)
        self._fence = FenceFile(root, disk=disk)
        self._controllers_file = ControllersFile(root, disk=disk)
        self._names = (settings.broker_cluster_name, settings.name)
        self._identity_path = settings.java_identity_file or root / broker_identity.FILE_NAME
        self._epoch_path = settings.epoch_file
        self._checkpoint_path = root / checkpoint.FILE_NAME
        self._suspected: tuple[str | None, str | None] = (None, None)

    @property
    def observed(self) -> ObservedReplica:
        return self._observed_file.observed

    def save(self, observed: ObservedReplica) -> None:
        """Durable when this returns. Raises StorageError."""
        self._observed_file.save(observed)

    def save_controllers(self, group: str) -> None:
        """The broker has registered there. Durable when this returns. Raises StorageError."""
        self._controllers_file.save(group)
        self.controllers = group

    async def save_fence(self, fence: Fence | None) -> None:
        """Durable when this returns. Raises StorageError."""
        await asyncio.to_thread(self._save_fence, fence)
        self.fence = fence

    def _save_fence(self, fence: Fence | None) -> None:
        with storage_errors(self._root, "make the folder"):
            self._disk.mkdir(self._root)  # the broker may never have run
        self._fence.save(fence)

    def reload(self) -> None:
        """Read everything again; what cannot be read is reported in `trouble`."""
        try:
            if self.damaged is not None:
                self._observed_file.load()
                self.fence = self._fence.load()
                self.damaged = None
            self.controllers = self._controllers_file.load()
            suspected = (self._reload_identity(), self._reload_epochs())
            self._reload_checkpoint()
        except ObservedFileError as error:
            self.damaged = str(error)
            suspected = (self.damaged, None)
        except (StorageError, IdentityError) as error:
            suspected = (str(error), None)
        self._believe(suspected)

    def _believe(self, suspected: tuple[str | None, str | None]) -> None:
        before, self._suspected = self._suspected, suspected
        trouble, epochs = (
            found if found is None or found == earlier else None
            for found, earlier in zip(suspected, before, strict=True)
        )
        for now, then in ((trouble, self.trouble), (epochs, self.epochs_trouble)):
            if now is not None and now != then:
                log.error("the broker's files are damaged or wrong", reason=now)
        self.trouble, self.epochs_trouble = trouble, epochs

    def _reload_identity(self) -> str | None:
        cluster_name, broker_name = self._names
        known = self.observed.identity
        found = find_identity(
            read_file(self._identity_path, filesystem=self._disk),
            known=known,
            cluster_name=cluster_name,
            broker_name=broker_name,
            path=str(self._identity_path),
            note=str(self._observed_file.path),
        )
        self.identity = found.identity
        new = found.to_save(known)
        if new is not None:
            self.save(
                msgspec.structs.replace(
                    self.observed, cluster_name=new.cluster_name, broker_name=new.broker_name, broker_id=new.broker_id
                )
            )
            log.info("identity saved", cluster=new.cluster_name, broker=new.broker_name, broker_id=new.broker_id)
        return found.trouble

    def _reload_epochs(self) -> str | None:
        backup_path = self._epoch_path.with_name(self._epoch_path.name + ".bak")
        data = read_file(self._epoch_path, filesystem=self._disk)
        try:
            self.epochs = decode_epochs(data).entries if data is not None else ()
        except EpochFileError as error:
            return damaged_epochs(str(self._epoch_path), error, read_file(backup_path, filesystem=self._disk))
        return None

    def _reload_checkpoint(self) -> None:
        data = read_file(self._checkpoint_path, filesystem=self._disk)
        if data is not None:
            try:
                self.confirm_offset = max(checkpoint.decode_checkpoint(data).confirm_offset, 0)
            except checkpoint.CheckpointError as error:
                log.debug("checkpoint not readable", reason=str(error))
