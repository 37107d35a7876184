"""Replicas without controllers, with real stores and sockets: a master that comes back on any disk, and slaves that cut
nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketmq_sidecar.replication.replication import StaleEpochError
from tests.sidecar.replication.replica_kit import Replica, acknowledged, epochs, in_sync, replicas

pytestmark = pytest.mark.usefixtures("with_and_without_secret")

MASTER, SLAVE = 0, 1
FIRST = 2_000_000_000 - 1_577_836_800
ALONE = {"enable_controller_mode": False}


@contextlib.asynccontextmanager
async def replica(
    folder: Path, broker_id: int, *, end: int = 0, later: float = 0, **keys: object
) -> AsyncIterator[Replica]:
    """Its log ends at `end`; it starts `later` seconds after the first one."""
    one = Replica(folder, broker_id, **{**ALONE, **keys})
    one.end = one.confirm = end
    one.wall_time += later
    try:
        await one.start()
        yield one
    finally:
        await one.stop()
        if one.lock.held:
            one.lock.release()


async def refuses(slave: Replica, master: Replica) -> str:
    """It does not follow, and has all that it had; why."""
    await slave.replication.unfollow()
    before, slave.troubles = slave.log(), []
    slave.aligned.clear()
    await slave.follow(master, 1)
    await slave.until(lambda: bool(slave.troubles))
    await slave.replication.unfollow()
    assert slave.log() == before
    assert slave.truncations == []
    assert slave.aligned == [], "nor are the tables copied"
    return slave.troubles[0] or ""


async def test_a_master_that_comes_back_goes_on_in_another_epoch_of_the_log(tmp_path: Path) -> None:
    async with replica(tmp_path / "slave", SLAVE) as slave:
        async with replica(tmp_path / "master", MASTER) as master:
            await master.lead(1, MASTER)
            master.append(b"first")
            await in_sync(master, slave)
            kept = master.end
        async with replica(tmp_path / "master", MASTER, end=kept, later=60) as master:
            await master.lead(1, MASTER)
            await in_sync(master, slave)
            master.append(b"second")
            await acknowledged(master)
            assert master.log() == slave.log()
            assert slave.truncations == []
            assert epochs(master) == epochs(slave) == [f"{FIRST}-0", f"{FIRST + 60}-{kept}"]


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
@pytest.mark.parametrize("disk", ["older", "emptied"])
@pytest.mark.parametrize("longer", [False, True])
async def test_a_slave_keeps_what_a_master_on_another_disk_lacks(
    tmp_path: Path, durability: str, disk: str, longer: bool
) -> None:
    folder, keys = tmp_path / "master", {"durability": durability}
    async with replica(tmp_path / "slave", SLAVE, **keys) as slave:
        async with replica(folder, MASTER, **keys) as master:
            await master.lead(1, MASTER)
            older = master.append(b"first")
        shutil.copytree(folder, tmp_path / "older")
        async with replica(folder, MASTER, end=older, later=60, **keys) as master:
            await master.lead(1, MASTER)
            master.append(b"second")
            await in_sync(master, slave)
        shutil.rmtree(folder)
        if disk == "older":
            shutil.move(tmp_path / "older", folder)
        end = older if disk == "older" else 0
        async with replica(folder, MASTER, end=end, later=120, **keys) as master:
            await master.lead(1, MASTER)
            if longer:
                master.append(b"not what the slave has there" * 10, b"and more")
            why = await refuses(slave, master)
            assert "nothing is cut" in why
            assert "exchange brokerId and brokerRole" in why


async def test_the_roles_are_exchanged(tmp_path: Path) -> None:
    """What an operator does: the replica with the longer log is master now."""
    async with replica(tmp_path / "slave", SLAVE) as slave, replica(tmp_path / "master", MASTER) as master:
        await master.lead(1, MASTER)
        older = master.append(b"first")
        master.append(b"second")
        await in_sync(master, slave)
        end = master.end
    async with (
        replica(tmp_path / "slave", MASTER, end=end, later=60) as master,
        replica(tmp_path / "master", SLAVE, end=older, later=60) as slave,
    ):
        await master.lead(1, MASTER)
        await in_sync(master, slave)
        assert slave.log() == master.log()
        assert len(slave.log()) == end


async def test_another_address_is_another_master_until_the_logs_are_compared(tmp_path: Path) -> None:
    """Two masters; name servers list the one that registered last."""
    async with (
        replica(tmp_path / "1", MASTER) as one,
        replica(tmp_path / "2", MASTER, later=60) as two,
        replica(tmp_path / "3", SLAVE) as slave,
    ):
        await one.lead(1, MASTER)
        await two.lead(1, MASTER)
        one.append(b"one")
        two.append(b"and another", b"and more")
        await in_sync(one, slave)
        before = slave.log()
        await slave.follow(two, 1)
        await slave.until(lambda: bool(slave.troubles))
        assert "nothing is cut" in str(slave.troubles[0])
        await one.until(lambda: one.replication.slaves == ())
        assert slave.log() == before
        assert slave.aligned == [one.address, ""], "the tables of the other one are not copied"
        await slave.follow(one, 1)
        await slave.until(lambda: slave.aligned == [one.address, "", one.address])


async def test_with_controllers_the_connection_to_a_master_survives_its_new_address(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (master, slave):
        await master.lead(1, 1)
        await in_sync(master, slave)
        await slave.replication.follow(1, 1, "127.0.0.1:1")
        master.append(b"one")
        await acknowledged(master)
        assert slave.aligned == [master.address]


async def test_two_masters_that_began_in_one_second_are_found_by_their_bytes(tmp_path: Path) -> None:
    """They have the same epoch from the same offset, so the slave follows until the logs are compared."""
    async with replica(tmp_path / "1", MASTER) as one, replica(tmp_path / "2", MASTER) as two:
        await one.lead(1, MASTER)
        await two.lead(1, MASTER)
        ends = one.append(b"one"), two.append(b"and another", b"and more")
        assert epochs(one) == epochs(two)
    async with (
        replica(tmp_path / "1", SLAVE, end=ends[0], later=60) as slave,
        replica(tmp_path / "2", MASTER, end=ends[1], later=60) as master,
    ):
        before = slave.log()
        await master.lead(1, MASTER)
        await slave.follow(master, 1)
        await slave.until(lambda: bool(slave.troubles))
        assert "differs from the master's at offset 0" in str(slave.troubles[0])
        assert slave.log()[: len(before)] == before
        assert slave.truncations == []


async def test_a_group_that_had_controllers_goes_on_without_and_asks_before_it_goes_back(tmp_path: Path) -> None:
    controlled = {"enable_controller_mode": True}
    async with (
        replica(tmp_path / "2", 2, **controlled) as slave,
        replica(tmp_path / "1", 1, **controlled) as master,
    ):
        await master.lead(7, 1)
        master.append(b"first")
        await in_sync(master, slave, epoch=7)
        end = master.end
    async with replica(tmp_path / "1", MASTER, end=end) as master, replica(tmp_path / "2", 2, end=end) as slave:
        await master.lead(1, MASTER)
        master.append(b"second")
        await in_sync(master, slave)
        assert epochs(slave) == ["7-0", f"{FIRST}-{end}"]
        end = master.end
    for name in ("1", "2"):
        async with replica(tmp_path / name, 1, end=end, **controlled) as back:
            with pytest.raises(StaleEpochError, match="enableControllerMode=false"):
                await back.lead(8, 1)
        for file in (tmp_path / name).glob("epochFileCheckpoint*"):
            file.unlink()
    async with (
        replica(tmp_path / "1", 1, end=end, **controlled) as master,
        replica(tmp_path / "2", 2, end=end, **controlled) as slave,
    ):
        await master.lead(8, 1)
        master.append(b"third")
        await in_sync(master, slave, epoch=8)
        assert slave.log() == master.log()


async def test_replicas_of_two_modes_do_not_follow_each_other(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "1", 1, enable_controller_mode=True) as master,
        replica(tmp_path / "2", 2) as slave,
    ):
        await master.lead(1, 1)
        master.append(b"first")
        assert "enableControllerMode is false here and true at the master" in await refuses(slave, master)
