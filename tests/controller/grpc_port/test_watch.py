"""WatchGroups: what is sent at first, what counts as a change, when it ends, and what a slow reader costs."""

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc import aio

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, Replica
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.ports.watch import Change, End, Kind, TooManyWatchesError, WatchEndedError, Watches
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from rocketmq_runtime.grpc.server import GrpcLimits
from tests.controller.grpc_kit import NAME, OTHER, REMOTING_PORTS, Door, open_door

CURRENT, SYNCED = pb.WatchGroupsResponse.KIND_CURRENT, pb.WatchGroupsResponse.KIND_SYNCED
CHANGED, REMOVED = pb.WatchGroupsResponse.KIND_CHANGED, pb.WatchGroupsResponse.KIND_REMOVED


async def take(call: aio.UnaryStreamCall, count: int) -> list[tuple[int, str]]:
    messages = [await call.read() for _ in range(count)]
    return [(message.kind, message.group.broker_name) for message in messages]


async def ended(call: aio.UnaryStreamCall) -> aio.AioRpcError:
    with pytest.raises(aio.AioRpcError) as caught:
        await call.read()
    return caught.value


# Through the door


async def test_first_what_is_then_what_changes(door: Door, admin: ControllerAdminStub) -> None:
    for name in ("b", "a"):
        await door.make_group(name)
    call = admin.WatchGroups(pb.WatchGroupsRequest())
    assert await take(call, 3) == [(CURRENT, "a"), (CURRENT, "b"), (SYNCED, "")]
    await door.register(1, name="c")
    assert await take(call, 1) == [(CHANGED, "c")]
    await admin.ElectMaster(pb.ElectMasterRequest(broker_name="c", broker_id=1))
    changed = await call.read()
    assert (changed.kind, changed.group.master_broker_id) == (CHANGED, 1)
    await admin.CleanBrokerData(pb.CleanBrokerDataRequest(broker_name="a", whole_group=True, clean_living=True))
    removed = await call.read()
    assert removed == pb.WatchGroupsResponse(kind=REMOVED, group=pb.Group(broker_name="a"))


async def test_one_group_that_is_not_there_yet(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group("other")
    call = admin.WatchGroups(pb.WatchGroupsRequest(broker_name=NAME))
    assert await take(call, 1) == [(SYNCED, "")]
    await door.make_group("yet another")
    await door.register(1)
    assert await take(call, 1) == [(CHANGED, NAME)]


async def test_who_comes_and_goes_is_a_change(door: Door, admin: ControllerAdminStub) -> None:
    await door.make_group()
    call = admin.WatchGroups(pb.WatchGroupsRequest())
    await take(call, 2)

    door.hang_up(2)
    door.api.refresh()
    gone = await call.read()
    assert [replica.liveness for replica in gone.group.replicas] == [
        pb.LIVENESS_ALIVE,
        pb.LIVENESS_DEAD,
        pb.LIVENESS_ALIVE,
    ]
    door.heartbeat(2, max_offset=5)
    door.api.refresh()
    back = await call.read()
    assert (back.kind, back.group.replicas[1].liveness) == (CHANGED, pb.LIVENESS_ALIVE)
    assert back.group.replicas[1].max_offset == 5


async def test_it_ends_when_another_member_leads(door: Door, admin: ControllerAdminStub) -> None:
    call = admin.WatchGroups(pb.WatchGroupsRequest())
    await call.read()
    door.replica.leader_id = OTHER
    door.api.refresh()
    error = await ended(call)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.trailing_metadata()["rocketmq-leader"] == f"127.0.0.1:{REMOTING_PORTS[OTHER]}"
    assert len(door.api.watches) == 0


async def test_there_is_room_again_when_a_client_has_disconnected(tmp_path: Path) -> None:
    async with (
        open_door(tmp_path, limits=GrpcLimits(max_watches=1)) as door,
        aio.insecure_channel(door.target) as channel,
    ):
        admin = ControllerAdminStub(channel)
        first = admin.WatchGroups(pb.WatchGroupsRequest())
        await first.read()
        error = await ended(admin.WatchGroups(pb.WatchGroupsRequest()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()
        while len(door.api.watches):
            await admin.GetMembers(pb.GetMembersRequest())
        again = admin.WatchGroups(pb.WatchGroupsRequest())
        assert (await again.read()).kind == SYNCED


async def test_a_reader_that_does_not_read_gets_the_newest(door: Door, admin: ControllerAdminStub) -> None:
    """More is made than the connection takes, until the watch has a backlog: the value read at last is the last one."""
    await door.register(1)
    await door.register(1, name="end")
    call = admin.WatchGroups(pb.WatchGroupsRequest())
    await take(call, 3)
    watch = next(iter(door.api.watches._open))
    changes = stuck = 0
    while stuck < 10:
        for _ in range(3):
            await admin.GetMembers(pb.GetMembersRequest())
        stuck += watch.backlog > 0
        changes += 1
        replicas = {
            BrokerId(number): Replica(BrokerId(number), f"address {changes} {'x' * 200}", "")
            for number in range(1, 301)
        }
        door.machine._groups[NAME] = BrokerGroup("C", NAME, BrokerId(1000 + changes), replicas)
        door.machine._notify(NAME)
    door.machine._notify("end")
    assert watch.backlog <= 2
    seen = []
    while (message := await call.read()).group.broker_name != "end":
        seen.append(message.group.next_broker_id)
    assert seen[-1] == 1000 + changes
    assert seen == sorted(set(seen))
    assert len(seen) <= changes - 9


# The queue itself


class Bench:
    """Watches over a state that the test writes directly."""

    def __init__(self, *names: str, limit: int = 10) -> None:
        self.machine = ControllerStateMachine()
        self.leads = True
        self.now = 0.0
        self.heartbeats = HeartbeatTable()
        self.watches = Watches(
            machine=self.machine,
            heartbeats=self.heartbeats,
            is_leader=lambda: self.leads,
            now=lambda: self.now,
            limit=limit,
        )
        for name in names:
            self.write(name)

    def write(self, name: str, *ids: int) -> None:
        replicas = {BrokerId(number): Replica(BrokerId(number), f"a{number}", "") for number in ids or (1,)}
        self.machine._groups[name] = BrokerGroup("C", name, BrokerId(9), replicas)
        self.machine._notify(name)

    def heartbeat(self, name: str, connection: int) -> None:
        header = BrokerHeartbeatRequestHeader(cluster_name="C", broker_addr="a1", broker_name=name, broker_id=1)
        self.heartbeats.on_heartbeat(header, connection, self.now)

    def clean(self, name: str) -> None:
        self.machine._groups[name] = BrokerGroup("C", name, BrokerId(9))
        self.machine._notify(name)


async def drain(watch: object) -> list[tuple[Kind, str]]:
    changes: list[Change] = []
    while (change := watch._next()) is not None:
        changes.append(change)
    return [(change.kind, change.broker_name) for change in changes]


async def liveness(watch: object) -> list[int]:
    """Of the only replica, in each message."""
    sent = []
    while (change := watch._next()) is not None:
        if change.group is not None:
            sent.append(change.group.replicas[0].liveness)
    return sent


async def test_a_group_appears_once_however_often_it_changed() -> None:
    bench = Bench("a", "b")
    watch = bench.watches.open(None)
    await drain(watch)
    for _ in range(100):
        bench.write("b")
        bench.write("a")
    assert watch.backlog == 2
    assert await drain(watch) == [(Kind.CHANGED, "b"), (Kind.CHANGED, "a")]


async def test_changes_before_its_turn_are_part_of_the_start() -> None:
    bench = Bench("a", "b", "c")
    watch = bench.watches.open(None)
    assert (await watch.next()).broker_name == "a"
    bench.write("a", 1, 2)
    bench.write("b", 1, 2)
    bench.clean("c")
    bench.write("d")
    assert await drain(watch) == [(Kind.CURRENT, "b"), (Kind.SYNCED, ""), (Kind.CHANGED, "a"), (Kind.CHANGED, "d")]


async def test_a_group_that_changes_all_the_time_does_not_hold_up_the_others() -> None:
    bench = Bench("busy", "quiet")
    watch = bench.watches.open(None)
    await drain(watch)
    bench.write("busy")
    bench.write("quiet")
    await watch.next()
    bench.write("busy")
    assert (await watch.next()).broker_name == "quiet"


async def test_nothing_is_sent_after_leadership_was_lost() -> None:
    bench = Bench("a")
    watch = bench.watches.open(None)
    await drain(watch)
    bench.write("a")
    bench.leads = False
    with pytest.raises(WatchEndedError) as caught:
        await watch.next()
    assert caught.value.end is End.NOT_LEADER


async def test_a_waiting_reader_is_woken() -> None:
    bench = Bench("a")
    watch = bench.watches.open(None)
    await drain(watch)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    bench.write("a")
    assert (await waiting).kind is Kind.CHANGED
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    bench.watches.end_all(End.STOPPING)
    with pytest.raises(WatchEndedError):
        await waiting


async def test_the_end_of_the_grace_period_is_a_change() -> None:
    bench = Bench("a")
    bench.heartbeats.start_grace(0.0, 10.0)
    watch = bench.watches.open(None)
    await drain(watch)
    bench.now = 9.0
    bench.watches.sweep()
    assert watch.backlog == 0
    bench.now = 10.0
    bench.watches.sweep()
    bench.watches.sweep()
    assert await drain(watch) == [(Kind.CHANGED, "a")]


async def test_a_new_replica_is_reported_once() -> None:
    bench = Bench("a")
    watch = bench.watches.open(None)
    await drain(watch)
    bench.write("a", 1, 2)
    assert await drain(watch) == [(Kind.CHANGED, "a")]
    bench.watches.sweep()
    assert watch.backlog == 0


async def test_an_absence_that_was_sent_with_another_change_is_followed_by_the_return() -> None:
    """No sweep sees it: the replica is there when the change is made, and again before the next sweep."""
    bench = Bench("a")
    bench.now = 100.0
    bench.heartbeat("a", 1)
    early, late = bench.watches.open(None), bench.watches.open(None)
    assert await liveness(early) == await liveness(late) == [pb.LIVENESS_ALIVE]
    bench.write("a")
    bench.heartbeats.on_connection_closed(1, bench.now)
    assert await liveness(early) == [pb.LIVENESS_DEAD]
    bench.heartbeat("a", 2)
    assert await liveness(late) == [pb.LIVENESS_ALIVE]
    bench.watches.sweep()
    assert await liveness(early) == [pb.LIVENESS_ALIVE]
    assert late.backlog == 0


async def test_the_start_of_a_watch_is_followed_by_what_it_missed() -> None:
    bench = Bench("a")
    bench.now = 100.0
    bench.heartbeat("a", 1)
    watch = bench.watches.open(None)
    bench.heartbeats.on_connection_closed(1, bench.now)
    assert await liveness(watch) == [pb.LIVENESS_DEAD]
    bench.heartbeat("a", 2)
    bench.watches.sweep()
    assert await liveness(watch) == [pb.LIVENESS_ALIVE]


async def test_watches_are_counted() -> None:
    bench = Bench(limit=2)
    watches = [bench.watches.open(None), bench.watches.open("a")]
    with pytest.raises(TooManyWatchesError):
        bench.watches.open(None)
    for watch in watches:
        bench.watches.close(watch)
    assert bench.machine._listeners == []
    bench.watches.open(None)
    assert len(bench.machine._listeners) == 1
