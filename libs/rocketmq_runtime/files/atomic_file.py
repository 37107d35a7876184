"""The one writer of small files that must survive a crash whole: identity, epochs, votes, snapshots.

A reader finds the old bytes or the new ones, never a mixture, and when `write_atomically` has returned the new ones are
on disk. Called by Raft's storage and by whatever keeps identity or epochs; no other code renames files into place.
"""

import zlib
from contextlib import suppress
from pathlib import Path

from rocketmq_runtime.files.filesystem import OS, FileSystem, close_quietly, storage_errors, write_all

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644, filesystem: FileSystem = OS) -> None:
    """Replace `path` by `data`: temporary file beside it, fsync, rename, fsync of the folder.

    `mode` is the new file's permission (0o600 for secrets and identity). One writer per path at a time.
    Raises `DiskFullError` or `StorageError`. Then the old file is still there and the temporary one is gone, except
    when the very last step failed: the new file may be visible without being durable, so treat it as not written.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with storage_errors(path, "write"):
        try:
            _write_new(temporary, data, mode, filesystem)
            filesystem.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                filesystem.unlink(temporary)
            raise
        filesystem.fsync_directory(path.parent)


def keep_unread(path: Path, data: bytes) -> Path:
    """Keep `data`, the text of `path` of which a part cannot be read, beside it; returns where. The same text has one
    name, so that each start keeps it once. Raises as `write_atomically`."""
    kept = path.with_name(f"{path.name}.{zlib.crc32(data):08x}.unread")
    if not kept.exists():
        write_atomically(kept, data)
    return kept


def fsync_directory(path: Path, *, filesystem: FileSystem = OS) -> None:
    """Make the names in a folder durable, as they are now; raises `StorageError`."""
    with storage_errors(path, "sync the folder"):
        filesystem.fsync_directory(path)


def remove_temporaries(folder: Path, *, filesystem: FileSystem = OS) -> None:
    """Remove what a crash inside `write_atomically` left in `folder`; for the folder's only owner, at its start."""
    with storage_errors(folder, "remove temporary files"):
        for name in filesystem.listdir(folder):
            if name.endswith(TEMPORARY_SUFFIX):
                filesystem.unlink(folder / name)


def _write_new(path: Path, data: bytes, mode: int, filesystem: FileSystem) -> None:
    # A leftover of a crash may have another mode: a secret must not be written into it.
    with suppress(FileNotFoundError):
        filesystem.unlink(path)
    handle = filesystem.open(path, create=True, truncate=True, mode=mode)
    try:
        write_all(filesystem, handle, data, 0)
        filesystem.fsync(handle)
    except OSError:
        close_quietly(filesystem, handle)
        raise
    filesystem.close(handle)
