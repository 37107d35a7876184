"""What a broker and its sidecar say to each other over the Unix socket: the two halves of one replica.

The sidecar listens, the broker connects; one broker at a time. A frame is a u32 length (big-endian) and one MessagePack
value, a tagged array; both processes are of one release, so `Hello.protocol` is compared and nothing is negotiated.
Offsets are physical offsets of the commit log in bytes; times are `time.monotonic()` seconds, which both processes of
one machine share. Every state below is a level, not an edge: a later value of the same kind replaces an earlier one, so
senders coalesce them, one frame of a kind per turn of the loop.

Who may append to the log is whoever holds the exclusive lock of `{storePathRootDir}/writer.lock` (invariant OneWriter);
it changes hands as follows, and a crash of either process lets the kernel release it:

    start            broker takes it, recovers the store, releases it, connects, `Hello`
    slave            sidecar takes it, before it appends what the master sends
    slave -> master  sidecar stops replicating, releases; `Prepare`; broker takes it, cuts the incomplete tail,
                     `Prepared(maxOffset)`; sidecar writes the epoch durably; `Grant`: now sends are accepted
    master -> slave  `Release`; broker fails what waits, releases it, `Released(maxOffset)`; sidecar takes it
    hold             `Hold(kind)`: whatever the role is, sends are refused, and what was accepted is answered;
                     `Held(maxOffset)`: nothing is appended behind it. The lock stays where it is
    truncation       `Truncate(offset)`; broker forgets consume queue units and offsets at and behind it, durably,
                     `Truncated`; only then the sidecar cuts the log

A link that breaks ends the replica's life in its group until it is back: the broker refuses writes at once, the sidecar
closes its connections to the controllers, so that they elect another.
"""

import struct
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.controller import SyncStateSet

PROTOCOL: Final = 3
MAX_FRAME: Final = 16 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")
ANSWER_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
N_ANSWERS: Final = len(ANSWER_SECONDS) + 1


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of everything that travels; the tag is the class's name."""


# broker -> sidecar


class Hello(Message, frozen=True, tag=True, array_like=True):
    """First word of a broker whose store is recovered and whose lock is released."""

    protocol: int
    cluster_name: str
    broker_name: str
    address: str
    """brokerIP1:listenPort, as registered at controllers and name servers."""
    min_offset: int
    max_offset: int
    """End of the last whole record."""
    confirm_offset: int
    """As the checkpoint file has it."""
    file_size: int
    """mappedFileSizeCommitLog."""


class Prepared(Message, frozen=True, tag=True, array_like=True):
    """The broker holds the writer lock; the log ends, with a whole record, at `max_offset`."""

    epoch: int
    max_offset: int


class Appended(Message, frozen=True, tag=True, array_like=True):
    """Master: the log now reaches to `max_offset`; it is on disk up to `flushed_offset`."""

    max_offset: int
    flushed_offset: int


class Released(Message, frozen=True, tag=True, array_like=True):
    """The broker has stopped appending and released the lock."""

    max_offset: int


class Truncated(Message, frozen=True, tag=True, array_like=True):
    """Nothing the broker keeps refers to bytes at or behind `offset` any more, durably."""

    offset: int


class Retained(Message, frozen=True, tag=True, array_like=True):
    """Expired files were deleted: the log begins at `min_offset`."""

    min_offset: int


class RoleNotice(Message, frozen=True, tag=True, array_like=True):
    """A controller's NOTIFY_BROKER_ROLE_CHANGED (1008), which it sends to the broker's address."""

    master_broker_id: int | None
    master_address: str | None
    master_epoch: int | None
    sync_state_set: SyncStateSet | None


class Held(Message, frozen=True, tag=True, array_like=True):
    """Answer to each `Hold`, after the `Appended` that it makes final: while that one holds, the log ends here."""

    serial: int
    max_offset: int


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """What a broker has done since its start, for the sidecar's metrics; bytes are those of stored records."""

    put_messages: int
    put_bytes: int
    got_messages: int
    got_bytes: int
    pulls_found: int
    pulls_missed: int
    sends_refused: int
    """For reasons of the broker's, not the request's."""
    sends_timed_out: int
    """Answered with FLUSH_SLAVE_TIMEOUT or FLUSH_DISK_TIMEOUT."""
    answers: Annotated[tuple[int, ...], msgspec.Meta(min_length=N_ANSWERS, max_length=N_ANSWERS)]
    """Sends answered PUT_OK, by the time between append and answer: up to each of `ANSWER_SECONDS`, and longer."""
    answer_seconds: float
    """Sum of these times."""


class Alive(Message, frozen=True, tag=True, array_like=True):
    """Answer to `Probe`."""

    counts: Counts | None = None


# sidecar -> broker


class Welcome(Message, frozen=True, tag=True, array_like=True):
    """The identity is settled."""

    broker_id: int
    """The id at the controllers, from 1; outwards a master is 0."""


class Prepare(Message, frozen=True, tag=True, array_like=True):
    """This replica was elected for `epoch`: take the lock, cut the tail, answer `Prepared`."""

    epoch: int


class Grant(Message, frozen=True, tag=True, array_like=True):
    """The epoch is on disk: be master until `lease_until`."""

    epoch: int
    lease_until: float


class Lease(Message, frozen=True, tag=True, array_like=True):
    """The right to accept and acknowledge sends ends at `until` unless it is extended."""

    epoch: int
    until: float


class Replication(Message, frozen=True, tag=True, array_like=True):
    """Master: what the replicas hold."""

    epoch: int
    acked_offset: int
    """A message that ends here or before has the copies that the configuration asks for."""
    confirm_offset: int
    """What consumers may see."""
    in_sync: int
    """Size of the SyncStateSet (while a change is under way, of the larger one), this replica included."""


class Release(Message, frozen=True, tag=True, array_like=True):
    """Stop being master; answer `Released`, also if there is nothing to release."""


class HoldKind(StrEnum):
    """Why sends are refused although this replica is master."""

    FENCED = "fenced"
    """By an operator, until an operator ends it."""
    HANDING_OVER = "handing over"
    """Another replica is about to be master."""


class Hold(Message, frozen=True, tag=True, array_like=True):
    """Refuse sends of any kind (`kind`), or take them again (None), whatever the role is and becomes. A new connection
    begins without; the sidecar says it before it grants anything."""

    serial: int
    """For the answer; grows."""
    kind: HoldKind | None
    reason: str
    """For producers and operators."""


class Following(Message, frozen=True, tag=True, array_like=True):
    """This replica is a slave of the master named."""

    epoch: int
    master_broker_id: int
    master_address: str


class Replicated(Message, frozen=True, tag=True, array_like=True):
    """Slave: the log now reaches to `max_offset`, which need not be a record's end; consumers may see up to
    `confirm_offset`."""

    max_offset: int
    confirm_offset: int


class Truncate(Message, frozen=True, tag=True, array_like=True):
    """Slave: the log is going to be cut at `offset`."""

    offset: int


class Fenced(Message, frozen=True, tag=True, array_like=True):
    """Neither master nor slave for now; `reason` is for the operator."""

    reason: str


class Probe(Message, frozen=True, tag=True, array_like=True):
    """Is somebody there? Answered with `Alive` at once."""


class Status(Message, frozen=True, tag=True, array_like=True):
    """What the broker answers on the sidecar's behalf, each a JSON body ready to be sent."""

    epochs: bytes
    """GET_BROKER_EPOCH (1007)."""
    ha: bytes
    """GET_BROKER_HA_STATUS (907)."""


FromBroker = Hello | Prepared | Appended | Released | Truncated | Retained | RoleNotice | Held | Alive
FromSidecar = (
    Welcome
    | Prepare
    | Grant
    | Lease
    | Replication
    | Release
    | Hold
    | Following
    | Replicated
    | Truncate
    | Fenced
    | Probe
    | Status
)

_encoder: Final = msgspec.msgpack.Encoder()
_from_broker: Final[msgspec.msgpack.Decoder[FromBroker]] = msgspec.msgpack.Decoder(FromBroker)
_from_sidecar: Final[msgspec.msgpack.Decoder[FromSidecar]] = msgspec.msgpack.Decoder(FromSidecar)


def encode(message: FromBroker | FromSidecar) -> bytes:
    """One frame."""
    payload = _encoder.encode(message)
    return _LENGTH.pack(len(payload)) + payload


class LinkReader:
    """Cuts a byte stream into payloads. A frame larger than `MAX_FRAME` is a `FrameError`: close the link."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> list[bytes]:
        """The payloads that are complete now."""
        self._buffer += data
        payloads: list[bytes] = []
        position = 0
        while len(self._buffer) - position >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer, position)
            if size > MAX_FRAME:
                raise FrameError(f"frame of {size} bytes between broker and sidecar, {MAX_FRAME} allowed")
            end = position + _LENGTH.size + size
            if len(self._buffer) < end:
                break
            payloads.append(bytes(self._buffer[position + _LENGTH.size : end]))
            position = end
        del self._buffer[:position]
        return payloads


def decode_from_broker(payload: bytes) -> FromBroker:
    """What a broker said; `FrameError` if it is nothing a broker says."""
    try:
        return _from_broker.decode(payload)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not understood from the broker: {error}") from error


def decode_from_sidecar(payload: bytes) -> FromSidecar:
    """What a sidecar said; `FrameError` if it is nothing a sidecar says."""
    try:
        return _from_sidecar.decode(payload)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not understood from the sidecar: {error}") from error
