"""`{root}/checkpoint`: how far everything was durable, and the confirm offset. Owned by the broker.

4096 bytes, mapped, so that a new confirm offset costs no system call and survives the death of the process; durable by
`sync`. The first 40 bytes are Java's (`store/checkpoint.py` of the formats). Java does not touch the rest, so 64 to 92
hold ours: `recover_from`, before which log and consume queues are durable, with a CRC over all of it. Once Java has
written its part, the CRC is wrong and `recover_from` is no longer valid: recovery then uses Java's time stamps.
96 to 132: the boot id of the machine that the store was opened on last, with a CRC. While it is the same, data
that was written and not synced is still in the page cache.
"""

import mmap
import os
import struct
import uuid
import zlib
from pathlib import Path
from typing import Final

import structlog

from rocketmq_formats.store.checkpoint import SIZE, Checkpoint, decode_checkpoint, encode_fields
from rocketmq_runtime.files.filesystem import OS
from rocketmq_runtime.files.page_cache import is_cached

log = structlog.get_logger()

_JAVA_SIZE: Final = 40
_OURS_AT: Final = 64
_OURS: Final = struct.Struct(">16sqI")
_MAGIC: Final = b"rocketmq-ha 0001"
_BOOT_AT: Final = 96
_BOOT: Final = struct.Struct(">16s16sI")
_BOOT_MAGIC: Final = b"rocketmq-ha boot"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> bytes | None:
    """This machine's boot id, 16 bytes, different after each boot; None if unknown."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return None


class CheckpointFile:
    """`java`: Java's part. `recover_from`: see above, -1 if unknown. `same_boot`: the machine has not rebooted since
    the store was opened last, nor was the file system mounted again after a failure, as far as is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._map: mmap.mmap | None = None
        self.java = Checkpoint()
        self.recover_from = -1
        self.same_boot = False

    def open(self) -> None:
        """Read what is there, or begin with zeros. Raises `OSError`."""
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        length = os.fstat(self._fd).st_size
        if length not in {0, SIZE}:
            log.warning("checkpoint has the wrong length and is reset", path=str(self._path), length=length)
            os.ftruncate(self._fd, 0)
        cached = is_cached(self._fd)
        os.posix_fallocate(self._fd, 0, SIZE)
        if length != SIZE:
            OS.fsync_directory(self._path.parent)
        self._map = mmap.mmap(self._fd, SIZE)
        java = decode_checkpoint(self._map[:])
        if min(java.physic_msg_timestamp, java.logics_msg_timestamp, java.confirm_offset) < 0:
            log.warning("checkpoint has negative values and is reset", path=str(self._path), found=java)
            return
        self.java = java
        magic, recover_from, crc = _OURS.unpack_from(self._map, _OURS_AT)
        if magic == _MAGIC and crc == _crc(self._map[:_JAVA_SIZE], recover_from):
            self.recover_from = recover_from
        recorded = self._map[_BOOT_AT : _BOOT_AT + _BOOT.size]
        self.same_boot = cached and (boot := boot_id()) is not None and recorded == _boot(boot)

    def opened(self) -> None:
        """The store is recovered: later data is from this boot of the machine. As `set_confirm_offset`."""
        assert self._map is not None
        if (boot := boot_id()) is not None:
            self._map[_BOOT_AT : _BOOT_AT + _BOOT.size] = _boot(boot)

    def set_confirm_offset(self, offset: int) -> None:
        """Into the mapping: survives the process, not a power cut."""
        java = self.java
        if offset != java.confirm_offset:
            self.write(
                Checkpoint(
                    java.physic_msg_timestamp,
                    java.logics_msg_timestamp,
                    java.index_msg_timestamp,
                    java.master_flushed_offset,
                    offset,
                ),
                self.recover_from,
            )

    def write(self, java: Checkpoint, recover_from: int) -> None:
        """As `set_confirm_offset`."""
        assert self._map is not None
        self.java, self.recover_from = java, recover_from
        fields = encode_fields(java)
        self._map[:_JAVA_SIZE] = fields
        _OURS.pack_into(self._map, _OURS_AT, _MAGIC, recover_from, _crc(fields, recover_from))

    def sync(self) -> None:
        """Make durable what was written; in any thread. Raises `OSError`."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
            os.close(self._fd)


def _boot(boot: bytes) -> bytes:
    return _BOOT.pack(_BOOT_MAGIC, boot, zlib.crc32(boot))


def _crc(fields: bytes, recover_from: int) -> int:
    return zlib.crc32(b"%d" % recover_from, zlib.crc32(fields))
