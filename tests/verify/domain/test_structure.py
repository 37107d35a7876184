"""The structural check: silent about sound logs, exact about each fault, the same however the bytes are cut."""

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness import structure_check
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Fault, Reason, Structure, TopicCount, add_topics, join
from rocketmq_formats.soundness.structure_check import StructureCheck
from rocketmq_formats.store.message import Record, RecordError, encode_blank, read_record
from tests.verify.record_kit import (
    BASES,
    LOGS,
    NOW,
    SEGMENT,
    V6,
    Made,
    Sent,
    damage,
    damages,
    encode,
    golden_log,
    make_log,
)

CUTS = st.lists(st.floats(0, 1), max_size=6)


def check(
    data: bytes | bytearray,
    base: int = 0,
    extent: Extent | None = None,
    *,
    cuts: Sequence[int] = (),
    aligned: bool = True,
    size: int = SEGMENT,
    most: int = 100,
) -> Structure:
    """`data` is the log from `base` on; of it all that is in `extent`, and behind it, is fed."""
    extent = extent or Extent(base, base + len(data))
    checker = StructureCheck(extent, size, aligned=aligned, max_faults=most)
    edges = sorted({extent.start - base, *(cut for cut in cuts if cut > extent.start - base), len(data)})
    for start, end in itertools.pairwise(edges):
        checker.feed(memoryview(data)[start:end])
    return checker.finish()


def places(found: Structure) -> list[tuple[int, int, Reason]]:
    return [(fault.extent.start, fault.extent.end, fault.reason) for fault in found.faults]


def comparable(found: Structure) -> Structure:
    """Without the words, which may depend on how much was there to be seen."""
    faults = tuple(Fault(fault.extent, fault.reason, "") for fault in found.faults)
    return msgspec.structs.replace(found, faults=faults)


@given(LOGS, BASES, CUTS)
def test_a_sound_log(messages: list[Sent], base: int, cuts: list[float]) -> None:
    data, made = make_log(messages, base=base)
    found = check(data, base, cuts=[int(cut * len(data)) for cut in cuts])
    records = [m for m in made if m.sent]
    counts = Counter(m.sent.topic for m in made if m.sent)
    blank_bytes = sum(m.size for m in made if m.sent is None)
    assert found == Structure(
        extent=Extent(base, base + len(data)),
        first=base,
        next=base + len(data),
        records=len(records),
        record_bytes=len(data) - blank_bytes,
        blanks=len(made) - len(records),
        blank_bytes=blank_bytes,
        first_timestamp=NOW,
        last_timestamp=NOW,
        topics={
            topic: TopicCount(count, sum(m.size for m in records if m.sent and m.sent.topic == topic))
            for topic, count in counts.items()
        },
    )


@given(LOGS, BASES, CUTS)
def test_extents_of_a_sound_log_are_joined(messages: list[Sent], base: int, cuts: list[float]) -> None:
    data, _ = make_log(messages, base=base)
    edges = [base, *sorted(base + int(cut * len(data)) for cut in cuts), base + len(data)]
    extents = [Extent(start, end) for start, end in itertools.pairwise(edges) if start < end]
    parts = [check(data, base, extent, aligned=extent.start == base) for extent in extents]
    assert all(part.fault_count == 0 for part in parts)
    assert join(reversed(parts)) == check(data, base)


@given(LOGS, BASES, damages(), CUTS)
def test_damage_is_seen_wherever_it_is(
    messages: list[Sent], base: int, where: list[tuple[float, bytes]], cuts: list[float]
) -> None:
    data, made = make_log(messages, base=base)
    sound = check(data, base)
    whole = damage(data, made, base, where)
    found = check(data, base)
    assert comparable(check(data, base, cuts=[int(cut * len(data)) for cut in cuts])) == comparable(found)
    end = found.next if found.next is not None else base + len(data) - found.unread
    assert found.record_bytes + found.blank_bytes + found.skipped_bytes == end - base
    assert found.records <= sound.records
    for m in made:
        faulty = [fault for fault in found.faults if m.offset < fault.extent.end and fault.extent.start < m.end]
        if m in whole:
            assert not faulty
        else:
            assert faulty or found.unread or not broken(data, base, m)
    if not found.unread:
        assert sum(m.sent is not None for m in whole) <= found.records


def test_a_size_that_promises_more_than_there_is_is_no_excuse() -> None:
    """What was held back for the rest of a record that never comes is looked at in the end."""
    short = Sent(body=b"", topic="A", properties={})
    data, _ = make_log([short._replace(topic="T" * 127), short, short])
    data[2] ^= 1

    found = check(data, cuts=[len(data) // 2])

    assert comparable(found) == comparable(check(data))
    assert (found.records, found.fault_count, found.unread) == (2, 1, 0)


def broken(data: bytearray, base: int, made: Made) -> bool:
    """The slow way to say that a place is no sound record (or blank)."""
    at = made.offset - base
    if made.sent is None:
        return data[at : at + 8] != encode_blank(made.size)
    try:
        record = read_record(data, at, at + made.size, check_crc=True)
    except RecordError:
        return True
    sane = isinstance(record, Record) and record.physical_offset == made.offset and record.size == made.size
    return not sane or not 0 < record.store_timestamp < 253_402_300_800_000  # type: ignore[union-attr] # sane


def put(at: int, value: bytes) -> Callable[[bytearray, list[Made]], None]:
    """Over the bytes at this place of the second record."""

    def change(data: bytearray, made: list[Made]) -> None:
        start = made[1].offset + at
        assert data[start : start + len(value)] != value
        data[start : start + len(value)] = value

    return change


@pytest.mark.parametrize("host", [Sent().host, V6])
@pytest.mark.parametrize("cuts", [(), range(0, 1000, 7)], ids=["whole", "pieces"])
@pytest.mark.parametrize(
    ("change", "reason", "lost"),
    [
        (put(0, struct.pack(">i", 90)), Reason.LENGTHS, True),
        (put(0, struct.pack(">i", -1)), Reason.LENGTHS, True),
        (put(0, struct.pack(">i", 200)), Reason.LENGTHS, True),
        (put(0, struct.pack(">i", 1 << 30)), Reason.SEGMENT, True),
        (put(4, b"\0"), Reason.NO_RECORD, True),
        (put(0, bytes(100)), Reason.NO_RECORD, True),
        (put(4, struct.pack(">I", 0xCBD43194)), Reason.BLANK, True),
        (put(8, b"\x70"), Reason.BODY_CRC, False),
        (put(28, b"\x01"), Reason.PLACE, True),
        (put(112, b"??"), Reason.BODY_CRC, False),
    ],
)
def test_one_fault(
    change: Callable[[bytearray, list[Made]], None], reason: Reason, lost: bool, cuts: Sequence[int], host: bytes
) -> None:
    data, made = make_log([Sent(host=host, body=b"x" * 40)] * 4)
    change(data, made)
    found = check(data, cuts=cuts)
    bad = made[1]
    assert places(found) == [(bad.offset, bad.end, reason)]
    assert found.fault_count == 1
    assert (found.records, found.skipped_bytes) == ((3, bad.size) if lost else (4, 0))
    assert found.next == len(data)


@pytest.mark.parametrize("timestamp", [0, -1, 253_402_300_800_000])
def test_times_that_cannot_be(timestamp: int) -> None:
    data, made = make_log([Sent(timestamp=timestamp), Sent()])
    found = check(data)
    assert places(found) == [(0, made[0].end, Reason.TIMESTAMP)]
    assert (found.first_timestamp, found.last_timestamp, found.records) == (NOW, NOW, 2)


def test_clocks_may_go_back() -> None:
    found = check(make_log([Sent(timestamp=NOW), Sent(timestamp=5)])[0])
    assert (found.first_timestamp, found.last_timestamp, found.fault_count) == (NOW, 5, 0)


def test_a_blank_has_to_reach_the_end_of_its_file() -> None:
    data, made = make_log([Sent(body=b"x" * 3000)] * 2)
    blank = made[1]
    assert blank.sent is None
    assert check(data).fault_count == 0
    data[blank.offset : blank.offset + 4] = struct.pack(">i", blank.size - 1)
    assert places(check(data)) == [(blank.offset, SEGMENT, Reason.BLANK)]


def test_too_little_room_for_a_blank() -> None:
    first = Sent(body=bytes(SEGMENT - 4 - len(encode(Sent(body=b""), 0))))
    data = bytearray(encode(first, 0)).ljust(SEGMENT, b"\0") + encode(Sent(), SEGMENT)
    assert places(check(data)) == [(SEGMENT - 4, SEGMENT, Reason.SEGMENT)]


def test_swapped_files_are_one_fault_each() -> None:
    data, made = make_log([Sent(body=b"x" * 300)] * 40)
    swapped = data[:SEGMENT] + data[2 * SEGMENT : 3 * SEGMENT] + data[SEGMENT : 2 * SEGMENT] + data[3 * SEGMENT :]
    found = check(swapped)
    blank = next(m for m in made if m.sent is None)  # all files are equal, up to their blanks
    assert places(found) == [(n * SEGMENT, n * SEGMENT + blank.offset, Reason.PLACE) for n in (1, 2)]
    assert str(2 * SEGMENT) in found.faults[0].detail


def test_zeros_to_the_end() -> None:
    data, made = make_log([Sent()] * 2)
    found = check(data + bytes(10_000))
    assert places(found) == [
        (made[1].end, SEGMENT, Reason.NO_RECORD),
        (SEGMENT, 2 * SEGMENT, Reason.NO_RECORD),
        (2 * SEGMENT, len(data) + 10_000, Reason.NO_RECORD),
    ]
    assert found.next is None


def test_an_end_within_a_record_is_neither_sound_nor_a_fault() -> None:
    data, made = make_log([Sent()] * 3)
    for end in range(made[2].offset + 1, made[2].end):
        found = check(data[:end])
        assert (found.records, found.fault_count, found.unread, found.next) == (2, 0, end - made[2].offset, None)
        whole = check(data, extent=Extent(0, end))
        assert (whole.records, whole.unread, whole.next) == (3, 0, made[2].end)


def test_reported_faults_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure_check, "MAX_TOPICS", 3)
    data, _ = make_log([Sent(topic=f"T{n}", timestamp=-1) for n in range(20)])
    found = check(data, most=5)
    assert (len(found.faults), found.fault_count) == (5, 20)
    assert {topic: count.records for topic, count in found.topics.items()} == {"T0": 1, "T1": 1, "T2": 1, "": 17}


def test_a_large_record_in_small_pieces_is_held_once() -> None:
    data, _ = make_log([Sent(body=bytes(1 << 20)), Sent()], segment_size=1 << 30)
    checker = StructureCheck(Extent(0, len(data)), 1 << 30)
    for start in range(0, len(data), 4096):
        checker.feed(data[start : start + 4096])
        assert len(checker._rest) <= len(data)
    assert (checker.finish().records, checker.done, checker.position, len(checker._rest)) == (2, True, len(data), 0)
    checker.feed(b"more than was asked for")
    assert checker.finish().unread == 0


def test_a_size_that_its_parts_do_not_make_is_not_waited_for() -> None:
    data, made = make_log([Sent()] * 2000, segment_size=1 << 30)
    data[0:4] = struct.pack(">i", 100 << 20)
    checker = StructureCheck(Extent(0, len(data)), 1 << 30)
    for start in range(0, len(data), 1000):
        checker.feed(data[start : start + 1000])
        assert len(checker._rest) <= 1000
    assert places(checker.finish()) == [(0, made[0].end, Reason.LENGTHS)]


def test_a_fault_ends_with_its_extent() -> None:
    data, made = make_log([Sent()] * 6)
    start, end = made[2].offset, made[3].offset + 10
    data[start : made[4].offset] = bytes(made[4].offset - start)
    found = check(data, extent=Extent(0, end))
    assert places(found) == [(start, end, Reason.NO_RECORD)]
    assert (found.next, found.unread) == (None, 0)
    rest = check(data, extent=Extent(end, len(data)), aligned=False)
    assert (rest.first, rest.records) == (made[4].offset, 2)
    assert places(join([found, rest])) == places(found)


def part(start: int, end: int, first: int | None, following: int | None) -> Structure:
    return Structure(extent=Extent(start, end), first=first, next=following)


@pytest.mark.parametrize(
    ("parts", "seams"),
    [
        ([part(0, 100, 0, 130), part(100, 200, 130, 210)], []),
        ([part(0, 100, 0, 130), part(100, 200, 150, 210)], [(130, 150)]),
        ([part(0, 100, 0, 150), part(100, 200, 130, 210)], [(130, 150)]),
        ([part(0, 100, 0, 250), part(100, 200, None, None), part(200, 300, 250, 300)], []),
        ([part(0, 100, 0, 250), part(100, 200, None, None), part(200, 300, 260, 300)], [(250, 260)]),
        ([part(0, 100, 0, 150), part(100, 200, None, None), part(200, 300, 260, 300)], [(150, 200)]),
        ([part(0, 100, 0, None), part(100, 200, 170, 210)], []),  # its end was lost or not read
        ([part(0, 100, 0, 130), part(200, 300, 250, 310)], []),  # not neighbours
    ],
)
def test_seams(parts: list[Structure], seams: list[tuple[int, int]]) -> None:
    found = join(parts)
    assert places(found) == [(start, end, Reason.SEAM) for start, end in seams]
    assert found.fault_count == len(seams)


def test_a_head_damaged_just_behind_a_seam_is_seen_when_joined() -> None:
    data, made = make_log([Sent()] * 6)
    data[made[3].offset + 4] ^= 1
    border = made[3].offset - 20  # within the record in front
    parts = [check(data, extent=Extent(0, border)), check(data, extent=Extent(border, len(data)), aligned=False)]
    assert [p.fault_count for p in parts] == [0, 0]
    assert places(join(parts)) == [(made[3].offset, made[3].end, Reason.SEAM)]


def test_parts_that_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match="nothing"):
        join([])
    with pytest.raises(ValueError, match="begins before"):
        join([part(0, 100, 0, 100), part(99, 200, 99, 200)])


def test_topics_are_added() -> None:
    total = {"A": TopicCount(1, 10)}
    add_topics(total, {"A": TopicCount(2, 20), "B": TopicCount(3, 30)})
    assert total == {"A": TopicCount(3, 30), "B": TopicCount(3, 30)}


@given(st.binary(max_size=400), CUTS)
def test_any_bytes_do(data: bytes, cuts: list[float]) -> None:
    for aligned in (True, False):
        found = check(data, 1000, cuts=[int(cut * len(data)) for cut in cuts], aligned=aligned, size=4000)
        assert found.records == 0
        assert found.skipped_bytes + found.unread == (len(data) if aligned else 0)


@pytest.mark.parametrize("broker", ["controlled", "alone"])
@pytest.mark.parametrize("step", [100, 4096, 1 << 20])
def test_logs_of_official_brokers(broker: str, step: int) -> None:
    data, end, size = golden_log(broker)
    found = check(data[:end], cuts=range(0, end, step), size=size)
    assert (found.faults, found.next, found.unread) == ((), end, 0)
    assert found.blanks == len(data) // size - 1
    assert "SCHEDULE_TOPIC_XXXX" in found.topics
    after = check(data, size=size)
    assert places(after) == [(end, len(data), Reason.NO_RECORD)]
