"""CONSUMER_SEND_MSG_BACK (36): a consumer failed to consume a message; it is redelivered later, or becomes a dead
letter.

Like a producer's, the answer waits for the copies of the stored message.
Source: rocketmq-all-5.3.3: AbstractSendMessageProcessor.java.
"""

import itertools

import structlog

from rocketmq_broker.domain.consuming.retries import Retry, place_of, retry_of, retry_properties
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.flow_stats import FlowStats
from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_broker.domain.role import Refusal, ReplicaRole
from rocketmq_broker.domain.sending import stored_flags
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.sending.inner_writer import InnerWriter
from rocketmq_broker.sending.new_topics import NewTopics
from rocketmq_broker.sending.send import FLOW_CONTROL, OVERLOAD, held_back
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_broker.tables.consumer_protocols import GroupTable
from rocketmq_formats.codes import FAQ, RequestCode, ResponseCode
from rocketmq_formats.remoting.client import ConsumerSendMsgBackRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.store.message import Record, read_record
from rocketmq_formats.store.message_id import encode_message_id
from rocketmq_formats.store.message_properties import RETRY_TOPIC, format_properties, parse_properties
from rocketmq_formats.topics import MAX_QUEUES, SubscriptionGroupConfig, TopicConfig
from rocketmq_runtime.remoting.server import DEFERRED, Answer, Peer
from rocketmq_store.errors import StoreError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft

log = structlog.get_logger(__name__)

MOST_TRIES = 2**31 - 1
"""What a record can hold."""


class SendBack:
    """Stores a message again for the group that failed to consume it."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        permission: BrokerPermission,
        store: MessageStore,
        topics: TopicTable,
        new_topics: NewTopics,
        groups: GroupTable,
        writer: InnerWriter,
        waiting: WaitingSends,
        delay_levels: int,
        flows: FlowStats,
        host: str,
    ) -> None:
        """`delay_levels`: how many there are. `host`: brokerIP1."""
        self._role = role
        self._permission = permission
        self._store = store
        self._topics = topics
        self._new_topics = new_topics
        self._groups = groups
        self._writer = writer
        self._waiting = waiting
        self._levels = delay_levels
        self._flows = flows
        self._host = host
        self._turn = itertools.count()

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back}

    def _send_back(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(ConsumerSendMsgBackRequestHeader, request.ext_fields or {})
        self._check()
        group = self._groups.find(header.group)
        if group is None:
            remark = f"subscription group not exist, {header.group} {FAQ}"
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._permission.writable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"the broker[{self._host}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            return response(request, ResponseCode.SUCCESS)
        view = self._store.record_at(header.offset)
        record = None if view is None else read_record(view, 0, len(view), check_crc=False)
        if view is None or not isinstance(record, Record):
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        retry = retry_of(
            header.group,
            record.reconsume_times,
            wanted_level=header.delay_level,
            longest=group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times,
            levels=self._levels,
        )
        topic = self._topic_of(retry, group, unit_mode=header.unit_mode)
        # an administrator may have made the topic narrower: beyond its queues no one would read the message
        queues = min(group.retry_queue_nums, topic.read_queue_nums or MAX_QUEUES)
        queue_id = next(self._turn) % (1 if retry.dead else queues)
        try:
            appended = self._writer.append(self._draft(record, view, retry, queue_id))
        except StoreError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"the message is not stored: {error}") from error
        if self._topics.put(topic, state_version=self._role.epoch, now_ms=now_ms()):
            self._new_topics.made(topic.topic_name)
        properties = parse_properties(record.properties)
        self._flows.sent_back(properties.get(RETRY_TOPIC) or record.topic.decode("utf-8", "replace"), header.group)
        if retry.dead:
            log.warning("message given up by its consumers", group=header.group, offset=header.offset)
        if request.is_oneway:
            return None
        answer = encode_frame(response(request, ResponseCode.SUCCESS))
        self._waiting.add(appended.end, peer, request, answer, self._new_topics.barrier((topic.topic_name,)))
        return DEFERRED

    def _check(self) -> None:
        """Refuse if nothing may be stored now."""
        refusal = self._writer.refusal()
        if refusal is Refusal.SLAVE:
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, FLOW_CONTROL)
        if refusal is Refusal.ACTING:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"no master available along with {self._host}")
        if refusal is Refusal.HELD and self._writer.held is not None:
            raise held_back(self._writer.held)
        if refusal is not None:
            raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {refusal}")
        if self._waiting.full:
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, OVERLOAD)

    def _topic_of(self, retry: Retry, group: SubscriptionGroupConfig, *, unit_mode: bool) -> TopicConfig:
        """The retry or dead letter topic; if missing it is created after the message is stored."""
        topic = self._topics.planned(
            retry.topic,
            1 if retry.dead else group.retry_queue_nums,
            sys_flag=2 if unit_mode and not retry.dead else 0,
        )
        if topic is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"topic[{retry.topic}] not exist")
        if not topic.writable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{retry.topic}] sending message is forbidden"
            )
        return topic

    def _draft(self, record: Record, view: memoryview, retry: Retry, queue_id: int) -> Draft:
        properties = retry_properties(
            parse_properties(record.properties),
            retry,
            topic=record.topic.decode("utf-8", "replace"),
            queue_id=queue_id,
            message_id=encode_message_id(record.store_host, record.physical_offset),
        )
        topic, stored_queue_id = place_of(retry, queue_id)
        return Draft(
            topic=topic.encode(),
            queue_id=stored_queue_id,
            body=record.body(view),
            properties=format_properties(properties),
            flag=record.flag,
            sys_flag=stored_flags(record.sys_flag),
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=self._writer.store_host,
            reconsume_times=min(max(record.reconsume_times, 0) + 1, MOST_TRIES),
        )
