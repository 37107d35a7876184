# Made by hack/proto.py from rocketmq_api/controller_admin.proto: do not edit
from collections.abc import AsyncIterator, Awaitable

from grpc import aio

from rocketmq_api import controller_admin_pb2 as _pb2

class ControllerAdminStub:
    def __init__(self, channel: aio.Channel) -> None: ...
    GetGroup: aio.UnaryUnaryMultiCallable[_pb2.GetGroupRequest, _pb2.GetGroupResponse]
    ListGroups: aio.UnaryUnaryMultiCallable[_pb2.ListGroupsRequest, _pb2.ListGroupsResponse]
    WatchGroups: aio.UnaryStreamMultiCallable[_pb2.WatchGroupsRequest, _pb2.WatchGroupsResponse]
    ElectMaster: aio.UnaryUnaryMultiCallable[_pb2.ElectMasterRequest, _pb2.ElectMasterResponse]
    CleanBrokerData: aio.UnaryUnaryMultiCallable[_pb2.CleanBrokerDataRequest, _pb2.CleanBrokerDataResponse]
    GetMembers: aio.UnaryUnaryMultiCallable[_pb2.GetMembersRequest, _pb2.GetMembersResponse]
    TransferLeadership: aio.UnaryUnaryMultiCallable[_pb2.TransferLeadershipRequest, _pb2.TransferLeadershipResponse]

class ControllerAdminServicer:
    def GetGroup(
        self, request: _pb2.GetGroupRequest, context: aio.ServicerContext[_pb2.GetGroupRequest, _pb2.GetGroupResponse]
    ) -> Awaitable[_pb2.GetGroupResponse]: ...
    def ListGroups(
        self, request: _pb2.ListGroupsRequest, context: aio.ServicerContext[_pb2.ListGroupsRequest, _pb2.ListGroupsResponse]
    ) -> Awaitable[_pb2.ListGroupsResponse]: ...
    def WatchGroups(
        self, request: _pb2.WatchGroupsRequest, context: aio.ServicerContext[_pb2.WatchGroupsRequest, _pb2.WatchGroupsResponse]
    ) -> AsyncIterator[_pb2.WatchGroupsResponse] | Awaitable[None]: ...
    def ElectMaster(
        self, request: _pb2.ElectMasterRequest, context: aio.ServicerContext[_pb2.ElectMasterRequest, _pb2.ElectMasterResponse]
    ) -> Awaitable[_pb2.ElectMasterResponse]: ...
    def CleanBrokerData(
        self, request: _pb2.CleanBrokerDataRequest, context: aio.ServicerContext[_pb2.CleanBrokerDataRequest, _pb2.CleanBrokerDataResponse]
    ) -> Awaitable[_pb2.CleanBrokerDataResponse]: ...
    def GetMembers(
        self, request: _pb2.GetMembersRequest, context: aio.ServicerContext[_pb2.GetMembersRequest, _pb2.GetMembersResponse]
    ) -> Awaitable[_pb2.GetMembersResponse]: ...
    def TransferLeadership(
        self, request: _pb2.TransferLeadershipRequest, context: aio.ServicerContext[_pb2.TransferLeadershipRequest, _pb2.TransferLeadershipResponse]
    ) -> Awaitable[_pb2.TransferLeadershipResponse]: ...

def add_ControllerAdminServicer_to_server(servicer: ControllerAdminServicer, server: aio.Server) -> None: ...
