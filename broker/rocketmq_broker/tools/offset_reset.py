"""INVOKE_BROKER_TO_RESET_OFFSET (222): a tool moves a group to a time; the broker notifies its consumers (220),
which continue from there and commit it. Without consumers the tool gets an error and changes the offsets itself (15).
A request may name one queue, and the offset in it; that one is moved without consumers too.

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, Broker2Client.java.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from rocketmq_broker.domain.consuming.members import Consumers
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import Int32, Int64, encode_body
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request, response
from rocketmq_formats.remoting.headers import Header, decode_header
from rocketmq_formats.topics import TopicName
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)

ALL_QUEUES: Final = -1
NO_OFFSET: Final = -1
"""How tools say that they give no offset."""


class ResetOffsetRequestHeader(Header, frozen=True):
    """Of 222 and 220; `timestamp` in ms, below 0 for the end of each queue. Without `is_force` a group only goes back.

    `queue_id` below 0 means all queues. Of one queue `offset` counts, where there is one that is not -1.
    """

    topic: TopicName
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 = ALL_QUEUES
    offset: Int64 | None = None

    @property
    def one_queue(self) -> bool:
        return self.queue_id >= 0

    @property
    def named_offset(self) -> int | None:
        """The offset that the request gives for its one queue."""
        return self.offset if self.one_queue and self.offset != NO_OFFSET else None


class OffsetReset:
    """Moves consumers to other offsets."""

    def __init__(
        self,
        *,
        broker_name: str,
        role: ReplicaRole,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        consumers: Consumers[Peer],
        lane: SlowLane,
    ) -> None:
        self._broker_name = broker_name
        self._role = role
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
        if header.queue_id >= topic.read_queue_nums:
            remark = f"queueId[{header.queue_id}] is illegal, topic {header.topic} has {topic.read_queue_nums} queues"
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        # read queues: a topic that is drained has no write queues
        queues = (header.queue_id,) if header.one_queue else range(topic.read_queue_nums)
        return self._lane.answer(command, peer, partial(self._move, command, header, queues, peer))

    async def _move(
        self, command: RemotingCommand, header: ResetOffsetRequestHeader, queues: Sequence[int], peer: Peer, pace: Pace
    ) -> RemotingCommand:
        pairs = []
        targets: dict[int, int] = {}
        for queue_id in queues:
            if pace.over:
                await pace.rest()
            queue = MessageQueue(topic=header.topic, broker_name=self._broker_name, queue_id=queue_id)
            targets[queue_id] = self._target(header, queue_id)
            pairs.append((encode_body(queue), b"%d" % targets[queue_id]))
        members = self._consumers.members.of(header.group)
        body = b'{"offsetTable":%b}' % fastjson.dumps_pairs(pairs)
        if not members and header.one_queue:
            if self._role.role is not Role.MASTER or self._role.handing_over:
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
            self._offsets.commit(header.group, header.topic, header.queue_id, targets[header.queue_id])
            return response(command, ResponseCode.SUCCESS, None, None, body)
        if not members:
            remark = (
                f"Consumer not online, so can not reset offset. Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
            raise RequestRefusedError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
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
        smallest, largest = self._store.queue_bounds(header.topic, queue_id)
        if (named := header.named_offset) is not None:
            if not smallest <= named <= largest:
                remark = f"Target offset {named} not in consume queue range [{smallest}-{largest}]"
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
            return named
        if header.timestamp < 0:
            target = largest
        else:
            target = self._store.offset_by_time(header.topic, queue_id, header.timestamp)
        return target if header.is_force or target < now else now
