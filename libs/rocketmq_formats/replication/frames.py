"""Bytes of an AutoSwitchHA connection (5.1.1 and later), both directions. Big-endian, no length prefix, no magic.

    slave -> master HANDSHAKE, 16 bytes          slave -> master TRANSFER (acknowledgement), 12 bytes
     0  i32 state = 1                             0  i32 state = 2
     4  i16 isSyncFromLastFile                    4  i64 end of the slave's log
     6  i16 1: isAsyncLearner, 2: native, 0
     8  i64 slave's controller brokerId

    master -> slave HANDSHAKE, 20 + 12 n bytes   master -> slave TRANSFER, 36 + bodySize bytes
     0  i32 state = 1                             0  i32 state = 2
     4  i32 bodySize = 12 n                       4  i32 bodySize, 0 in a heartbeat
     8  i64 end of the master's log               8  i64 offset of the body's first byte
    16  i32 master's last epoch, -1 if none      16  i32 epoch
    20  n * { i32 epoch, i64 startOffset }       20  i64 startOffset of that epoch
                                                 28  i64 master's confirmOffset
                                                 36  bytes of the commit log

A native slave that is no learner says 2 where Java's says 0; Java's masters look for 1 only.

Between native replicas that have proven themselves (`challenge`) each packet, of a TRANSFER its 36 bytes, is followed
by a seal of 16 bytes.

Bodies of TRANSFER are not copied here: the reader of the socket puts them where they belong. Used by
rocketmq_sidecar.domain.{ha_master,ha_slave}.
Source: rocketmq-all-5.3.3: AutoSwitchHAClient.java, AutoSwitchHAConnection.java.
"""

import struct
from enum import IntEnum
from typing import Final

import msgspec

from rocketmq_formats.challenge import SEAL_SIZE, Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.store.epoch_file import MAX_ENTRIES, EpochList, EpochOrderError


class HAConnectionState(IntEnum):
    """State of a connection; only HANDSHAKE and TRANSFER travel."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


MAX_EPOCHS: Final = MAX_ENTRIES
"""Entries of one handshake: the capacity of Java's buffer."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Bytes of one TRANSFER body: Java's slave reads into a buffer of 4 MiB, so no Java master sends more."""
HANDSHAKE_HEADER_SIZE: Final = 20
TRANSFER_HEADER_SIZE: Final = 36
ACK_SIZE: Final = 12
SLAVE_HANDSHAKE_SIZE: Final = 16

_SLAVE_HANDSHAKE: Final = struct.Struct(">ihhq")
_ACK: Final = struct.Struct(">iq")
_MASTER_HANDSHAKE: Final = struct.Struct(">iiqi")
_EPOCH: Final = struct.Struct(">iq")
_TRANSFER: Final = struct.Struct(">iiqiqq")
_STATE: Final = struct.Struct(">i")
_STATE_AND_SIZE: Final = struct.Struct(">ii")
_LEARNER, _NATIVE = 1, 2
_OLD_ADDRESS_MAX: Final = 50


class OldHandshakeError(FrameError):
    """A slave of 5.0.0 or 5.1.0, which sends its address in the handshake and not its brokerId."""


class SealError(FrameError):
    """A packet that the other side did not make, or not as the next one."""

    def __init__(self) -> None:
        super().__init__("a packet's seal is wrong: bytes were changed, left out or repeated on the way")


class SlaveHandshake(msgspec.Struct, frozen=True):
    """First word of a slave."""

    broker_id: int
    """From 1."""
    sync_from_last_file: bool = False
    async_learner: bool = False
    native: bool = False
    """Not an official broker. A learner does not send it."""


class MasterHandshake(msgspec.Struct, frozen=True):
    """The master's answer: its epochs, and the end of its log, where the last one ends so far."""

    max_offset: int
    last_epoch: int
    epochs: EpochList


class TransferHeader(msgspec.Struct, frozen=True):
    """What precedes `size` bytes of the log; a heartbeat has none."""

    size: int
    offset: int
    epoch: int
    epoch_start: int
    confirm_offset: int


def encode_slave_handshake(handshake: SlaveHandshake) -> bytes:
    """16 bytes; to be written in one call, Java's master reads them without checking how many arrived."""
    return _SLAVE_HANDSHAKE.pack(
        HAConnectionState.HANDSHAKE,
        handshake.sync_from_last_file,
        _LEARNER if handshake.async_learner else _NATIVE if handshake.native else 0,
        handshake.broker_id,
    )


def encode_ack(offset: int) -> bytes:
    """12 bytes: the slave's log ends at `offset`."""
    return _ACK.pack(HAConnectionState.TRANSFER, offset)


def encode_master_handshake(max_offset: int, epochs: EpochList) -> bytes:
    """20 + 12 n bytes; to be written in one call, or Java's slave asks twice."""
    starts = epochs.starts()
    size = _EPOCH.size * len(starts)
    head = _MASTER_HANDSHAKE.pack(HAConnectionState.HANDSHAKE, size, max_offset, epochs.last_epoch)
    return b"".join([head, *(_EPOCH.pack(epoch, start) for epoch, start in starts)])


def encode_transfer_header(size: int, offset: int, epoch: int, epoch_start: int, confirm_offset: int) -> bytes:
    """36 bytes, to be followed by `size` bytes of the log from `offset` on."""
    return _TRANSFER.pack(HAConnectionState.TRANSFER, size, offset, epoch, epoch_start, confirm_offset)


class SlaveStream:
    """Cuts what a slave sends into handshakes and acknowledged offsets."""

    def __init__(self, seals: Seals | None = None) -> None:
        """`seals`: of a slave that has proven itself."""
        self._rest = b""
        self._seals = seals
        self._seal_size = 0 if seals is None else SEAL_SIZE

    def receive(self, data: bytes) -> list[SlaveHandshake | int]:
        """What is complete now, acknowledgements as plain offsets.

        Raises:
            SealError: not from the slave that has proven itself.
            OldHandshakeError: the older form of the handshake.
            FrameError: anything else that is not a slave's message; close the connection.
        """
        if self._rest:
            data = self._rest + data
        packets: list[SlaveHandshake | int] = []
        position, end = 0, len(data) - self._seal_size
        while end - position >= ACK_SIZE:
            state, offset = _ACK.unpack_from(data, position)
            if state == HAConnectionState.TRANSFER:
                position = self._opened(data, position, ACK_SIZE)
                packets.append(offset)
            elif state == HAConnectionState.HANDSHAKE:
                _refuse_old_handshake(data, position)
                if end - position < SLAVE_HANDSHAKE_SIZE:
                    break
                start, position = position, self._opened(data, position, SLAVE_HANDSHAKE_SIZE)
                packets.append(_slave_handshake(data, start))
            else:
                raise FrameError(f"state {state} from a slave, where 1 (HANDSHAKE) or 2 (TRANSFER) is possible")
        self._rest = data[position:]
        return packets

    def _opened(self, data: bytes, position: int, size: int) -> int:
        """Where the packet at `position` ends, its seal included."""
        end = position + size
        if self._seals is not None and not self._seals.opens(data[position:end], data[end : end + SEAL_SIZE]):
            raise SealError
        return end + self._seal_size


def _refuse_old_handshake(data: bytes, position: int) -> None:
    # There an i32 length of 1..50 follows the flags, and then 50 bytes of address; here an i64 whose upper half is 0.
    (upper,) = _STATE.unpack_from(data, position + 8)
    if 0 < upper <= _OLD_ADDRESS_MAX:
        raise OldHandshakeError(
            "handshake with an address, as 5.0.0 and 5.1.0 send it: run that slave with RocketMQ 5.1.1 or later"
        )


def _slave_handshake(data: bytes, position: int) -> SlaveHandshake:
    _, last_file, kind, broker_id = _SLAVE_HANDSHAKE.unpack_from(data, position)
    if last_file not in (0, 1) or kind not in (0, _LEARNER, _NATIVE):
        raise FrameError(f"flags {last_file} and {kind} in a slave's handshake, possible are 0 or 1, and 0 to 2")
    if broker_id < 1:
        raise FrameError(f"brokerId {broker_id} in a slave's handshake, ids begin with 1")
    return SlaveHandshake(broker_id, bool(last_file), kind == _LEARNER, kind == _NATIVE)


def decode_master_packet(
    buffer: bytes | bytearray | memoryview, position: int, limit: int
) -> tuple[MasterHandshake | TransferHeader, int] | None:
    """The handshake or TRANSFER header at `position`, and where it ends; None if `limit` comes before its end.

    Raises:
        FrameError: not a master's message; close the connection.
    """
    available = limit - position
    if available < HANDSHAKE_HEADER_SIZE:
        return None
    state, size = _STATE_AND_SIZE.unpack_from(buffer, position)
    if state == HAConnectionState.TRANSFER:
        if not 0 <= size <= MAX_BODY:
            raise FrameError(f"a batch of {size} bytes, at most {MAX_BODY} are possible")
        if available < TRANSFER_HEADER_SIZE:
            return None
        _, _, offset, epoch, epoch_start, confirm_offset = _TRANSFER.unpack_from(buffer, position)
        return TransferHeader(size, offset, epoch, epoch_start, confirm_offset), position + TRANSFER_HEADER_SIZE
    if state != HAConnectionState.HANDSHAKE:
        raise FrameError(f"state {state} from a master, where 1 (HANDSHAKE) or 2 (TRANSFER) is possible")
    if size < 0 or size % _EPOCH.size or size > _EPOCH.size * MAX_EPOCHS:
        raise FrameError(f"{size} bytes of epochs in a master's handshake: not up to {MAX_EPOCHS} times {_EPOCH.size}")
    if available < HANDSHAKE_HEADER_SIZE + size:
        return None
    return _master_handshake(buffer, position, size), position + HANDSHAKE_HEADER_SIZE + size


def _master_handshake(buffer: bytes | bytearray | memoryview, position: int, size: int) -> MasterHandshake:
    _, _, max_offset, last_epoch = _MASTER_HANDSHAKE.unpack_from(buffer, position)
    body = bytes(buffer[position + HANDSHAKE_HEADER_SIZE : position + HANDSHAKE_HEADER_SIZE + size])
    if max_offset < 0:
        raise FrameError(f"a log that ends at {max_offset} in a master's handshake")
    try:
        return MasterHandshake(max_offset, last_epoch, EpochList.of(_EPOCH.iter_unpack(body)))
    except EpochOrderError as error:
        raise FrameError(f"in a master's handshake: {error}") from error
