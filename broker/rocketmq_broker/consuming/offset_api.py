"""QUERY_CONSUMER_OFFSET (14) and UPDATE_CONSUMER_OFFSET (15): clients read and commit their group's offsets.

Source: rocketmq-all-5.3.3: ConsumerManageProcessor.java.
"""

from collections.abc import Callable

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.tables.consumer_protocols import GroupTable
from rocketmq_formats.codes import FAQ, RequestCode, ResponseCode
from rocketmq_formats.remoting.client import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_store.message_store import MessageStore


class OffsetApi:
    """Answers from and changes the table of offsets."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        offsets: ConsumerOffsets,
        groups: GroupTable,
        topics: TopicTable,
        store: MessageStore,
    ) -> None:
        self._role = role
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._store = store
        self.commit_answer: Callable[[RemotingCommand, Peer], Answer] = _at_once
        """Answers an applied commit; the answer may have to wait for the slaves."""

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
        }

    def _query(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(QueryConsumerOffsetRequestHeader, request.ext_fields or {})
        offset = self._offsets.find(header.consumer_group, header.topic, header.queue_id)
        if offset is None and header.set_zero_if_not_found is not False:
            # as in Java, a new group starts at the first message of a short queue that still has it, not of a long one
            smallest, _ = self._store.queue_bounds(header.topic, header.queue_id)
            has_all = smallest <= 0 or self._store.deleted_at(header.topic) >= 0
            if has_all and not self._begins_on_disk(header.topic, header.queue_id, smallest):
                offset = smallest
        if offset is None:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            return response(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return response(request, ResponseCode.SUCCESS, None, OffsetResponseHeader(offset=offset))

    def _begins_on_disk(self, topic: str, queue_id: int, smallest: int) -> bool:
        """Java's `checkInDiskByConsumeOffset(topic, queueId, 0)`, where a new topic's queues begin at 0."""
        return self._store.get(topic, queue_id, smallest, max_messages=1).lagging

    def _update(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(UpdateConsumerOffsetRequestHeader, request.ext_fields or {})
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.commit_offset
        if self._role.handing_over:
            # the next master would miss this commit; clients commit again
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, "mastership is being handed over, commit again")
        if not group or self._groups.find(group) is None:
            remark = f"subscription group not exist, {group}{FAQ}"
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not topic or self._topics.get(topic) is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if queue_id is None:
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, "QueueId is null, topic is " + topic)
        if offset is None:
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, "Offset is null, topic is " + topic)
        if self._offsets.pending_resets.find(group, topic, queue_id) is not None:
            return response(request, ResponseCode.SUCCESS, "Offset has been previously reset")
        if not self._offsets.commit(group, topic, queue_id, offset):
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER, f"no such offset can be kept: queueId {queue_id}, offset {offset}"
            )
        if self._role.acting:
            return _at_once(request, peer)  # there is no one to wait for
        return self.commit_answer(request, peer)


def _at_once(request: RemotingCommand, _peer: Peer) -> Answer:
    return response(request, ResponseCode.SUCCESS)
