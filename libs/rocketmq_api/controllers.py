"""Calls to the controllers of one quorum (controller_admin.proto). Used by the operator and the kubectl plugin.

Each call goes from address to address until the leader has answered. The leader's own hint is not needed, so it works
through port-forwards too, where members are not reachable at the addresses they know of each other.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

import grpc
from grpc import aio

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.channels import (
    AbortedError,
    ApiError,
    Client,
    NoAnswerError,
    RefusedError,
    call,
    open_channel,
    typed_errors,
)
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_api.group_view import GroupChange, GroupView, Liveness, MemberView, QuorumView, ReplicaStanding

TIMEOUT: Final = 5.0
"""Default time limit of a call in seconds, over all members."""
ATTEMPT: Final = 2.0
"""Seconds that one member may take, so that a hung member leaves time for the others."""
PAUSE: Final = 0.2
"""Seconds between two rounds over all addresses: an election takes about half a second."""
NOT_LEADER: Final = "2007"
"""RocketMQ's code of a refusal by a member that does not lead (ResponseCode.CONTROLLER_NOT_LEADER)."""
CODE_KEY: Final = "rocketmq-code"

LIVENESS_OF = {
    pb.LIVENESS_ALIVE: Liveness.ALIVE,
    pb.LIVENESS_DEAD: Liveness.DEAD,
    pb.LIVENESS_UNHEARD: Liveness.UNHEARD,
}

T = TypeVar("T")


class ControllersClient(Client):
    """One quorum; connects at the first call. Every call raises `rocketmq_api.channels.ApiError`, one of its kinds;
    NoAnswerError without a leader, or if the leader did not answer in time."""

    def __init__(self, addresses: Sequence[str], *, tls: ClientTls | None = None, timeout: float = TIMEOUT) -> None:
        """
        Args:
            addresses: `host:port` of the members' gRPC ports (9880), at least one; not all need to answer.
            tls: files for mutual TLS; None: plaintext.
            timeout: time limit of a call in seconds.

        Raises:
            ValueError: no address.
            OSError: a TLS file cannot be read.
        """
        if not addresses:
            raise ValueError("a quorum needs at least one address")
        self.addresses = tuple(dict.fromkeys(addresses))
        self._timeout = timeout
        self._channels = {address: open_channel(address, tls) for address in self.addresses}
        self._stubs = {address: ControllerAdminStub(channel) for address, channel in self._channels.items()}
        self._leader = self.addresses[0]

    async def get_group(self, broker_name: str) -> GroupView | None:
        """One group; None if no broker of it is registered."""
        request = pb.GetGroupRequest(broker_name=broker_name)
        try:
            answer = await self._call_leader(lambda stub, seconds: stub.GetGroup(request, timeout=seconds))
        except RefusedError as error:
            if error.status is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        return group_of(answer.group)

    async def watch_groups(self, broker_name: str = "") -> AsyncGenerator[GroupChange | None, None]:
        """The current state of every group (or one), then None, then each change, while the member that answers leads.
        Always ends with an ApiError; watch again to continue."""
        request = pb.WatchGroupsRequest(broker_name=broker_name)
        deadline = self._deadline()
        while True:
            address = self._leader
            stream = self._stubs[address].WatchGroups(request)
            began = False
            try:
                async with typed_errors(address):
                    async with asyncio.timeout(ATTEMPT):
                        first = await stream.read()
                    while True:
                        began = True
                        if first is aio.EOF:
                            raise NoAnswerError(address, grpc.StatusCode.UNAVAILABLE, "the watch ended", {})
                        assert isinstance(first, pb.WatchGroupsResponse)
                        if (change := _change_of(first)) is not _NOTHING:
                            yield change if isinstance(change, GroupChange) else None
                        first = await stream.read()
            except (ApiError, TimeoutError) as error:
                failure = error if isinstance(error, ApiError) else _silent(address)
                if began or not _another_may_answer(failure) or self._now() >= deadline:
                    raise failure from error
                await self._turn(address)
            finally:
                stream.cancel()

    async def snapshot(self) -> tuple[GroupView, ...]:
        """All groups with their offsets as they are now, however many there are."""
        groups: list[GroupView] = []
        changes = self.watch_groups()
        try:
            async with asyncio.timeout(self._timeout):
                async for change in changes:
                    if change is None:
                        break
                    if change.group is not None:
                        groups.append(change.group)
        except TimeoutError as error:
            raise _silent(self._leader) from error
        finally:
            await changes.aclose()
        return tuple(groups)

    async def elect_master(
        self, broker_name: str, broker_id: int | None = None, *, allow_unclean: bool = False
    ) -> tuple[GroupView, bool]:
        """Make a replica (None: the best by policy) master; the group then, and whether anything has changed.

        `allow_unclean`: also a replica outside the SyncStateSet, if no member of it is alive; this loses messages.
        """
        request = pb.ElectMasterRequest(broker_name=broker_name, broker_id=broker_id, allow_unclean=allow_unclean)
        answer = await self._call_leader(lambda stub, seconds: stub.ElectMaster(request, timeout=seconds))
        return group_of(answer.group), answer.elected

    async def clean_broker_data(
        self, broker_name: str, broker_ids: Sequence[int] | None, *, living: bool = False
    ) -> None:
        """Forget these replicas, or (None) the whole group; `living`: also living ones."""
        request = pb.CleanBrokerDataRequest(
            broker_name=broker_name,
            broker_ids=broker_ids or (),
            whole_group=broker_ids is None,
            clean_living=living,
        )
        await self._call_leader(lambda stub, seconds: stub.CleanBrokerData(request, timeout=seconds))

    async def members(self) -> QuorumView:
        """The quorum as its leader sees it, or without a known leader as any member does."""
        seen: QuorumView | None = None
        failure: ApiError | None = None
        for address in self._in_order():
            try:
                seen = await self.members_by(address)
            except ApiError as error:
                failure = error
                continue
            if seen.from_leader:
                self._leader = address
                break
        if seen is None:
            assert failure is not None, "there is one address at least"
            raise failure
        return seen

    async def members_by(self, address: str) -> QuorumView:
        """The quorum as the member at `address`, one of `addresses`, sees it."""
        answer = await call(address, self._stubs[address].GetMembers(pb.GetMembersRequest(), timeout=ATTEMPT))
        return quorum_of(answer)

    async def transfer_leadership(self, target_id: str = "") -> str:
        """Make `target_id` (empty: the member with the longest log) leader; returns the leader afterwards."""
        request = pb.TransferLeadershipRequest(target_id=target_id)
        answer = await self._call_leader(
            lambda stub, seconds: stub.TransferLeadership(request, timeout=seconds), attempt=self._timeout + PAUSE
        )
        return answer.leader_id

    async def add_member(self, member_id: str, address: str) -> None:
        """Add a controller as a learner (for a member: change its address); committed when this returns. It votes once
        it has caught up: see `members`."""
        request = pb.AddMemberRequest(id=member_id, address=address)
        try:
            await self._call_leader(lambda stub, seconds: stub.AddMember(request, timeout=seconds), repeats=True)
        except RefusedError as error:
            if error.status is not grpc.StatusCode.ALREADY_EXISTS or not await self._has(member_id, address):
                raise

    async def remove_member(self, member_id: str) -> None:
        """Remove a controller; committed when this returns. Succeeds if it is not a member."""
        request = pb.RemoveMemberRequest(id=member_id)
        try:
            await self._call_leader(lambda stub, seconds: stub.RemoveMember(request, timeout=seconds), repeats=True)
        except RefusedError as error:
            if error.status is not grpc.StatusCode.NOT_FOUND:
                raise

    async def _has(self, member_id: str, address: str) -> bool:
        return any((member.id, member.address) == (member_id, address) for member in (await self.members()).members)

    async def close(self) -> None:
        """Cancel running calls and disconnect."""
        for channel in self._channels.values():
            await channel.close()

    async def _call_leader(
        self,
        ask: Callable[[ControllerAdminStub, float], Awaitable[T]],
        *,
        attempt: float = ATTEMPT,
        repeats: bool = False,
    ) -> T:
        """For calls that are safe to repeat on another member. `repeats`: also after an answer that leaves the outcome
        open, since a change that was made is recognized."""
        deadline = self._deadline()
        while True:
            address = self._leader
            seconds = max(0.1, min(attempt, deadline - self._now()))
            try:
                return await call(address, ask(self._stubs[address], seconds))
            except ApiError as error:
                again = _another_may_answer(error) or (repeats and isinstance(error, AbortedError))
                if not again or self._now() >= deadline:
                    raise
            await self._turn(address)

    async def _turn(self, failed: str) -> None:
        """Switch to the next address, with a pause after each round."""
        if self._leader == failed:
            following = self.addresses.index(failed) + 1
            self._leader = self.addresses[following % len(self.addresses)]
        if failed == self.addresses[-1]:
            await asyncio.sleep(PAUSE)

    def _in_order(self) -> tuple[str, ...]:
        return (self._leader, *(address for address in self.addresses if address != self._leader))

    def _deadline(self) -> float:
        return self._now() + self._timeout

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


_NOTHING: Final = object()


def _change_of(message: pb.WatchGroupsResponse) -> GroupChange | object | None:
    match message.kind:
        case pb.WatchGroupsResponse.KIND_SYNCED:
            return None
        case pb.WatchGroupsResponse.KIND_REMOVED:
            return GroupChange(message.group.broker_name, None)
        case pb.WatchGroupsResponse.KIND_CURRENT | pb.WatchGroupsResponse.KIND_CHANGED:
            return GroupChange(message.group.broker_name, group_of(message.group))
        case _:
            return _NOTHING  # of a later release


def _another_may_answer(error: ApiError) -> bool:
    """Whether another member may answer."""
    return isinstance(error, NoAnswerError) or error.metadata.get(CODE_KEY) == NOT_LEADER


def _silent(address: str) -> NoAnswerError:
    return NoAnswerError(address, grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time", {})


def group_of(group: pb.Group) -> GroupView:
    """A message as a plain value."""
    return GroupView(
        cluster_name=group.cluster_name,
        broker_name=group.broker_name,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
        master_broker_id=group.master_broker_id if group.HasField("master_broker_id") else None,
        master_address=group.master_address,
        replicas=tuple(_replica_of(replica) for replica in group.replicas),
        next_broker_id=group.next_broker_id,
    )


def _replica_of(replica: pb.Replica) -> ReplicaStanding:
    has = replica.HasField
    return ReplicaStanding(
        broker_id=replica.broker_id,
        address=replica.address,
        in_sync=replica.in_sync_state_set,
        liveness=LIVENESS_OF.get(replica.liveness, Liveness.UNKNOWN),
        max_offset=replica.max_offset if has("max_offset") else None,
        confirm_offset=replica.confirm_offset if has("confirm_offset") else None,
        epoch=replica.epoch if has("epoch") else None,
        election_priority=replica.election_priority if has("election_priority") else None,
        heartbeat_age_millis=replica.heartbeat_age_millis if has("heartbeat_age_millis") else None,
    )


def quorum_of(answer: pb.GetMembersResponse) -> QuorumView:
    """A message as a plain value."""
    return QuorumView(
        group=answer.group,
        answered_by=answer.answered_by,
        leader_id=answer.leader_id,
        term=answer.term,
        commit_index=answer.commit_index,
        applied_index=answer.applied_index,
        lineage=answer.lineage,
        members_index=answer.members_index,
        members=tuple(
            MemberView(
                id=member.id,
                address=member.address,
                grpc_address=member.grpc_address,
                is_leader=member.is_leader,
                connected=member.connected,
                match_index=member.match_index if member.HasField("match_index") else None,
                voter=member.role != pb.MEMBER_ROLE_LEARNER,
                counts=member.counts if member.HasField("counts") else None,
            )
            for member in answer.members
        ),
    )
