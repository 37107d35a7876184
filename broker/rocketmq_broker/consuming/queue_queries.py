"""Questions about queues and single messages: 29, 30, 31, 32, 33. Masters and slaves answer them, as in Java.

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, QueryMessageProcessor.java.
"""

from collections.abc import Callable

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.processor_table import Processor
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import (
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
    TopicQueueRequestHeader,
    ViewMessageRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_store.message_store import MessageStore


class QueryProcessor:
    """Reads the store; changes nothing."""

    def __init__(self, *, role: ReplicaRole, store: MessageStore, clock: Callable[[], float] = boot_clock) -> None:
        """`clock`: what leases are in."""
        self._role = role
        self._store = store
        self._clock = clock

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_store_time,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view_message,
        }

    def _search_offset(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(SearchOffsetRequestHeader, request.ext_fields or {})
        upper = (header.boundary_type or "").lower() == "upper"
        return _offset(
            request, self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        )

    def _max_offset(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(GetMaxOffsetRequestHeader, request.ext_fields or {})
        if header.committed:
            return _offset(request, self._store.queue_bounds(header.topic, header.queue_id)[1])
        return _offset(request, self._store.next_queue_offset(header.topic, header.queue_id))

    def _min_offset(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(TopicQueueRequestHeader, request.ext_fields or {})
        return _offset(request, self._store.queue_bounds(header.topic, header.queue_id)[0])

    def _earliest_store_time(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(TopicQueueRequestHeader, request.ext_fields or {})
        first, _ = self._store.queue_bounds(header.topic, header.queue_id)
        timestamp = self._store.store_time(header.topic, header.queue_id, first)
        return response(request, ResponseCode.SUCCESS, None, GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    def _view_message(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(ViewMessageRequestHeader, request.ext_fields or {})
        # a producer may ask for a message as soon as it is acknowledged
        acknowledged = self._role.acknowledged(self._clock(), self._store.max_offset)
        record = self._store.record_at(header.offset, acknowledged)
        if record is None:
            return response(request, ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        return response(request, ResponseCode.SUCCESS, None, None, bytes(record))


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return response(request, ResponseCode.SUCCESS, None, OffsetResponseHeader(offset=offset))
