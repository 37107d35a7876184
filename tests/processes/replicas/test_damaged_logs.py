"""A byte changes on one replica's disk, with real processes: the replica finds it, or its master reports it; it is
not master with the damage, and repairs it from another replica. No acknowledged message is lost or changed."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketmq_demo.ports import PortPool
from rocketmq_formats.store.message import Record, read_record
from rocketmq_store.checkpoint import _OURS, _OURS_AT
from tests.processes.replica_group import PATIENCE, Group, Member, Sender, complete, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def log_file(member: Member) -> Path:
    return member.replica.folder / "store" / "commitlog" / f"{0:020}"


def flip(member: Member, number: int) -> int:
    """A byte of this record's body; where the record begins."""
    data = log_file(member).read_bytes()
    position = 0
    for _ in range(number + 1):
        record = read_record(data, position, len(data), check_crc=True)
        assert isinstance(record, Record)
        position += record.size
    at = record.body_start
    with log_file(member).open("r+b") as file:
        os.pwrite(file.fileno(), bytes([data[at] ^ 1]), at)
    return record.position


def trusted(member: Member) -> int:
    """Before this offset of the log everything is durable by its checkpoint."""
    data = (member.replica.folder / "store" / "checkpoint").read_bytes()
    return int(_OURS.unpack_from(data, _OURS_AT)[1])


async def until(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


async def same_logs(replicas: Group) -> None:
    def equal() -> bool:
        return len({log_file(member).read_bytes() for member in replicas.members}) == 1

    await until(equal, "equal logs")


class Scene(NamedTuple):
    replicas: Group
    master: Member
    slave: Member
    sender: Sender


@pytest.fixture
async def scene(tmp_path: Path, ports: PortPool) -> AsyncIterator[Scene]:
    """A group of which each log has 200 messages and gets more."""
    async with group(tmp_path, ports) as replicas:
        master = await replicas.settled()
        async with Sender(replicas.name_server) as sender:
            await sender.more(200)
            yield Scene(replicas, master, replicas.others(master)[0], sender)


async def test_a_byte_that_changed_at_a_killed_slave_is_repaired_before_it_may_be_master(scene: Scene) -> None:
    replicas, master, slave, sender = scene
    await until(lambda: trusted(slave) > 31 * 1024, "a checkpoint")  # before it a start reads nothing
    slave.kill()
    offset = flip(slave, 30)
    slave.start_again()
    await until(lambda: "damaged records of the log copied again" in slave.replica.process.sidecar.output(), "a repair")
    await replicas.settled()
    await sender.more()
    await sender.stop()
    await same_logs(replicas)
    assert f"start={offset}" in slave.replica.process.sidecar.output()
    view = await slave.view()
    assert view is not None
    await master.client.hand_over(view.broker_id, seconds=20.0)
    assert await replicas.settled() is slave
    await complete(sender)


async def test_a_slave_whose_recovery_finds_damage_starts_and_is_rebuilt_from_there(scene: Scene) -> None:
    """Without a checkpoint the whole log is read, and all of it must have been durable."""
    replicas, _, slave, sender = scene
    slave.kill()
    whole = log_file(slave).read_bytes()
    offset = flip(slave, 30)
    store = slave.replica.folder / "store"
    (store / "checkpoint").unlink()
    slave.start_again()
    await replicas.settled()
    await sender.more()
    await sender.stop()
    await same_logs(replicas)
    said = slave.replica.process.sidecar.output()
    assert "log has lost what it held" in said
    assert f"damaged at offset {offset}" in said
    assert not (store / ".log.cut").exists()
    (aside,) = store.glob(f"commitlog.aside-{offset}-*")
    data = aside.read_bytes()
    assert sum(one != other for one, other in zip(data, whole[offset:], strict=False)) == 1
    await complete(sender)


async def test_a_master_that_a_slave_finds_damaged_hands_over_and_is_repaired(scene: Scene) -> None:
    replicas, master, slave, sender = scene
    flip(master, 30)
    slave.kill()
    slave.start_again()  # it compares the last file again
    await until(lambda: "copied again" in master.replica.process.sidecar.output(), "a repair")
    new = await replicas.settled()
    assert new is not master
    await sender.more()
    await sender.stop()
    await same_logs(replicas)
    await complete(sender)
