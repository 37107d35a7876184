"""How far the log is acknowledged, as a replica remembers: kept through kills; a shorter log counts as unproven, and
none is cut below it."""

from pathlib import Path

import pytest

from rocketmq_sidecar.evidence import acked_offset_file
from rocketmq_sidecar.evidence.acked_offset_file import FILE_NAME, AckedOffsetFile
from rocketmq_sidecar.evidence.log_proof import LogProof
from tests.sidecar.replication.replica_kit import Replica, in_sync, replicas


def opened(folder: Path) -> AckedOffsetFile:
    note = AckedOffsetFile(folder / FILE_NAME)
    note.open()
    return note


def test_what_was_noted_outlives_the_process_without_a_sync(tmp_path: Path) -> None:
    note = opened(tmp_path)
    assert note.offset == 0
    for offset in (5, 70, 60):
        note.raise_to(offset)
    assert (note.offset, opened(tmp_path).offset) == (70, 70)
    note.lower(80)
    assert opened(tmp_path).offset == 70
    note.lower(30)
    note.sync()
    note.close()
    assert opened(tmp_path).offset == 30


@pytest.mark.parametrize("survives", [True, False])
async def test_a_volume_that_was_mounted_again_makes_the_log_unproven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: bool
) -> None:
    """On the same boot; the page cache of the file system is gone, and with it what was acknowledged and not synced."""
    LogProof(tmp_path, strict=True, sync_flush=False, boot_id=lambda: "a").begin()
    monkeypatch.setattr(acked_offset_file, "is_cached", lambda _: survives)
    proof = LogProof(tmp_path, strict=True, sync_flush=False, boot_id=lambda: "a")
    proof.begin()
    assert (proof.unproven is None) is survives


@pytest.mark.parametrize("at", range(60))
def test_a_torn_write_leaves_the_one_before(tmp_path: Path, at: int) -> None:
    note = opened(tmp_path)
    for offset in (50, 60):
        note.raise_to(offset)
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    assert opened(tmp_path).offset in {50, 60}


def test_a_lowered_note_does_not_come_back(tmp_path: Path) -> None:
    note = opened(tmp_path)
    note.raise_to(70)
    note.lower(30)
    path = tmp_path / FILE_NAME
    for at in (0, 32):
        data = bytearray(path.read_bytes())
        data[at : at + 28] = bytes(28)
        path.with_name("copy").write_bytes(data)
        other = AckedOffsetFile(path.with_name("copy"))
        other.open()
        assert other.offset == 30


async def stopped(one: Replica, two: Replica) -> int:
    """Two messages are confirmed at both; where the first one ends."""
    await one.lead(1, 1)
    first = one.append(b"first")
    one.append(b"second")
    await in_sync(one, two)
    await two.until(lambda: two.confirm == one.end)
    await two.replication.unfollow()
    return first


async def test_a_log_that_ends_before_what_was_acknowledged_is_unproven_until_it_caught_up(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        first = await stopped(one, two)
        two.files.refresh()
        two.files.segment_at(0).view[first:] = bytes(len(two.files.segment_at(0).view) - first)
        two.end = two.confirm = first  # within one file, on one boot: neither mark nor boot note see it
        two.replication._log.max_offset = first
        two.hello()
        assert f"ends at {first}, but messages up to {one.end} were acknowledged" in str(two.replication.unproven)
        two.replication.mark_proven()
        await two.settled()
        two.hello()
        assert two.replication.unproven is None


async def test_the_master_too_remembers(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await stopped(one, two)
        assert opened(tmp_path / "1").offset == one.end


async def test_no_cut_below_it_though_the_broker_forgot(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        first = await stopped(one, two)
        two.confirm = 0  # as in a checkpoint of before
        two.hello()
        before = two.log()
        one.lock.release()
        await one.replication.resign()
        one.end = first
        one.hello()
        await one.lead(2, 1)
        await two.follow(one, 2)
        await two.until(lambda: bool(two.troubles))
        assert "are confirmed here" in (two.troubles[-1] or "")
        assert two.log() == before
        assert two.truncations == []


async def test_relaxed_groups_remember_nothing(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, durability="relaxed", all_ack_in_sync_state_set=False) as (one, two):
        await stopped(one, two)
        assert (opened(tmp_path / "1").offset, opened(tmp_path / "2").offset) == (0, 0)
