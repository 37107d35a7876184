"""ControllersClient against members of which one leads, or none, or another by now."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.channels import AbortedError, NoAnswerError, RefusedError
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminServicer, add_ControllerAdminServicer_to_server
from rocketmq_api.controllers import ControllersClient
from rocketmq_api.group_view import Liveness

NOT_LEADER = (("rocketmq-code", "2007"),)


class Member(ControllerAdminServicer):
    """One controller: answers what the test has put into it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leads = False
        self.hangs = False
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.next_refusal: tuple[grpc.StatusCode, str] | None = None
        """Of the change of the members after the one with `refusal`."""
        self.groups: list[pb.Group] = []
        self.changes: asyncio.Queue[pb.WatchGroupsResponse] = asyncio.Queue()
        self.asked: list[Any] = []

    async def _only_leader(self, request: Any, context: Any) -> None:
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if not self.leads:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not leader", NOT_LEADER)
        if self.refusal is not None:
            await context.abort(*self.refusal)

    async def GetGroup(self, request: Any, context: Any) -> Any:  # noqa: N802 - the rpc's name
        await self._only_leader(request, context)
        found = [group for group in self.groups if group.broker_name == request.broker_name]
        if not found:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such group")
        return pb.GetGroupResponse(group=found[0])

    async def WatchGroups(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        await self._only_leader(request, context)
        for group in self.groups:
            yield pb.WatchGroupsResponse(kind=pb.WatchGroupsResponse.KIND_CURRENT, group=group)
        yield pb.WatchGroupsResponse(kind=pb.WatchGroupsResponse.KIND_SYNCED)
        while True:
            yield await self.changes.get()

    async def CleanBrokerData(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._only_leader(request, context)
        return pb.CleanBrokerDataResponse()

    async def AddMember(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._change(request, context)
        return pb.AddMemberResponse()

    async def RemoveMember(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._change(request, context)
        return pb.RemoveMemberResponse()

    async def _change(self, request: Any, context: Any) -> None:
        refusal, self.refusal = self.refusal, self.next_refusal
        if refusal is not None:
            self.asked.append(request)
            await context.abort(*refusal)
        await self._only_leader(request, context)

    async def GetMembers(self, request: Any, context: Any) -> Any:  # noqa: N802
        leader = self.name if self.leads else ""
        members = [pb.Member(id=self.name, address="a:1", is_leader=self.leads, connected=True)]
        return pb.GetMembersResponse(group="g", answered_by=self.name, leader_id=leader, term=3, members=members)


@asynccontextmanager
async def quorum() -> AsyncIterator[tuple[list[Member], ControllersClient]]:
    async with AsyncExitStack() as stack:
        members, addresses = [Member(f"n{number}") for number in range(3)], []
        for member in members:
            server = aio.server()
            add_ControllerAdminServicer_to_server(member, server)
            addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
            await server.start()
            stack.push_async_callback(server.stop, None)
        yield members, await stack.enter_async_context(ControllersClient(addresses, timeout=5.0))


def group(name: str = "b", **more: Any) -> pb.Group:
    replica = pb.Replica(
        broker_id=1, address="x:10911", in_sync_state_set=True, liveness=pb.LIVENESS_ALIVE, max_offset=7
    )
    return pb.Group(cluster_name="c", broker_name=name, master_epoch=2, replicas=[replica], next_broker_id=2, **more)


@pytest.mark.parametrize("leader", [0, 1, 2])
async def test_the_leader_is_found(leader: int) -> None:
    async with quorum() as (members, client):
        members[leader].leads = True
        members[leader].groups = [group(master_broker_id=1)]
        view = await client.get_group("b")
        assert view is not None
        assert (view.master_broker_id, view.master_epoch, view.next_broker_id) == (1, 2, 2)
        (replica,) = view.replicas
        assert (replica.liveness, replica.max_offset, replica.confirm_offset) == (Liveness.ALIVE, 7, None)
        assert await client.get_group("other") is None
        # The second question goes to the leader at once.
        assert sum(len(member.asked) for member in members if member is not members[leader]) == leader


async def test_a_new_leader_is_waited_for() -> None:
    async with quorum() as (members, client):
        asking = asyncio.create_task(client.get_group("b"))
        while not members[2].asked:
            await asyncio.sleep(0.01)
        members[1].leads = True
        assert await asking is None


async def test_no_leader_for_too_long() -> None:
    async with quorum() as (members, client):
        client._timeout = 0.5
        with pytest.raises(RefusedError, match="not leader"):
            await client.get_group("b")
        assert all(member.asked for member in members)


LOST = grpc.StatusCode.ABORTED, "leadership was lost: its outcome is unknown"


async def test_a_change_of_the_members_is_repeated_until_its_outcome_is_known() -> None:
    """The change had been made: the repetition recognizes that."""
    async with quorum() as (members, client):
        members[0].leads = True
        members[0].refusal, members[0].next_refusal = LOST, (grpc.StatusCode.ALREADY_EXISTS, "it is a member")
        await client.add_member("n0", "a:1")
        members[0].refusal, members[0].next_refusal = LOST, (grpc.StatusCode.NOT_FOUND, "no such member")
        await client.remove_member("n9")
        members[0].refusal, members[0].next_refusal = LOST, None
        await client.remove_member("n9")
        members[0].refusal = members[0].next_refusal = LOST
        client._timeout = 0.0
        with pytest.raises(AbortedError, match="outcome is unknown"):
            await client.remove_member("n9")


async def test_a_refusal_by_the_leader_is_final() -> None:
    async with quorum() as (members, client):
        members[1].leads = True
        members[1].refusal = (grpc.StatusCode.FAILED_PRECONDITION, "still alive")
        with pytest.raises(RefusedError, match="still alive"):
            await client.clean_broker_data("b", [1])
        members[1].refusal = (grpc.StatusCode.ABORTED, "who knows")
        with pytest.raises(AbortedError, match="who knows"):
            await client.clean_broker_data("b", None)
        last = members[1].asked[-1]
        assert (last.whole_group, list(last.broker_ids)) == (True, [])


async def test_a_watch_starts_with_all_groups_and_reports_changes() -> None:
    async with quorum() as (members, client):
        members[1].leads = True
        members[1].groups = [group("a"), group("b")]
        changes = client.watch_groups()
        first = [await anext(changes) for _ in range(3)]
        assert [None if one is None else one.broker_name for one in first] == ["a", "b", None]
        kinds = pb.WatchGroupsResponse
        members[1].changes.put_nowait(kinds(kind=kinds.KIND_UNSPECIFIED))
        members[1].changes.put_nowait(kinds(kind=kinds.KIND_REMOVED, group=pb.Group(broker_name="a")))
        change = await anext(changes)
        assert change is not None
        assert (change.broker_name, change.group) == ("a", None)
        await changes.aclose()


async def test_a_snapshot_is_the_beginning_of_a_watch() -> None:
    async with quorum() as (members, client):
        members[2].leads = True
        members[2].groups = [group("a"), group("b")]
        assert [view.broker_name for view in await client.snapshot()] == ["a", "b"]


async def test_closing_a_client_ends_its_watch_with_an_error_and_cancels_no_task() -> None:
    async with quorum() as (members, client):
        members[0].leads = True
        changes = client.watch_groups()
        assert await anext(changes) is None
        reading = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(NoAnswerError):
            await reading


async def test_members_are_asked_until_the_leader_has_answered() -> None:
    async with quorum() as (members, client):
        view = await client.members()
        assert (view.answered_by, view.leader_id) == ("n0", "") or view.leader_id == ""
        members[2].leads = True
        view = await client.members()
        assert (view.answered_by, view.leader_id, view.term) == ("n2", "n2", 3)
        assert view.members[0].match_index is None


async def test_without_an_address_there_is_no_quorum() -> None:
    with pytest.raises(ValueError, match="one address"):
        ControllersClient([])
