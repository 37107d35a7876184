"""The epoch file: Java's bytes, the backup, and a crash inside any call."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from rocketmq_formats.store.epoch_file import EpochFileError, EpochList, encode_epochs
from rocketmq_runtime.files.filesystem import FileSystem, StorageError
from rocketmq_sidecar.replication import epoch_store
from rocketmq_sidecar.replication.epoch_store import EpochStore
from tests.sim.disk import SimCrash, SimDisk

OLD = EpochList.of([(1, 0)])
NEW = EpochList.of([(1, 0), (2, 900)])
PATH = Path("/store/epochFileCheckpoint")


def test_file_and_backup(tmp_path: Path) -> None:
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    store.load()
    assert store.epochs == EpochList()
    store.save_now(OLD)
    store.save_now(NEW)
    store.close()
    assert (tmp_path / "epochFileCheckpoint").read_bytes() == encode_epochs(NEW)
    assert (tmp_path / "epochFileCheckpoint.bak").read_bytes() == encode_epochs(OLD)


@pytest.mark.parametrize("damage", [None, b"", b"2\n1\n1-0\n", b"nonsense"])
def test_a_damaged_or_missing_file_is_replaced_by_its_backup(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "epochFileCheckpoint"
    if damage is not None:
        path.write_bytes(damage)
    path.with_name("epochFileCheckpoint.bak").write_bytes(encode_epochs(OLD))
    store = EpochStore(path)
    store.load()
    assert store.epochs == OLD


def test_damaged_without_a_backup_needs_an_operator(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(b"nonsense")
    with pytest.raises(EpochFileError, match="restore one of them"):
        EpochStore(path).load()


def test_an_empty_list_leaves_the_file(tmp_path: Path) -> None:
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    store.save_now(OLD)
    store.save_now(EpochList())
    assert store.epochs == EpochList()
    assert store.path.read_bytes() == encode_epochs(OLD)


async def test_saves_are_in_order(tmp_path: Path) -> None:
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    await store.save(OLD)
    await store.save(NEW)
    store.close()
    assert store.path.read_bytes() == encode_epochs(NEW)


async def test_retention_forgets_no_epoch_that_is_being_written(tmp_path: Path) -> None:
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    store.save_now(OLD)
    begun = asyncio.ensure_future(store.save(NEW))
    await asyncio.sleep(0)
    await store.truncate_prefix(900)
    await begun
    store.close()
    assert store.epochs.starts() == [(2, 900)]


def written() -> SimDisk:
    disk = SimDisk()
    disk.mkdir(PATH.parent)
    disk.fsync_directory(PATH.parent.parent)
    EpochStore(PATH, filesystem=disk).save_now(OLD)
    return disk


def calls() -> int:
    disk = written()
    before = disk.calls
    store = EpochStore(PATH, filesystem=disk)
    store.load()
    store.save_now(NEW)
    return disk.calls - before


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("call", range(1, calls() + 1))
def test_a_crash_inside_any_call_leaves_one_list_or_the_other(call: int, seed: int) -> None:
    disk = written()
    store = EpochStore(PATH, filesystem=disk)
    disk.crash_at = disk.calls + call
    with suppress(SimCrash):
        store.load()
        store.save_now(NEW)
    disk.crash(Random(seed))
    again = EpochStore(PATH, filesystem=disk)
    again.load()
    assert again.epochs in (OLD, NEW)


def test_a_failed_write_changes_nothing() -> None:
    disk = written()
    store = EpochStore(PATH, filesystem=disk)
    store.load()
    disk.capacity = 0
    with pytest.raises(StorageError):
        store.save_now(NEW)
    assert store.epochs == OLD
    again = EpochStore(PATH, filesystem=disk)
    again.load()
    assert again.epochs == OLD


async def test_a_change_in_the_callers_thread_waits_for_what_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    store.save_now(EpochList.of([(1, 0), (2, 900), (3, 2000)]))
    writing, gate = threading.Event(), threading.Event()
    real = epoch_store.write_atomically

    def held_up(path: Path, data: bytes, *, filesystem: FileSystem) -> None:
        writing.set()
        assert gate.wait(30)
        real(path, data, filesystem=filesystem)

    monkeypatch.setattr(epoch_store, "write_atomically", held_up)
    retention = asyncio.create_task(store.truncate_prefix(950))
    await asyncio.to_thread(writing.wait, 30)
    found: list[EpochList] = []

    def change(epochs: EpochList) -> EpochList:
        found.append(epochs)
        return epochs.truncate_suffix(2500)

    opened = asyncio.create_task(asyncio.to_thread(store.change_now, change))
    await asyncio.to_thread(gate.set)
    await asyncio.gather(retention, opened)
    assert [entry.epoch for entry in found[0].entries] == [2, 3]
    assert [entry.epoch for entry in store.epochs.entries] == [2, 3]
    assert store.path.read_bytes() == encode_epochs(store.epochs)
    store.close()
