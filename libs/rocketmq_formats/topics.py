"""Topics and consumer groups of brokers and name servers: one definition for the wire and for the files.

The structs are the JSON shapes of Java 5.3.3: registrations (103) and admin requests carry them, `config/topics.json`
and `config/subscriptionGroup.json` keep them. `to_text` and `from_text` are a topic's form in a compressed
registration. Source: rocketmq-all-5.3.3: TopicConfig.java, DataVersion.java, SubscriptionGroupConfig.java.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import field

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import Body, Int32, Int64

PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
"""Of a template topic: what topics created from it may do is taken from it."""

MAX_TOPIC_LENGTH: Final = 127
"""Longest topic name of a client's request; a record with a longer one (retry topics) has the V2 layout."""
MAX_TABLE_TOPIC_LENGTH: Final = 255
"""Longest name in a broker's or a name server's table."""
DEFAULT_QUEUE_NUMS: Final = 16

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYNC_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
DELETED_TOPICS: Final = "rmq_sys_DELETED_TOPICS"
"""Ours. Only a native master stores here: the body of a message is the name of a topic that was deleted, and the
messages of that topic before it in the log are no longer shown."""

TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
"""Of a request. Room for `%RETRY%` and a group's 255 characters; the broker checks whether it is legal (code 29)."""
MAX_QUEUES: Final = 65_536
"""Of a topic at a broker of ours, with one consume queue file each at least. Java bounds the number nowhere."""
TopicFilterType = Literal["SINGLE_TAG", "MULTI_TAG"]


class DataVersion(Body, frozen=True, order=True):
    """How new a table is; compared by state version, counter, time, in this order, as Java's `compare` does.

    `state_version` is the master epoch in controller mode, `timestamp` milliseconds.
    """

    state_version: Int64 = 0
    counter: Int64 = 0
    timestamp: Int64 = 0

    def next(self, state_version: int, now_ms: int) -> "DataVersion":
        """The version of the table after one more change: greater than this one, whatever the arguments are."""
        # a group that no longer has controllers is in a lower epoch
        newest = max(state_version, self.state_version)
        return DataVersion(state_version=newest, counter=self.counter + 1, timestamp=now_ms)


def bounded_queues(count: int) -> int:
    """The nearest number of queues that a topic can have here."""
    return min(max(count, 0), MAX_QUEUES)


class TopicConfig(Body, frozen=True, gc=False):
    """A topic at a broker; `perm` is a sum of the PERM bits, `attributes` are names and values without `+`.

    `topic_name` is absent only in sloppy registrations and files; readers of a table skip such topics.
    """

    topic_name: str = ""
    read_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    write_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    perm: Int32 = PERM_READ | PERM_WRITE
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: Mapping[str, str] | None = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def inherited(self) -> bool:
        return bool(self.perm & PERM_INHERIT)

    def bounded(self) -> "TopicConfig":
        """With a number of queues that a broker of ours can have; others' tables may hold any."""
        if 0 <= self.read_queue_nums <= MAX_QUEUES and 0 <= self.write_queue_nums <= MAX_QUEUES:
            return self
        return msgspec.structs.replace(
            self,
            read_queue_nums=bounded_queues(self.read_queue_nums),
            write_queue_nums=bounded_queues(self.write_queue_nums),
        )

    def to_text(self) -> str:
        """`topic readQ writeQ perm SINGLE_TAG {attributes}`; sys flag and order are not part of it."""
        attributes = msgspec.json.encode(self.attributes or {}, order="sorted").decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {attributes}"
        )

    @classmethod
    def from_text(cls, text: str) -> "TopicConfig":
        """What `to_text` wrote; unlike Java's reader, attributes may contain spaces.

        Raises:
            BodyError: fewer than five parts, or a part that is not what it should be.
        """
        parts = text.split(" ", 5)
        if len(parts) < 5:
            raise BodyError(f"topic in a registration has {len(parts)} parts, 5 needed: {text[:80]!r}")
        try:
            attributes = msgspec.json.decode(parts[5], type=dict[str, str]) if len(parts) > 5 and parts[5] else {}
            fields = {
                "topicName": parts[0],
                "readQueueNums": parts[1],
                "writeQueueNums": parts[2],
                "perm": parts[3],
                "topicFilterType": parts[4],
                "attributes": attributes,
            }
            return msgspec.convert(fields, cls, strict=False)
        except msgspec.DecodeError as error:
            raise BodyError(f"topic in a registration: {error}: {text[:80]!r}") from error


class ExponentialRetryPolicy(Body, frozen=True):
    """Milliseconds until a redelivery: `initial`, times `multiplier` each time, at most `max`."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body, frozen=True):
    """Milliseconds until each redelivery; absent, Java's delay levels hold."""

    next: Sequence[Int64] = ()


class GroupRetryPolicy(Body, frozen=True, omit_defaults=True):
    """How long a group waits between redeliveries; `type` is always written."""

    type: Literal["EXPONENTIAL", "CUSTOMIZED"] | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


CUSTOMIZED: Final = GroupRetryPolicy(type="CUSTOMIZED")


class SimpleSubscriptionData(Body, frozen=True, omit_defaults=True):
    """A subscription that an operator fixed for a group; absent texts are null in Java."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body, frozen=True, gc=False):
    """A consumer group at a broker. `group_name` is absent only in sloppy requests, which are refused."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    """From 0 down: messages that are sent back are not delivered again, as in Java."""
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = CUSTOMIZED
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: Sequence[SimpleSubscriptionData] | msgspec.UnsetType | None = msgspec.UNSET
    attributes: Mapping[str, str] | None = field(default_factory=dict)
