"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): checks in Java's order, messages of a queue, or a wait for them.

Consumers see what is in the consume queues: only messages that the replicas have confirmed.
Source: rocketmq-all-5.3.3: PullMessageProcessor.java, DefaultPullMessageResultHandler.java.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import msgspec
import structlog

from rocketmq_broker.consuming.long_polling import HeldPull, HeldPulls
from rocketmq_broker.domain.consuming.subscription import wanted_codes
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.pending_resets import PendingResets
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.sending.send import FLOW_CONTROL
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.consumer_protocols import ConsumerTable, GroupTable, OffsetTable
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.codes import FAQ, RequestCode, ResponseCode
from rocketmq_formats.remoting.client import (
    DEFAULT_MAX_MSG_BYTES,
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.topics import TopicConfig
from rocketmq_runtime.remoting.server import HELD, MAX_REMARK, Answer, Peer
from rocketmq_store.errors import StoreError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import GetResult, GetStatus

log = structlog.get_logger(__name__)

SAME_GROUP: Final = FAQ
MAX_SUSPEND_SECONDS: Final = 120.0
"""Longest wait, whatever the client asks for."""
ROUTES_SECONDS: Final = 35.0
"""Java clients ask for routes every 30 s. Acting ends when a master is known; one that asks in the seconds before that
master is registered keeps the old route for 30 s from there."""
WAKE_SECONDS: Final = 0.01
"""How long one turn of the loop answers woken pulls; the rest follow in the next turns."""

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
    """Answers pulls, at once or when a message arrives."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        permission: BrokerPermission,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable,
        offsets: OffsetTable,
        resets: PendingResets,
        held: HeldPulls,
        traffic: Traffic,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock`: seconds that grow within a turn of the loop."""
        self._settings = settings
        self._role = role
        self._permission = permission
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._resets = resets
        self._held = held
        self._traffic = traffic
        self._clock = clock or time.perf_counter
        self._loop = asyncio.get_running_loop()
        self._acted = False
        self._routes_old_until = float("-inf")
        """Loop time. Until then consumers may still take this slave, which acted, for the master: one that is sent to
        the master would ask here again at once, and again."""
        self._ripe: deque[HeldPull] = deque()
        """Woken, not examined yet."""
        self._last: tuple[object, GetResult, bytes] | None = None
        """The last read of this turn of the loop, by its arguments: consumers that wait at the same offset share one
        copy."""

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.PULL_MESSAGE: self.on_pull, RequestCode.LITE_PULL_MESSAGE: self.on_pull}

    def on_pull(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Answer one pull, or hold it."""
        if self._closed_to_readers:
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, FLOW_CONTROL)
        header = decode_header(PullMessageRequestHeader, request.ext_fields or {})
        self._check(header, peer)
        codes = self._tag_codes(header)
        takes_commits = self._role.acting or (self._role.role is Role.MASTER and not self._role.handing_over)
        reset = self._resets.take(header.consumer_group, header.topic, header.queue_id) if takes_commits else None
        if reset is not None and not _is_there(header, reset):
            return self._moved(request, header, reset)
        if header.sys_flag & PULL_COMMIT_OFFSET and takes_commits and reset is None:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        result = self._get(header, header.queue_offset, codes)
        answer = self._answer(request, header, result)
        if (
            answer.code != ResponseCode.PULL_NOT_FOUND
            or not header.sys_flag & PULL_SUSPEND
            or not self._makes_room(peer)
        ):
            return answer
        # a waiting pull must not keep what its peer sent beyond what is needed: peers could fill our memory
        request.ext_fields, request.body = None, b""
        header = msgspec.structs.replace(header, subscription=None, expression_type=None, proxy_froward_client_id=None)
        self._held.hold(
            HeldPull(request, peer, header, codes, header.queue_offset), self._suspend_seconds(header), self._expired
        )
        return HELD

    def on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        """Consumers may see new messages in `queues`."""
        if self._held:
            idle = not self._ripe
            for queue in queues:
                for pull in self._held.of_queue(queue):
                    if not pull.ripe:
                        pull.ripe = True
                        self._ripe.append(pull)
            if idle and self._ripe:
                self._wake_ripe()

    def on_reset(self, group: str, topic: str, queue_ids: Collection[int]) -> None:
        """The offsets of `group` were reset: a pull that waits hears of it now, not when a message comes."""
        for queue_id in queue_ids:
            for pull in self._held.of_queue((topic, queue_id)):
                if pull.header.consumer_group == group:
                    offset = self._resets.take(group, topic, queue_id)
                    if offset is not None and not _is_there(pull.header, offset):
                        self._held.take(pull)
                        pull.peer.answer_held(pull.request, self._moved(pull.request, pull.header, offset))

    def on_role_change(self) -> None:
        """Where only the master has pulls wait: answer all held ones, so that consumers turn to it."""
        acted, self._acted = self._acted, self._role.acting
        if acted and not self._acted:
            self._routes_old_until = self._loop.time() + ROUTES_SECONDS
        if self._turns_away:
            self._turn_away(deque(self._held.all()))

    # inside

    def _makes_room(self, peer: Peer) -> bool:
        """Whether one more pull may be held; False: the others of this host must be answered first."""
        if not self._held.full:
            return True
        other = self._held.gives_way(peer)
        if other is None:
            return False
        self._held.take(other)
        other.peer.answer_held(other.request, self._nothing(other))
        return True

    def _turn_away(self, pulls: deque[HeldPull]) -> None:
        """Answer held pulls, some in each turn of the loop, as long as only the master has pulls wait."""
        began = self._clock()
        while pulls and self._turns_away and self._clock() - began < WAKE_SECONDS:
            pull = pulls.popleft()
            if pull.timer is None:
                continue  # answered already
            self._held.take(pull)
            busy = response(pull.request, ResponseCode.SYSTEM_BUSY, FLOW_CONTROL) if self._closed_to_readers else None
            pull.peer.answer_held(pull.request, busy or self._nothing(pull))
        if pulls and self._turns_away:
            self._loop.call_soon(self._turn_away, pulls)

    @property
    def _turns_away(self) -> bool:
        return self._closed_to_readers or self._master_elsewhere

    @property
    def _closed_to_readers(self) -> bool:
        return self._role.role is Role.SLAVE and not self._settings.slave_read_enable and not self._role.acting

    @property
    def _master_elsewhere(self) -> bool:
        return self._role.role is Role.SLAVE and self._role.master_known

    def _suspend_seconds(self, header: PullMessageRequestHeader) -> float:
        """Seconds that a pull waits."""
        if not self._settings.long_polling_enable:
            return self._settings.short_polling_time_mills / 1000
        return min(max(header.suspend_timeout_millis / 1000, 0.0), MAX_SUSPEND_SECONDS)

    def _wake_ripe(self) -> None:
        """Wake ripe pulls, some in each turn of the loop."""
        self._wake_each(self._ripe)
        if self._ripe:
            self._loop.call_soon(self._wake_ripe)

    def _takes_again(self, peer: Peer) -> None:
        """`peer` reads, and there is memory for answers."""
        self._wake_each(deque(self._held.ripe_of(peer)))

    def _wake_each(self, pulls: deque[HeldPull]) -> None:
        began = self._clock()
        while pulls and self._clock() - began < WAKE_SECONDS:
            pull = pulls.popleft()
            if not pull.ripe:
                continue  # answered already
            if pull.peer.takes:
                self._wake(pull)
            else:
                self._wait_for(pull.peer)
        self._last = None  # up to the largest pull in bytes, which must not stay until the next message comes
        if pulls is not self._ripe:
            for peer in {pull.peer for pull in pulls}:
                self._wait_for(peer)

    def _wait_for(self, peer: Peer) -> None:
        peer.when_it_takes(partial(self._takes_again, peer))

    def _wake(self, pull: HeldPull) -> None:
        pull.ripe = False
        try:
            result, body = self._read(pull)
        except (StoreError, OSError) as error:
            self._held.take(pull)
            self._unreadable(pull, error)
            return
        answer = self._answer(pull.request, pull.header, result, body)
        if answer.code in _KEEP_WAITING:
            # its filter matches none of the new messages: do not scan them again
            pull.scan_from = max(pull.scan_from, result.next_offset)
            return
        self._held.take(pull)
        pull.peer.answer_held(pull.request, answer)

    def _expired(self, pull: HeldPull) -> None:
        # from the offset asked for, so that the consumer learns up to where nothing matched
        try:
            if not pull.peer.reads:
                pull.peer.answer_held(pull.request, self._nothing(pull))
                return
            result = self._get(pull.header, pull.header.queue_offset, pull.tag_codes)
        except (StoreError, OSError) as error:
            self._unreadable(pull, error)
            return
        pull.peer.answer_held(pull.request, self._answer(pull.request, pull.header, result))

    def _read(self, pull: HeldPull) -> tuple[GetResult, bytes]:
        header = pull.header
        asked = (
            header.topic,
            header.queue_id,
            pull.scan_from,
            header.max_msg_nums,
            header.max_msg_bytes,
            pull.tag_codes,
        )
        # consumers of several groups often wait for the same messages: these are read and joined once
        if self._last is None or self._last[0] != asked:
            result = self._get(header, pull.scan_from, pull.tag_codes)
            self._last = (asked, result, b"".join(result.records))
        return self._last[1], self._last[2]

    def _nothing(self, pull: HeldPull) -> RemotingCommand:
        """Makes the consumer ask again, which costs it nothing: if it does not read its answers, messages would fill
        our memory; if there is a master, that one should be asked."""
        header = pull.header
        smallest, largest = self._store.queue_bounds(header.topic, header.queue_id)
        self._traffic.counts.pulls_missed += 1
        answer_header = _answer_header(header.queue_offset, smallest, largest)
        return response(pull.request, ResponseCode.PULL_NOT_FOUND, GetStatus.OFFSET_FOUND_NULL.name, answer_header)

    def _moved(self, request: RemotingCommand, header: PullMessageRequestHeader, offset: int) -> RemotingCommand:
        """Makes the consumer continue at `offset`."""
        self._traffic.counts.pulls_missed += 1
        self._offsets.pulled(header.consumer_group, header.topic, header.queue_id, offset)
        answer_header = _answer_header(offset, *self._store.queue_bounds(header.topic, header.queue_id))
        return response(request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", answer_header)

    def _unreadable(self, pull: HeldPull, error: Exception) -> None:
        """Answer with an error instead of raising: the caller has other pulls to wake."""
        header = pull.header
        log.error("queue cannot be read: check the disk", topic=header.topic, queue=header.queue_id, reason=str(error))
        remark = f"{type(error).__name__}: {error}"[:MAX_REMARK]
        pull.peer.answer_held(pull.request, response(pull.request, ResponseCode.SYSTEM_ERROR, remark))

    def _get(self, header: PullMessageRequestHeader, offset: int, tag_codes: Collection[int]) -> GetResult:
        began = time.perf_counter()
        result = self._store.get(
            header.topic,
            header.queue_id,
            offset,
            max_messages=max(header.max_msg_nums, 1),
            max_bytes=DEFAULT_MAX_MSG_BYTES if header.max_msg_bytes is None else header.max_msg_bytes,
            tag_codes=tag_codes,
        )
        self._traffic.slowest_read = max(self._traffic.slowest_read, time.perf_counter() - began)
        return result

    def _check(self, header: PullMessageRequestHeader, peer: Peer) -> None:
        """Group, topic and queue."""
        if not self._permission.readable:
            remark = f"the broker[{self._settings.broker_ip1}] pulling message is forbidden"
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)
        group = self._groups.find(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.readable:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, _bad_queue(header, topic, peer))
        model = self._consumers.message_model(header.consumer_group)
        if model == "BROADCASTING" and not group.consume_broadcast_enable and not header.sys_flag & PULL_SUBSCRIPTION:
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)

    def _tag_codes(self, header: PullMessageRequestHeader) -> Collection[int]:
        """The consumer's subscription for the queue."""
        if header.sys_flag & PULL_SUBSCRIPTION:
            return wanted_codes(header.subscription, header.expression_type)
        group, topic = header.consumer_group, header.topic
        if self._consumers.message_model(group) is None:
            remark = f"the consumer's group info not exist{SAME_GROUP}"
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        subscription = self._consumers.subscription(group, topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{SAME_GROUP}"
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < header.sub_version:
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.expression_type not in (None, "", "TAG"):
            remark = f"The broker does not support consumer to filter message by {subscription.expression_type}"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return subscription.code_set

    def _answer(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        result: GetResult,
        body: bytes | None = None,
    ) -> RemotingCommand:
        """`body`: the records of `result`, where they are put together already."""
        code = _CODES.get(result.status)
        if code is None:
            code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
        next_offset = result.next_offset
        suggested = 0
        if self._role.role is Role.SLAVE and result.status is not GetStatus.FOUND:
            # only the master has the ends of its queues: send the consumer there, or let it wait for a master
            if result.status not in _KNOWN_TO_SLAVES:
                code, next_offset = ResponseCode.PULL_NOT_FOUND, header.queue_offset
            if self._role.master_known and self._loop.time() >= self._routes_old_until:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif self._settings.slave_read_enable and result.lagging:
            group = self._groups.find(header.consumer_group)
            suggested = group.which_broker_when_consume_slowly if group is not None else 0
        if result.status is not GetStatus.FOUND:
            body = b""
        elif body is None:
            body = b"".join(result.records)
        if result.status is GetStatus.FOUND:
            self._traffic.got(header.topic, header.consumer_group, result.count, result.size)
        else:
            self._traffic.counts.pulls_missed += 1
        self._offsets.pulled(header.consumer_group, header.topic, header.queue_id, next_offset)
        answer_header = _answer_header(next_offset, result.min_offset, result.max_offset, suggested)
        return response(request, code, result.status.name, answer_header, body)


_KNOWN_TO_SLAVES: Final = frozenset(
    {GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL}
)
"""What a slave can say of a queue as well as its master."""


def _is_there(header: PullMessageRequestHeader, reset: int) -> bool:
    """The consumer has read, and consumed, up to what its group was reset to. One that has read further than it has
    consumed has messages at hand that the reset skips."""
    return header.queue_offset == reset == header.commit_offset


def _answer_header(next_offset: int, smallest: int, largest: int, suggested: int = 0) -> PullMessageResponseHeader:
    return PullMessageResponseHeader(
        suggest_which_broker_id=suggested,
        next_begin_offset=next_offset,
        min_offset=smallest,
        max_offset=largest,
        topic_sys_flag=0,
        group_sys_flag=0,
    )


def _bad_queue(header: PullMessageRequestHeader, topic: TopicConfig, peer: Peer) -> str:
    return (
        f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer.address}]"
    )
