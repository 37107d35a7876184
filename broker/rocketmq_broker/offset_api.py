"""QUERY_CONSUMER_OFFSET (14) and UPDATE_CONSUMER_OFFSET (15): clients ask where their group is, and say it.

Source: client reference, section 3 (`ConsumerManageProcessor`).
"""

from rocketmq_broker.consumer_seams import GroupTable
from rocketmq_broker.domain.offsets import ConsumerOffsets
from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_broker.domain.topics import TopicTable
from rocketmq_broker.front import Processor
from rocketmq_broker.targets import FAQ
from rocketmq_formats.remoting.client import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.server import Answer, Peer
from rocketmq_store.message_store import MessageStore


class OffsetApi:
    """Answers from and changes the table of offsets."""

    def __init__(
        self, *, offsets: ConsumerOffsets, groups: GroupTable, topics: TopicTable, store: MessageStore
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._store = store

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
        }

    def _query(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(QueryConsumerOffsetRequestHeader, request.ext_fields or {})
        offset = self._offsets.find(header.consumer_group, header.topic, header.queue_id)
        if offset is None and header.set_zero_if_not_found is not False:
            # a queue whose beginning is still there is read from it, however new the group; a long one is not
            smallest, _ = self._store.queue_bounds(header.topic, header.queue_id)
            if smallest <= 0 and not self._begins_on_disk(header.topic, header.queue_id):
                offset = 0
        if offset is None:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            return response(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return response(request, ResponseCode.SUCCESS, None, OffsetResponseHeader(offset=offset))

    def _begins_on_disk(self, topic: str, queue_id: int) -> bool:
        """Java's `checkInDiskByConsumeOffset(topic, queueId, 0)`."""
        return self._store.get(topic, queue_id, 0, max_messages=1).lagging

    def _update(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(UpdateConsumerOffsetRequestHeader, request.ext_fields or {})
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.commit_offset
        if not group or self._groups.find(group) is None:
            remark = f"subscription group not exist, {group}{FAQ}"
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not topic or self._topics.get(topic) is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if queue_id is None:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, "QueueId is null, topic is " + topic)
        if offset is None:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, "Offset is null, topic is " + topic)
        if not self._offsets.commit(group, topic, queue_id, offset):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"no such offset can be kept: queueId {queue_id}, offset {offset}"
            )
        return response(request, ResponseCode.SUCCESS)
