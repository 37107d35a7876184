"""One queue as brokers give it: pulls, messages, offsets. Used by `consumer`.

Source: rocketmq-all-5.3.3: PullMessageProcessor.java, MQClientAPIImpl.java, MessageDecoder.java.
"""

import zlib
from typing import Final, TypeVar

import msgspec

from rocketmq_client.errors import AnswerError, ClientError
from rocketmq_client.routes import ReadQueue
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.client import (
    DEFAULT_MAX_MSG_BYTES,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    GetMaxOffsetRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    TopicQueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import Header, decode_header
from rocketmq_formats.store.message import Record, SysFlag, read_records
from rocketmq_formats.store.message_properties import KEYS, TAGS, UNIQ_KEY, find_property, parse_properties
from rocketmq_runtime.remoting.client import RemotingClient

BATCH: Final = 32
"""Messages asked for in one pull; Java's brokers return at most this many from memory."""
SUSPEND_SECONDS: Final = 15.0
"""How long a broker may hold a pull that finds nothing."""
MAX_BODY: Final = 128 * 1024 * 1024
"""Largest compressed body read, inflated, in bytes."""
_ZLIB: Final = frozenset((0x000, 0x300))


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message that was read. Times are milliseconds since 1970."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    encoded_properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int

    @property
    def msg_id(self) -> str | None:
        """The UNIQ_KEY that its producer gave it."""
        return find_property(self.encoded_properties, UNIQ_KEY)

    @property
    def keys(self) -> str | None:
        return find_property(self.encoded_properties, KEYS)

    @property
    def tags(self) -> str | None:
        return find_property(self.encoded_properties, TAGS)

    def properties(self) -> dict[str, str]:
        return parse_properties(self.encoded_properties)


class Pulled(msgspec.Struct, frozen=True):
    """What one pull gave; `max_offset` is what the queue ended at."""

    messages: list[Message]
    next_offset: int
    min_offset: int
    max_offset: int


class QueueReader:
    """Asks brokers about one queue. Every method takes one attempt; the route's changes are up to the caller."""

    def __init__(self, client: RemotingClient, topic: str, queue: ReadQueue, group: str, *, timeout: float) -> None:
        self.queue = queue
        self._client = client
        self._topic = topic
        self._group = group
        self._timeout = timeout

    async def pull(self, offset: int, *, suspend: float = 0.0, tags: str = "*", broker_id: int = 0) -> Pulled:
        """Messages from `offset` on, none if `suspend` seconds passed without one.

        An offset outside of the queue is not an error: `next_offset` then is the broker's correction.

        Raises:
            AnswerError: refused.
            RemotingError: not answered.
            ClientError: a malformed answer.
        """
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self._topic,
            queue_id=self.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=BATCH,
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if suspend else 0),
            commit_offset=0,
            suspend_timeout_millis=int(suspend * 1000),
            sub_version=0,
            subscription=tags,
            expression_type="TAG",
            max_msg_bytes=DEFAULT_MAX_MSG_BYTES,
        )
        command = request(RequestCode.PULL_MESSAGE, header)
        address = self.queue.address(broker_id)
        answer = await self._client.call(address, command, timeout=self._timeout + suspend)
        if answer.code not in _PULLED:
            raise AnswerError(address, f"a pull of topic {self._topic}", answer.code, answer.remark)
        fields = _decode(PullMessageResponseHeader, answer, address)
        messages: list[Message] = []
        if answer.code == ResponseCode.SUCCESS:
            try:
                records = read_records(answer.body, check_crc=True)
            except FormatError as error:
                raise ClientError(f"{address} sent no records: {error}") from error
            messages = [_message(record, answer.body, self.queue.broker_name) for record in records]
        return Pulled(messages, fields.next_begin_offset, fields.min_offset, fields.max_offset)

    async def min_offset(self) -> int:
        """The first logical offset that is still there.

        Raises:
            As `pull`.
        """
        header = TopicQueueRequestHeader(topic=self._topic, queue_id=self.queue.queue_id)
        return await self._offset(RequestCode.GET_MIN_OFFSET, header)

    async def max_offset(self) -> int:
        """The logical offset that the next message will get.

        Raises:
            As `pull`.
        """
        header = GetMaxOffsetRequestHeader(topic=self._topic, queue_id=self.queue.queue_id)
        return await self._offset(RequestCode.GET_MAX_OFFSET, header)

    async def committed_offset(self) -> int | None:
        """The group's committed offset, None if it never committed.

        Raises:
            As `pull`.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=self._topic, queue_id=self.queue.queue_id, set_zero_if_not_found=False
        )
        try:
            return await self._offset(RequestCode.QUERY_CONSUMER_OFFSET, header)
        except AnswerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit_offset(self, offset: int) -> None:
        """Commit `offset` for the group; returns when the broker has it, in a strict group when every replica in sync
        has it.

        Raises:
            As `pull`.
        """
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=self._topic, queue_id=self.queue.queue_id, commit_offset=offset
        )
        await self._call(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _offset(self, code: RequestCode, header: Header) -> int:
        return _decode(OffsetResponseHeader, await self._call(code, header), self.queue.address()).offset

    async def _call(self, code: RequestCode, header: Header) -> RemotingCommand:
        address = self.queue.address()
        answer = await self._client.call(address, request(code, header), timeout=self._timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise AnswerError(address, f"{code.name} of topic {self._topic}", answer.code, answer.remark)
        return answer


_PULLED: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)

H = TypeVar("H", bound=Header)


def _decode(header_type: type[H], answer: RemotingCommand, address: str) -> H:
    try:
        return decode_header(header_type, answer.ext_fields or {})
    except FormatError as error:
        raise ClientError(f"{address} sent an invalid answer: {error}") from error


def _message(record: Record, buffer: bytes, broker_name: str) -> Message:
    body = bytes(record.body(buffer))
    if record.sys_flag & SysFlag.COMPRESSED:
        body = _inflate(body, record.sys_flag & SysFlag.COMPRESSION_TYPE)
    return Message(
        record.topic.decode("utf-8", "replace"),
        broker_name,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        body,
        record.properties,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.store_timestamp,
        record.reconsume_times,
    )


def _inflate(body: bytes, kind: int) -> bytes:
    if kind not in _ZLIB:
        raise ClientError(f"a body compressed in a way that this client does not read: {kind:#x}")
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_BODY)
    except zlib.error as error:
        raise ClientError(f"a compressed body is damaged: {error}") from error
    if not inflater.eof:
        raise ClientError(f"a compressed body is cut short, or larger than {MAX_BODY} bytes")
    return data
