"""Who is elected when this process itself was held up: nobody, unless the master proves to be gone afterwards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from rocketmq_controller.domain.liveness import DEFAULT_GRACE
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    BrokerHeartbeatRequestHeader,
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
        self.elections = door.elections
        self.connections = {MASTER: MASTER, SLAVE: SLAVE}
        """Of the brokers that beat."""

    @property
    def group(self) -> BrokerGroup:
        return self.door.machine.groups[NAME]

    def master(self) -> tuple[int | None, int]:
        """Who it is, and since which epoch."""
        return self.group.master_broker_id, self.group.master_epoch

    def beat(self, broker_id: int) -> None:
        header = BrokerHeartbeatRequestHeader(
            cluster_name="C", broker_addr=address(broker_id), broker_name=NAME, broker_id=broker_id
        )
        self.elections.on_heartbeat(header, self.connections[broker_id])

    def hang_up(self, broker_id: int) -> None:
        self.elections.on_connection_closed(self.connections.pop(broker_id))

    async def go_on(self, seconds: float) -> None:
        """All that are connected beat, once a second."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            for broker_id in sorted(self.connections):
                self.beat(broker_id)
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
async def on_stage(folder: Path) -> AsyncIterator[Stage]:
    """No fixture: those do not run in virtual time."""
    door = Door(folder, {"notifyBrokerRoleChanged": "false"}, LIMITS)
    door.elections.start()
    await door.make_group()
    door.hang_up(3)
    stage = Stage(door)
    assert await stage.alter(MASTER, SLAVE) == ResponseCode.SUCCESS
    await stage.go_on(10)
    yield stage
    await door.elections.stop()
    await door.client.close()


async def test_a_closed_connection_of_the_master_elects_at_once(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.hang_up(MASTER)
        await stage.go_on(0.1)
        assert stage.master() == (SLAVE, 2)


@pytest.mark.parametrize("noticed_by", ["the closed connection", "the timer", "a heartbeat"])
async def test_a_connection_that_closed_while_we_did_not_listen_elects_nobody(tmp_path: Path, noticed_by: str) -> None:
    """Java closes a connection when a request over it was not answered for 3 s, and opens another one."""
    async with on_stage(tmp_path) as stage:
        stage.stall()
        if noticed_by == "the timer":
            await asyncio.sleep(0)
        elif noticed_by == "a heartbeat":
            stage.beat(SLAVE)
        stage.hang_up(MASTER)
        await stage.go_on(2.5)
        stage.connections[MASTER] = 11
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_a_connection_that_closes_soon_after_a_stall_elects_nobody(tmp_path: Path) -> None:
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
        stage.beat(MASTER)
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
        stage.beat(SLAVE)
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_a_follower_that_was_held_up_too_and_now_leads_elects_nobody(tmp_path: Path) -> None:
    """All controllers hung: whoever leads after it has seen the same closed connections, maybe while it followed."""
    async with on_stage(tmp_path) as stage:
        stage.door.replica.leader_id = None
        stage.elections.on_role_change()
        stage.stall()
        stage.hang_up(MASTER)
        stage.door.replica.leader_id = LEADER
        stage.elections.on_role_change()
        await stage.go_on(1.5)
        stage.connections[MASTER] = 11
        await stage.go_on(30)
        assert stage.master() == (MASTER, 1)


async def test_leadership_won_in_the_turn_of_waking_up_elects_nobody(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.door.replica.leader_id = None
        stage.elections.on_role_change()
        stage.stall()
        stage.door.replica.leader_id = LEADER
        stage.elections.on_role_change()
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
