"""Shows whether a machine may have lost what its replica had acknowledged: the file `.broker.boot`. For `log_proof`.

Without SYNC_FLUSH acknowledged messages are in the page cache of the members of the SyncStateSet. The page cache
outlives every process, but not the machine: after a loss of power the log may end before what this replica
acknowledged, and nothing in the log shows it. So before the replica acknowledges anything it durably records on which
boot of the machine it runs, and at an orderly end that its log is on disk. A replica that starts on another boot
without such an end is *unproven*: the controllers elect it only if no proven member lives and every member of the
SyncStateSet has reported where its log ends. It is proven again when it has all that a master has, or is elected.

An official broker itself shows whether it ended in order (its `abort` file); then this file's `ended` is ignored.

One line: `state boot`, state being `running`, `synced` (running with SYNC_FLUSH), `unproven` or `ended`, boot the
kernel's boot_id. In a container that is the node's.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import OS, FileSystem, read_file

FILE_NAME: Final = ".broker.boot"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TEXT: Final = re.compile(r"(running|synced|unproven|ended) ([!-~]{1,64})\n?")


def kernel_boot_id() -> str:
    """The id of this boot of the machine; `unknown` without one from the kernel: then every start is on the same
    boot."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"


class BootFile:
    """One replica's file, for one run of its sidecar."""

    def __init__(
        self, path: Path, *, sync_flush: bool, filesystem: FileSystem = OS, boot_id: Callable[[], str] = kernel_boot_id
    ) -> None:
        """`sync_flush`: what this replica acknowledges while this process runs is on disk."""
        self.path = path
        self.unproven: str | None = None
        """Why the log may lack what was acknowledged; once `begin` has returned."""
        self._running = "synced" if sync_flush else "running"
        self._filesystem = filesystem
        self._boot_id = boot_id
        self._begun = False

    def begin(self, *, orderly: bool | None = None, cached: bool = True) -> None:
        """Check how the previous run ended and record that this one has started; once. `orderly`: whether it is known
        to have ended with its log on disk; None: only this file shows that. `cached`: what it wrote last is in the page
        cache, as far as is known; else its file system may have been shut down. Raises `StorageError`."""
        if self._begun:
            return
        boot = self._boot_id()
        data = read_file(self.path, filesystem=self._filesystem)
        match = None if data is None else _TEXT.fullmatch(data.decode("ascii", "replace"))
        if data is not None and (match is None or not _whole(match[1], match[2] == boot and cached, orderly)):
            self.unproven = (
                "the machine of this replica lost power or was reset, or its volume was taken away from it, and without"
                " SYNC_FLUSH its log may lack what it"
                " had acknowledged: it waits until a member of the SyncStateSet that kept everything, or every member,"
                " has come back. To give up what the missing ones have: kubectl rocketmq elect-master GROUP POD"
                " --force-unclean"
            )
        self._write("unproven" if self.unproven is not None else self._running, boot)
        self._begun = True

    def mark_unproven(self, why: str) -> None:
        """The log is known to lack something; after `begin`. Raises `StorageError`."""
        if self.unproven is None:
            self.unproven = why
            self._write("unproven", self._boot_id())

    def mark_proven(self) -> None:
        """The log has all that was acknowledged. Raises `StorageError`."""
        if self.unproven is not None:
            self._write(self._running, self._boot_id())
            self.unproven = None

    def end(self) -> None:
        """An orderly end: the log is on disk and nothing appends to it. Raises `StorageError`."""
        if self._begun and self.unproven is None:
            self._write("ended", self._boot_id())

    def _write(self, state: str, boot: str) -> None:
        write_atomically(self.path, f"{state} {boot}\n".encode(), filesystem=self._filesystem)


def _whole(state: str, survived: bool, orderly: bool | None) -> bool:  # noqa: FBT001 - private
    """`survived`: what was written is in the page cache."""
    if state == "unproven":
        return False
    return survived or (state in {"ended", "synced"} if orderly is None else orderly)
