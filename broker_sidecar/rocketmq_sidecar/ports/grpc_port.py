"""The sidecar's gRPC port: SidecarAdmin of sidecar_admin.proto in front of a `ReplicaAdmin`, and LogReader.

Imported late (`late_grpc_port`): importing gRPC takes a tenth of a second and ten megabytes, which would delay the
start of a replica. The .proto documents the rpcs.
"""

from collections.abc import Callable
from typing import Never, TypeVar

import grpc
import structlog
from grpc import aio

from rocketmq_api import sidecar_admin_pb2 as pb
from rocketmq_api.log_reader_pb2_grpc import add_LogReaderServicer_to_server
from rocketmq_api.replica_view import MAX_REASON_BYTES, ReplicaRole, ReplicaView
from rocketmq_api.sidecar_admin_pb2_grpc import SidecarAdminServicer, add_SidecarAdminServicer_to_server
from rocketmq_runtime.grpc.server import GrpcLimits, GrpcServer
from rocketmq_runtime.grpc.tls import ServerTls, server_credentials
from rocketmq_sidecar.ports.log_service import SERVICE as LOG_READER
from rocketmq_sidecar.ports.log_service import LogReader
from rocketmq_sidecar.ports.replica_admin import (
    NotDoneError,
    NotNowError,
    ReplicaAdmin,
    ReplicaAdminError,
    StartingError,
    UnderWayError,
)
from rocketmq_sidecar.ports.served_log import ServedLog
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["SidecarAdmin"].full_name
LIMITS = GrpcLimits(
    max_connections=100,
    max_connections_of_host=25,
    max_rpcs=200,
    max_rpcs_of_host=50,
    max_watches=50,
    max_message_bytes=1024 * 1024,
)
"""Enough for an operator and some tools; epoch files of 1000 lines fit."""

TIMEOUT_MILLIS = 5_000
TIMEOUT_BOUNDS = range(100, 60_001)

ROLE_OF = {
    ReplicaRole.UNKNOWN: pb.ROLE_UNKNOWN,
    ReplicaRole.MASTER: pb.ROLE_MASTER,
    ReplicaRole.SLAVE: pb.ROLE_SLAVE,
    ReplicaRole.NONE: pb.ROLE_NONE,
}
STATUS_OF: dict[type[ReplicaAdminError], grpc.StatusCode] = {
    NotNowError: grpc.StatusCode.FAILED_PRECONDITION,
    UnderWayError: grpc.StatusCode.ALREADY_EXISTS,
    NotDoneError: grpc.StatusCode.ABORTED,
    StartingError: grpc.StatusCode.UNAVAILABLE,
}

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


def make_grpc_server(
    settings: SidecarSettings, admin: ReplicaAdmin, ready: Callable[[], str | None], served: ServedLog | None = None
) -> GrpcServer:
    """The configured server, not open yet. `ready` is the reason in /readyz; without `served`, no LogReader.

    Raises:
        SettingsError: the TLS files cannot be used; the text names the key.
    """
    tls = ServerTls(
        keys="sidecarGrpcTls",
        cert_file=settings.sidecar_grpc_tls_cert_file,
        key_file=settings.sidecar_grpc_tls_key_file,
        ca_file=settings.sidecar_grpc_tls_ca_file,
    )
    service = SidecarAdmin(admin)
    services: dict[str, Callable[[aio.Server], None]] = {
        SERVICE: lambda server: add_SidecarAdminServicer_to_server(service, server)
    }
    if served is not None:
        reader = LogReader(served, bytes_per_second=settings.verify_max_bytes_per_second)
        services[LOG_READER] = lambda server: add_LogReaderServicer_to_server(reader, server)
    return GrpcServer(
        host=settings.bind_address,
        port=settings.sidecar_grpc_port,
        services=services,
        ready=ready,
        credentials=server_credentials(tls),
        limits=LIMITS,
    )


class SidecarAdmin(SidecarAdminServicer):
    """One per process; used in the event loop only."""

    def __init__(self, admin: ReplicaAdmin) -> None:
        self._admin = admin

    async def GetReplica(  # noqa: N802 - the .proto's names
        self,
        request: pb.GetReplicaRequest,  # noqa: ARG002
        context: aio.ServicerContext[pb.GetReplicaRequest, pb.GetReplicaResponse],  # noqa: ARG002
    ) -> pb.GetReplicaResponse:
        return pb.GetReplicaResponse(replica=message_of(self._admin.get_replica()))

    async def SetFenced(  # noqa: N802
        self, request: pb.SetFencedRequest, context: aio.ServicerContext[pb.SetFencedRequest, pb.SetFencedResponse]
    ) -> pb.SetFencedResponse:
        if request.fenced and not request.reason.strip():
            await _invalid(context, "reason: required, producers see it; name the cause and yourself")
        if len(request.reason.encode()) > MAX_REASON_BYTES:
            await _invalid(context, f"reason: at most {MAX_REASON_BYTES} bytes")
        _log("asked to refuse sends" if request.fenced else "asked to accept sends", context, reason=request.reason)
        try:
            view = await self._admin.set_fenced(fenced=request.fenced, reason=request.reason)
        except ReplicaAdminError as error:
            await _refuse(context, error)
        return pb.SetFencedResponse(replica=message_of(view))

    async def HandOver(  # noqa: N802
        self, request: pb.HandOverRequest, context: aio.ServicerContext[pb.HandOverRequest, pb.HandOverResponse]
    ) -> pb.HandOverResponse:
        broker_id = request.broker_id if request.HasField("broker_id") else None
        if broker_id is not None and broker_id < 1:
            await _invalid(context, f"broker_id: {broker_id} is not valid, ids begin with 1")
        millis = request.timeout_millis or TIMEOUT_MILLIS
        if millis not in TIMEOUT_BOUNDS:
            await _invalid(context, f"timeout_millis: from {TIMEOUT_BOUNDS[0]} to {TIMEOUT_BOUNDS[-1]}")
        _log("asked to hand over", context, to=broker_id, millis=millis)
        try:
            new = await self._admin.hand_over(broker_id, millis / 1000)
        except ReplicaAdminError as error:
            await _refuse(context, error)
        return pb.HandOverResponse(master_broker_id=new.master_broker_id, master_epoch=new.master_epoch)


def message_of(view: ReplicaView) -> pb.Replica:
    """The plain value as a message."""
    return pb.Replica(
        cluster_name=view.cluster_name,
        broker_name=view.broker_name,
        broker_id=view.broker_id,
        role=ROLE_OF[view.role],
        master_broker_id=view.master_broker_id,
        master_epoch=view.master_epoch,
        sync_state_set=view.sync_state_set,
        sync_state_set_epoch=view.sync_state_set_epoch,
        max_offset=view.max_offset,
        confirm_offset=view.confirm_offset,
        min_offset=view.min_offset,
        epochs=[
            pb.Epoch(epoch=epoch.epoch, start_offset=epoch.start_offset, end_offset=epoch.end_offset)
            for epoch in view.epochs
        ],
        fenced=view.fenced,
        fence_reason=view.fence_reason,
        fenced_at_millis=view.fenced_at_millis,
        broker_connected=view.broker_connected,
        ready_reason=view.ready_reason,
        engine=view.engine,
        version=view.version,
        address=view.address,
        acting_master=view.acting_master,
        remark=view.remark,
    )


async def _refuse(context: aio.ServicerContext[RequestT, ResponseT], error: ReplicaAdminError) -> Never:
    log.warning("refused", reason=str(error), kind=type(error).__name__)
    await context.abort(STATUS_OF.get(type(error), grpc.StatusCode.INTERNAL), str(error))


async def _invalid(context: aio.ServicerContext[RequestT, ResponseT], why: str) -> Never:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)


def _log(what: str, context: aio.ServicerContext[RequestT, ResponseT], **inputs: object) -> None:
    """Log a change with the client that requested it."""
    identities = context.peer_identities()
    names = [name.decode(errors="replace") for name in identities] if identities else None
    log.info(what, peer=context.peer(), identity=names, **inputs)
