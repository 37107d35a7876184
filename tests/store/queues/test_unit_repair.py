"""Bits that change in consume queues: reading the log again corrects them, and reads never answer with another
message, nor pass over one that exists."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_formats.store.consume_queue import PRE_BLANK, UNIT_SIZE, Unit, pack_unit, unpack_unit
from rocketmq_formats.store.message import SysFlag
from rocketmq_formats.tags import java_hash_code
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import GetStatus
from rocketmq_store.queues import unit_repair
from rocketmq_store.queues.unit_repair import Repaired, Sought
from tests.store.kit import FILE, QUEUE_FILE, abandon, bodies, draft, opened, put, read_again, show

TAGGED = b"TAGS\x01%b\x02"
PHYSICAL, SIZE, TAGS_CODE = range(3)
FIELDS = {PHYSICAL: range(64), SIZE: range(64, 96), TAGS_CODE: range(96, 160)}
"""Bits of a unit, from its first byte's highest."""


def path_of(store: MessageStore, offset: int, topic: str = "T", queue_id: int = 0) -> Path:
    start = offset * UNIT_SIZE // QUEUE_FILE * QUEUE_FILE
    return store.settings.root / "consumequeue" / topic / str(queue_id) / f"{start:020}"


def raw(store: MessageStore, offset: int, topic: str = "T", queue_id: int = 0) -> bytes:
    data = path_of(store, offset, topic, queue_id).read_bytes()
    return data[offset * UNIT_SIZE % QUEUE_FILE :][:UNIT_SIZE]


def write(store: MessageStore, offset: int, data: bytes, topic: str = "T", queue_id: int = 0) -> None:
    with path_of(store, offset, topic, queue_id).open("r+b") as file:
        file.seek(offset * UNIT_SIZE % QUEUE_FILE)
        file.write(data)


def flip(store: MessageStore, offset: int, bit: int, topic: str = "T", queue_id: int = 0) -> None:
    unit = bytearray(raw(store, offset, topic, queue_id))
    unit[bit // 8] ^= 0x80 >> bit % 8
    write(store, offset, bytes(unit), topic, queue_id)


def change(store: MessageStore, offset: int, **fields: int) -> None:
    physical, size, code = unpack_unit(raw(store, offset), 0)
    write(
        store, offset, pack_unit(fields.get("physical", physical), fields.get("size", size), fields.get("code", code))
    )


def files(store: MessageStore) -> dict[Path, bytes]:
    folder = store.settings.root / "consumequeue"
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def filled(root: Path, **changes: object) -> MessageStore:
    """Several files of the log and of queues; tags, delayed messages, transactions."""
    store, _ = opened(root, **changes)
    for number in range(26):
        tag = TAGGED % (b"even" if number % 2 == 0 else b"odd")
        store.append(draft(b"%d" % number + b"x" * 100, properties=tag, queue_id=number % 2), 1_000 + number)
        if number % 9 == 0:
            late = b"DELAY\x013\x02" + tag
            store.append(draft(b"late", topic=b"SCHEDULE_TOPIC_XXXX", queue_id=2, properties=late), 1_000 + number)
            store.append(draft(b"half", sys_flag=SysFlag.TRANSACTION_PREPARED), 1_000 + number)
            store.append(draft(b"back", sys_flag=SysFlag.TRANSACTION_ROLLBACK), 1_000 + number)
            store.append(draft(b"whole", sys_flag=SysFlag.TRANSACTION_COMMIT, queue_id=1), 1_000 + number)
    show(store)
    return store


def units_of(store: MessageStore) -> list[tuple[str, int, int]]:
    return [
        (topic, queue_id, offset)
        for topic, ids in store.queues().items()
        for queue_id in ids
        for offset in range(*store.queue_bounds(topic, queue_id))
    ]


@pytest.fixture
def filled_store(tmp_path: Path) -> Iterator[MessageStore]:
    store = filled(tmp_path)
    yield store
    store.close()


class TestReadingTheLogAgain:
    @pytest.mark.parametrize("field", [PHYSICAL, SIZE, TAGS_CODE])
    def test_every_bit_of_every_unit_becomes_what_it_was(self, filled_store: MessageStore, field: int) -> None:
        before = files(filled_store)
        for topic, queue_id, offset in units_of(filled_store):
            was = unpack_unit(raw(filled_store, offset, topic, queue_id), 0)
            for bit in FIELDS[field]:
                flip(filled_store, offset, bit, topic, queue_id)
                damaged = unpack_unit(raw(filled_store, offset, topic, queue_id), 0)
                start = 0 if offset == 0 else was[0]
                end = was[0] + was[1] if offset else None
                assert read_again(filled_store, start, end) == [Repaired(topic, queue_id, offset, damaged, was)]
                assert raw(filled_store, offset, topic, queue_id) == pack_unit(*was)
        assert files(filled_store) == before

    def test_damage_of_any_shape(self, tmp_path: Path) -> None:
        """Several units at once; a queue's first units may need a second reading."""
        seed = random.randrange(10**9)
        print(f"seed {seed}")
        chance = random.Random(seed)
        store = filled(tmp_path)
        before = files(store)
        for _ in range(40):
            topic, queue_id, first = chance.choice(units_of(store))
            for offset in range(first, min(first + chance.choice((1, 2, 12)), store.queue_bounds(topic, queue_id)[1])):
                data = chance.choice((bytes(UNIT_SIZE), chance.randbytes(UNIT_SIZE), PRE_BLANK))
                write(store, offset, data, topic, queue_id)
            read_again(store)
            read_again(store)
            assert files(store) == before
        assert read_again(store) == []
        store.close()

    def test_a_message_is_delivered_by_its_tag_again(self, filled_store: MessageStore) -> None:
        def pulled() -> tuple[GetStatus, int]:
            result = filled_store.get("T", 1, 0, max_messages=1, tag_codes={java_hash_code("odd")})
            return result.status, result.next_offset

        assert unpack_unit(raw(filled_store, 1, queue_id=1), 0)[TAGS_CODE] == java_hash_code("odd")
        before = pulled()
        flip(filled_store, 1, 159, queue_id=1)
        assert pulled() != before
        read_again(filled_store)
        assert pulled() == before

    def test_what_is_repaired_becomes_durable_without_another_message(self, filled_store: MessageStore) -> None:
        filled_store.durability.flush()
        assert not filled_store.durability.checkpoint_due
        flip(filled_store, 3, 70)
        read_again(filled_store)
        assert filled_store.durability.checkpoint_due
        filled_store.durability.flush()
        assert not filled_store.durability.checkpoint_due

    def test_the_queue_continues_behind_a_last_unit_that_was_repaired(self, filled_store: MessageStore) -> None:
        last = filled_store.queue_bounds("T", 0)[1] - 1
        change(filled_store, last, physical=7)
        assert len(read_again(filled_store)) == 1
        put(filled_store, b"next")
        assert bodies(filled_store)[-1] == b"next"
        assert read_again(filled_store) == []


class TestNoFalseAlarm:
    def test_of_a_whole_store(self, filled_store: MessageStore) -> None:
        assert read_again(filled_store) == []

    def test_after_the_delay_levels_changed(self, tmp_path: Path) -> None:
        filled(tmp_path).close()
        store, _ = opened(tmp_path, delay_levels="7s 8m 9d")
        assert read_again(store) == []

    def test_of_messages_that_are_not_dispatched(self, filled_store: MessageStore) -> None:
        filled_store.append(draft(b"not confirmed"), 1)
        assert read_again(filled_store) == []
        show(filled_store)
        assert read_again(filled_store) == []

    def test_of_messages_that_become_visible_while_the_log_is_read(self, filled_store: MessageStore) -> None:
        check, visit = filled_store.log_check(0), filled_store.units.visit()
        put(filled_store, *[b"new"] * 9)
        repaired: list[Repaired] = []
        filled_store.units.on_repaired = repaired.append
        while check.step():
            for record in check.records:
                visit.mend(record)
        visit.finish()
        assert repaired == []

    def test_of_expired_files(self, filled_store: MessageStore) -> None:
        for _ in filled_store.forget_before(FILE):
            pass
        assert read_again(filled_store) == [], "the queues forget first"
        filled_store.files.deleter(FILE)()
        filled_store.deleted()
        assert filled_store.min_offset == FILE
        assert read_again(filled_store) == []

    def test_after_a_cut(self, filled_store: MessageStore) -> None:
        check = filled_store.log_check(0)
        unit = unpack_unit(raw(filled_store, 9), 0)
        filled_store.truncate(unit[0])
        filled_store.files.truncate(unit[0])
        while check.step():
            pass
        assert not filled_store.is_valid(check)
        assert read_again(filled_store) == []
        assert filled_store.queue_bounds("T", 0) == (0, 9)

    def test_after_a_crash(self, tmp_path: Path) -> None:
        abandon(filled(tmp_path))
        store, _ = opened(tmp_path)
        assert read_again(store) == []

    def test_of_a_topic_that_was_deleted_and_made_again(self, filled_store: MessageStore) -> None:
        filled_store._queues.delete_topic("T")
        assert read_again(filled_store) == []
        put(filled_store, b"new 0", b"new 1", b"new 2")
        assert read_again(filled_store) == []


@pytest.mark.parametrize("offset", range(13))
def test_messages_behind_a_damaged_unit_do_not_expire_early(filled_store: MessageStore, offset: int) -> None:
    expected = next(n for n in range(13) if unpack_unit(raw(filled_store, n), 0)[PHYSICAL] >= FILE)
    change(filled_store, offset, physical=1)
    for _ in filled_store.forget_before(FILE):
        pass
    low, high = filled_store.queue_bounds("T", 0)
    assert low <= expected + (offset == expected), "of the first one nobody can tell"
    assert high == 13


class TestSeveralMessagesOfOneOffset:
    @pytest.mark.parametrize("offset", [0, 1, 2])
    @pytest.mark.parametrize("bit", [1, 40, 62])
    def test_a_deleted_topics_messages_do_not_come_back(self, store: MessageStore, offset: int, bit: int) -> None:
        put(store, b"old 0", b"old 1", b"old 2")
        store._queues.delete_topic("T")
        put(store, b"new 0", b"new 1", b"new 2")
        before = raw(store, offset)
        flip(store, offset, bit)
        read_again(store)
        assert raw(store, offset) == before

    def test_the_first_of_two_stays(self, store: MessageStore) -> None:
        put(store, b"0", b"1", b"2")
        queue = store._queues.table[b"T", 0]
        queue.next_offset = 1
        put(store, b"another 1", b"another 2", b"3")
        assert bodies(store) == [b"0", b"1", b"2", b"3"]
        before = files(store)
        for offset in range(4):
            assert read_again(store) == []
            change(store, offset, physical=1)
            read_again(store)
            assert files(store) == before


class TestReads:
    """Without a reading of the log."""

    @pytest.mark.parametrize("field", [PHYSICAL, SIZE])
    def test_no_other_message_is_served_and_none_is_passed_over(self, filled_store: MessageStore, field: int) -> None:
        sent = bodies(filled_store)
        before = files(filled_store)
        for offset in range(1, len(sent)):
            for bit in FIELDS[field]:
                flip(filled_store, offset, bit)
                assert bodies(filled_store) == sent
                assert files(filled_store) == before
                flip(filled_store, offset, bit)
                assert filled_store.record_of("T", 0, offset) is not None
                assert files(filled_store) == before

    def test_a_message_that_is_far_away_is_sought(
        self, filled_store: MessageStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unit_repair, "NEARBY", 1)
        sent, before = bodies(filled_store), files(filled_store)
        sought: list[Sought] = []
        filled_store.units.on_sought = lambda one: sought.append(one) is None
        unit: Unit = unpack_unit(raw(filled_store, 5), 0)
        change(filled_store, 5, physical=unit[0] + 1)
        assert bodies(filled_store) == sent[:5]
        for _ in range(2):
            result = filled_store.get("T", 0, 5)
            assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 5)
            assert filled_store.record_of("T", 0, 5) is None
            assert filled_store.units.is_sought("T", 0, 5)
        assert [(one.topic, one.queue_id, one.queue_offset) for one in sought] == [("T", 0, 5)]
        assert sought[0].start <= unit[0] < unit[0] + unit[1] <= sought[0].end
        repaired = read_again(filled_store, sought[0].start, sought[0].end)
        filled_store.units.visited(sought[0], corrected=len(repaired))
        assert not filled_store.units.is_sought("T", 0, 5)
        assert (bodies(filled_store), files(filled_store)) == (sent, before)

    def test_a_message_that_is_not_in_the_log_is_passed_over_in_the_end(self, filled_store: MessageStore) -> None:
        sent = bodies(filled_store)
        sought: list[Sought] = []
        filled_store.units.on_sought = lambda one: sought.append(one) is None
        unit = unpack_unit(raw(filled_store, 5), 0)
        filled_store.files.read(unit[0] + 20, 8)[:] = (1234).to_bytes(8, "big")  # its number
        assert bodies(filled_store) == sent[:5]
        filled_store.units.visited(sought[0], corrected=0)
        result = filled_store.get("T", 0, 5)
        assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 6)
        assert bodies(filled_store, offset=6) == sent[6:]
        assert len(sought) == 1
        filled_store.units.forget_lost()
        assert filled_store.get("T", 0, 5).status is GetStatus.OFFSET_FOUND_NULL

    def test_a_request_that_is_refused_is_made_again(self, filled_store: MessageStore) -> None:
        asked: list[Sought] = []
        filled_store.units.on_sought = lambda one: asked.append(one) is not None
        write(filled_store, 0, bytes(UNIT_SIZE), queue_id=1)
        for _ in range(2):
            assert filled_store.get("T", 1, 0).next_offset == 0
        assert len(asked) == 2
        assert asked[0].start == 0

    def test_blank_units_are_passed_over(self, store: MessageStore) -> None:
        put(store, b"0")
        store._queues.table[b"T", 0].skip_to(3)
        put(store, b"3")
        result = store.get("T", 0, 1)
        assert (result.status, result.next_offset, result.count) == (GetStatus.FOUND, 4, 1)
        assert read_again(store) == []
        flip(store, 3, 60)
        read_again(store)
        assert bodies(store, offset=3) == [b"3"]
