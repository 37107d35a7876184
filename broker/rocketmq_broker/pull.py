"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): checks in Java's order, messages of a queue, or a wait for them.

Consumers see what the consume queues have, which is what the replicas have confirmed.
Source: client reference, section 3 (`PullMessageProcessor`, `DefaultPullMessageResultHandler`).
"""

from collections.abc import Collection
from typing import Final

import structlog

from rocketmq_broker.consumer_seams import ConsumerTable, GroupTable, OffsetTable
from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.subscription import wanted_codes
from rocketmq_broker.domain.topics import TopicTable
from rocketmq_broker.front import Processor
from rocketmq_broker.hold import HeldPull, HeldPulls
from rocketmq_broker.send import FLOW_CONTROL
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.targets import FAQ
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.remoting.client import (
    DEFAULT_MAX_MSG_BYTES,
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.topics import PERM_READ, TopicConfig
from rocketmq_runtime.server import DEFERRED, MAX_REMARK, Answer, Peer
from rocketmq_store.errors import StoreError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import GetResult, GetStatus

log = structlog.get_logger(__name__)

SAME_GROUP: Final = FAQ
MAX_SUSPEND_SECONDS: Final = 120.0
"""Longest wait, whatever the client asks for."""

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""NO_MESSAGE_IN_QUEUE and NO_MATCHED_LOGIC_QUEUE depend on the offset asked for."""
_KEEP_WAITING: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})


class PullProcessor:
    """Answers pulls, at once or when there is something."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable,
        offsets: OffsetTable,
        held: HeldPulls,
        traffic: Traffic,
    ) -> None:
        self._settings = settings
        self._role = role
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._held = held
        self._traffic = traffic

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {RequestCode.PULL_MESSAGE: self.on_pull, RequestCode.LITE_PULL_MESSAGE: self.on_pull}

    def on_pull(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Answer one pull, or hold it."""
        if self._closed_to_readers:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, FLOW_CONTROL)
        header = decode_header(PullMessageRequestHeader, request.ext_fields or {})
        self._check(header, peer)
        codes = self._tag_codes(header)
        if header.sys_flag & PULL_COMMIT_OFFSET and self._role.role is Role.MASTER:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        result = self._get(header, header.queue_offset, codes)
        answer = self._answer(request, header, result)
        if answer.code != ResponseCode.PULL_NOT_FOUND or not header.sys_flag & PULL_SUSPEND or self._held.full:
            return answer
        self._held.hold(
            HeldPull(request, peer, header, codes, header.queue_offset), self._patience(header), self._expired
        )
        return DEFERRED

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """Consumers may see new messages in `queues`."""
        if self._held:
            for queue in queues:
                for pull in self._held.of_queue(queue):
                    self._wake(pull)

    def on_role_change(self) -> None:
        """A slave does not serve consumers: whoever waits here shall look for the master."""
        if self._closed_to_readers:
            for pull in self._held.all():
                self._held.take(pull)
                answer = response(pull.request, ResponseCode.SYSTEM_BUSY, FLOW_CONTROL)
                pull.peer.answer_later(pull.request, answer)

    # inside

    @property
    def _closed_to_readers(self) -> bool:
        return self._role.role is Role.SLAVE and not self._settings.slave_read_enable

    def _patience(self, header: PullMessageRequestHeader) -> float:
        """Seconds that a pull waits."""
        if not self._settings.long_polling_enable:
            return self._settings.short_polling_time_mills / 1000
        return min(max(header.suspend_timeout_millis / 1000, 0.0), MAX_SUSPEND_SECONDS)

    def _wake(self, pull: HeldPull) -> None:
        try:
            result = self._get(pull.header, pull.scan_from, pull.tag_codes)
        except (StoreError, OSError) as error:
            self._held.take(pull)
            self._unreadable(pull, error)
            return
        answer = self._answer(pull.request, pull.header, result)
        if answer.code in _KEEP_WAITING:
            # its filter wants none of the new ones: they need not be looked at again
            pull.scan_from = max(pull.scan_from, result.next_offset)
            return
        self._held.take(pull)
        pull.peer.answer_later(pull.request, answer)

    def _expired(self, pull: HeldPull) -> None:
        # from the offset asked for: the consumer learns how far there was nothing for it
        try:
            result = self._get(pull.header, pull.header.queue_offset, pull.tag_codes)
        except (StoreError, OSError) as error:
            self._unreadable(pull, error)
            return
        pull.peer.answer_later(pull.request, self._answer(pull.request, pull.header, result))

    def _unreadable(self, pull: HeldPull, error: Exception) -> None:
        """Whoever wakes pulls has others to wake."""
        header = pull.header
        log.error(
            "queue cannot be read: look at the disk", topic=header.topic, queue=header.queue_id, reason=str(error)
        )
        remark = f"{type(error).__name__}: {error}"[:MAX_REMARK]
        pull.peer.answer_later(pull.request, response(pull.request, ResponseCode.SYSTEM_ERROR, remark))

    def _get(self, header: PullMessageRequestHeader, offset: int, tag_codes: Collection[int]) -> GetResult:
        return self._store.get(
            header.topic,
            header.queue_id,
            offset,
            max_messages=max(header.max_msg_nums, 1),
            max_bytes=DEFAULT_MAX_MSG_BYTES if header.max_msg_bytes is None else header.max_msg_bytes,
            tag_codes=tag_codes,
        )

    def _check(self, header: PullMessageRequestHeader, peer: Peer) -> None:
        """Group, topic and queue."""
        if not self._settings.broker_permission & PERM_READ:
            remark = f"the broker[{self._settings.broker_ip1}] pulling message is forbidden"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        group = self._groups.find(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.readable:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, _bad_queue(header, topic, peer))
        model = self._consumers.message_model(header.consumer_group)
        if model == "BROADCASTING" and not group.consume_broadcast_enable and not header.sys_flag & PULL_SUBSCRIPTION:
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)

    def _tag_codes(self, header: PullMessageRequestHeader) -> Collection[int]:
        """What the consumer wants of the queue."""
        if header.sys_flag & PULL_SUBSCRIPTION:
            return wanted_codes(header.subscription, header.expression_type)
        group, topic = header.consumer_group, header.topic
        if self._consumers.message_model(group) is None:
            remark = f"the consumer's group info not exist{SAME_GROUP}"
            raise RefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        subscription = self._consumers.subscription(group, topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{SAME_GROUP}"
            raise RefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < header.sub_version:
            raise RefusedError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.expression_type not in (None, "", "TAG"):
            remark = f"The broker does not support consumer to filter message by {subscription.expression_type}"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return subscription.code_set

    def _answer(self, request: RemotingCommand, header: PullMessageRequestHeader, result: GetResult) -> RemotingCommand:
        code = _CODES.get(result.status)
        if code is None:
            code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
        next_offset = result.next_offset
        suggested = 0
        if self._role.role is Role.SLAVE and result.status is not GetStatus.FOUND:
            # only the master knows the ends of its queues: the consumer shall ask there
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            if result.status not in _KNOWN_TO_SLAVES:
                next_offset = header.queue_offset
        elif self._settings.slave_read_enable and result.lagging:
            group = self._groups.find(header.consumer_group)
            suggested = group.which_broker_when_consume_slowly if group is not None else 0
        body = b""
        if result.status is GetStatus.FOUND:
            body = b"".join(result.records)
            self._traffic.pulls_found += 1
            self._traffic.got_messages += result.count
            self._traffic.got_bytes += result.size
        else:
            self._traffic.pulls_missed += 1
        answer_header = PullMessageResponseHeader(
            suggest_which_broker_id=suggested,
            next_begin_offset=next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=0,
            group_sys_flag=0,
        )
        return response(request, code, result.status.name, answer_header, body)


_KNOWN_TO_SLAVES: Final = frozenset(
    {GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL}
)
"""What a slave can say of a queue as well as its master."""


def _bad_queue(header: PullMessageRequestHeader, topic: TopicConfig, peer: Peer) -> str:
    return (
        f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer.address}]"
    )
