"""The remoting door: request codes to service calls, decisions to responses.

Malformed requests end here with a code and a remark; what the codes mean is decided in the domain.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.service import Answer, ControllerService
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import BodyError, HeaderError
from rocketmq_formats.json.bodies import decode_request_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    LogDoubtRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.unsupported import not_supported
from rocketmq_runtime.remoting import server

T = TypeVar("T")
Route = Callable[[RemotingCommand, server.Peer], "Answer | RemotingCommand"]

MAX_BODY: Final[Mapping[int, int]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: 64 * 1024,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: 512 * 1024,
}
"""Bytes of a request's body, where there is one: what is decoded holds the event loop."""
NO_ID = (
    "a registration without brokerId, as brokers before RocketMQ 5.1.1 send it: upgrade the broker to 5.1.1 or later"
)


class RemotingApi:
    """Implements `rocketmq_runtime.remoting.server.Handler`."""

    def __init__(self, service: ControllerService) -> None:
        self._service = service
        self._metrics = service.metrics
        self._now = time.perf_counter  # the event loop's clock stands still during a turn
        self._routes: dict[int, Route] = {
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.CONTROLLER_LOG_DOUBT: self._log_doubt,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self._alter_sync_state_set,
            RequestCode.CONTROLLER_ELECT_MASTER: self._elect_master,
            RequestCode.CONTROLLER_REGISTER_BROKER: self._register_broker,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self._get_replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self._get_metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self._get_sync_state_data,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self._get_config,
            RequestCode.CLEAN_BROKER_DATA: self._clean_broker_data,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self._get_next_broker_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self._apply_broker_id,
        }

    @property
    def codes(self) -> frozenset[int]:
        """Request codes that have a route."""
        return frozenset(self._routes)

    def on_request(self, request: RemotingCommand, peer: server.Peer) -> server.Answer:
        """Answer one request; see `server.Handler`."""
        began = self._now()
        route = self._routes.get(request.code)
        if route is None:
            return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(request.code))
        try:
            answer = route(request, peer)
        except (HeaderError, BodyError) as error:
            self._metrics.request(request.code, "failed", self._now() - began)
            return response(request, error.response_code, str(error))
        if isinstance(answer, asyncio.Future):
            return self._later(request, answer, began)
        self._metrics.request(request.code, "success", self._now() - began)
        return _to_response(request, answer) if isinstance(answer, Decision) else answer

    def on_close(self, peer: server.Peer) -> None:
        """The brokers on this connection have disconnected."""
        self._service.failover.on_connection_closed(peer.id)

    def _later(
        self, request: RemotingCommand, answer: "asyncio.Future[Decision]", began: float
    ) -> "asyncio.Future[RemotingCommand]":
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()

        def done(decided: "asyncio.Future[Decision]") -> None:
            if future.cancelled():
                return
            if decided.cancelled():
                self._metrics.request(request.code, "timeout", self._now() - began)
                future.cancel()
            elif (error := decided.exception()) is not None:
                self._metrics.request(request.code, "failed", self._now() - began)
                future.set_exception(error)
            else:
                self._metrics.request(request.code, "success", self._now() - began)
                future.set_result(_to_response(request, decided.result()))

        answer.add_done_callback(done)
        return future

    # One method per request code

    def _heartbeat(self, request: RemotingCommand, peer: server.Peer) -> Answer:
        header = decode_header(BrokerHeartbeatRequestHeader, request.ext_fields or {})
        return self._service.failover.on_heartbeat(header, peer.id, peer.ip)

    def _log_doubt(self, request: RemotingCommand, peer: server.Peer) -> Answer:
        return self._service.failover.on_log_doubt(
            decode_header(LogDoubtRequestHeader, request.ext_fields or {}), peer.ip
        )

    def _alter_sync_state_set(self, request: RemotingCommand, _peer: server.Peer) -> Answer:
        header = decode_header(AlterSyncStateSetRequestHeader, request.ext_fields or {})
        return self._service.alter_sync_state_set(header, _body(SyncStateSet, request))

    def _elect_master(self, request: RemotingCommand, peer: server.Peer) -> Answer:
        header = decode_header(ElectMasterRequestHeader, request.ext_fields or {})
        return self._service.failover.elect(header, peer.id, host=peer.ip)

    def _register_broker(self, request: RemotingCommand, peer: server.Peer) -> Answer:
        fields = request.ext_fields or {}
        if "brokerId" not in fields:
            return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, NO_ID)
        header = decode_header(RegisterBrokerToControllerRequestHeader, fields)
        return self._service.register_broker(header, peer.id, peer.ip)

    def _get_replica_info(self, request: RemotingCommand, _peer: server.Peer) -> Answer:
        return self._service.get_replica_info(decode_header(GetReplicaInfoRequestHeader, request.ext_fields or {}))

    def _get_metadata(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        return response(request, ResponseCode.SUCCESS, None, self._service.get_metadata())

    def _get_sync_state_data(self, request: RemotingCommand, _peer: server.Peer) -> Answer:
        return self._service.get_sync_state_data(_body(list[str], request) if request.body else None)

    def _update_config(self, request: RemotingCommand, peer: server.Peer) -> Answer:
        return self._service.update_config(request.body, peer.host)

    def _get_config(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        return response(request, ResponseCode.SUCCESS, None, None, self._service.config.as_properties())

    def _clean_broker_data(self, request: RemotingCommand, _peer: server.Peer) -> Answer:
        header = decode_header(CleanControllerBrokerDataRequestHeader, request.ext_fields or {})
        return self._service.clean_broker_data(header)

    def _get_next_broker_id(self, request: RemotingCommand, _peer: server.Peer) -> Answer:
        return self._service.get_next_broker_id(decode_header(GetNextBrokerIdRequestHeader, request.ext_fields or {}))

    def _apply_broker_id(self, request: RemotingCommand, peer: server.Peer) -> Answer:
        header = decode_header(ApplyBrokerIdRequestHeader, request.ext_fields or {})
        return self._service.apply_broker_id(header, peer.host)


def _body(body_type: type[T], request: RemotingCommand) -> T:
    most = MAX_BODY[request.code]
    if len(request.body) > most:
        raise BodyError(f"a body of {len(request.body)} bytes is more than {most}")
    return decode_request_body(body_type, request.body)


def _to_response(request: RemotingCommand, decision: Decision) -> RemotingCommand:
    body: msgspec.Struct | None = decision.body
    return response(
        request, decision.code, decision.remark, decision.header, b"" if body is None else encode_body(body)
    )
