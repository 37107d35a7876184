"""How a native slave names itself to a native master, before the first packet of `frames`, and how the master answers.
A master that reads it says so in its answer to 906 (`haIntroduction`), so official brokers never receive it. It proves
nothing (`challenge` does, which comes first if the group has a secret): it keeps apart groups that meet by mistake, at
an address that was given out again or with one secret for several clusters. Both directions, big-endian:

     0  i32 state = 17
     4  i32 size of the body, at most 4096
     8  the body, JSON: a slave's `Introduction`, a master's `Reception`
        after a challenge the seal of all that, 16 bytes, the first of its direction
"""

import struct
from typing import Final, TypeVar

import msgspec

from rocketmq_formats.challenge import SEAL_SIZE, Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.frames import SealError

STATE: Final = 17
"""No state of `frames`, nor of `audit`."""
MAX_BODY: Final = 4096
_HEAD: Final = struct.Struct(">ii")
_FIRST: Final = STATE.to_bytes(4, "big")


class Introduction(msgspec.Struct, frozen=True, rename="camel"):
    """Who connects, and whom it takes the other side for."""

    cluster_name: str
    broker_name: str
    broker_id: int
    master_id: int
    controllers: str | None = None
    """controllerDLegerGroup of its controllers, if it is known."""


class Reception(msgspec.Struct, frozen=True, rename="camel"):
    """The master's answer."""

    refused: str | None = None
    """Why the connection ends now; None: packets may follow."""


Word = TypeVar("Word", Introduction, Reception)


def begins(data: bytes) -> bool | None:
    """Whether a connection that begins with `data` is a slave's that names itself; None: too early to say."""
    return None if len(data) < len(_FIRST) else data[: len(_FIRST)] == _FIRST


def encode(word: Introduction | Reception, sealing: Seals | None = None) -> bytes:
    body = msgspec.json.encode(word)
    packet = _HEAD.pack(STATE, len(body)) + body
    return packet if sealing is None else packet + sealing.next(packet)


def decode(data: bytes, kind: type[Word], opening: Seals | None = None) -> tuple[Word, bytes] | None:
    """The word at the beginning of `data`, and what follows it; None until it is complete.

    Raises:
        FrameError: not such a word.
        SealError: it is not the peer's that passed the challenge.
    """
    if len(data) < _HEAD.size:
        return None
    state, size = _HEAD.unpack_from(data)
    if state != STATE or not 0 <= size <= MAX_BODY:
        raise FrameError(f"state {state} with {size} bytes, where a native replica names itself")
    end = _HEAD.size + size
    sealed_end = end if opening is None else end + SEAL_SIZE
    if len(data) < sealed_end:
        return None
    if opening is not None and not opening.opens(data[:end], data[end:sealed_end]):
        raise SealError
    try:
        return msgspec.json.decode(data[_HEAD.size : end], type=kind), data[sealed_end:]
    except msgspec.DecodeError as error:
        raise FrameError(f"a native replica's name that cannot be read: {error}") from error
