"""How a slave and its master prove to each other that they hold the group's secret, before the first packet of
`frames`. Native replicas only; official brokers do not have it. Modelled on the handshake of the controllers.

    slave                                           master
    HELLO    who, whom, epoch, slave's nonce   ->
                                              <-    NONCE    master's nonce
    PROOF    of the slave                      ->
                                              <-    PROOF    of the master, or REFUSED with a reason at any time
    packets of `frames`, sealed               <->   packets of `frames`, sealed

The slave, who dials, proves itself first: a stranger who dials a master gets nothing that depends on the secret, nor a
byte of the log. Layout of a message, big-endian:

    0  u8   length of the rest, from 1
    1  u8   kind: HELLO 1, NONCE 2, PROOF 3, REFUSED 4
    2       body: HELLO   0  "RMQHA"                                   NONCE    0  32 bytes
                          5  u8   version = 1                          PROOF    0  HMAC-SHA-256, 32 bytes
                          6  SHA-256 of cluster, NUL, brokerName       REFUSED  0  u8   reason
                         38  i64  slave's brokerId
                         46  i64  master's brokerId
                         54  i32  masterEpoch that the slave follows
                         58  slave's nonce, 32 bytes

The transcript is HELLO's body and the master's nonce. Each later packet, of a TRANSFER the 36 bytes before its body, is
followed by its seal of 16 bytes (`rocketmq_formats.challenge`), whose key is that of the direction; bodies are not
sealed. The first byte of a message is never 0, that of a packet always: so a master can tell the two apart at once.
"""

import enum
import hashlib
import struct
from typing import Final

import msgspec

from rocketmq_formats import challenge
from rocketmq_formats.challenge import NONCE_SIZE, PROOF_SIZE, Seals
from rocketmq_formats.errors import FrameError

VERSION: Final = 1
_MAGIC: Final = b"RMQHA"
_GROUP_SIZE: Final = 32
_HELLO: Final = struct.Struct(f">5sB{_GROUP_SIZE}sqqi{NONCE_SIZE}s")
MESSAGE_MAX: Final = 1 + _HELLO.size
"""Bytes of the longest message without its length: all that a stranger can make us hold."""


class Kind(enum.IntEnum):
    HELLO = 1
    NONCE = 2
    PROOF = 3
    REFUSED = 4


BODY_SIZES: Final = {Kind.HELLO: _HELLO.size, Kind.NONCE: NONCE_SIZE, Kind.PROOF: PROOF_SIZE, Kind.REFUSED: 1}


class Refusal(enum.IntEnum):
    """Why the master closes the connection; sent to the slave for its log only, without proof."""

    VERSION = 1
    GROUP = 2
    NOT_FOR_US = 3
    WRONG_SECRET = 4


class Side(enum.Enum):
    """Who proves itself; the values are in the proofs."""

    SLAVE = b"slave"
    MASTER = b"master"


class Hello(msgspec.Struct, frozen=True):
    """A slave's first word."""

    group: bytes
    """`group_digest`."""
    broker_id: int
    master_id: int
    """Whom it takes the other side for."""
    epoch: int
    nonce: bytes
    version: int = VERSION


def group_digest(cluster_name: str, broker_name: str) -> bytes:
    """32 bytes that stand for a broker group."""
    return hashlib.sha256(cluster_name.encode() + b"\0" + broker_name.encode()).digest()


def encode_hello(hello: Hello) -> bytes:
    """The body, 90 bytes."""
    return _HELLO.pack(_MAGIC, hello.version, hello.group, hello.broker_id, hello.master_id, hello.epoch, hello.nonce)


def decode_hello(body: bytes) -> Hello:
    """The reverse. Raises `FrameError`: not a slave of ours."""
    magic, version, group, broker_id, master_id, epoch, nonce = _HELLO.unpack(body)
    if magic != _MAGIC:
        raise FrameError("not a native slave's first word")
    return Hello(group, broker_id, master_id, epoch, nonce, version)


def encode_message(kind: Kind, body: bytes) -> bytes:
    return bytes((1 + len(body), kind)) + body


def proof(secret: bytes, side: Side, transcript: bytes) -> bytes:
    """The body of a PROOF."""
    return challenge.proof(secret, side.value, transcript)


def seals_to(secret: bytes, side: Side, transcript: bytes) -> Seals:
    """Of the packets that `side` receives."""
    return Seals(challenge.direction_key(secret, b"to " + side.value, transcript))


class MessageReader:
    """Cuts messages, one at a time, out of a stream that continues with something else."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def started(self) -> bool:
        """Whether a byte is here."""
        return bool(self._buffer)

    @property
    def packets_follow(self) -> bool:
        """Whether what is here begins with a packet of `frames`, not with a message."""
        return self._buffer[:1] == b"\0"

    def next(self) -> tuple[Kind, bytes] | None:
        """The next message; None until it is complete.

        Raises:
            FrameError: not a message of a native replica.
        """
        buffer = self._buffer
        if len(buffer) < 2:  # length and kind
            return None
        size, code = buffer[0], buffer[1]
        if code not in BODY_SIZES or size != 1 + BODY_SIZES[Kind(code)]:
            raise FrameError(f"{size} bytes of kind {code}, where a native replica proves itself")
        if len(buffer) < 1 + size:
            return None
        self._buffer = buffer[1 + size :]
        return Kind(code), buffer[2 : 1 + size]

    def rest(self) -> bytes:
        """What follows the messages."""
        rest, self._buffer = self._buffer, b""
        return rest
