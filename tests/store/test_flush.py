"""Group commit and the timers."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketmq_store.errors import StoreFullError
from rocketmq_store.flush import Flusher
from rocketmq_store.message_store import MessageStore
from rocketmq_store.queues import consume_queues
from tests.store.kit import FILE, bodies, draft, opened, put


class Calls:
    def __init__(self) -> None:
        self.flushed: list[int] = []
        self.failed: list[OSError] = []


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
async def flusher(store: MessageStore, calls: Calls) -> AsyncIterator[Flusher]:
    flusher = Flusher(store, interval_ms=3_600_000, on_flushed=calls.flushed.append, on_failed=calls.failed.append)
    flusher.start()
    yield flusher
    await flusher.stop()


async def test_one_sync_for_all_who_wait(
    store: MessageStore, flusher: Flusher, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, syncs = threading.Event(), []
    real = os.fdatasync

    def sync(handle: int) -> None:
        gate.wait()
        syncs.append(handle)
        real(handle)

    monkeypatch.setattr(os, "fdatasync", sync)
    waiting = [flusher.flushed(store.append(draft(b"%d" % n), 1).end) for n in range(20)]
    assert not any(future.done() for future in waiting)
    gate.set()
    await asyncio.gather(*waiting)
    assert len(syncs) == 2  # the first one's, and one for those who came meanwhile
    assert calls.flushed[-1] == store.flushed_offset == store.max_offset
    assert flusher.flushed(store.max_offset).done()


async def test_a_disk_that_fails(
    store: MessageStore, flusher: Flusher, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output"):
        await flusher.flushed(store.append(draft(b"1"), 1).end)
    assert len(calls.failed) == 1
    with pytest.raises(StoreFullError, match="disk failed"):
        store.append(draft(b"2"), 1)
    monkeypatch.undo()
    with pytest.raises(OSError, match="Input/output"):  # a later sync that succeeds proves nothing
        await flusher.flushed(store.max_offset)


async def test_a_cut_while_a_sync_is_under_way(
    store: MessageStore, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
    gate = threading.Event()
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda handle: (gate.wait(), real(handle))[1])
    flusher._sync_log()
    monkeypatch.undo()
    store.truncate(ends[0])
    store.files.truncate(ends[0])
    store.cut_tail()
    while store.max_offset < ends[4]:
        store.append(draft(b"new" * 30), 1)
    gate.set()
    await flusher.idle()
    assert store.flushed_offset <= ends[0]


async def test_checkpoints_come_by_themselves(store: MessageStore, flusher: Flusher) -> None:
    put(store, *(b"x" * 500 for _ in range(20)))
    flusher._checkpoint_tick()
    while flusher._running:
        await flusher.idle()
    assert not store.durability.checkpoint_due
    assert store._checkpoint.recover_from == store.max_offset


async def test_files_are_made_ahead(store: MessageStore, flusher: Flusher) -> None:
    put(store, b"x" * 1000)
    flusher._log_tick()
    await flusher.idle()
    assert store.files.end == FILE
    put(store, *(b"x" * 1000 for _ in range(2)))
    flusher._log_tick()
    await flusher.idle()
    assert store.files.end == 2 * FILE
    flusher._log_tick()
    await flusher.idle()
    assert store.files.end == 2 * FILE


async def test_expired_files_are_deleted_while_others_work(
    store: MessageStore, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[int] = []
    flusher = Flusher(store, on_flushed=calls.flushed.append, on_deleted=deleted.append)
    flusher.start()
    monkeypatch.setattr(consume_queues, "PORTION", 1)
    for queue_id in range(5):
        put(store, *(b"x" * 1000 for _ in range(6)), queue_id=queue_id)
    store.durability.flush()
    monkeypatch.setattr(store, "expired", lambda _now, _hour: 3 * FILE)
    gate, unlinking = threading.Event(), asyncio.Event()
    loop, real = asyncio.get_running_loop(), Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.parent == store.files.directory:
            loop.call_soon_threadsafe(unlinking.set)
            assert gate.wait(30)
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    flusher._retain_tick()
    flusher._retain_tick()  # one at a time
    await unlinking.wait()
    low, high = store.queue_bounds("T", 0)
    assert low > 0, "nobody looks for what goes"
    put(store, b"meanwhile")
    assert bodies(store)[-1] == b"meanwhile"
    gate.set()
    await flusher.idle()
    assert deleted == [3 * FILE] == [store.min_offset]
    assert len(bodies(store)) == high - low + 1
    await flusher.stop()


async def test_retention_that_fails_is_tried_again(
    store: MessageStore, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_now: int, _hour: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store, "expired", fail)
    for _ in range(2):
        flusher._retain_tick()
        await flusher.idle()
    assert not flusher._running


def test_the_folders_of_a_new_queue_are_made_durable(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    put(store, b"1", topic=b"New", queue_id=3)
    queues = tmp_path / "consumequeue"
    folder = queues / "New" / "3"
    assert set(store._queues.take_dirty()) == {queues, queues / "New", folder, folder / f"{0:020d}"}
    put(store, b"2", topic=b"New", queue_id=3)
    assert set(store._queues.take_dirty()) == {folder / f"{0:020d}"}
    put(store, b"1", topic=b"New", queue_id=4)
    assert queues not in store._queues.take_dirty()
    store.close()
