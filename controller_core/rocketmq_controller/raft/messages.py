"""What members say to each other, and its bytes: MessagePack arrays of a tag and fixed fields, never pickles.

Used by the machine (which only sees these structs) and the transport (which only sees the bytes). The encoding is
versioned by the handshake: members of different PROTOCOL_VERSIONs refuse each other's connections.

A stamp is a reading of the leader's own clock, strictly growing within a term; followers echo it and never compare it
with theirs.
"""

import math
from typing import Annotated

import msgspec

from rocketmq_controller.raft.errors import WireError

MAX_FRAME = 32 * 1024 * 1024
"""Bytes of one encoded message. A frame is held in memory whole, so this bounds what one peer can make us hold."""
MAX_ENTRIES = 65_536
"""Entries of one Append: bounds the objects a frame can blow up to."""

Index = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Term = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all messages; on the wire an array whose first element is the tag."""

    term: Term


class PreVote(Message, frozen=True, tag="pv", gc=False):
    """Would you vote for me in `term`? Changes nothing at either side, so a member that is cut off cannot push terms
    up."""

    last_index: Index
    last_term: Term


class PreVoteReply(Message, frozen=True, tag="pr", gc=False):
    """`term` is the replier's own; `proposed` the term that was asked for."""

    proposed: Term
    granted: bool


class Vote(Message, frozen=True, tag="v", gc=False):
    """Vote for me in `term`. `transfer` is the stamp of the TimeoutNow that started this election, None for an ordinary
    one."""

    last_index: Index
    last_term: Term
    transfer: float | None


class VoteReply(Message, frozen=True, tag="vr", gc=False):
    granted: bool


class Append(Message, frozen=True, tag="a", gc=False):
    """Entries after `prev_index`, as (term, command); none is a heartbeat. `commit` is the leader's commit index."""

    prev_index: Index
    prev_term: Term
    commit: Index
    stamp: float
    entries: Annotated[tuple[tuple[Term, bytes], ...], msgspec.Meta(max_length=MAX_ENTRIES)]


class Ack(Message, frozen=True, tag="k", gc=False):
    """Answer to Appends. Accepted: everything before `next_index` is on the follower's disk and equal to the leader's
    log. Refused: the follower has no entry that fits `rejected_prev`, and `next_index` is where it wants to go on."""

    success: bool
    next_index: Index
    rejected_prev: Index
    stamp: float


class SnapshotChunk(Message, frozen=True, tag="s", gc=False):
    """Bytes `offset`.. of a snapshot of `total` bytes that covers the log up to (`index`, `index_term`)."""

    stamp: float
    index: Index
    index_term: Term
    total: Index
    offset: Index
    digest: bytes
    data: bytes


class SnapshotAck(Message, frozen=True, tag="sk", gc=False):
    """The follower holds `next_offset` bytes of snapshot `index` and waits for more; the last chunk is answered by an
    Ack."""

    stamp: float
    index: Index
    next_offset: Index


class TimeoutNow(Message, frozen=True, tag="t", gc=False):
    """The leader asks the receiver to stand for election at once and keeps silent meanwhile."""

    stamp: float


AnyMessage = PreVote | PreVoteReply | Vote | VoteReply | Append | Ack | SnapshotChunk | SnapshotAck | TimeoutNow

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: AnyMessage) -> bytes:
    """The message's bytes."""
    return _encoder.encode(message)


def decode(data: bytes) -> AnyMessage:
    """The message in `data`.

    Raises:
        WireError: not a message of this protocol version, or out of bounds.
    """
    if len(data) > MAX_FRAME:
        raise WireError(f"message of {len(data)} bytes, {MAX_FRAME} are allowed")
    try:
        message = _decoder.decode(data)
    except (ValueError, RecursionError) as error:  # also of text that is not UTF-8
        raise WireError(f"not a Raft message: {error}") from error
    stamp = message.transfer if isinstance(message, Vote) else getattr(message, "stamp", None)
    if stamp is not None and not math.isfinite(stamp):
        raise WireError("a stamp is not a finite number")
    return message
