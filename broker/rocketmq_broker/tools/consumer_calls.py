"""What tools ask of consumers: the broker passes it on to their connections, and their answers back.

INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223, asks 221), GET_CONSUMER_RUNNING_INFO (307, with stacks if the tool wants
them), CONSUME_MESSAGE_DIRECTLY (309, with the message).
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, Broker2Client.java.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

import structlog

from rocketmq_broker.domain.consuming.members import Client, Consumers
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.tables.consumer_protocols import GroupTable
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.client_calls import (
    ConsumerCallRequestHeader,
    ConsumerStatus,
    GetConsumerStatusRequestHeader,
)
from rocketmq_formats.remoting.command import FLAG_RESPONSE, RemotingCommand, response
from rocketmq_formats.remoting.command import request as request_of
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.store.message_id import decode_message_id
from rocketmq_runtime import background
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.remoting.server import Answer, Peer, PeerCallError, PeerTimeoutError
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)

CALL_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 5.0
"""Java's waits for a consumer's answer, to 307 and 309, and to 221."""
MAX_RUNNING: Final = 64
"""Requests of tools that wait for consumers."""
ASKED_AT_ONCE: Final = 64
"""Members of a group."""
V3_0_7_SNAPSHOT: Final = 28
V3_1_8_SNAPSHOT: Final = 62
"""Ordinals of Java's MQVersion: clients before them do not know 221, or 307 and 309."""


class ConsumerCalls:
    """Asks consumers for tools."""

    def __init__(
        self,
        *,
        broker_name: str,
        role: ReplicaRole,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: Consumers[Peer],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """`clock`: what leases are in."""
        self._broker_name = broker_name
        self._role = role
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._clock = clock
        self._running = 0

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    # one member

    def _running_info(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(ConsumerCallRequestHeader, request.ext_fields or {})
        return self._pass_on(request, header, dict(request.ext_fields or {}), request.body)

    def _consume_directly(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(ConsumerCallRequestHeader, request.ext_fields or {})
        fields = {**(request.ext_fields or {}), "brokerName": self._broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.find(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        _, offset = decode_message_id(header.msg_id or "")
        record = self._store.record_at(offset, self._role.acknowledged(self._clock(), self._store.max_offset))
        if record is None:
            remark = f"can not find message by the offset, {offset}"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return self._pass_on(request, header, fields, bytes(record))

    def _pass_on(
        self, request: RemotingCommand, header: ConsumerCallRequestHeader, fields: dict[str, str], body: bytes
    ) -> Answer:
        group, client_id = header.consumer_group, header.client_id
        member = self._consumers.members.find_in(group, client_id) if client_id else None
        if member is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        consumer, client = member
        if client.version < V3_1_8_SNAPSHOT:
            remark = (
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)

        async def ask() -> RemotingCommand:
            passed = RemotingCommand(code=request.code, ext_fields=fields, body=body)
            who = f"consumer <{group}> <{client_id}>"
            try:
                answer = await consumer.call(passed, CALL_SECONDS)
            except PeerTimeoutError as error:
                return response(request, ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {error}")
            except (PeerCallError, ValueError) as error:
                return response(request, ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {error}")
            return RemotingCommand(
                code=answer.code,
                flag=FLAG_RESPONSE,
                opaque=request.opaque,
                remark=answer.remark,
                ext_fields=answer.ext_fields,
                body=answer.body,
                serialize_type=request.serialize_type,
            )

        return self._run(request, ask())

    # all members

    def _status(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(GetConsumerStatusRequestHeader, request.ext_fields or {})
        members = list(self._consumers.members.of(header.group).items())
        if not members:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        for _, client in members:
            if client.version < V3_0_7_SNAPSHOT:
                remark = f"the client does not support this feature. version={client.version}"
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        wanted = (header.client_addr or "").strip()
        asked = [member for member in members if wanted in ("", member[1].client_id)]
        question = request_of(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequestHeader(topic=header.topic, group=header.group),
        )

        async def ask() -> RemotingCommand:
            table: dict[str, Mapping[MessageQueue, int]] = {}
            for first in range(0, len(asked), ASKED_AT_ONCE):
                portion = asked[first : first + ASKED_AT_ONCE]
                for (_, client), status in zip(
                    portion, await asyncio.gather(*[_status_of(*member, question) for member in portion]), strict=True
                ):
                    if status is not None:
                        table[client.client_id] = status
            body = ConsumerStatus(consumer_table=table).encode()
            return response(request, ResponseCode.SUCCESS, None, None, body)

        return self._run(request, ask())

    def _run(self, request: RemotingCommand, ask: Coroutine[None, None, RemotingCommand]) -> Answer:
        """Its result is read by no one if the request is a oneway, which no tool sends."""
        if request.is_oneway or self._running >= MAX_RUNNING:
            ask.close()
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, "too many requests wait for consumers: ask again later")
        self._running += 1
        task = background.awaited(ask, "question to a consumer")
        task.add_done_callback(self._ran)
        return task

    def _ran(self, _task: "asyncio.Future[RemotingCommand]") -> None:
        self._running -= 1


async def _status_of(consumer: Peer, client: Client, question: RemotingCommand) -> Mapping[MessageQueue, int] | None:
    """None: it did not say, and is left out, as in Java."""
    try:
        answer = await consumer.call(question, STATUS_SECONDS)
        if answer.code == ResponseCode.SUCCESS and answer.body:
            return ConsumerStatus.decode_of_client(answer.body).message_queue_table
        reason = answer.remark
    except (PeerCallError, BodyError) as error:
        reason = str(error)
    log.debug("consumer does not tell its offsets", client=client.client_id, code=question.code, reason=reason)
    return None
