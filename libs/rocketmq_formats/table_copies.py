"""COPY_TABLES: how a native slave's broker copies its master's tables. Ours; an official master does not have the code;
its tables are read with 21, 201, 43 and 45 instead.

The slave sends what it holds; the master answers with newer tables when there are any, or without tables after a while.
So a change reaches the slaves within one round trip, and their next request confirms it to the master.

The requests come to the port that every client can reach. So in a group with a secret each one carries a proof that its
sender holds it (`copy_proof`), which is bound to the mastership and the connection by the master's nonce: no one else
can make one, and a recorded one proves nothing over another connection.
"""

import hmac
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, NamedTuple

import msgspec

from rocketmq_formats import challenge
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import Int64, decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import SubscriptionGroupWrapper
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.remoting.registration import TopicConfigSerializeWrapper
from rocketmq_formats.store.config_files import ConsumerOffsetsFile
from rocketmq_formats.topics import DataVersion

Length = Annotated[int, msgspec.Meta(ge=0, le=64 * 1024 * 1024)]
Token = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{0,64}\Z")]
Nonce = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f.]{0,64}\Z")]
NOTHING = -1
"""A serial: nothing is held, or what is held is not a copy."""
MAX_QUEUE_ENDS: Final = 200_000
"""Queues whose ends are in one answer."""
MAX_ENDS_LINE: Final = 128 * 1024
"""Bytes of queues' ends that are read in one step."""
_QueueId = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
_QueueEnd = Annotated[int, msgspec.Meta(ge=1, lt=2**62)]


class CopyTablesRequestHeader(Header, frozen=True):
    """What the slave holds; topics and groups are on its disk."""

    broker_id: Int64
    token: Token
    """From the master's last answer; serials count for the mastership that has it."""
    topics: Int64 = NOTHING
    groups: Int64 = NOTHING
    offsets: Int64 = NOTHING
    parts: bool = False
    """Offsets may come in parts, one with each answer. Slaves of an older release get all at once."""
    proof: Token = ""
    """`copy_proof`; empty: none."""
    epoch: Int64 = 0
    """The masterEpoch in which the slave follows; 0 from slaves of an older release."""
    acting_proof: Token = ""
    """`acting_proof` of the body. It is empty, or `ActingCommits`, which the master takes over, and says so; masters of
    an older release do not."""
    log_begin: Int64 = NOTHING
    """The slave asks for the ends of the queues that have no message in its log, which begins here; 0: it is empty. It
    reports no topics then. Masters of an older release send none."""
    changes: bool = False
    """Of topics and groups the slave takes what changed, in parts. Masters of an older release send whole tables."""


class CopyTablesResponseHeader(Header, frozen=True):
    """Serials of what the slave holds with this answer, and how long the parts of the body are; 0: nothing new."""

    token: Token
    topics: Int64
    groups: Int64
    offsets: Int64
    topics_length: Length
    """Body as of 21."""
    groups_length: Length
    """Body as of 201."""
    offsets_length: Length
    """`ConsumerOffsetChanges`."""
    delays_length: Length
    """Body as of 45."""
    nonce: Nonce = ""
    """For the next proof over this connection."""
    acting_taken: bool = False
    """The commits in the request's body are taken over."""
    ends_length: Length = 0
    """Lines of JSON: see `read_queue_ends`. Only for a slave that asked."""
    topic_changes_length: Length = 0
    """`TopicChanges`, instead of all topics. Only for a slave that takes `changes`."""
    group_changes_length: Length = 0
    """`GroupChanges`, likewise."""


class CopyTablesRefusalHeader(Header, frozen=True):
    """With an answer without tables: how to ask again, if it is NO_PERMISSION."""

    nonce: Nonce = ""
    """For a proof over this connection."""
    acting_taken: bool = False
    """As above."""


class ConsumerOffsetChanges(ConsumerOffsetsFile, frozen=True):
    """Keys `topic@group` that changed, with all their queues."""

    removed: tuple[str, ...] = ()
    full: bool = False
    """These are all keys there are, or the first of them; what is named until there are no `more` is all."""
    more: bool = False
    """There are later changes, which the next answers have."""


class TopicChanges(TopicConfigSerializeWrapper, frozen=True):
    """Topics that changed; the version is that of the table when there are no `more`."""

    removed: tuple[str, ...] = ()
    full: bool = False
    """As above."""
    more: bool = False


class GroupChanges(SubscriptionGroupWrapper, frozen=True):
    """Groups that changed, with all that is forbidden to them; likewise."""

    removed: tuple[str, ...] = ()
    full: bool = False
    more: bool = False


class NewerOffsetsRequestHeader(Header, frozen=True):
    """With GET_ALL_CONSUMER_OFFSET (43), from a new master: the version of its offsets. A broker whose own are not
    newer answers with their version and no offsets. Official brokers ignore it and send all they have."""

    state_version: Int64 = NOTHING
    counter: Int64 = 0
    timestamp: Int64 = 0

    @property
    def version(self) -> DataVersion:
        """Older than any, if the sender did not say."""
        return DataVersion(state_version=self.state_version, counter=self.counter, timestamp=self.timestamp)


def newer_offsets_request(version: DataVersion) -> RemotingCommand:
    """Asks for offsets that are newer than `version`."""
    header = NewerOffsetsRequestHeader(
        state_version=version.state_version, counter=version.counter, timestamp=version.timestamp
    )
    return request(RequestCode.GET_ALL_CONSUMER_OFFSET, header)


class EscapedRequestHeader(Header, frozen=True):
    """With GET_ALL_DELAY_OFFSET (45), from a new master: its epoch. An acting slave lets no further delayed messages
    escape. Official brokers ignore it."""

    epoch: Int64 = 0
    """0: from a replica that was not elected."""


def escaped_request(epoch: int) -> RemotingCommand:
    """Asks for delay offsets and what escaped, as the master elected for `epoch`; 0: as a slave."""
    return request(RequestCode.GET_ALL_DELAY_OFFSET, EscapedRequestHeader(epoch=epoch))


def copy_key(secret: bytes, group: bytes) -> bytes:
    """The key of the proofs in a group: `group` is its `replication.challenge.group_digest`."""
    return challenge.key_for(secret, b"table copies", group)


def copy_proof(key: bytes, nonce: str, report: CopyTablesRequestHeader) -> str:
    """The proof that a holder of `key` sends `report` over the connection that the master gave `nonce`."""
    serials = (report.broker_id, report.topics, report.groups, report.offsets)
    transcript = "\0".join((nonce, report.token, *map(str, serials)))
    return challenge.proof(key, b"copier", transcript.encode()).hex()


def is_copy_proof(key: bytes, nonce: str, report: CopyTablesRequestHeader) -> bool:
    """Whether `report` carries its proof."""
    return hmac.compare_digest(report.proof, copy_proof(key, nonce, report))


def acting_proof(key: bytes, nonce: str, body: bytes) -> str:
    """The proof that a holder of `key` sends `body`, its `ActingCommits`, over the connection with `nonce`."""
    return challenge.proof(key, b"acting", nonce.encode() + b"\0" + body).hex()


def is_acting_proof(key: bytes, nonce: str, body: bytes, proof: str) -> bool:
    """Whether `proof` is that of `body`."""
    return hmac.compare_digest(proof, acting_proof(key, nonce, body))


def queue_ends_line(ends: Iterable[tuple[str, int, int]]) -> bytes:
    """Topics, queue ids and the offsets behind the last messages; see `read_queue_ends`."""
    table: dict[str, dict[int, int]] = {}
    for topic, queue_id, end in ends:
        table.setdefault(topic, {})[queue_id] = end
    return encode_body(table) + b"\n"


def read_queue_ends(body: bytes) -> Iterator[list[tuple[str, int, int]]]:
    """What `queue_ends_line` wrote, line by line: `{"T":{"1":7}}`. Raises `BodyError`, perhaps after some lines."""
    position = count = 0
    while position < len(body):
        end = body.find(b"\n", position, position + MAX_ENDS_LINE)
        if end < 0:
            raise BodyError(f"ends of queues without a line's end within {MAX_ENDS_LINE} bytes")
        table = decode_body(dict[str, dict[_QueueId, _QueueEnd]], body[position:end])
        ends = [(topic, queue_id, last) for topic, queues in table.items() for queue_id, last in queues.items()]
        position, count = end + 1, count + len(ends)
        if count > MAX_QUEUE_ENDS:
            raise BodyError(f"the ends of more than {MAX_QUEUE_ENDS} queues")
        yield ends


class Tables(NamedTuple):
    """The parts of a body; empty: nothing new."""

    topics: bytes
    groups: bytes
    offsets: bytes
    delays: bytes
    ends: bytes
    topic_changes: bytes
    group_changes: bytes


def split_tables(header: CopyTablesResponseHeader, body: bytes) -> Tables:
    """The parts of the body.

    Raises:
        BodyError: the lengths are not those of the body.
    """
    parts = []
    position = 0
    for length in (
        header.topics_length,
        header.groups_length,
        header.offsets_length,
        header.delays_length,
        header.ends_length,
        header.topic_changes_length,
        header.group_changes_length,
    ):
        parts.append(body[position : position + length])
        position += length
    if position != len(body):
        raise BodyError(f"tables of {position} bytes in a body of {len(body)}")
    return Tables(*parts)
