"""Headers and bodies of requests that a broker makes to the clients connected to it: 221, 307, 309, 326.

The first three are a tool's, which the broker passes on: 223, 307 and 309 there.

Source: rocketmq-all-5.3.3: Broker2Client.java, ReplyMessageProcessor.java, ClientRemotingProcessor.java.
"""

from collections.abc import Mapping

import msgspec
from msgspec import field

from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import Body, Int32, Int64, decode_body, encode_body
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.headers import Header

# 326 PUSH_REPLY_MESSAGE_TO_CLIENT; the body is the message's


class ReplyMessageRequestHeader(Header, frozen=True):
    """The reply as its sender sent it. Hosts are `ip:port`, times are milliseconds."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


# 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS, 221 GET_CONSUMER_STATUS_FROM_CLIENT


class GetConsumerStatusRequestHeader(Header, frozen=True):
    """`client_addr` is a client's id, empty for all members; not in 221."""

    topic: str
    group: str
    client_addr: str | None = None


class _ConsumerStatus(Body, frozen=True):
    message_queue_table: Mapping[str, Int64] = field(default_factory=dict)


class ConsumerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Java's GetConsumerStatusBody, one class for two bodies: of the answer to 221, each queue with the client's next
    offset; of the answer to 223, the same by client id."""

    message_queue_table: Mapping[MessageQueue, int] = field(default_factory=dict)
    consumer_table: Mapping[str, Mapping[MessageQueue, int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        clients = [(encode_body(client), _offsets(table)) for client, table in sorted(self.consumer_table.items())]
        return b'{"consumerTable":%b,"messageQueueTable":%b}' % (
            fastjson.dumps_pairs(clients),
            _offsets(self.message_queue_table),
        )

    @classmethod
    def decode_of_client(cls, data: bytes) -> "ConsumerStatus":
        """Body of the answer to 221.

        Raises:
            BodyError: not that.
        """
        table = decode_body(_ConsumerStatus, data).message_queue_table
        return cls(
            message_queue_table={decode_body(MessageQueue, key.encode()): offset for key, offset in table.items()}
        )


def _offsets(table: Mapping[MessageQueue, int]) -> bytes:
    return fastjson.dumps_pairs((encode_body(queue), b"%d" % table[queue]) for queue in sorted(table))


# 307 GET_CONSUMER_RUNNING_INFO, 309 CONSUME_MESSAGE_DIRECTLY; 309's body is the message's record


class ConsumerCallRequestHeader(Header, frozen=True):
    """What a broker reads of both; it passes all ext fields on."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    topic: str | None = None
