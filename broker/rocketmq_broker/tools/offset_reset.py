"""INVOKE_BROKER_TO_RESET_OFFSET (222): a tool moves a group to a time, or one queue of it to a time or an offset.

With useServerSideResetOffset, the default, the broker moves the group's offsets, and answers when the slaves in sync
have them too; consumers hear of it with their next pull (`PendingResets`). Without it the broker notifies the consumers
(220), which continue from there and commit it. Then, without consumers, the tool gets an error and changes the offsets
itself (15), except those of one queue, which the broker moves.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, Broker2Client.java.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from rocketmq_broker.domain.consuming.members import Consumers
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.subscription_groups import SubscriptionGroups
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_broker.tables.table_file import Barrier, MakeBarrier, no_barrier
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import ResetOffsetRequestHeader
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime import background
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)

SLICE: Final = 1000
"""Queues that are moved in one step; 2 ms."""


class OffsetReset:
    """Moves consumers to other offsets."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        consumers: Consumers[Peer],
        lane: SlowLane,
        on_reset: Callable[[str, str, Collection[int]], None],
    ) -> None:
        """`on_reset`: offsets of a group were reset in these queues of a topic."""
        self._broker_name = settings.name
        self._here = settings.use_server_side_reset_offset
        self._role = role
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._lane = lane
        self._on_reset = on_reset
        self.replication_barrier: MakeBarrier = no_barrier

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    def _reset(self, command: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(ResetOffsetRequestHeader, command.ext_fields or {})
        if self._here:
            self._check(header)
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if header.queue_id >= topic.read_queue_nums:
            remark = f"queueId[{header.queue_id}] is illegal, topic {header.topic} has {topic.read_queue_nums} queues"
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        # read queues: a topic that is drained has no write queues
        queues = (header.queue_id,) if header.one_queue else range(topic.read_queue_nums)
        if not self._here:
            return self._lane.answer(command, peer, partial(self._notify, command, header, queues, peer))
        barriers: list[Barrier] = []
        move = partial(self._move_here, command, header, queues, peer, barriers=barriers)
        moving = self._lane.answer(command, peer, move)
        assert isinstance(moving, asyncio.Future)
        return background.awaited(self._copied(command, moving, barriers), "reset of offsets")

    # the broker moves them

    async def _move_here(
        self,
        command: RemotingCommand,
        header: ResetOffsetRequestHeader,
        queues: Sequence[int],
        peer: Peer,
        pace: Pace,
        *,
        barriers: list[Barrier],
    ) -> RemotingCommand:
        """`barriers` gets the one of this change, which belongs to the mastership that made it."""
        targets: dict[int, int] = {}
        for queue_id in queues:
            if pace.over:
                await pace.rest()
            targets[queue_id] = self._goal(header, queue_id)
        body = await self._body(header.topic, targets, pace)
        queue_ids, epoch = list(targets), self._role.epoch
        for first in range(0, len(queue_ids), SLICE):
            if pace.over:
                await pace.rest()
            # In the step of each slice: the role may have changed, or what they are about may have been deleted. Queues
            # that were moved before stay so, as in Java: the tool gets the error, and repeats the reset.
            self._check(header)
            if self._role.epoch != epoch:  # one barrier is for the changes of one mastership
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "the master has changed: reset the offsets again")
            moved = queue_ids[first : first + SLICE]
            for queue_id in moved:
                if not self._offsets.reset(header.group, header.topic, queue_id, targets[queue_id]):
                    raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "there is no room for more consumer offsets")
            self._on_reset(header.group, header.topic, moved)
        barriers.append(self.replication_barrier())
        log.info("offsets reset", group=header.group, topic=header.topic, queues=len(targets), by=peer.address)
        return response(command, ResponseCode.SUCCESS, None, None, body)

    async def _copied(
        self, command: RemotingCommand, moving: "asyncio.Future[RemotingCommand]", barriers: Sequence[Barrier]
    ) -> RemotingCommand:
        """The answer, when the slaves that may become master have the offsets too."""
        answer = await moving
        for barrier in barriers:
            problem = await barrier()
            if problem is not None:
                return response(command, ResponseCode.SYSTEM_BUSY, problem)
        return answer

    def _check(self, header: ResetOffsetRequestHeader) -> None:
        """As Java, in its order."""
        self._check_master()
        if self._topics.get(header.topic) is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._groups.get(header.group) is None:
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")

    def _check_master(self) -> None:
        if self._role.role is not Role.MASTER or self._role.handing_over:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")

    async def _body(self, topic: str, targets: Mapping[int, int], pace: Pace) -> bytes:
        pairs = []
        for queue_id, offset in targets.items():
            if pace.over:
                await pace.rest()
            queue = MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)
            pairs.append((encode_body(queue), b"%d" % offset))
        return b'{"offsetTable":%b}' % fastjson.dumps_pairs(pairs)

    # consumers move them

    async def _notify(
        self, command: RemotingCommand, header: ResetOffsetRequestHeader, queues: Sequence[int], peer: Peer, pace: Pace
    ) -> RemotingCommand:
        targets: dict[int, int] = {}
        for queue_id in queues:
            if pace.over:
                await pace.rest()
            targets[queue_id] = self._target(header, queue_id)
        body = await self._body(header.topic, targets, pace)
        members = self._consumers.members.of(header.group)
        if not members and header.one_queue:
            self._check_master()
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
        """Where consumers are to continue: where they are, if that is earlier and the tool does not insist."""
        now = self._offsets.find(header.group, header.topic, queue_id)
        if now is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"The consumer group <{header.group}> not exist")
        target = self._goal(header, queue_id)
        return target if header.is_force or header.named_offset is not None or target < now else now

    def _goal(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """The offset that the tool asks for, by number or by time."""
        smallest, largest = self._store.queue_bounds(header.topic, queue_id)
        if (named := header.named_offset) is not None:
            if not smallest <= named <= largest:
                remark = f"Target offset {named} not in consume queue range [{smallest}-{largest}]"
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
            return named
        if header.timestamp < 0:
            return largest
        return self._store.offset_by_time(header.topic, queue_id, header.timestamp)
