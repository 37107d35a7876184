"""Requests of a native slave to a native master about its log: digests of ranges, bytes, and reports of damage. They
use a separate connection to the HA port, beside replication. A master that supports them sets `logAudit` in its answer
to 906, so official brokers never receive them. Big-endian:

    slave -> master, 24 bytes                    master -> slave, 20 bytes and the body
     0  i32 state = 16                            0  i32 state = 16
     4  i32 kind: DIGEST 1, READ 2, DAMAGED 3     4  i32 kind
     8  i64 offset                                8  i64 offset
    16  i64 length                               16  i32 size of the body

DIGEST is answered with the xxh3-128 of the range (16 bytes), READ with its bytes, both with nothing where the master
does not hold the whole range. DAMAGED says that the record at the offset is not whole at the master, and is answered
with nothing: a master believes its own checksums. One request at a time. After a challenge (`challenge`) each
request, and each answer with its body, is followed by its seal of 16 bytes.
"""

import enum
import struct
from typing import Final, cast

import msgspec

from rocketmq_formats.errors import FrameError

STATE: Final = 16
"""No state of `frames`."""
REQUEST_SIZE: Final = 24
HEAD_SIZE: Final = 20
DIGEST_SIZE: Final = 16
MAX_DIGEST: Final = 16 << 20
"""Bytes of a range whose digest is requested."""
MAX_READ: Final = 512 << 10
"""Bytes of one answer to READ."""
_FIRST: Final = STATE.to_bytes(4, "big")
_REQUEST: Final = struct.Struct(">iiqq")
_HEAD: Final = struct.Struct(">iiqi")


class Kind(enum.IntEnum):
    DIGEST = 1
    READ = 2
    DAMAGED = 3


MOST: Final = {Kind.DIGEST: MAX_DIGEST, Kind.READ: MAX_READ, Kind.DAMAGED: 0}
"""Bytes of the range that a request may be for."""
_MOST_ANSWERED: Final = {Kind.DIGEST: DIGEST_SIZE, Kind.READ: MAX_READ, Kind.DAMAGED: 0}


class AuditRequest(msgspec.Struct, frozen=True):
    kind: Kind
    offset: int
    length: int = 0


def begins(data: bytes) -> bool | None:
    """Whether a connection that begins with `data` is one of these; None: too early to say."""
    return None if len(data) < len(_FIRST) else data[: len(_FIRST)] == _FIRST


def encode_request(request: AuditRequest) -> bytes:
    """24 bytes."""
    return _REQUEST.pack(STATE, request.kind, request.offset, request.length)


def decode_request(data: bytes) -> AuditRequest:
    """The reverse. Raises `FrameError`: no request, or for too much at once."""
    state, code, offset, length = _REQUEST.unpack(data)
    kind = _kind(state, code)
    if not (0 <= offset <= offset + length < 2**63 and 0 <= length <= MOST[kind]):
        raise FrameError(f"{kind.name} of {length} bytes from {offset}")
    return AuditRequest(kind, offset, length)


def encode_answer(request: AuditRequest, body: bytes) -> bytes:
    """20 bytes and the body."""
    return _HEAD.pack(STATE, request.kind, request.offset, len(body)) + body


def decode_head(data: bytes, request: AuditRequest) -> int:
    """The size of the body that follows. Raises `FrameError`: no answer to `request`."""
    state, code, offset, size = cast("tuple[int, int, int, int]", _HEAD.unpack(data))
    kind = _kind(state, code)
    if (kind, offset) != (request.kind, request.offset):
        raise FrameError(
            f"an answer to {kind.name} from {offset}, where {request.kind.name} from {request.offset} was asked"
        )
    whole = DIGEST_SIZE if kind is Kind.DIGEST else min(request.length, _MOST_ANSWERED[kind])
    if size not in {0, whole}:
        raise FrameError(f"{size} bytes in answer to {kind.name} of {request.length}")
    return size


def _kind(state: int, code: int) -> Kind:
    if state != STATE or code not in set(Kind):
        raise FrameError(f"state {state}, kind {code}, where a request about the log is expected")
    return Kind(code)
