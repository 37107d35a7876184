"""Messages out of the store: by queue, by place, by time, by tag; within limits."""

from pathlib import Path

from rocketmq_formats.tags import java_hash_code
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import GetStatus
from tests.store.kit import FILE, QUEUE_FILE, bodies, draft, opened, put, show


def test_statuses(store: MessageStore) -> None:
    assert store.get("T", 0, 5).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    store.append(draft(b"?"), 1)
    result = store.get("T", 0, 5)
    assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    put(store, b"1", b"2")
    for offset, status, following in (
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (9, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
    ):
        result = store.get("T", 0, offset)
        assert (result.status, result.next_offset, result.max_offset) == (status, following, 3)


def test_limits(store: MessageStore) -> None:
    put(store, *(b"x" * 100 for _ in range(9)))
    assert store.get("T", 0, 0, max_messages=3).count == 3
    one = store.get("T", 0, 0, max_messages=1)
    assert store.get("T", 0, 0, max_bytes=2 * one.size).count == 2
    assert store.get("T", 0, 0, max_bytes=1).count == 1  # at least one
    assert store.get("T", 0, 0, max_messages=0).count == 1


def test_what_is_behind_memory_comes_in_smaller_portions(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, in_memory_ratio=0)
    put(store, *(b"%d" % n for n in range(10)))
    result = store.get("T", 0, 0)
    assert (result.count, result.lagging) == (8, True)


def test_neighbours_are_one_piece(store: MessageStore) -> None:
    for queue_id in (0, 0, 1, 0, 0, 0):
        put(store, b"m", queue_id=queue_id)
    result = store.get("T", 0, 0)
    assert (result.count, len(result.records)) == (5, 2)
    assert result.size == sum(map(len, result.records))


def test_tags(store: MessageStore) -> None:
    for n in range(6):
        store.append(draft(b"%d" % n, properties=b"TAGS\x01%b\x02" % (b"even" if n % 2 == 0 else b"odd")), 1)
    show(store)
    result = store.get("T", 0, 0, tag_codes={java_hash_code("odd")})
    assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 3, 6)
    result = store.get("T", 0, 1, tag_codes={17})
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)
    assert store.get("T", 0, 4, tag_codes={java_hash_code("odd"), 17}).count == 1


def test_queues_of_several_files(store: MessageStore) -> None:
    sent = [b"%d" % n for n in range(3 * QUEUE_FILE // 20 + 5)]
    put(store, *sent)
    assert bodies(store) == sent
    assert store.get("T", 0, 8).next_offset == 10  # an answer ends with its queue's file
    assert store.queues() == {"T": [0]}


def test_a_deleted_file(store: MessageStore) -> None:
    put(store, *(b"x" * 1000 for _ in range(7)))
    store.files.delete_before(FILE)
    result = store.get("T", 0, 0, max_messages=1)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 1)
    result = store.get("T", 0, 1)
    assert (result.status, result.count) == (GetStatus.FOUND, 4)


def test_by_physical_offset_and_queue_offset(store: MessageStore) -> None:
    made = store.append(draft(b"one"), 1)
    assert store.record_of("T", 0, 0) is None
    show(store)
    record = store.record_at(made.offset)
    assert record is not None
    assert record == store.record_of("T", 0, 0)
    for wrong in (made.offset + 1, made.end, -1, 10**12):
        assert store.record_at(wrong) is None


def test_by_time(store: MessageStore) -> None:
    for time in (100, 200, 200, 300):
        put(store, b"m", now_ms=time)
    lower = {99: 0, 100: 0, 101: 1, 200: 1, 201: 3, 300: 3, 301: 4}
    upper = {99: 0, 100: 0, 101: 0, 200: 2, 201: 2, 300: 3, 301: 3}
    assert {time: store.offset_by_time("T", 0, time) for time in lower} == lower
    assert {time: store.offset_by_time("T", 0, time, upper=True) for time in upper} == upper
    assert [store.store_time("T", 0, offset) for offset in (0, 3, 4)] == [100, 300, -1]


def test_delayed_messages_carry_their_time(store: MessageStore) -> None:
    store.append(
        draft(b"later", topic=b"SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x013\x02TAGS\x01a\x02"), 5000
    )
    show(store)
    queue = store._queues.find("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    unit = queue.unit(0)
    assert unit is not None
    assert unit[2] == 5000 + 10_000
