"""The messages between members, and their bytes: MessagePack arrays of a tag and fixed fields, never pickles.

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

MAX_SECONDS = 3600.0
MAX_ID = 100
MAX_MEMBERS_BYTES = 16 * 1024
Chain = Annotated[bytes, msgspec.Meta(max_length=8)]
Lineage = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]
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
    promise: Seconds = 0.0
    """Seconds from its receipt for which the receiver must not elect another member."""
    chain: Chain = b""
    """Rolling hash of the log up to `prev_index`; empty: unknown."""


class Ack(Message, frozen=True, tag="k", gc=False):
    """Answer to Appends. Accepted: everything before `next_index` is on the follower's disk and equal to the leader's
    log. Refused: the follower has no entry that fits `rejected_prev`, and `next_index` is where it needs to
    continue."""

    success: bool
    next_index: Index
    rejected_prev: Index
    stamp: float
    counts: bool = True
    """The follower's store may count: see standings."""
    promise: Seconds = 0.0
    """Seconds for which the follower elects no other member, from when it received the message of `stamp`."""


class SnapshotChunk(Message, frozen=True, tag="s", gc=False):
    """Bytes `offset`.. of a snapshot of `total` bytes that covers the log up to (`index`, `index_term`)."""

    stamp: float
    index: Index
    index_term: Term
    total: Index
    offset: Index
    digest: bytes
    data: bytes
    promise: Seconds = 0.0
    chain: Chain = b""
    """Rolling hash of the log up to `index`."""
    members_index: Index = 0
    members: Annotated[bytes, msgspec.Meta(max_length=MAX_MEMBERS_BYTES)] = b""
    """The configuration that counts there, and the index of its entry; empty: the first one."""


class SnapshotAck(Message, frozen=True, tag="sk", gc=False):
    """The follower holds `next_offset` bytes of snapshot `index` and waits for more; the last chunk is answered by an
    Ack."""

    stamp: float
    index: Index
    next_offset: Index
    counts: bool = True
    promise: Seconds = 0.0


class TimeoutNow(Message, frozen=True, tag="t", gc=False):
    """The leader asks the receiver to stand for election at once and keeps silent during the election."""

    stamp: float


class Goodbye(Message, frozen=True, tag="bye", gc=False):
    """The sender's process ends: it no longer leads or relies on followers. `stamp` as in TimeoutNow."""

    stamp: float


class Introduction(Message, frozen=True, tag="i", gc=False):
    """First word on a connection: what the sender's store is worth. `term`, `voted_for` and `durable` (an index) are
    what is on its disk; `pristine`: nothing was ever voted for or written there."""

    lineage: Lineage | None
    voter: bool
    pristine: bool
    voted_for: Annotated[str, msgspec.Meta(max_length=MAX_ID)] | None
    durable: Index
    members_index: Index = 0
    members: Annotated[bytes, msgspec.Meta(max_length=MAX_MEMBERS_BYTES)] = b""
    """The newest configuration that the sender has, with the index of its entry; index 0: the members that its store
    was made with; empty: the sender cannot read configurations in the log. A newer one than the receiver's only
    helps it to find a leader."""
    commit: Index = 0
    """The newest index that the sender knows to be committed, whether its log reaches that far or not."""


class Found(Message, frozen=True, tag="f", gc=False):
    """All members are new: join this lineage as a voter."""

    lineage: Lineage


class Admit(Message, frozen=True, tag="ad", gc=False):
    """The leader to a store that has what others committed up to `index`: vote and count from here on."""

    index: Index


class SetBack(Message, frozen=True, tag="sb", gc=False):
    """You reported more once than your store holds."""


AnyMessage = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | Append
    | Ack
    | SnapshotChunk
    | SnapshotAck
    | TimeoutNow
    | Goodbye
    | Introduction
    | Found
    | Admit
    | SetBack
)

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
