"""A consume queue that lost units is found and made again; a queue offset is never given out twice."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from rocketmq_formats.store.consume_queue import UNIT_SIZE
from rocketmq_runtime.files.filesystem import DiskFullError
from rocketmq_store import recovery
from rocketmq_store.errors import QueueIllegalError, StoreFullError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.queues import queue_ends
from rocketmq_store.queues.queue_files import QueueFiles
from tests.store.kit import FILE, QUEUE_FILE, abandon, bodies, draft, opened, put, retain, show

COUNT = 35
BLOCK = 4096


def queue_file(root: Path, number: int, *, size: int = QUEUE_FILE) -> Path:
    return root / "consumequeue" / "T" / "1" / f"{number * size:020d}"


def zeros(path: Path, begin: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


LOSSES: dict[str, Callable[[Path], object]] = {
    "one queue": lambda root: shutil.rmtree(root / "consumequeue" / "T" / "1"),
    "one topic": lambda root: shutil.rmtree(root / "consumequeue" / "T"),
    "files of a queue": lambda root: [path.unlink() for path in (root / "consumequeue" / "T" / "1").iterdir()],
    "all": lambda root: shutil.rmtree(root / "consumequeue"),
    "first file": lambda root: queue_file(root, 0).unlink(),
    "middle file": lambda root: queue_file(root, 1).unlink(),
    "last file": lambda root: queue_file(root, 3).unlink(),
    "empty last file": lambda root: os.truncate(queue_file(root, 3), 0),
    "short last file": lambda root: os.truncate(queue_file(root, 3), 3 * UNIT_SIZE),
    "part of a unit": lambda root: os.truncate(queue_file(root, 3), 3 * UNIT_SIZE + 7),
    "short middle file": lambda root: os.truncate(queue_file(root, 1), 3 * UNIT_SIZE),
    "last units": lambda root: zeros(queue_file(root, 3), 2 * UNIT_SIZE, 5 * UNIT_SIZE),
}


def filled(root: Path) -> MessageStore:
    store, _ = opened(root)
    for number in range(COUNT):
        put(store, b"%03d" % number + b"x" * 100, queue_id=1)
        put(store, b"%03d" % number, queue_id=2)
    return store


def whole(store: MessageStore, queue_id: int, count: int = COUNT) -> None:
    assert [int(body[:3]) for body in bodies(store, queue_id=queue_id)] == list(range(count))
    assert store.next_queue_offset("T", queue_id) == count


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("stop", ["clean", "killed", "killed later"])
def test_what_was_lost_is_made_again(tmp_path: Path, loss: str, stop: str) -> None:
    store = filled(tmp_path)
    if stop == "clean":
        store.close()
    else:
        store.durability.flush()
        if stop == "killed later":
            put(store, b"035", queue_id=2)
        abandon(store)
    LOSSES[loss](tmp_path)
    with capture_logs() as logs:
        store, _ = opened(tmp_path)
    said = [entry for entry in logs if "lost units" in entry["event"]]
    assert said
    assert {entry["log_level"] for entry in said} == {"error"}
    whole(store, 1)
    whole(store, 2, COUNT + (stop == "killed later"))
    made = store.append(draft(b"035", queue_id=1), 1)
    assert made.queue_offset == COUNT
    show(store)
    whole(store, 1, COUNT + 1)
    store.close()
    with capture_logs() as logs:
        store, _ = opened(tmp_path)
    assert not logs
    whole(store, 1, COUNT + 1)


def test_a_hole_in_a_long_queue(tmp_path: Path) -> None:
    size = UNIT_SIZE * 2000
    store, _ = opened(tmp_path, file_size=1 << 20, consume_queue_file_size=size)
    for number in range(1500):
        store.append(draft(b"%04d" % number, queue_id=1), 1)
    show(store)
    store.close()
    path = queue_file(tmp_path, 0, size=size)
    content = path.read_bytes()
    with path.open("wb") as file:  # the blocks of one page are gone
        file.write(content[:BLOCK])
        file.seek(2 * BLOCK)
        file.write(content[2 * BLOCK :].rstrip(b"\0"))
        file.truncate(size)
    store, _ = opened(tmp_path, file_size=1 << 20, consume_queue_file_size=size)
    assert [int(body) for body in bodies(store, queue_id=1)] == list(range(1500))
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [None, b"", b"nonsense", bytes(100)])
def test_without_the_file_the_last_file_of_the_log_shows_what_is_missing(tmp_path: Path, content: bytes | None) -> None:
    filled(tmp_path).close()
    (tmp_path / ".queue.ends").unlink()
    if content is not None:
        (tmp_path / ".queue.ends").write_bytes(content)
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "1")
    store, _ = opened(tmp_path)
    whole(store, 1)
    whole(store, 2)
    assert (tmp_path / ".queue.ends").stat().st_size > 30


def test_without_the_file_older_queues_that_this_engine_lost_are_made_again_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has used the store before, so the file and the queue were lost together."""
    monkeypatch.setattr(recovery, "WITHOUT_ENDS", 200)
    store = filled(tmp_path)
    put(store, *[b"more"] * 5, queue_id=2)
    store.close()
    (tmp_path / ".queue.ends").unlink()
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "1")
    store, _ = opened(tmp_path)
    whole(store, 1)


def test_offsets_of_expired_messages_are_not_given_out_again(tmp_path: Path) -> None:
    """The log has nothing more of the queue."""
    store, _ = opened(tmp_path, file_reserved_hours=1)
    put(store, *[b"old"] * 7, queue_id=1, now_ms=1)
    put(store, *[b"new" * 300] * 20, queue_id=2, now_ms=1)
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (1, 1))
    store.durability.flush()
    assert retain(store, 10 * 3600 * 1000, 4) > 0
    put(store, b"last", queue_id=2)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "1")
    store, _ = opened(tmp_path)
    assert store.queue_bounds("T", 1) == (7, 7)
    assert store.append(draft(b"more", queue_id=1), 1).queue_offset == 7
    show(store)
    assert bodies(store, queue_id=1) == [b"more"]
    store.close()
    store, _ = opened(tmp_path)
    assert bodies(store, queue_id=1) == [b"more"]


def test_a_copy_of_the_log_learns_where_queues_ended_before_it(tmp_path: Path) -> None:
    (tmp_path / "slave").mkdir()
    master, _ = opened(tmp_path / "master", file_reserved_hours=1)
    put(master, *[b"old"] * 7, queue_id=1, now_ms=1)
    put(master, *[b"new" * 300] * 20, queue_id=2, now_ms=1)
    for path in (tmp_path / "master" / "commitlog").iterdir():
        os.utime(path, (1, 1))
    begin = master.min_offset
    assert list(master.ended_queues(begin)) == [[]], "before the first message no queue has ended"
    master.durability.flush()
    assert retain(master, 10 * 3600 * 1000, 4) > 0
    put(master, b"last", queue_id=2)
    shutil.copytree(tmp_path / "master" / "commitlog", tmp_path / "slave" / "commitlog")
    slave, _ = opened(tmp_path / "slave")
    show(slave)
    assert slave.queue_bounds("T", 1) == (0, 0), "the log says nothing of it"
    second = slave.queue_bounds("T", 2)
    assert list(master.ended_queues(slave.min_offset)) == list(master.ended_queues(0)) == [[("T", 1, 7)]]
    assert slave.end_queue("T", 1, 7)
    assert not slave.end_queue("T", 1, 6), "shorter"
    assert not slave.end_queue("T", 2, 1000), "it has messages"
    assert slave.queue_bounds("T", 2) == second
    assert slave.queues() == {"T": [2]}
    for _ in range(2):
        assert slave.queue_bounds("T", 1) == (7, 7)
        slave.close()
        slave, _ = opened(tmp_path / "slave")
    assert slave.append(draft(b"more", queue_id=1), 1).queue_offset == 7
    show(slave)
    assert bodies(slave, queue_id=1) == [b"more"]
    with pytest.raises(QueueIllegalError):
        slave.end_queue("..", 0, 5)


def test_an_end_without_room_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_args: object) -> None:
        raise StoreFullError("full")

    store, _ = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(QueueFiles, "create", no_room)
        with pytest.raises(StoreFullError):
            store.end_queue("T", 1, 7)
    assert store.queue_bounds("T", 1) == (0, 0)
    assert store.end_queue("T", 1, 7)
    assert store.queue_bounds("T", 1) == (7, 7)


def test_a_message_whose_offset_was_given_out_before_is_told_once(tmp_path: Path) -> None:
    """As a master sends it that did not know where the queue ended."""
    other, _ = opened(tmp_path / "other")
    put(other, b"one", b"two", queue_id=1)
    put(other, b"shown", queue_id=2)
    (tmp_path / "own").mkdir()
    shutil.copytree(tmp_path / "other" / "commitlog", tmp_path / "own" / "commitlog")
    store, _ = opened(tmp_path / "own")
    store.end_queue("T", 1, 7)
    with capture_logs() as logs:
        show(store)
        store._dispatcher.restart(0)
        show(store)
    assert [entry["queue_offset"] for entry in logs if "given out before" in entry["event"]] == [0]
    assert bodies(store, queue_id=2) == [b"shown"]


def test_after_a_cut(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.durability.flush()
    record = store.record_of("T", 1, 20)
    assert record is not None
    offset = int.from_bytes(record[28:36], "big")
    store.truncate(offset)
    abandon(store)  # before the log was cut
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "1")
    store, _ = opened(tmp_path)
    assert store.cut_tail() > offset
    assert store.next_queue_offset("T", 1) == COUNT
    show(store)
    whole(store, 1)
    store.truncate(offset)
    store.files.truncate(offset)
    abandon(store)
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "1")
    store, _ = opened(tmp_path)
    assert store.cut_tail() == offset
    whole(store, 1, 20)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that worked without the file fails for it; what it says stays true."""
    store = filled(tmp_path)
    store.durability.flush()
    before = (tmp_path / ".queue.ends").read_bytes()

    def no_room(path: Path, _data: bytes) -> None:
        raise DiskFullError(path, "no room")

    monkeypatch.setattr(queue_ends, "write_atomically", no_room)
    put(store, b"035", queue_id=1)
    store.durability.flush()
    assert (tmp_path / ".queue.ends").read_bytes() == before
    abandon(store)
    store, _ = opened(tmp_path)
    whole(store, 1, COUNT + 1)
    record = store.record_of("T", 1, 20)
    assert record is not None
    offset = int.from_bytes(record[28:36], "big")
    store.truncate(offset)
    assert not (tmp_path / ".queue.ends").exists()
    store.files.truncate(offset)
    abandon(store)
    store, _ = opened(tmp_path)
    whole(store, 1, 20)


class TestRunning:
    """Dispatching finds what a start has not."""

    def test_a_unit_that_points_nowhere(self, tmp_path: Path) -> None:
        store = filled(tmp_path)
        start = store.max_offset
        store.durability.flush()
        put(store, b"035", b"036", queue_id=1)
        path = queue_file(tmp_path, 3)
        content = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(5 * UNIT_SIZE)
            file.write(b"\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x63" + bytes(8))
        store._dispatcher.restart(start)
        with capture_logs() as logs:
            show(store)
        assert [entry["log_level"] for entry in logs] == ["error"]
        whole(store, 1, 37)
        assert path.read_bytes() == content

    def test_zeros_in_the_middle_of_a_queue(self, tmp_path: Path) -> None:
        """Not found before they are read, then made again."""
        store = filled(tmp_path)
        path = queue_file(tmp_path, 1)
        content = path.read_bytes()
        zeros(path, 0, 2 * UNIT_SIZE)
        whole(store, 1)
        assert path.read_bytes() == content
        store.close()

    def test_an_offset_that_a_master_gave_out_twice(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        put(store, b"0", b"1", b"2")
        store._queues.table[b"T", 0].next_offset = 1
        second = store.append(draft(b"again"), 1)
        third = store.append(draft(b"and again"), 1)
        with capture_logs() as logs:
            show(store)
        assert [(entry["log_level"], entry["queue_offset"], entry["second"]) for entry in logs] == [
            ("error", 1, second.offset)
        ], "once for each queue"
        assert third.queue_offset == 2
        assert bodies(store) == [b"0", b"1", b"2"]


@settings(max_examples=25)
@given(data=st.data())
def test_any_loss(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("store")
    store, _ = opened(root)
    counts = [0, 0, 0]
    for queue_id in data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=60)):
        put(store, b"%03d" % counts[queue_id] + b"x" * 50, queue_id=queue_id)
        counts[queue_id] += 1
        if data.draw(st.integers(0, 9)) == 0:
            store.durability.flush()
    store.durability.flush()
    abandon(store)
    files = sorted((root / "consumequeue").glob("*/*/*"))
    for path in data.draw(st.lists(st.sampled_from(files), max_size=4, unique=True)):
        keep = data.draw(st.integers(-1, QUEUE_FILE - 1))
        if keep < 0:
            path.unlink()
        else:
            os.truncate(path, keep)
    store, _ = opened(root)
    for queue_id, count in enumerate(counts):
        if count:
            whole(store, queue_id, count)
    abandon(store)
    shutil.rmtree(root)


def test_a_start_does_not_read_the_whole_log(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.close()
    store, _ = opened(tmp_path)
    assert store._dispatcher._known_from == store.max_offset > 2 * FILE
