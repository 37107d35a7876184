"""A deleted topic's messages are hidden from the place in the log where the deletion is, and stay so."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from rocketmq_formats.topics import DELETED_TOPICS
from rocketmq_store.errors import StoreFullError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import GetStatus
from rocketmq_store.queues.consume_queue import ConsumeQueue
from tests.store.kit import abandon, bodies, draft, opened, other_boot, put, retain, show

BROKER = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def delete(store: MessageStore, topic: bytes = b"T", sender: bytes = BROKER) -> int:
    """As the broker does; returns the deletion's place."""
    place = store.append(draft(topic, topic=DELETED_TOPICS.encode(), born_host=sender, store_host=BROKER), 1_000).offset
    show(store)
    return place


def test_a_deleted_topic_is_empty_and_continues_its_offsets(store: MessageStore) -> None:
    put(store, b"old 0", b"old 1")
    put(store, b"old", queue_id=1)
    put(store, b"other", topic=b"U")
    place = delete(store)
    assert (bodies(store), bodies(store, queue_id=1), bodies(store, "U")) == ([], [], [b"other"])
    assert (store.queue_bounds("T", 0), store.deleted_at("T"), store.deleted_at("U")) == ((2, 2), place, -1)
    assert store.get("T", 0, 0).status is GetStatus.OFFSET_TOO_SMALL
    assert "T" not in store.queues()
    put(store, b"new 2", b"new 3")
    assert (bodies(store), store.queue_bounds("T", 0)) == ([b"new 2", b"new 3"], (2, 4))
    delete(store)
    put(store, b"newer 4")
    assert bodies(store) == [b"newer 4"]


def test_what_is_dispatched_in_one_go_is_told_apart(store: MessageStore) -> None:
    for body in (b"old", b"older"):
        store.append(draft(body), 1_000)
    store.append(draft(b"T", topic=DELETED_TOPICS.encode(), born_host=BROKER, store_host=BROKER), 1_000)
    store.append(draft(b"new"), 1_000)
    show(store)
    assert bodies(store) == [b"new"]


@pytest.mark.parametrize("lost", ["nothing", "the checkpoint", "the queue", "all queues"])
@pytest.mark.parametrize("clean", [True, False])
def test_it_stays_deleted_through_a_start(tmp_path: Path, lost: str, clean: bool) -> None:
    store, _ = opened(tmp_path)
    put(store, *(b"old %d" % number for number in range(25)))
    place = delete(store)
    put(store, b"new 0", b"new 1")
    store.durability.flush()
    if clean:
        store.close()
    else:
        abandon(store)
    if lost == "the checkpoint":
        other_boot(tmp_path)
    elif lost != "nothing":
        shutil.rmtree(tmp_path / "consumequeue" / ("T" if lost == "the queue" else ""))
    store, _ = opened(tmp_path)
    show(store)
    assert (bodies(store), store.queue_bounds("T", 0)) == ([b"new 0", b"new 1"], (25, 27))
    assert store.deleted_at("T") == place
    store.close()


def test_a_queue_that_is_made_again_while_it_is_read(store: MessageStore) -> None:
    put(store, b"old 0", b"old 1")
    delete(store)
    put(store, b"new")
    queue = store._queues.table[b"T", 0]
    queue.drop_from(0)
    store._dispatcher.restart(0)
    show(store)
    assert bodies(store) == [b"new"]


def test_a_deletion_that_is_cut_off_hides_nothing(store: MessageStore) -> None:
    put(store, b"0")
    first = delete(store)
    put(store, b"1", b"2")
    second = delete(store)
    store.truncate(second)
    assert (bodies(store), store.deleted_at("T")) == ([b"1", b"2"], first)
    store.truncate(first)
    assert (bodies(store), store.deleted_at("T")) == ([b"0"], -1)


def test_it_leaves_with_the_file_of_the_log(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, file_reserved_hours=1)
    put(store, b"old")
    delete(store)
    put(store, *(b"%0500d" % number for number in range(20)))
    store.durability.flush()
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (1, 1))
    assert retain(store, 10 * 3600 * 1000, 4) > 0
    assert store.deleted_at("T") == -1
    first, end = store.queue_bounds("T", 0)
    assert 1 < first < end == 21
    left = bodies(store)
    store.close()
    store, _ = opened(tmp_path, file_reserved_hours=1)
    assert (bodies(store), store.queue_bounds("T", 0)) == (left, (first, end))
    store.close()


def test_what_a_client_sent_is_no_deletion(store: MessageStore) -> None:
    put(store, b"0")
    delete(store, sender=b"\x7f\x00\x00\x01\x00\x00\x30\x39")
    delete(store, topic=b"\xff\xfe")
    assert bodies(store) == [b"0"]


@pytest.mark.parametrize("full", ["T", "U", DELETED_TOPICS])
def test_a_disk_that_is_full_in_the_middle(store: MessageStore, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    put(store, b"old")
    put(store, b"other", topic=b"U")
    write = ConsumeQueue.write_pending

    def write_or_fail(queue: ConsumeQueue) -> bool:
        if queue.topic == full:
            raise StoreFullError("no room")
        return write(queue)

    monkeypatch.setattr(ConsumeQueue, "write_pending", write_or_fail)
    store.append(draft(b"older"), 1_000)
    store.append(draft(b"another", topic=b"U"), 1_000)
    with suppress(StoreFullError):
        delete(store)
    monkeypatch.undo()
    show(store)
    assert (bodies(store), bodies(store, "U")) == ([], [b"other", b"another"])


def test_a_deletion_in_the_place_of_what_was_cut_off(store: MessageStore) -> None:
    put(store, b"0")
    place = delete(store, sender=b"\x7f\x00\x00\x01\x00\x00\x30\x39")
    store.truncate(place)
    store._log.cut(place)
    store.cut_tail()
    assert delete(store) == place
    assert bodies(store) == []


def test_a_deletion_that_could_not_be_read_counts_after_a_repair(store: MessageStore) -> None:
    put(store, b"old")
    body = store.max_offset + 88
    place = store.append(draft(b"T", topic=DELETED_TOPICS.encode(), born_host=BROKER, store_host=BROKER), 1_000).offset
    whole = bytes(store.files.read(body, 1))
    store.files.read(body, 1)[:] = b"X"
    show(store)
    assert bodies(store) == [b"old"], "its checksum is wrong"
    store.files.read(body, 1)[:] = whole
    store.repaired(place, store.max_offset)
    put(store, b"new")
    assert bodies(store) == [b"new"]


def test_a_queue_is_deleted_whatever_else_is_in_its_folder(store: MessageStore, tmp_path: Path) -> None:
    """A network file system keeps a deleted file under another name while it is open."""
    put(store, b"1")
    show(store)
    queue = store._queues.find("T", 0)
    assert queue is not None
    folder = store.settings.root / "consumequeue" / "T" / "0"
    (folder / ".nfs0001").write_bytes(b"x")
    (folder / ".snapshot").mkdir()
    queue.delete()
    assert sorted(path.name for path in folder.iterdir()) == [".nfs0001", ".snapshot"]
