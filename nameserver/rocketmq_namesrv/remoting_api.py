"""The remoting port: request codes to tables and back, with 5.3.3's codes and remarks.

Malformed and refused requests end here with a code, a remark and a log line, one per kind and host in a minute.
Routes (105) are nearly all of the traffic: they take the shortest path and come encoded from `RouteAnswers`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from rocketmq_formats.codes import FAQ, RequestCode, ResponseCode
from rocketmq_formats.errors import BodyError, HeaderError
from rocketmq_formats.json.bodies import decode_request_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import (
    ORDER_TOPIC_CONFIG,
    STANDARD_JSON_VERSION,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)
from rocketmq_formats.remoting.registration import body_crc32, registration_steps
from rocketmq_formats.remoting.unsupported import not_supported
from rocketmq_formats.steps import Steps
from rocketmq_formats.topics import DataVersion
from rocketmq_namesrv.domain.model import InvalidRequestError, NotRegisteredError, TableRefusedError
from rocketmq_namesrv.metrics import Counts
from rocketmq_namesrv.registry import Registry
from rocketmq_namesrv.tools_api import Route, ToolsApi
from rocketmq_runtime.remoting import server
from rocketmq_runtime.remoting.slow_lane import Lane, LaneFullError, Pace, in_steps

log = structlog.get_logger(__name__)
Counted = TypeVar("Counted", str, int)

MAX_REGISTERING_OF_HOST = 4
"""Registrations that take more than a step and wait or are under way."""
_ZLIB = b"\x78"
"""First byte of every zlib stream that Java makes; JSON never begins with it."""


class RemotingApi:
    """Implements `rocketmq_runtime.remoting.server.Handler`."""

    def __init__(self, registry: Registry, counts: Counts, *, clock: Callable[[], float] | None = None) -> None:
        """`clock`: seconds that grow within a turn of the loop."""
        self._registry = registry
        self._tables = registry.tables
        self._answers = registry.answers
        self._kv = registry.kv
        self._config = registry.config
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._routes: dict[int, Route] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_version,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            **ToolsApi(registry).routes,
        }
        self._lane = Lane(clock, max_waiting_of_peer=MAX_REGISTERING_OF_HOST)
        self._registering_names: Counter[str] = Counter()
        self._lines: dict[str, str] = {}
        """Of these broker names: the host in whose line all of their registrations wait, so they keep their order."""
        self._registering: Counter[int] = Counter()
        """Ids of connections with a registration in the lane."""
        self._closed: set[int] = set()
        """Those of them that are closed."""

    @property
    def codes(self) -> frozenset[int]:
        """Request codes that have a route."""
        return frozenset(self._routes)

    def on_request(self, request: RemotingCommand, peer: server.Peer) -> server.Answer:
        """Answer one request; see `server.Handler`."""
        route = self._routes.get(request.code)
        if route is None:
            answer: RemotingCommand | asyncio.Future[RemotingCommand] = response(
                request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(request.code)
            )
        else:
            try:
                answer = route(request, peer)
            except (HeaderError, BodyError, TableRefusedError) as error:
                answer = self._refused(request, peer, error)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(self._count, request.code))
        else:
            self._counts.answered(request.code, answer.code)
        return answer

    def _count(self, code: int, answer: "asyncio.Future[RemotingCommand]") -> None:
        if not answer.cancelled() and answer.exception() is None:  # a failure is answered and logged by the server
            self._counts.answered(code, answer.result().code)

    def on_close(self, peer: server.Peer) -> None:
        """Remove the brokers of this connection."""
        if peer.id in self._registering:
            self._closed.add(peer.id)
        self._registry.connection_closed(peer)

    def _refused(
        self, request: RemotingCommand, peer: server.Peer, error: HeaderError | BodyError | TableRefusedError
    ) -> RemotingCommand:
        if self._registry.may_log_refusal(f"{request.code} {type(error).__name__}", peer):
            log.warning("request refused", code=request.code, peer=peer.address, reason=str(error))
        return response(request, error.response_code, str(error))

    # routes

    def _route(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        fields = request.ext_fields
        topic = None if fields is None else fields.get("topic")
        if fields is None or topic is None:
            raise HeaderError("GetRouteInfoRequestHeader: `topic` is missing")
        settings = self._config.settings
        if settings.need_wait_for_service and self._loop.time() - self._started < settings.wait_seconds_for_service:
            return response(request, ResponseCode.SYSTEM_ERROR, "name server not ready")
        standard = (
            request.version >= STANDARD_JSON_VERSION or fields.get("acceptStandardJsonOnly", "").lower() == "true"
        )
        body = self._answers.get(topic, standard=standard)
        if body is None:
            remark = f"No topic route info in name server for the topic: {topic[:1024]}{FAQ}"
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        return response(request, ResponseCode.SUCCESS, None, None, body)

    # brokers

    def _register(
        self, request: RemotingCommand, peer: server.Peer
    ) -> RemotingCommand | asyncio.Future[RemotingCommand]:
        """At once if one step is enough; else in the lane, and later registrations of the broker name behind it."""
        header = decode_header(RegisterBrokerRequestHeader, request.ext_fields or {})
        steps = self._registration(request, header, peer)
        if header.broker_name not in self._registering_names:
            done = self._lane.first_step(steps)
            if done is not None:
                return done[0]

        async def rest(pace: Pace) -> RemotingCommand:
            try:
                return await in_steps(steps, pace)
            except (HeaderError, BodyError, TableRefusedError) as error:
                return self._refused(request, peer, error)

        line = self._lines.get(header.broker_name, peer.host)
        try:
            answer = self._lane.run(peer.host, rest, host=line)
        except LaneFullError as error:
            steps.close()
            return response(request, ResponseCode.SYSTEM_BUSY, str(error), RegisterBrokerResponseHeader())
        self._registering_names[header.broker_name] += 1
        self._lines[header.broker_name] = line
        self._registering[peer.id] += 1

        def ended(_: object) -> None:
            _less(self._registering_names, header.broker_name)
            if header.broker_name not in self._registering_names:
                del self._lines[header.broker_name]
            _less(self._registering, peer.id)
            if peer.id not in self._registering:
                self._closed.discard(peer.id)

        answer.add_done_callback(ended)
        return answer

    def _registration(
        self, request: RemotingCommand, header: RegisterBrokerRequestHeader, peer: server.Peer
    ) -> Steps[RemotingCommand]:
        if header.body_crc32 != 0 and header.body_crc32 != body_crc32(request.body):
            if self._registry.may_log_refusal("checksum", peer):
                log.warning("registration refused: its checksum differs", broker=header.broker_name, peer=peer.address)
            return response(request, ResponseCode.SYSTEM_ERROR, "crc32 not match", RegisterBrokerResponseHeader())
        # Java brokers with compressedRegister=true compress but declare that they do not; Java refuses them.
        compressed = header.compressed or request.body[:1] == _ZLIB
        body = yield from registration_steps(request.body, compressed=compressed, version=request.version)
        if peer.id in self._closed:
            raise InvalidRequestError("the connection ended before the registration was read")
        try:
            registered = yield from self._registry.register(header, body, peer)
        except NotRegisteredError as error:
            if self._registry.may_log_refusal("one topic", peer):
                log.warning(
                    "registration of one topic refused: the broker has to register all of its topics first",
                    broker=header.broker_name,
                    broker_id=header.broker_id,
                    address=header.broker_addr,
                )
            return response(request, error.response_code, str(error), RegisterBrokerResponseHeader())
        order_topics = None
        if self._config.settings.return_order_topic_config_to_broker:
            order_topics = self._kv.listing(ORDER_TOPIC_CONFIG)
        return response(
            request,
            ResponseCode.SUCCESS,
            None,
            RegisterBrokerResponseHeader(ha_server_addr=registered.ha_server_addr, master_addr=registered.master_addr),
            order_topics or b"",
        )

    def _unregister(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        self._registry.unregister(decode_header(UnregisterBrokerRequestHeader, request.ext_fields or {}))
        return response(request, ResponseCode.SUCCESS)

    def _query_version(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        header = decode_header(QueryDataVersionRequestHeader, request.ext_fields or {})
        theirs = decode_request_body(DataVersion, request.body) if request.body else None
        self._registry.refresh(header.cluster_name, header.broker_addr)
        ours = self._tables.live.version(header.cluster_name, header.broker_addr)
        return response(
            request,
            ResponseCode.SUCCESS,
            None,
            QueryDataVersionResponseHeader(changed=ours != theirs),
            b"" if ours is None else encode_body(ours),
        )

    def _heartbeat(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        header = decode_header(BrokerHeartbeatRequestHeader, request.ext_fields or {})
        self._registry.refresh(header.cluster_name, header.broker_addr)
        return response(request, ResponseCode.SUCCESS)


def _less(counts: Counter[Counted], key: Counted) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
