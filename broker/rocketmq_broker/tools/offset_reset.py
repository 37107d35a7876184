"""INVOKE_BROKER_TO_RESET_OFFSET (222): a tool moves a group to a time; the broker notifies its consumers (220),
which continue from there and commit it. Without consumers the tool gets an error and changes the offsets itself (15).

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, Broker2Client.java.
"""

from functools import partial

import structlog

from rocketmq_broker.domain.consuming.members import Consumers
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import Int64, encode_body
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request, response
from rocketmq_formats.remoting.headers import Header, decode_header
from rocketmq_formats.topics import TopicName
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)


class ResetOffsetRequestHeader(Header, frozen=True):
    """Of 222 and 220; `timestamp` in ms, -1 for the end of each queue. Without `is_force` a group only goes back."""

    topic: TopicName
    group: str
    timestamp: Int64
    is_force: bool = False


class OffsetReset:
    """Moves consumers to other offsets."""

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        consumers: Consumers[Peer],
        lane: SlowLane,
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._lane = lane

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    def _reset(self, command: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(ResetOffsetRequestHeader, command.ext_fields or {})
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return self._lane.answer(command, peer, partial(self._move, command, header, topic.write_queue_nums, peer))

    async def _move(
        self, command: RemotingCommand, header: ResetOffsetRequestHeader, queues: int, peer: Peer, pace: Pace
    ) -> RemotingCommand:
        pairs = []
        for queue_id in range(queues):
            if pace.over:
                await pace.rest()
            queue = MessageQueue(topic=header.topic, broker_name=self._broker_name, queue_id=queue_id)
            pairs.append((encode_body(queue), b"%d" % self._target(header, queue_id)))
        members = self._consumers.members.of(header.group)
        if not members:
            remark = (
                f"Consumer not online, so can not reset offset. Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
            raise RequestRefusedError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = b'{"offsetTable":%b}' % fastjson.dumps_pairs(pairs)
        frame = encode_frame(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, oneway=True))
        for member in list(members):
            if pace.over or not member.takes:
                await pace.rest()
            member.push_frame(frame)
        log.info(
            "consumers notified of their new offsets",
            group=header.group,
            topic=header.topic,
            to=header.timestamp,
            by=peer.address,
        )
        return response(command, ResponseCode.SUCCESS, None, None, body)

    def _target(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """The queue's offset to continue from."""
        now = self._offsets.find(header.group, header.topic, queue_id)
        if now is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"The consumer group <{header.group}> not exist")
        if header.timestamp == -1:
            target = self._store.queue_bounds(header.topic, queue_id)[1]
        else:
            target = self._store.offset_by_time(header.topic, queue_id, header.timestamp)
        return target if header.is_force or target < now else now
