"""What a broker and its sidecar say to each other over the Unix socket: the two halves of one replica.

The sidecar listens, the broker connects; one broker at a time. A frame is a u32 length (big-endian) and one MessagePack
value, a tagged array; both processes are of one release, so `Hello.protocol` is compared and nothing is negotiated.
Offsets are physical offsets of the commit log in bytes; times are seconds since boot, time asleep included, which both
processes of one machine share. Every state below is a level, not an edge: a later value of the same kind replaces an
earlier one, so senders coalesce them, one frame of a kind per turn of the loop.

Only the process that holds the exclusive lock of `{storePathRootDir}/writer.lock` may append to the log (invariant
OneWriter). The lock changes hands as follows; when either process crashes the kernel releases it:

    start            broker takes it, recovers the store, releases it, connects, `Hello`
    slave            sidecar takes it, before it appends what the master sends
    slave -> master  sidecar stops replicating, releases; `Prepare`; broker takes it, cuts the incomplete tail,
                     `Prepared(maxOffset)`; sidecar writes the epoch durably, broker takes over newer offsets of the
                     `Others`; `Grant`: now sends are accepted
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
from typing import Annotated, Final, Literal

import msgspec

from rocketmq_formats.errors import FrameError

PROTOCOL: Final = 12
MAX_FRAME: Final = 16 * 1024 * 1024
MAX_OTHERS: Final = 16
"""Members that a new master asks for newer tables."""
MAX_REGISTERED: Final = 64
"""Members of a group that a broker reports as registered, those with the least ids."""
_LENGTH: Final = struct.Struct(">I")
ANSWER_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
N_ANSWERS: Final = len(ANSWER_SECONDS) + 1


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of everything that travels; the tag is the class's name."""


# broker -> sidecar


class LogState(Message, frozen=True, tag=True, array_like=True):
    """What the broker has found out about the log's bytes; sent whenever that changes."""

    checked: bool = True
    """What has to be read again with checksums after an unclean stop has been; else the replica is not to be elected.
    """
    damage: int = -1
    """Offset of the first record that is not whole any more; -1: none is known."""
    reason: str = ""
    """Of the damage, for operators."""
    stopped: bool = False
    """From `damage` on no message becomes visible: dispatching has stopped there."""


class Registered(Message, frozen=True, tag=True, array_like=True):
    """Without controllers: whom a name server lists in this group; sent whenever that changes."""

    addresses: Annotated[dict[int, str], msgspec.Meta(max_length=MAX_REGISTERED)] = {}
    """brokerId -> brokerIP1:listenPort."""


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
    log: LogState = LogState()
    settings: dict[str, str] = {}
    """Key -> value of the broker's settings that all replicas of a group share, for the comparison with a master's."""
    registered: Registered | None = None
    """None: no name server has answered yet, or the group has controllers."""
    controllers: bool = True
    """enableControllerMode."""


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
    """NOTIFY_BROKER_ROLE_CHANGED (1008) came to the broker's address: perhaps there is another master. It has no
    fields: a controller sends 1008 to the port that every client can reach, so its contents prove nothing, and the
    sidecar asks the controllers itself."""


class Held(Message, frozen=True, tag=True, array_like=True):
    """Answer to each `Hold`, after the `Appended` that it makes final: while that one holds, the log ends here."""

    serial: int
    max_offset: int


class Copied(Message, frozen=True, tag=True, array_like=True):
    """Master: slaves about to enter the SyncStateSet have the tables (`Replication.joins`), as far as anything in them
    was acknowledged; from now on nothing is acknowledged without them."""

    epoch: int
    joins: frozenset[int]


class CountMetric(msgspec.Struct, frozen=True, kw_only=True):
    """The metric that a field of `Counts` is."""

    field: str = ""
    name: str
    """Behind `rocketmq_broker_`."""
    kind: Literal["counter", "gauge"]
    labels: dict[str, str]
    """Beside the replica's."""
    text: str = ""


def _metric(name: str, text: str, *, kind: Literal["counter", "gauge"] = "counter", **labels: str) -> msgspec.Meta:
    metric = CountMetric(name=name, kind=kind, labels=labels, text=text)
    return msgspec.Meta(description=text, extra={"metric": metric})


class Counts(msgspec.Struct, array_like=True):
    """What a broker has done since its start. The broker counts in it, and the sidecar exports each field as the metric
    that it is declared with. Bytes are those of stored records."""

    put_messages: Annotated[int, _metric("messages_put", "Messages stored")] = 0
    put_bytes: Annotated[int, _metric("bytes_put", "Bytes of records stored")] = 0
    got_messages: Annotated[int, _metric("messages_got", "Messages that pulls were answered with")] = 0
    got_bytes: Annotated[int, _metric("bytes_got", "Bytes of records that pulls were answered with")] = 0
    pulls_found: Annotated[int, _metric("pulls", "Pulls answered, by what they got", result="found")] = 0
    pulls_missed: Annotated[int, _metric("pulls", "Pulls answered, by what they got", result="missed")] = 0
    sends_refused: Annotated[
        int, _metric("sends_refused", "Sends refused over role, lease, too few in sync, load or disk")
    ] = 0
    sends_timed_out: Annotated[int, _metric("sends_timed_out", "Sends stored, but not copied or synced in time")] = 0
    answers: Annotated[list[int], msgspec.Meta(min_length=N_ANSWERS, max_length=N_ANSWERS)] = msgspec.field(
        default_factory=lambda: [0] * N_ANSWERS
    )
    """Sends answered PUT_OK, by the time between append and answer: up to each of `ANSWER_SECONDS`, and longer."""
    answer_seconds: float = 0.0
    """Sum of these times."""
    log_checked: Annotated[int, _metric("log_checked_bytes", "Bytes of the log read again to compare checksums")] = 0
    log_damaged: Annotated[
        int, _metric("log_damaged", "1 once a damaged record was found in the log", kind="gauge")
    ] = 0
    units_repaired: Annotated[
        int, _metric("queue_units_repaired", "Units of consume queues that differed from the log and were corrected")
    ] = 0
    delayed_passed_over: Annotated[
        int, _metric("delayed_passed_over", "Delayed messages not delivered: their records are unreadable")
    ] = 0
    unregistered: Annotated[
        int, _metric("unregistered", "1 while no name server has taken a registration for 30 s", kind="gauge")
    ] = 0


def count_metrics() -> tuple[CountMetric, ...]:
    """Of the fields of `Counts` that are declared with one."""
    info = msgspec.inspect.type_info(Counts)
    assert isinstance(info, msgspec.inspect.StructType), "Counts is a struct"
    return tuple(
        msgspec.structs.replace(field.type.extra["metric"], field=field.name)
        for field in info.fields
        if isinstance(field.type, msgspec.inspect.Metadata) and field.type.extra
    )


class Alive(Message, frozen=True, tag=True, array_like=True):
    """Answer to `Probe`."""

    counts: Counts | None = None
    refuses: str | None = None
    """Why the store takes nothing at present, such as a full disk; None if it does."""
    acting: bool = False
    """A slave that serves consumers in a master's place."""
    unregistered: str | None = None
    """Why no name server lists this broker, although some are configured; None if one does."""


# sidecar -> broker


class Welcome(Message, frozen=True, tag=True, array_like=True):
    """The identity is settled."""

    broker_id: int
    """The id at the controllers, from 1; outwards a master is 0. Without controllers the configured id."""


class CopyKey(Message, frozen=True, tag=True, array_like=True):
    """By which brokers of the group prove to each other that they are replicas (`table_copies.copy_proof`). Sent after
    each `Hello`, before any role, if the group has a secret: the broker itself never gets that."""

    key: bytes
    required: bool
    """False: replicas without the secret are accepted too."""


class NamedSettings(Message, frozen=True, tag=True, array_like=True):
    """What 906 names while this replica is master. Sent after each `Hello`, before any role."""

    text: str
    """`ha_info.encode_settings` of both halves' settings."""


class Prepare(Message, frozen=True, tag=True, array_like=True):
    """This replica was elected for `epoch`: take the lock, cut the tail, answer `Prepared`."""

    epoch: int


class Others(Message, frozen=True, tag=True, array_like=True):
    """Who may have newer tables than this replica, which was elected for `epoch`: it asks them before it serves. Comes
    before, after or without the `Prepare` of that epoch."""

    epoch: int
    addresses: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_OTHERS)]
    """Of the other members' brokers, of those that live; members of the SyncStateSet first."""


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
    members: frozenset[int] = frozenset()
    """Broker ids of the SyncStateSet (while a change is under way, of both), this replica's included."""
    joins: dict[int, int] = {}
    """By broker id, slaves whose logs are good enough for the SyncStateSet, each with a number that changes whenever
    the slave has been away: no set with them is proposed before `Copied` names the number."""
    officials: frozenset[int] = frozenset()
    """Broker ids of slaves that are official brokers: these do not ask for tables."""


class Release(Message, frozen=True, tag=True, array_like=True):
    """Stop being master; answer `Released`, also if there is nothing to release."""


class HoldKind(StrEnum):
    """Why sends are refused although this replica is master."""

    FENCED = "fenced"
    """By an operator, until an operator ends it."""
    HANDING_OVER = "handing over"
    """Another replica is about to become master."""


class Hold(Message, frozen=True, tag=True, array_like=True):
    """Refuse all sends, for the reason `kind`, or accept them again (None), in every role. A new connection begins
    without a hold; the sidecar sends it before any grant."""

    serial: int
    """For the answer; grows."""
    kind: HoldKind | None
    reason: str
    """For producers and operators."""


class Following(Message, frozen=True, tag=True, array_like=True):
    """This replica is a slave of the master named. The address is empty while it is unknown, and without controllers:
    there `CopyFrom` follows."""

    epoch: int
    master_broker_id: int
    master_address: str


class CopyFrom(Message, frozen=True, tag=True, array_like=True):
    """Slave without controllers: copy the tables of the master at this address, because its log continues this
    replica's; empty, as after `Following`: of none."""

    master_address: str


class MasterKnown(Message, frozen=True, tag=True, array_like=True):
    """Slave: whether the group still has a master, by the controllers or by the connection to it. After `Following` it
    has one; sent whenever that changes."""

    known: bool


class Replicated(Message, frozen=True, tag=True, array_like=True):
    """Slave: the log now reaches to `max_offset`, which need not be a record's end; consumers may see up to
    `confirm_offset`."""

    max_offset: int
    confirm_offset: int


class Truncate(Message, frozen=True, tag=True, array_like=True):
    """Slave: the log will be cut at `offset`."""

    offset: int


class Repaired(Message, frozen=True, tag=True, array_like=True):
    """Slave: the records from `start` to `end` were damaged and have been copied again from the master (or were
    found whole): check them again, and their units in the consume queues."""

    start: int
    end: int


class Suspected(Message, frozen=True, tag=True, array_like=True):
    """Another replica found no whole record at `offset`: check it here."""

    offset: int


class NoRole(Message, frozen=True, tag=True, array_like=True):
    """Neither master nor slave for now; `reason` is for the operator."""

    reason: str


class Probe(Message, frozen=True, tag=True, array_like=True):
    """Checks that the broker responds. Answered with `Alive` at once."""


class Status(Message, frozen=True, tag=True, array_like=True):
    """Answers that the broker sends on the sidecar's behalf; each is a complete JSON body."""

    epochs: bytes
    """GET_BROKER_EPOCH (1007)."""
    ha: bytes
    """GET_BROKER_HA_STATUS (907)."""


FromBroker = (
    Hello
    | LogState
    | Registered
    | Prepared
    | Appended
    | Released
    | Truncated
    | Retained
    | RoleNotice
    | Held
    | Copied
    | Alive
)
FromSidecar = (
    Welcome
    | CopyKey
    | NamedSettings
    | Prepare
    | Others
    | Grant
    | Lease
    | Replication
    | Release
    | Hold
    | Following
    | CopyFrom
    | MasterKnown
    | Replicated
    | Truncate
    | Repaired
    | Suspected
    | NoRole
    | Probe
    | Status
)

_encoder: Final = msgspec.msgpack.Encoder()
_from_broker: Final[msgspec.msgpack.Decoder[FromBroker]] = msgspec.msgpack.Decoder(FromBroker)
_from_sidecar: Final[msgspec.msgpack.Decoder[FromSidecar]] = msgspec.msgpack.Decoder(FromSidecar)


def encode(message: FromBroker | FromSidecar) -> bytes:
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
    """A broker's message; `FrameError` if it is not one."""
    try:
        return _from_broker.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not understood from the broker: {error}") from error


def decode_from_sidecar(payload: bytes) -> FromSidecar:
    """A sidecar's message; `FrameError` if it is not one."""
    try:
        return _from_sidecar.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not understood from the sidecar: {error}") from error
