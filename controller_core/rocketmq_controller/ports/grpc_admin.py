"""The ControllerAdmin service: rpcs to service calls, decisions to replies or statuses. Served by grpc_api.

What the rpcs promise is written in controller_admin.proto; what the controller's codes mean is decided in the domain.
"""

import asyncio
from collections.abc import Mapping
from typing import Never, TypeVar

import grpc
import structlog
from grpc import aio

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminServicer
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.log.pipeline import NOT_LEADER
from rocketmq_controller.ports import group_view, grpc_status
from rocketmq_controller.ports.watch import End, Kind, TooManyWatchesError, Watch, WatchEndedError, Watches
from rocketmq_controller.raft import (
    AddMember,
    Change,
    ChangePendingError,
    MemberExistsError,
    MembershipError,
    NotLeaderError,
    OverloadedError,
    RaftError,
    RemoveMember,
    UnknownMemberError,
)
from rocketmq_controller.raft.configuration import MAX_ID_BYTES
from rocketmq_controller.service import Answer, ControllerService
from rocketmq_controller.settings import Peer, is_member_id
from rocketmq_formats.addresses import format_address, parse_address
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    NO_BROKER_ID,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
)

log = structlog.get_logger(__name__)

TRANSFER_TIMEOUT = 5.0
"""Seconds that TransferLeadership waits for the other member to lead."""
LEADER_POLL = 0.02
SLICE = 200
"""Groups that are put into a message in one turn of the event loop."""

KIND_OF: Mapping[Kind, pb.WatchGroupsResponse.Kind] = {
    Kind.CURRENT: pb.WatchGroupsResponse.KIND_CURRENT,
    Kind.SYNCED: pb.WatchGroupsResponse.KIND_SYNCED,
    Kind.CHANGED: pb.WatchGroupsResponse.KIND_CHANGED,
    Kind.REMOVED: pb.WatchGroupsResponse.KIND_REMOVED,
}

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class ControllerAdmin(ControllerAdminServicer):
    """One per process; used in the event loop only. The rpcs are described in the .proto."""

    def __init__(
        self, service: ControllerService, heartbeats: HeartbeatTable, watches: Watches, *, max_message_bytes: int
    ) -> None:
        self._service = service
        self._heartbeats = heartbeats
        self._watches = watches
        self._max_message_bytes = max_message_bytes
        self._now = asyncio.get_running_loop().time

    # Reading

    async def GetGroup(  # noqa: N802 - the .proto's names
        self, request: pb.GetGroupRequest, context: aio.ServicerContext[pb.GetGroupRequest, pb.GetGroupResponse]
    ) -> pb.GetGroupResponse:
        await grpc_status.require_name(context, "broker_name", request.broker_name)
        await self._require_leader(context)
        group = self._watches.group(request.broker_name)
        if group is None:
            await self._refuse(
                context,
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
                f"no broker of group {request.broker_name} is registered",
            )
        return pb.GetGroupResponse(group=self._describe(group))

    async def ListGroups(  # noqa: N802
        self, request: pb.ListGroupsRequest, context: aio.ServicerContext[pb.ListGroupsRequest, pb.ListGroupsResponse]
    ) -> pb.ListGroupsResponse:
        if request.cluster_name:
            await grpc_status.require_name(context, "cluster_name", request.cluster_name)
        await self._require_leader(context)
        groups = [
            group
            for _, group in sorted(self._service.machine.groups.items())
            if group_view.exists(group) and request.cluster_name in {"", group.cluster_name}
        ]
        response = pb.ListGroupsResponse()
        for start in range(0, len(groups), SLICE):
            if start:
                await asyncio.sleep(0)
            response.groups.extend(self._describe(group) for group in groups[start : start + SLICE])
        if response.ByteSize() > self._max_message_bytes:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{len(groups)} groups do not fit {self._max_message_bytes} bytes: name a cluster, or use WatchGroups",
            )
        return response

    async def WatchGroups(  # noqa: N802
        self,
        request: pb.WatchGroupsRequest,
        context: aio.ServicerContext[pb.WatchGroupsRequest, pb.WatchGroupsResponse],
    ) -> None:
        if request.broker_name:
            await grpc_status.require_name(context, "broker_name", request.broker_name)
        await self._require_leader(context)
        try:
            watch = self._watches.open(request.broker_name or None)
        except TooManyWatchesError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        # Writing, not yielding: a coroutine is left at once when the client goes.
        try:
            end = await self._send_changes(watch, context)
        finally:
            self._watches.close(watch)
        if end is End.NOT_LEADER:
            await self._refuse(context, NOT_LEADER.code, NOT_LEADER.remark)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "this controller is stopping")

    async def GetMembers(  # noqa: N802
        self,
        request: pb.GetMembersRequest,  # noqa: ARG002
        context: aio.ServicerContext[pb.GetMembersRequest, pb.GetMembersResponse],  # noqa: ARG002
    ) -> pb.GetMembersResponse:
        settings, status = self._service.config.settings, self._service.replica.status()
        others = {member.id: member for member in status.members}
        response = pb.GetMembersResponse(
            group=settings.group,
            answered_by=status.self_id,
            leader_id=status.leader_id or "",
            term=status.term,
            commit_index=status.commit_index,
            applied_index=status.last_applied,
            lineage=status.lineage or "",
            members_index=status.configuration.index,
        )
        for peer in self._service.peers().values():
            known = status.configuration.get(peer.id)
            other = others.get(peer.id)
            response.members.add(
                id=peer.id,
                address=peer.address,
                grpc_address=self._grpc_address(peer) or "",
                is_leader=peer.id == status.leader_id,
                connected=peer.id == status.self_id or (other is not None and other.connected),
                match_index=status.durable_index
                if peer.id == status.self_id
                else None
                if other is None
                else other.match_index,
                role=pb.MEMBER_ROLE_VOTER if known is None or known.voter else pb.MEMBER_ROLE_LEARNER,
                counts=status.voter if peer.id == status.self_id else None if other is None else other.voter,
            )
        return response

    # Changing

    async def ElectMaster(  # noqa: N802
        self,
        request: pb.ElectMasterRequest,
        context: aio.ServicerContext[pb.ElectMasterRequest, pb.ElectMasterResponse],
    ) -> pb.ElectMasterResponse:
        await grpc_status.require_name(context, "broker_name", request.broker_name)
        designated = request.broker_id if request.HasField("broker_id") else None
        if designated is not None:
            await grpc_status.require_ids(context, [designated])
        header = ElectMasterRequestHeader(
            broker_name=request.broker_name,
            broker_id=NO_BROKER_ID if designated is None else designated,
            designate_elect=designated is not None,
        )
        decision = await _settled(self._service.failover.elect(header, last_resort=request.allow_unclean))
        _log(
            "elect master",
            context,
            decision,
            broker=request.broker_name,
            broker_id=designated,
            allow_unclean=request.allow_unclean,
        )
        if decision.code not in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            await self._refuse(context, decision.code, decision.remark)
        group = self._service.machine.groups[request.broker_name]
        return pb.ElectMasterResponse(group=self._describe(group), elected=decision.code == ResponseCode.SUCCESS)

    async def CleanBrokerData(  # noqa: N802
        self,
        request: pb.CleanBrokerDataRequest,
        context: aio.ServicerContext[pb.CleanBrokerDataRequest, pb.CleanBrokerDataResponse],
    ) -> pb.CleanBrokerDataResponse:
        await grpc_status.require_name(context, "broker_name", request.broker_name)
        if bool(request.broker_ids) == request.whole_group:
            await grpc_status.invalid(context, "name either broker_ids or whole_group")
        await grpc_status.require_ids(context, request.broker_ids)
        header = CleanControllerBrokerDataRequestHeader(
            broker_name=request.broker_name,
            broker_controller_ids_to_clean=";".join(map(str, request.broker_ids)) or None,
            is_clean_living_broker=request.clean_living,
        )
        decision = await _settled(self._service.clean_broker_data(header))
        _log(
            "clean broker data",
            context,
            decision,
            broker=request.broker_name,
            broker_ids=list(request.broker_ids) or "all",
            clean_living=request.clean_living,
        )
        if decision.code != ResponseCode.SUCCESS:
            unknown = decision.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA and (
                self._watches.group(request.broker_name) is None
            )
            status = grpc.StatusCode.NOT_FOUND if unknown else None  # the code alone is ambiguous
            await self._refuse(context, decision.code, decision.remark, status)
        return pb.CleanBrokerDataResponse()

    async def TransferLeadership(  # noqa: N802
        self,
        request: pb.TransferLeadershipRequest,
        context: aio.ServicerContext[pb.TransferLeadershipRequest, pb.TransferLeadershipResponse],
    ) -> pb.TransferLeadershipResponse:
        settings, replica = self._service.config.settings, self._service.replica
        self_id, target = settings.self_peer.id, request.target_id
        peers = self._service.peers()
        if target and target not in peers:
            await grpc_status.invalid(context, f"target_id: {target!r} is not among the members {', '.join(peers)}")
        if not replica.is_leader:
            await self._refuse(context, NOT_LEADER.code, NOT_LEADER.remark)
        if target == self_id:
            return pb.TransferLeadershipResponse(leader_id=self_id)
        try:
            async with asyncio.timeout(TRANSFER_TIMEOUT):
                await replica.transfer_leadership(target or None)
                leader = await self._another_leader(self_id)
        except TimeoutError:
            reason = f"no other member is known to lead after {TRANSFER_TIMEOUT:g} s"
            log.warning("transfer leadership", peer=context.peer(), target=target, outcome=reason)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, reason)
        except NotLeaderError:
            await self._refuse(context, NOT_LEADER.code, NOT_LEADER.remark)
        except RaftError as error:
            log.warning("transfer leadership", peer=context.peer(), target=target, outcome=str(error))
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        log.info("transfer leadership", peer=context.peer(), target=target, outcome="transferred", leader=leader)
        if target and leader != target:
            await context.abort(grpc.StatusCode.ABORTED, f"{leader} leads now, not {target}", self._leader_metadata())
        return pb.TransferLeadershipResponse(leader_id=leader)

    async def AddMember(  # noqa: N802
        self, request: pb.AddMemberRequest, context: aio.ServicerContext[pb.AddMemberRequest, pb.AddMemberResponse]
    ) -> pb.AddMemberResponse:
        if not is_member_id(request.id) or len(request.id.encode()) > MAX_ID_BYTES:
            await grpc_status.invalid(context, f"id: {request.id!r} cannot stand in controllerDLegerPeers")
        try:
            host, port = parse_address(request.address)
            peer = Peer(request.id, host, port + self._service.config.settings.raft_distance)
        except ValueError as error:
            await grpc_status.invalid(context, f"address: {error}")
        await self._change(context, AddMember(peer.id, peer.host, peer.port))
        return pb.AddMemberResponse()

    async def RemoveMember(  # noqa: N802
        self,
        request: pb.RemoveMemberRequest,
        context: aio.ServicerContext[pb.RemoveMemberRequest, pb.RemoveMemberResponse],
    ) -> pb.RemoveMemberResponse:
        await self._change(context, RemoveMember(request.id))
        return pb.RemoveMemberResponse()

    async def _change(self, context: aio.ServicerContext[RequestT, ResponseT], change: Change) -> None:
        try:
            await asyncio.shield(self._service.replica.change_members(change))
        except NotLeaderError:
            await self._refuse(context, NOT_LEADER.code, NOT_LEADER.remark)
        except (MembershipError, RaftError) as error:
            log.warning("change of the members refused", peer=context.peer(), change=repr(change), reason=str(error))
            await context.abort(_status_of(error), str(error))
        log.info("members changed", peer=context.peer(), change=repr(change))

    # Internals

    async def _send_changes(self, watch: Watch, context: aio.ServicerContext[RequestT, pb.WatchGroupsResponse]) -> End:
        while True:
            try:
                change = await watch.next()
            except WatchEndedError as error:
                return error.end
            message = pb.WatchGroupsResponse(kind=KIND_OF[change.kind])
            if change.group is not None:
                message.group.CopyFrom(change.group)
            elif change.broker_name:
                message.group.broker_name = change.broker_name
            await context.write(message)

    async def _another_leader(self, self_id: str) -> str:
        while (leader := self._service.leader()) is None or leader.id == self_id:  # noqa: ASYNC110 - rare and short
            await asyncio.sleep(LEADER_POLL)
        return leader.id

    def _describe(self, group: BrokerGroup) -> pb.Group:
        return group_view.describe(group, self._heartbeats, self._now())

    async def _require_leader(self, context: aio.ServicerContext[RequestT, ResponseT]) -> None:
        replica = self._service.replica
        leads = replica.is_leader
        if leads and self._service.config.settings.is_process_read_event:
            try:
                await replica.barrier()
            except RaftError as error:
                log.warning("read refused: leadership not proved", reason=str(error))
                leads = False
        if not leads:
            await self._refuse(context, NOT_LEADER.code, NOT_LEADER.remark)

    async def _refuse(
        self,
        context: aio.ServicerContext[RequestT, ResponseT],
        code: ResponseCode,
        remark: str | None,
        status: grpc.StatusCode | None = None,
    ) -> Never:
        leader = self._leader_metadata() if code == ResponseCode.CONTROLLER_NOT_LEADER else ()
        await grpc_status.refuse(context, code, remark, leader, status)

    def _leader_metadata(self) -> grpc_status.Metadata:
        """The leader to call instead; empty if unknown, or if this member leads and cannot prove it."""
        leader = self._service.leader()
        if leader is None or leader.id == self._service.config.settings.self_peer.id or not leader.address.isascii():
            return ()
        grpc_address = self._grpc_address(leader)
        here = ((grpc_status.LEADER_KEY, leader.address),)
        return here if grpc_address is None else (*here, (grpc_status.LEADER_GRPC_KEY, grpc_address))

    def _grpc_address(self, peer: Peer) -> str | None:
        port = self._service.config.settings.grpc_port_of(peer)
        return format_address(peer.host, port) if 0 < port < 65536 else None


def _status_of(error: MembershipError | RaftError) -> grpc.StatusCode:
    match error:
        case MemberExistsError():
            return grpc.StatusCode.ALREADY_EXISTS
        case UnknownMemberError():
            return grpc.StatusCode.NOT_FOUND
        case ChangePendingError() | OverloadedError():
            return grpc.StatusCode.UNAVAILABLE
        case MembershipError():
            return grpc.StatusCode.FAILED_PRECONDITION
        case _:
            return grpc.StatusCode.ABORTED


async def _settled(answer: Answer) -> Decision:
    # Shielded: a client that disconnects does not undo the proposal, and brokers are still notified.
    return await asyncio.shield(answer) if isinstance(answer, asyncio.Future) else answer


def _log(what: str, context: aio.ServicerContext[RequestT, ResponseT], decision: Decision, **inputs: object) -> None:
    """Log who requested a change, its parameters, and its outcome."""
    identities = context.peer_identities()
    log.info(
        what,
        peer=context.peer(),
        identity=[name.decode(errors="replace") for name in identities] if identities else None,
        code=decision.code.name,
        remark=decision.remark,
        **inputs,
    )
