"""The file `checkpoint`: how far a broker's store is safe; recovery after a crash starts from it.

    offset  size  field
     0       8    physicMsgTimestamp: storeTimestamp of the newest message known to be on disk, ms
     8       8    logicsMsgTimestamp: the same of the consume queues
    16       8    indexMsgTimestamp: the same of the index
    24       8    masterFlushedOffset
    32       8    confirmPhyOffset, in controller mode

4096 bytes, the rest zeros. Big-endian, signed.
Source: rocketmq-all-5.3.3: StoreCheckpoint.java.
"""

import struct
from typing import Final

import msgspec

from rocketmq_formats.errors import FormatError

FILE_NAME: Final = "checkpoint"
SIZE: Final = 4096
_FIELDS: Final = struct.Struct(">qqqqq")
_SAFETY_MS: Final = 3000


class CheckpointError(FormatError):
    """Too few bytes, or values that do not fit."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Times are milliseconds since 1970, offsets physical; 0 is unknown."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Messages stored before are safe in the log and in the consume queues; 3 s are allowed for clocks."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The file's 4096 bytes.

    Raises:
        CheckpointError: a value beyond i64.
    """
    return encode_fields(checkpoint).ljust(SIZE, b"\0")


def encode_fields(checkpoint: Checkpoint) -> bytes:
    """The first 40 bytes. Raises as `encode_checkpoint`."""
    try:
        return _FIELDS.pack(*msgspec.structs.astuple(checkpoint))
    except struct.error as error:
        raise CheckpointError(str(error)) from error


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The file's content; bytes behind the fields are ignored.

    Raises:
        CheckpointError: fewer than 40 bytes: start as after a crash without one.
    """
    if len(data) < _FIELDS.size:
        raise CheckpointError(f"a checkpoint of {len(data)} bytes, {_FIELDS.size} needed")
    return Checkpoint(*_FIELDS.unpack_from(data))
