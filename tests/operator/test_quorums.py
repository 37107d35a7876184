"""The watch of a quorum: what it tells when leaders come and go, in virtual time with a client that the test plays."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Self

import grpc
import pytest

from rocketmq_api.channels import NoAnswerError
from rocketmq_api.group_view import GroupChange, GroupView, MemberView, QuorumView, ReplicaStanding
from rocketmq_operator.controllers import quorums
from rocketmq_operator.controllers.quorums import UNREACHABLE_AFTER, Address, Quorum

pytestmark = pytest.mark.looptime


class Controllers:
    """Stands for all clients that the quorum makes."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupView] = {}
        self.leader = True
        self.changes: asyncio.Queue[GroupChange | Exception] = asyncio.Queue()
        self.addresses: list[tuple[str, ...]] = []

    def __call__(self, addresses: tuple[str, ...], **_: Any) -> "Controllers":
        self.addresses.append(addresses)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def close(self) -> None:
        return None

    async def watch_groups(self) -> AsyncGenerator[GroupChange | None, None]:
        if not self.leader:
            raise lost()
        for name, group in self.groups.items():
            yield GroupChange(name, group)
        yield None
        while True:
            change = await self.changes.get()
            if isinstance(change, Exception):
                raise change
            yield change

    async def snapshot(self) -> tuple[GroupView, ...]:
        return tuple(self.groups.values())

    async def members(self) -> QuorumView:
        leader = "n0" if self.leader else ""
        return QuorumView(group="g", answered_by="n0", leader_id=leader, members=(MemberView(id="n0", address="a"),))


def lost() -> NoAnswerError:
    return NoAnswerError("a", grpc.StatusCode.UNAVAILABLE, "gone", {})


def view(name: str = "b", *, offset: int = 0, age: int = 0, epoch: int = 1) -> GroupView:
    replica = ReplicaStanding(broker_id=1, max_offset=offset, heartbeat_age_millis=age)
    return GroupView(cluster_name="c", broker_name=name, master_epoch=epoch, replicas=(replica,))


class Watched:
    """A quorum with the client replaced, and what it told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *groups: GroupView) -> None:
        self.client = Controllers()
        self.client.groups = {group.broker_name: group for group in groups}
        monkeypatch.setattr(quorums, "ControllersClient", self.client)
        self.told: list[str | None] = []
        self.address: Address | None = Address(("10.0.0.1:9880",))
        self.quorum = Quorum("q", self.locate, self.told.append)

    async def locate(self) -> Address | None:
        return self.address


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Watched, None]:
    one = Watched(monkeypatch, view(), view("c"))
    yield one
    await one.quorum.stop()


async def test_first_all_then_changes(watched: Watched) -> None:
    await watched.quorum.wait_for_answer()
    assert watched.quorum.synced
    assert watched.told == [None]
    watched.client.changes.put_nowait(GroupChange("b", view(epoch=2)))
    await asyncio.sleep(0.01)
    assert watched.told == [None, "b"]
    assert watched.quorum.groups["b"].master_epoch == 2
    watched.client.changes.put_nowait(GroupChange("b", None))
    await asyncio.sleep(0.01)
    assert set(watched.quorum.groups) == {"c"}


async def test_another_leader_within_the_time_is_hardly_noticed(watched: Watched) -> None:
    await watched.quorum.wait_for_answer()
    watched.told.clear()
    watched.client.groups["c"] = view("c", epoch=5)
    watched.client.changes.put_nowait(lost())
    await asyncio.sleep(UNREACHABLE_AFTER - 1)
    assert watched.quorum.synced
    assert watched.told == ["c", None]


async def test_silence_invalidates_views_until_there_is_a_leader_again(watched: Watched) -> None:
    await watched.quorum.wait_for_answer()
    watched.client.leader = False
    watched.client.changes.put_nowait(lost())
    await asyncio.sleep(UNREACHABLE_AFTER + 1)
    assert not watched.quorum.synced
    watched.client.leader = True
    await asyncio.sleep(5)
    assert watched.quorum.synced


async def test_a_poll_of_the_members_ends_the_pause_between_attempts(watched: Watched) -> None:
    watched.client.leader = False
    await asyncio.sleep(60)
    watched.client.leader = True
    await watched.quorum.members()
    await asyncio.sleep(0.01)
    assert watched.quorum.synced


async def test_members_that_moved_are_looked_for_where_they_are(watched: Watched) -> None:
    await watched.quorum.wait_for_answer()
    watched.address = Address(("10.0.0.9:9880",))
    watched.client.changes.put_nowait(lost())
    await asyncio.sleep(1)
    assert watched.client.addresses[-1] == ("10.0.0.9:9880",)


async def test_the_age_of_a_heartbeat_is_not_a_change_and_offsets_are_fetched(watched: Watched) -> None:
    await watched.quorum.wait_for_answer()
    before = watched.quorum.groups["b"]
    watched.client.groups = {"b": view(age=900)}
    await watched.quorum.refresh()
    assert watched.quorum.groups["b"] is before
    watched.client.groups = {"b": view(offset=77)}
    await watched.quorum.refresh()
    assert watched.quorum.groups["b"].replicas[0].max_offset == 77


async def test_unreachable_controllers_are_noticed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Watched(monkeypatch)
    one.address = None
    await one.quorum.wait_for_answer()
    assert not one.quorum.synced
    assert await one.quorum.members() is None
    await one.quorum.stop()
