"""A file system of its own for each replica: ext4 on a loop device, which can be full, or lose what was never synced.

A power cut is EXT4_IOC_SHUTDOWN without a flush of the journal: from that instant nothing reaches the device. After the
processes have ended it is unmounted, and mounting it again replays the journal, as after a real power cut.

All this is in a mount namespace of its own. A container that starts elsewhere on this machine copies the mounts that it
finds, and what it has copied cannot be unmounted: the next mount would be the file system without power again.
"""

import ctypes
import errno
import fcntl
import os
import struct
import subprocess
from pathlib import Path

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_BALLAST = "ballast"
_CLONE_NEWNS, _MS_REC, _MS_SLAVE = 1 << 17, 1 << 14, 1 << 19
_LIBC = ctypes.CDLL(None, use_errno=True)


class Disk:
    """One image, mounted at `path` or not."""

    def __init__(self, folder: Path, name: str, *, size: int) -> None:
        self.path = folder / f"{name}.mounted"
        self._image = folder / f"{name}.ext4"
        self._mounted = False
        self.path.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(size)
        # Small tables: making one takes 0.1 s.
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(self._image))
        self.mount()

    def mount(self) -> None:
        """Mount it, replaying its journal."""
        _run("mount", "-o", "loop", str(self._image), str(self.path))
        self._mounted = True

    def cut_power(self) -> None:
        """Nothing written or synced from now on reaches the device, nor what was written before and never synced."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _EXT4_IOC_SHUTDOWN, struct.pack("=I", _NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def power_up(self) -> None:
        """Mount what the device has, after `cut_power` and the end of every process on it."""
        self.unmount()
        self.mount()

    def fill(self, left: int) -> None:
        """Leave `left` bytes of room."""
        room = os.statvfs(self.path)
        wanted = room.f_bavail * room.f_frsize - left
        handle = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            while wanted > 0:
                try:
                    os.posix_fallocate(handle, 0, wanted)
                    break
                except OSError as error:  # the file's own map takes room too, and others write meanwhile
                    if error.errno != errno.ENOSPC:
                        raise
                    wanted -= 1 << 18
        finally:
            os.close(handle)

    def free(self) -> None:
        """Give the room back."""
        (self.path / _BALLAST).unlink(missing_ok=True)

    def unmount(self) -> None:
        """Harmless to repeat. Raises CalledProcessError while a process uses it."""
        if self._mounted:
            _run("umount", str(self.path))
            self._mounted = False

    def close(self) -> None:
        """Unmount and delete the image, lazily if a process still uses it."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.path)], capture_output=True, check=False)
            self._mounted = False
        self._image.unlink(missing_ok=True)


def hide_mounts() -> None:
    """What this process mounts from now on, only it and its children see; what others unmount, it does not keep.
    Raises OSError (it has to be root)."""
    if _LIBC.unshare(_CLONE_NEWNS) or _LIBC.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None):
        raise OSError(ctypes.get_errno(), "a mount namespace")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
