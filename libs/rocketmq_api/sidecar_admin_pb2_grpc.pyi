# Made by hack/proto.py from rocketmq_api/sidecar_admin.proto: do not edit
from collections.abc import AsyncIterator, Awaitable

from grpc import aio

from rocketmq_api import sidecar_admin_pb2 as _pb2

class SidecarAdminStub:
    def __init__(self, channel: aio.Channel) -> None: ...
    GetReplica: aio.UnaryUnaryMultiCallable[_pb2.GetReplicaRequest, _pb2.GetReplicaResponse]
    SetFenced: aio.UnaryUnaryMultiCallable[_pb2.SetFencedRequest, _pb2.SetFencedResponse]
    HandOver: aio.UnaryUnaryMultiCallable[_pb2.HandOverRequest, _pb2.HandOverResponse]

class SidecarAdminServicer:
    def GetReplica(
        self, request: _pb2.GetReplicaRequest, context: aio.ServicerContext[_pb2.GetReplicaRequest, _pb2.GetReplicaResponse]
    ) -> Awaitable[_pb2.GetReplicaResponse]: ...
    def SetFenced(
        self, request: _pb2.SetFencedRequest, context: aio.ServicerContext[_pb2.SetFencedRequest, _pb2.SetFencedResponse]
    ) -> Awaitable[_pb2.SetFencedResponse]: ...
    def HandOver(
        self, request: _pb2.HandOverRequest, context: aio.ServicerContext[_pb2.HandOverRequest, _pb2.HandOverResponse]
    ) -> Awaitable[_pb2.HandOverResponse]: ...

def add_SidecarAdminServicer_to_server(servicer: SidecarAdminServicer, server: aio.Server) -> None: ...
