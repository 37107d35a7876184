"""`{root}/checkpoint`: how far everything was durable, and the confirm offset. Owned by the broker.

4096 bytes, mapped, so that a new confirm offset costs no system call and survives the death of the process; durable by
`sync`. The first 40 bytes are Java's (reference: checkpoint file). Java leaves the rest alone, so 64 to 92 hold ours:
`recover_from`, before which log and consume queues are durable, with a CRC over all of it. Once Java has written its
part, the CRC is wrong and `recover_from` does not count any more: recovery then goes by Java's time stamps.
"""

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Final

import structlog

from rocketmq_formats.store.checkpoint import SIZE, Checkpoint, decode_checkpoint, encode_checkpoint

log = structlog.get_logger()

_JAVA_SIZE: Final = 40
_OURS_AT: Final = 64
_OURS: Final = struct.Struct(">16sqI")
_MAGIC: Final = b"rocketmq-ha 0001"


class CheckpointFile:
    """`java`: what Java's part says. `recover_from`: see above, -1 if it is not known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._map: mmap.mmap | None = None
        self.java = Checkpoint()
        self.recover_from = -1

    def open(self) -> None:
        """Read what is there, or begin with zeros. Raises `OSError`."""
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        length = os.fstat(self._fd).st_size
        if length not in {0, SIZE}:
            log.warning("checkpoint of a wrong length, begun anew", path=str(self._path), length=length)
            os.ftruncate(self._fd, 0)
        os.posix_fallocate(self._fd, 0, SIZE)
        self._map = mmap.mmap(self._fd, SIZE)
        java = decode_checkpoint(self._map[:])
        if min(java.physic_msg_timestamp, java.logics_msg_timestamp, java.confirm_offset) < 0:
            log.warning("checkpoint with negative values, begun anew", path=str(self._path), found=java)
            return
        self.java = java
        magic, recover_from, crc = _OURS.unpack_from(self._map, _OURS_AT)
        if magic == _MAGIC and crc == _crc(self._map[:_JAVA_SIZE], recover_from):
            self.recover_from = recover_from

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
        fields = encode_checkpoint(java)[:_JAVA_SIZE]
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


def _crc(fields: bytes, recover_from: int) -> int:
    return zlib.crc32(b"%b%d" % (fields, recover_from))
