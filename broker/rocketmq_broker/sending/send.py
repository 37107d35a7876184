"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): from the request to the log.

The hottest path of the broker: checks in Java's order, one append, then the answer waits in `waiting_sends.py`. Topics
are looked up, and created, by `send_targets.py`.
Source: rocketmq-all-5.3.3: SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Final

import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_broker.domain.role import Refusal, ReplicaRole, Role
from rocketmq_broker.domain.sending import BrokerMarks, Completer, Outgoing, check_in_batch, sent_flags
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.sending.new_topics import NewTopics
from rocketmq_broker.sending.send_targets import Target, Targets
from rocketmq_broker.sending.unique_ids import UniqueIds
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.consumer_protocols import GroupTable
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.addresses import parse_address
from rocketmq_formats.codes import RequestCode, ResponseCode, SerializeType
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketmq_formats.remoting.send_frames import encode_send_answer
from rocketmq_formats.remoting.unsupported import not_supported
from rocketmq_formats.replica_link import Hold, HoldKind
from rocketmq_formats.store.batch import decode_batch
from rocketmq_formats.store.message_id import MessageIdError, encode_host
from rocketmq_formats.store.message_properties import PropertiesError, join_properties
from rocketmq_formats.topics import RETRY_PREFIX
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.remoting.server import DEFERRED, Answer, Peer
from rocketmq_store.errors import MessageIllegalError, StoreError, StoreFullError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Appended, Draft

log = structlog.get_logger(__name__)

FLOW_CONTROL: Final = "[REJECTREQUEST]system busy, start flow control for a while"
OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
_LOOPBACK: Final = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
_V2_CODES: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_JSON: Final = SerializeType.JSON


class SendProcessor:
    """Accepts sends while this replica is master."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store_host: bytes,
        role: ReplicaRole,
        permission: BrokerPermission,
        store: MessageStore,
        topics: TopicTable,
        new_topics: NewTopics,
        groups: GroupTable,
        waiting: WaitingSends,
        traffic: Traffic,
        in_order: Callable[[str], bool],
        on_appended: Callable[[], None],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """`in_order`: whether a group consumes in order. `on_appended`: the log grew. `clock`: what leases are in."""
        self._settings = settings
        self._store_host = store_host
        self._role = role
        self._store = store
        self._waiting = waiting
        self._traffic = traffic
        self._on_appended = on_appended
        self._clock = clock
        self._strict = settings.durability == "strict"
        self._accept_from = settings.start_accept_send_request_time_stamp
        self._levels = len(settings.message_delay_level.split())
        marks = BrokerMarks(settings.broker_cluster_name, settings.region_id, settings.trace_on, self._levels)
        self._completer = Completer(marks)
        self._unique_ids = UniqueIds(store_host[:-4])
        self._turn = itertools.count()
        self._new_topics = new_topics
        self._targets = Targets(
            settings=settings,
            role=role,
            permission=permission,
            topics=topics,
            new_topics=new_topics,
            groups=groups,
            in_order=in_order,
        )
        self._known = self._targets.known
        self.stopping = False

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.SEND_MESSAGE: self.on_send,
            RequestCode.SEND_MESSAGE_V2: self.on_send,
            RequestCode.SEND_BATCH_MESSAGE: self.on_send,
            RequestCode.END_TRANSACTION: self._end_transaction,
        }

    def on_send(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Store the message (or messages) of one request."""
        traffic, now = self._traffic, self._clock()
        refusal = self._role.refusal(now)
        # Java checks the request before the number of replicas in sync: its clients see the errors in that order
        if self.stopping or (refusal is not None and refusal is not Refusal.TOO_FEW_IN_SYNC):
            raise self._refused(refusal)
        header_type = SendMessageRequestHeaderV2 if request.code in _V2_CODES else SendMessageRequestHeader
        header = decode_header(header_type, request.ext_fields or {})
        target, queue_id = self._place(header, peer)
        if refusal is not None:
            raise self._refused(refusal)
        # refused before the append: what is in the log reaches consumers, whatever the producer was answered
        if self._waiting.full:
            traffic.counts.sends_refused += 1
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        append = self._append_batch if header.batch else self._append
        try:
            outgoing, appended = append(header, target, queue_id, request.body, peer)
        except (StoreError, OSError) as error:
            raise self._store_refused(error) from error
        self._stored(header, outgoing, appended, target, now)
        # encoded now, so that the wait keeps neither the request nor its body
        frame = self._encode_answer(request, outgoing, queue_id, appended)
        # WAIT=false asks for an answer without copies, but a strict PUT_OK always promises them
        if request.is_oneway or not (outgoing.wait or self._strict):
            return frame  # the server does not write it to a oneway request
        # by a new look at the clock: if the lease ended during the append, another replica may be master already
        if not self._strict and self._role.acknowledges_alone(self._clock()):
            traffic.answered_at_once()
            return frame
        barrier = self._new_topics.barrier(target.new) if target.new else None
        self._waiting.add(appended.end, peer, request, frame, barrier)
        return DEFERRED

    def _end_transaction(self, request: RemotingCommand, _peer: Peer) -> Answer:
        """A slave says what Java's says, acting or not; here no transaction begins."""
        if self._role.role is Role.SLAVE:
            return response(request, ResponseCode.SLAVE_NOT_AVAILABLE)
        raise RequestRefusedError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(request.code))

    # for replies, which go to their requesters first

    def place_reply(self, header: SendMessageRequestHeader, peer: Peer) -> tuple[Target, int]:
        """Topic and queue, by the same checks as a send's. Raises `RequestRefusedError`."""
        return self._place(header, peer)

    def store_reply(
        self, header: SendMessageRequestHeader, target: Target, queue_id: int, body: bytes, peer: Peer
    ) -> Appended | None:
        """Append it where sends are accepted; no one waits for its copies, as its requester has it. None: refused."""
        now = self._clock()
        if self.stopping or self._role.refusal(now) is not None or self._waiting.full:
            return None
        try:
            outgoing, appended = self._append(header, target, queue_id, body, peer)
        except (RequestRefusedError, FormatError, StoreError, OSError) as error:
            log.debug("reply not stored", topic=header.topic, reason=str(error))
            return None
        self._stored(header, outgoing, appended, target, now)
        return appended

    # the parts

    def _stored(
        self, header: SendMessageRequestHeader, outgoing: Outgoing, appended: Appended, target: Target, now: float
    ) -> None:
        self._role.appended(appended.end, now)
        if target.missing:  # only now: a refused send must not create topics
            self._targets.make(target)
        stored_in = header.topic if outgoing.topic is target.topic and not target.dead else outgoing.topic.decode()
        self._traffic.put(stored_in, appended.count, appended.end - appended.offset)
        self._on_appended()

    def _place(self, header: SendMessageRequestHeader, peer: Peer) -> tuple[Target, int]:
        """The message's topic and queue; the topic may still have to be created."""
        if self._accept_from and now_ms() < self._accept_from:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, "broker unable to service, until startAcceptSendRequestTimeStamp"
            )
        target = self._known.get(header.topic) or self._targets.find(header)
        queue_id = header.queue_id
        if queue_id >= target.queue_limit:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic {header.topic} has {target.queue_limit} queues "
                f"Producer: {peer.address}",
            )
        if queue_id < 0 or target.dead:
            queue_id = next(self._turn) % max(target.write_queues, 1)
        return target, queue_id

    def _append(
        self, header: SendMessageRequestHeader, target: Target, queue_id: int, body: bytes, peer: Peer
    ) -> tuple[Outgoing, Appended]:
        if not body:
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, self._illegal)
        sys_flag = (sent_flags(header.sys_flag) if header.sys_flag else 0) | target.flags
        complete = self._completer.complete_dead_letter if target.dead else self._completer.complete
        outgoing = complete(target.topic, queue_id, header.properties or "", self._unique_ids.next)
        draft = Draft(
            topic=outgoing.topic,
            queue_id=outgoing.queue_id,
            body=body,
            properties=outgoing.properties,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_host_of(peer.address),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        return outgoing, self._store.append(draft, now_ms())

    def _append_batch(
        self, header: SendMessageRequestHeader, target: Target, queue_id: int, body: bytes, peer: Peer
    ) -> tuple[Outgoing, Appended]:
        if header.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if len(body) > self._settings.max_message_size:  # before unpacking, as in Java
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, f"{self._illegal} (batch of {len(body)} bytes)")
        sys_flag = sent_flags(header.sys_flag) | target.flags
        shared = self._completer.complete(target.topic, queue_id, header.properties or "", None)
        if shared.topic is not target.topic:
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support delayed messages")
        born_host = _host_of(peer.address)
        messages = decode_batch(body)
        for message in messages:
            check_in_batch(message.properties)
        try:
            drafts = [
                Draft(
                    topic=shared.topic,
                    queue_id=queue_id,
                    body=message.body,
                    properties=join_properties(message.properties, shared.properties),
                    flag=message.flag,
                    sys_flag=sys_flag,
                    born_timestamp=header.born_timestamp,
                    born_host=born_host,
                    store_host=self._store_host,
                    reconsume_times=header.reconsume_times or 0,
                )
                for message in messages
            ]
        except PropertiesError as error:
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        return shared, self._store.append_batch(drafts, now_ms())

    def _encode_answer(self, request: RemotingCommand, sent: Outgoing, queue_id: int, appended: Appended) -> bytes:
        """PUT_OK."""
        settings = self._settings
        if request.serialize_type is _JSON and settings.trace_on:
            return encode_send_answer(
                request.opaque,
                appended.message_id,
                queue_id,
                appended.queue_offset,
                sent.unique_key,
                region=settings.region_id,
            )
        header = SendMessageResponseHeader(
            msg_id=appended.message_id,
            queue_id=queue_id,
            queue_offset=appended.queue_offset,
            transaction_id=sent.unique_key,
            msg_region=settings.region_id,
            trace_on=settings.trace_on,
        )
        return encode_frame(response(request, ResponseCode.SUCCESS, None, header))

    # refusals

    def _refused(self, refusal: Refusal | None) -> RequestRefusedError:
        self._traffic.counts.sends_refused += 1
        if refusal is Refusal.SLAVE:
            return RequestRefusedError(ResponseCode.SYSTEM_BUSY, FLOW_CONTROL)
        if refusal is Refusal.TOO_FEW_IN_SYNC:
            return RequestRefusedError(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        if self.stopping:
            reason = "the broker is stopping"
        elif refusal is Refusal.HELD and self._role.held is not None:
            return held_back(self._role.held)
        else:
            reason = self._role.reason if refusal is Refusal.NOT_MASTER else str(refusal)
        return RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}")

    @property
    def _illegal(self) -> str:
        return (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._settings.max_message_size}B, msg properties length limit 32KB."
        )

    def _store_refused(self, error: StoreError | OSError) -> RequestRefusedError:
        if isinstance(error, MessageIllegalError):
            return RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, f"{self._illegal} ({error})")
        self._traffic.counts.sends_refused += 1
        if not isinstance(error, StoreFullError):
            log.error("append failed", error=type(error).__name__, reason=str(error))
        return RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")


def held_back(hold: Hold) -> RequestRefusedError:
    """Both codes make producers try another broker. A fence lasts, so its code (NO_PERMISSION) shows that it is
    deliberate."""
    if hold.kind is HoldKind.FENCED:
        remark = (
            f"this replica is fenced, sends are refused until an operator ends that (SetFenced at its sidecar, or"
            f" fenced: false of its BrokerGroup): {hold.reason}"
        )
        return RequestRefusedError(ResponseCode.NO_PERMISSION, remark)
    return RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {hold.reason}")


@functools.lru_cache(maxsize=4096)
def _host_of(address: str) -> bytes:
    """A peer's address as records hold it."""
    try:
        return encode_host(*parse_address(address))
    except (ValueError, MessageIdError):
        return _LOOPBACK
