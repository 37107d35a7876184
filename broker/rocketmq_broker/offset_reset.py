"""INVOKE_BROKER_TO_RESET_OFFSET (222): a tool moves a group to a time; its consumers are told to go on from there (220)
and commit it. Without consumers the tool is told so, and changes the offsets itself (15).

Source: `AdminBrokerProcessor.resetOffset`, `Broker2Client.resetOffset` at tag 5.3.3.
"""

import structlog

from rocketmq_broker.domain.members import Consumers
from rocketmq_broker.domain.offsets import ConsumerOffsets
from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_broker.domain.topics import TopicTable
from rocketmq_broker.front import Processor
from rocketmq_formats.remoting import fastjson
from rocketmq_formats.remoting.bodies import encode_body
from rocketmq_formats.remoting.client import MessageQueue, TopicName
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import Int64
from rocketmq_formats.remoting.headers import Header, decode_header
from rocketmq_runtime.server import Answer, Peer
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)


class ResetOffsetRequestHeader(Header, frozen=True):
    """Of 222 and 220; `timestamp` in ms, -1 for the end of each queue. Without `is_force` a group only goes back."""

    topic: TopicName
    group: str
    timestamp: Int64
    is_force: bool = False


class OffsetReset:
    """Tells consumers where to go on."""

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        consumers: Consumers[Peer],
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    def _reset(self, command: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(ResetOffsetRequestHeader, command.ext_fields or {})
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        pairs = []
        for queue_id in range(topic.write_queue_nums):
            queue = MessageQueue(topic=header.topic, broker_name=self._broker_name, queue_id=queue_id)
            pairs.append((encode_body(queue), b"%d" % self._target(header, queue_id)))
        members = self._consumers.members.of(header.group)
        if not members:
            remark = (
                f"Consumer not online, so can not reset offset. Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
            raise RefusedError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = b'{"offsetTable":%b}' % fastjson.dumps_pairs(pairs)
        for member in members:
            member.send(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, oneway=True))
        log.info(
            "consumers are told to move", group=header.group, topic=header.topic, to=header.timestamp, by=peer.address
        )
        return response(command, ResponseCode.SUCCESS, None, None, body)

    def _target(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """Where the group goes on in the queue."""
        now = self._offsets.find(header.group, header.topic, queue_id)
        if now is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"The consumer group <{header.group}> not exist")
        if header.timestamp == -1:
            target = self._store.queue_bounds(header.topic, queue_id)[1]
        else:
            target = self._store.offset_by_time(header.topic, queue_id, header.timestamp)
        return target if header.is_force or target < now else now
