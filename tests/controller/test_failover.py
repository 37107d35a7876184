"""Elections after a stall of this process: none, unless the master proves to be dead afterwards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.liveness import DEFAULT_GRACE
from rocketmq_controller.domain.model import BrokerGroup, LivenessView, Options, State
from rocketmq_controller.domain.requests.elect_master import groups_needing_election
from rocketmq_controller.notifier import RoleNotifier
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    LogDoubtRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from tests.controller.grpc_kit import LIMITS, NAME, Door, address

pytestmark = pytest.mark.looptime

MASTER, SLAVE = 1, 2
STALL = 5.0
"""Seconds the process is held up here."""
LEADER = "n0"


class Stage:
    """A controller with a master and one slave, both in sync; a broker's first connection has its id as number."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.failover = door.failover
        self.connections = {MASTER: MASTER, SLAVE: SLAVE}
        """Of the brokers that beat."""

    @property
    def group(self) -> BrokerGroup:
        return self.door.machine.groups[NAME]

    def master(self) -> tuple[int | None, int]:
        """Who it is, and since which epoch."""
        return self.group.master_broker_id, self.group.master_epoch

    def heartbeat(self, broker_id: int) -> None:
        header = BrokerHeartbeatRequestHeader(
            cluster_name="C", broker_addr=address(broker_id), broker_name=NAME, broker_id=broker_id
        )
        self.failover.on_heartbeat(header, self.connections[broker_id])

    def hang_up(self, broker_id: int) -> None:
        self.failover.on_connection_closed(self.connections.pop(broker_id))

    async def go_on(self, seconds: float) -> None:
        """All that are connected beat, once a second."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            for broker_id in sorted(self.connections):
                self.heartbeat(broker_id)
            await asyncio.sleep(min(1.0, left))

    def stall(self) -> None:
        """Time goes by and nothing runs; what was due meanwhile runs after the caller's next await."""
        loop = cast("Any", asyncio.get_running_loop())
        loop.setup_looptime(start=loop.time() + STALL)

    async def alter(self, *in_sync: int) -> ResponseCode:
        """The master reports its SyncStateSet."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=NAME, master_broker_id=MASTER, master_epoch=self.group.master_epoch
        )
        body = SyncStateSet(sync_state_set=frozenset(in_sync), sync_state_set_epoch=self.group.sync_state_set_epoch)
        answer = self.door.service.alter_sync_state_set(header, body)
        return (await answer if isinstance(answer, asyncio.Future) else answer).code


@asynccontextmanager
async def on_stage(folder: Path, *, notices: bool = False) -> AsyncIterator[Stage]:
    """No fixture: those do not run in virtual time."""
    door = Door(folder, {"notifyBrokerRoleChanged": str(notices).lower()}, LIMITS)
    door.failover.start()
    await door.make_group()
    door.hang_up(3)
    stage = Stage(door)
    assert await stage.alter(MASTER, SLAVE) == ResponseCode.SUCCESS
    await stage.go_on(10)
    yield stage
    await door.failover.stop()
    await door.client.close()


async def test_a_closed_connection_of_the_master_elects_at_once(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.hang_up(MASTER)
        await stage.go_on(0.1)
        assert stage.master() == (SLAVE, 2)


@pytest.mark.parametrize("notices", [False, True])
async def test_brokers_are_notified_of_an_election_if_the_key_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, notices: bool
) -> None:
    made: list[int | None] = []
    monkeypatch.setattr(RoleNotifier, "announce", lambda _self, news, _alive: made.append(news.header.master_broker_id))
    async with on_stage(tmp_path, notices=notices) as stage:
        made.clear()
        stage.hang_up(MASTER)
        await stage.go_on(0.1)
        assert made == [SLAVE] * notices


async def test_a_stranger_in_the_masters_name_that_hangs_up_causes_no_election(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        for stranger in (66, 67):
            stage.connections, brokers = {MASTER: stranger}, stage.connections
            stage.heartbeat(MASTER)
            stage.connections = brokers
            asked = ElectMasterRequestHeader(cluster_name="C", broker_name=NAME, broker_id=MASTER)
            answer = stage.door.service.failover.elect(asked, stranger)
            assert isinstance(answer, Decision)
            assert answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
            register = RegisterBrokerToControllerRequestHeader(
                cluster_name="C", broker_name=NAME, broker_id=MASTER, broker_address=address(MASTER)
            )
            answer = stage.door.service.register_broker(register, stranger)
            assert isinstance(answer, Decision)
            assert (answer.code, answer.events) == (ResponseCode.SYSTEM_BUSY, ())
            stage.failover.on_connection_closed(stranger)
            await stage.go_on(2)
            assert stage.master() == (MASTER, 1)


@pytest.mark.parametrize("noticed_by", ["the closed connection", "the timer", "a heartbeat"])
async def test_a_connection_that_closed_during_a_stall_causes_no_election(tmp_path: Path, noticed_by: str) -> None:
    """Java closes a connection when a request over it was not answered for 3 s, and opens another one."""
    async with on_stage(tmp_path) as stage:
        stage.stall()
        if noticed_by == "the timer":
            await asyncio.sleep(0)
        elif noticed_by == "a heartbeat":
            stage.heartbeat(SLAVE)
        stage.hang_up(MASTER)
        await stage.go_on(2.5)
        stage.connections[MASTER] = 11
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_a_connection_that_closes_soon_after_a_stall_causes_no_election(tmp_path: Path) -> None:
    """Brokers that were held up together with us find out about their time-outs when they wake."""
    async with on_stage(tmp_path) as stage:
        stage.stall()
        await stage.go_on(DEFAULT_GRACE - 1)
        stage.hang_up(MASTER)
        await stage.go_on(1.5)
        stage.connections[MASTER] = 11
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_a_master_that_dies_soon_after_a_stall_is_found_out_by_its_silence(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.stall()
        await stage.go_on(1)
        stage.heartbeat(MASTER)
        stage.hang_up(MASTER)
        await stage.go_on(2.9)
        assert stage.master() == (MASTER, 1)
        await stage.go_on(0.3)
        assert stage.master() == (SLAVE, 2)


async def test_some_time_after_a_stall_a_closed_connection_counts_again(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.stall()
        await stage.go_on(DEFAULT_GRACE + 0.2)
        stage.hang_up(MASTER)
        await stage.go_on(0.1)
        assert stage.master() == (SLAVE, 2)


async def test_the_first_heartbeat_after_a_stall_does_not_make_the_others_look_dead(tmp_path: Path) -> None:
    """Without the lease of a quorum (one controller alone) nothing else would stand between them and an election."""
    async with on_stage(tmp_path) as stage:
        stage.stall()
        stage.heartbeat(SLAVE)
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_a_new_leader_that_was_stalled_as_a_follower_elects_none(tmp_path: Path) -> None:
    """All controllers hung: the next leader has seen the same closed connections, maybe while it followed."""
    async with on_stage(tmp_path) as stage:
        stage.door.replica.leader_id = None
        stage.failover.on_role_change()
        stage.stall()
        stage.hang_up(MASTER)
        stage.door.replica.leader_id = LEADER
        stage.failover.on_role_change()
        await stage.go_on(1.5)
        stage.connections[MASTER] = 11
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_leadership_won_in_the_turn_of_waking_up_elects_none(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.door.replica.leader_id = None
        stage.failover.on_role_change()
        stage.stall()
        stage.door.replica.leader_id = LEADER
        stage.failover.on_role_change()
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_requests_read_right_after_a_stall_find_everybody_alive(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        assert await stage.alter(MASTER) == ResponseCode.SUCCESS
        stage.stall()
        assert await stage.alter(MASTER, SLAVE) == ResponseCode.SUCCESS


async def test_a_master_restarted_during_a_stall_gives_up_its_role(tmp_path: Path) -> None:
    """Its entry lives on without a connection; the registration over a new one still tells a restart."""
    async with on_stage(tmp_path) as stage:
        stage.stall()
        stage.hang_up(MASTER)
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name="C", broker_name=NAME, broker_id=MASTER, broker_address=address(MASTER)
        )
        answer = stage.door.service.register_broker(header, 11)
        assert isinstance(answer, asyncio.Future)
        assert (await answer).code == ResponseCode.SUCCESS
        assert stage.group.master_broker_id is None


async def test_the_grace_period_begins_even_if_the_lease_ran_out_before_the_first_commit(tmp_path: Path) -> None:
    """A disk that takes longer than the lease: no callback reports that the next heartbeat brings the lease back."""
    async with on_stage(tmp_path) as stage:
        replica = stage.door.replica
        replica.leader_id = None
        stage.failover.on_role_change()
        stage.door.heartbeats._entries.clear()  # the leader before heard the master, this member did not
        del stage.connections[MASTER]
        replica.leader_id, replica.lease = LEADER, False
        stage.failover.on_role_change()
        replica.lease = True
        await stage.go_on(DEFAULT_GRACE - 0.2)
        assert stage.master() == (MASTER, 1)
        await stage.go_on(DEFAULT_GRACE)
        assert stage.master() == (SLAVE, 2)


async def test_groups_without_master_are_looked_at_once_the_lease_is_there(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        replica = stage.door.replica
        replica.leader_id = None
        stage.failover.on_role_change()
        stage.hang_up(MASTER)
        replica.leader_id, replica.lease = LEADER, False
        stage.failover.on_role_change()
        await stage.go_on(1)
        assert stage.master() == (MASTER, 1)
        replica.lease = True
        await stage.go_on(0.2)
        assert stage.master() == (SLAVE, 2)


async def test_many_groups_are_scanned_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_controller.failover.SCAN_PART", 2)
    seen: list[list[str]] = []
    real = groups_needing_election

    def record(groups: State, view: LivenessView, options: Options) -> tuple[str, ...]:
        seen.append(list(groups))
        return real(groups, view, options)

    async with on_stage(tmp_path) as stage:
        groups = stage.door.machine._groups
        for number in range(4):
            name = f"other-{number}"
            groups[name] = msgspec.structs.replace(stage.group, broker_name=name)
        names = list(groups)
        monkeypatch.setattr("rocketmq_controller.failover.groups_needing_election", record)
        stage.failover._scan("test")
        assert seen == [names[:2]]
        del groups[names[2]]
        await asyncio.sleep(0.01)
        assert seen == [names[:2], names[3:4], names[4:]]
        stage.failover._scan("test")
        stage.failover._scan("again")
        await asyncio.sleep(0.01)
        assert seen[3:] == [[names[0], names[1]], [names[0], names[1]], names[3:]]


async def test_an_official_broker_whose_sidecar_doubts_its_log_is_elected_when_all_have_come_back(
    tmp_path: Path,
) -> None:
    async with on_stage(tmp_path) as stage:
        stage.hang_up(SLAVE)
        stage.hang_up(MASTER)
        doubt = LogDoubtRequestHeader(cluster_name="C", broker_name=NAME, broker_id=SLAVE, unproven=True)
        assert stage.failover.on_log_doubt(doubt).code == ResponseCode.SUCCESS
        stage.connections[SLAVE] = 12
        await stage.go_on(10)
        assert stage.master() == (MASTER, 1)  # as recorded, and not alive
        stage.failover.on_log_doubt(msgspec.structs.replace(doubt, unproven=False))
        await asyncio.sleep(0.1)
        assert stage.master() == (SLAVE, 2)


async def test_differs_from_5_3_3_a_heartbeat_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """Of the same name and id, from a cluster that has controllers of its own: it would keep a dead broker alive."""
    async with on_stage(tmp_path) as stage:
        header = BrokerHeartbeatRequestHeader(
            cluster_name="Other", broker_addr=address(MASTER), broker_name=NAME, broker_id=MASTER
        )
        answer = stage.failover.on_heartbeat(header, 99)
        assert (answer.code, "Other" in (answer.remark or "")) == (ResponseCode.CONTROLLER_INVALID_REQUEST, True)


async def test_a_doubt_about_a_broker_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        doubt = LogDoubtRequestHeader(cluster_name="C", broker_name=NAME, broker_id=9, unproven=True)
        assert stage.failover.on_log_doubt(doubt).code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert not stage.door.heartbeats.doubts
