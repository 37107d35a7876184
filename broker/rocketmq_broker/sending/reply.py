"""SEND_REPLY_MESSAGE (324) and its short form (325): the answer to `producer.request()` goes to the producer that
waits.

A requester's id is in its message (REPLY_TO_CLIENT), and its consumer returns it with the reply. The reply is pushed
(326) to the requester's connection, then stored, and the replier is answered what the requester answered. As in Java
any role passes replies on, and a reply counts as sent if it was not stored.
Source: rocketmq-all-5.3.3: ReplyMessageProcessor.java.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.sending.send import SendProcessor
from rocketmq_broker.sending.send_targets import Target
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client_calls import ReplyMessageRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.command import request as request_of
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketmq_formats.store.message_properties import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    PropertiesError,
    format_properties,
    split_properties,
)
from rocketmq_runtime import background
from rocketmq_runtime.remoting.server import Answer, Peer, PeerCallError

PUSH_SECONDS: Final = 10.0
"""Java's wait for a client's answer."""
NOT_STORED: Final = "0"
"""Message id in an answer; an empty one is an error to clients."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """One request that passed the checks."""

    request: RemotingCommand
    header: SendMessageRequestHeader
    target: Target
    queue_id: int
    peer: Peer
    """Who replies."""


class ReplyProcessor:
    """Passes replies on to requesters."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        address: str,
        sends: SendProcessor,
        find_producer: Callable[[str], Peer | None],
    ) -> None:
        """`address`: this broker's. `find_producer`: the connection of a producer's client id."""
        self._settings = settings
        self._address = address
        self._sends = sends
        self._find_producer = find_producer

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.SEND_REPLY_MESSAGE: self._reply, RequestCode.SEND_REPLY_MESSAGE_V2: self._reply}

    def _reply(self, request: RemotingCommand, peer: Peer) -> Answer:
        short = request.code == RequestCode.SEND_REPLY_MESSAGE_V2
        header = decode_header(
            SendMessageRequestHeaderV2 if short else SendMessageRequestHeader, request.ext_fields or {}
        )
        reply = Reply(request, header, *self._sends.place_reply(header, peer), peer)
        properties = split_properties(header.properties or "")
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return self._answer(reply, f"reply message properties[{REPLY_TO_CLIENT}] is null")
        requester = self._find_producer(client_id)
        if requester is None:
            return self._answer(reply, f"push reply message fail, channel of <{client_id}> not found.")
        push = self._push_of(reply, properties)
        if not request.is_oneway:
            return background.awaited(self._pushed(reply, push, requester, client_id), "push of a reply")
        if requester.takes:  # else dropped, as a oneway may be
            push.flag = request.flag
            requester.send(push)
        return self._answer(reply, None)

    def _push_of(self, reply: Reply, properties: dict[str, str]) -> RemotingCommand:
        """The 326."""
        header, now = reply.header, now_ms()
        try:
            stamped = format_properties({**properties, PUSH_REPLY_TIME: str(now)}).decode()
        except PropertiesError:  # there is no room for the time
            stamped = header.properties or ""
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=stamped,
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=reply.peer.address,
            store_host=self._address,
            store_timestamp=now,
        )
        return request_of(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, reply.request.body)

    async def _pushed(self, reply: Reply, push: RemotingCommand, requester: Peer, client_id: str) -> RemotingCommand:
        try:
            taken = (await requester.call(push, PUSH_SECONDS)).code == ResponseCode.SUCCESS
        except (PeerCallError, ValueError):
            taken = False
        # no space before "fail", as in Java
        return self._answer(reply, None if taken else f"push reply message to {client_id}fail.")

    def _answer(self, reply: Reply, refusal: str | None) -> RemotingCommand:
        """Store the reply; the answer to who sent it. `refusal`: why the requester does not have it."""
        request, settings = reply.request, self._settings
        stored = None
        if settings.store_reply_message_enable:
            stored = self._sends.store_reply(reply.header, reply.target, reply.queue_id, request.body, reply.peer)
        if refusal is not None:
            return response(request, ResponseCode.SYSTEM_ERROR, refusal)
        header = SendMessageResponseHeader(
            msg_id=NOT_STORED if stored is None else stored.message_id,
            queue_id=reply.queue_id,
            queue_offset=0 if stored is None else stored.queue_offset,
            msg_region=settings.region_id,
            trace_on=settings.trace_on,
        )
        return response(request, ResponseCode.SUCCESS, None, header)
