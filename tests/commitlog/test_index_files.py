"""Index files against a log: what is a fault, and what is left by a cut, an expired log, or a broker at work."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_commitlog import index_files, queue_files
from rocketmq_commitlog.index_files import RecordsSeen, check_indexes
from rocketmq_formats.soundness.indexes import IndexCheck, IndexReason
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.rows import pieces_batches
from rocketmq_formats.store.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from tests.verify.history.stores import save_all
from tests.verify.index_kit import LAYOUT, Index, Indexes, Layout, index_of, save_index
from tests.verify.planted.faults import SEGMENT, Group

MESSAGES = 60


@pytest.fixture
def group() -> Group:
    return Group().fill(MESSAGES)


@pytest.fixture
def store(group: Group, tmp_path: Path) -> Path:
    """The master's, with an index of two entries for each message: 1 and 2 of the first one, ..."""
    save_all(group, tmp_path)
    root = tmp_path / group.master.name
    save_index(root, group.messages)
    return root


def check(
    group: Group,
    root: Path,
    extent: Extent | None = None,
    sleep: Callable[[float], None] = lambda _: None,
    rest: Callable[[int], None] = lambda _: None,
) -> IndexCheck | None:
    extent = extent or Extent(0, group.master.end)
    data = memoryview(bytes(group.master.data))
    pieces = [data[extent.start : group.master.end]]
    seen = RecordsSeen(pieces_batches(pieces, extent, group.master.end, SEGMENT), [root])
    for _ in seen:
        pass
    return check_indexes(seen, extent, {"a": root}, sleep=sleep, rest=rest).get("a")


def change(root: Path, at: int, data: bytes) -> None:
    with index_of(root).open("r+b") as file:
        file.seek(at)
        file.write(data)


def reasons(found: IndexCheck | None) -> list[tuple[int | None, IndexReason]]:
    assert found is not None
    assert found.fault_count == len(found.faults)
    return [(fault.entry, fault.reason) for fault in (*found.faults, *found.files)]


def test_a_sound_index(group: Group, store: Path) -> None:
    assert check(group, store) == IndexCheck(entries=2 * MESSAGES)


def test_each_entry_is_checked_with_the_part_of_the_log_that_it_leads_to(group: Group, store: Path) -> None:
    total = 0
    for start in range(0, group.master.end, 1000):
        part = check(group, store, Extent(start, min(start + 1000, group.master.end)))
        assert part is not None
        assert part.faults == ()
        total += part.entries
    assert total == 2 * MESSAGES


def test_our_brokers_have_none(group: Group, store: Path) -> None:
    index_of(store).unlink()
    assert check(group, store) is None


@pytest.mark.parametrize("size", [0, 39, 60_000])
def test_files_of_an_unknown_layout_are_left_alone(group: Group, store: Path, size: int) -> None:
    index_of(store).write_bytes(bytes(size))
    assert check(group, store) == IndexCheck(entries=0)


def test_a_file_that_was_just_made(group: Group, store: Path) -> None:
    Index().save(store)
    assert check(group, store) == IndexCheck(entries=0)


DAMAGES: list[tuple[str, int, bytes, list[tuple[int | None, IndexReason]]]] = [
    ("hash", LAYOUT.at(9), b"\x12\x34", [(9, IndexReason.KEY)]),
    ("into a record", LAYOUT.at(10) + 4, b"", [(10, IndexReason.NO_RECORD)]),
    ("far", LAYOUT.at(9) + 4, b"\x01", [(9, IndexReason.ORDER)]),
    ("probed", LAYOUT.at(MESSAGES + 1) + 4, b"\x7f", [(MESSAGES + 1, IndexReason.ORDER)]),
    ("zeros", LAYOUT.at(21), bytes(60), [(number, IndexReason.ORDER) for number in (21, 22, 23)]),
    ("itself", LAYOUT.at(9) + 16, (9).to_bytes(4), [(9, IndexReason.CHAIN)]),
    ("forward", LAYOUT.at(9) + 16, (10).to_bytes(4), [(9, IndexReason.CHAIN)]),
    ("below 0", LAYOUT.at(9) + 16, (2**32 - 1).to_bytes(4), [(9, IndexReason.CHAIN)]),
    ("count", 36, (LAYOUT.entries + 1).to_bytes(4), [(None, IndexReason.HEADER)]),
    ("fewer", 36, (50).to_bytes(4), [(None, IndexReason.HEADER)]),
    ("one less", 36, (2 * MESSAGES).to_bytes(4), [(None, IndexReason.HEADER)]),
    ("none", 0, bytes(HEADER_SIZE), [(None, IndexReason.HEADER)]),
    ("later", LAYOUT.at(9) + 12, (7).to_bytes(4), [(9, IndexReason.TIME)]),
    ("no time", LAYOUT.at(9) + 12, b"\xff", [(9, IndexReason.TIME)]),
    ("begin's time", 6, b"\x01", [(None, IndexReason.HEADER)]),
    ("end's time", 14, b"\x7f", [(None, IndexReason.HEADER)]),
    ("slots in use", 32, (LAYOUT.slots + 1).to_bytes(4), [(None, IndexReason.HEADER)]),
    ("begin", 16, (2**40).to_bytes(8), [(None, IndexReason.HEADER)]),
    ("end", 24, (2**40).to_bytes(8), [(None, IndexReason.HEADER)]),
]


@pytest.mark.parametrize(("at", "data", "found"), [one[1:] for one in DAMAGES], ids=[one[0] for one in DAMAGES])
def test_damage_is_found(
    group: Group, store: Path, at: int, data: bytes, found: list[tuple[int | None, IndexReason]]
) -> None:
    change(store, at, data or (group.messages[4].offset + 1).to_bytes(8))
    assert reasons(check(group, store)) == found


@pytest.mark.parametrize("value", [0, 1, 2 * MESSAGES + 2, 2**31 - 1, 2**32 - 1])
def test_a_slot_that_leads_elsewhere(group: Group, store: Path, value: int) -> None:
    """To none, to an older entry, or to one that is not there: what it has newer is not found."""
    change(store, LAYOUT.slot_at(_slot_of(store, 2 * MESSAGES)), value.to_bytes(4))
    found = reasons(check(group, store))
    assert (2 * MESSAGES, IndexReason.SLOT) in found
    assert {reason for _, reason in found} == {IndexReason.SLOT}


def test_an_entry_that_leaves_out_others_of_its_slot(group: Group, store: Path) -> None:
    slots = [_slot_of(store, number) for number in range(1, 2 * MESSAGES + 1)]
    longest = max(slots, key=slots.count)
    numbers = [number for number, slot in enumerate(slots, 1) if slot == longest]
    assert len(numbers) > 2
    change(store, LAYOUT.at(numbers[-1]) + 16, numbers[0].to_bytes(4))
    assert reasons(check(group, store)) == [(numbers[-1], IndexReason.CHAIN)]


def test_slots_that_nobody_needs_may_have_anything(group: Group, store: Path) -> None:
    used = {_slot_of(store, number) for number in range(1, 2 * MESSAGES + 1)}
    free = next(slot for slot in range(LAYOUT.slots) if slot not in used)
    change(store, HEADER_SIZE + free * SLOT_SIZE, b"\xff" * 4)
    assert reasons(check(group, store)) == []


def _slot_of(root: Path, number: int) -> int:
    data = index_of(root).read_bytes()
    return int.from_bytes(data[LAYOUT.at(number) : LAYOUT.at(number) + 4]) % LAYOUT.slots


@pytest.mark.parametrize("later", [10_000, 10, -2_000], ids=["seconds", "within a second", "to a clock that is late"])
@pytest.mark.parametrize("written", [1, 40])
def test_what_a_cut_left_is_no_fault(group: Group, tmp_path: Path, later: int, written: int) -> None:
    """Java does not cut its index, and what the next master writes there has no entries."""
    old, new = group.master, group.slaves[0]
    for _ in range(10):
        group.put(700)
    before = group.messages[:]
    save_all(group, tmp_path)
    save_index(tmp_path / old.name, before)
    kept = index_of(tmp_path / old.name).read_bytes()
    clock = group.clock
    group.elect(new)
    group.clock = clock + later
    group.fill(written, length=650)
    group.sync()
    save_all(group, tmp_path / "later")
    root = tmp_path / "later" / old.name
    Index().save(root).write_bytes(kept)
    found = check(group, root)
    assert found is not None
    assert (found.faults, found.files) == ((), ())
    assert (found.entries, found.stale) == (2 * (MESSAGES + min(written, 10)), 2 * min(written, 10))


def test_behind_what_a_cut_left_faults_are_found_again(group: Group, tmp_path: Path) -> None:
    old, new = group.master, group.slaves[0]
    group.put(700)
    cut = group.messages[-1]
    group.elect(new)
    group.fill(20)
    group.sync()
    save_all(group, tmp_path)
    root = tmp_path / old.name
    save_index(root, [one for one in group.messages if one.offset != cut.offset])
    number = 2 * MESSAGES + 9
    change(root, LAYOUT.at(number), b"\x12\x34")
    assert reasons(check(group, root)) == [(number, IndexReason.KEY)]


def test_without_a_table_of_epochs_all_may_be_of_a_cut(group: Group, store: Path) -> None:
    change(store, LAYOUT.at(9), b"\x12\x34")
    (store / "epochFileCheckpoint").write_bytes(b"?")
    found = check(group, store)
    assert found is not None
    assert (found.faults, found.stale) == ((), 1)


def test_entries_of_expired_bytes_lead_nowhere(group: Group, store: Path) -> None:
    (store / "commitlog" / f"{0:020d}").unlink()
    found = check(group, store)
    assert found == IndexCheck(entries=2 * sum(one.offset >= SEGMENT for one in group.messages))


def test_what_is_written_meanwhile_is_read_again(group: Group, store: Path) -> None:
    """An entry is there before its header counts it, and its slot in between."""
    whole = index_of(store).read_bytes()
    change(store, 36, (50).to_bytes(4))
    waits: list[float] = []

    def written(seconds: float) -> None:
        waits.append(seconds)
        index_of(store).write_bytes(whole)

    assert check(group, store, sleep=written) == IndexCheck(entries=2 * MESSAGES)
    assert len(waits) == 1


def test_any_byte_may_be_wrong(group: Group, store: Path) -> None:
    """Nothing raises, whatever is there."""
    whole = index_of(store).read_bytes()
    for at in [*range(HEADER_SIZE), *range(LAYOUT.at(1), LAYOUT.at(2 * MESSAGES + 1), 13)]:
        index_of(store).write_bytes(whole)
        change(store, at, b"\xa5")
        assert check(group, store) is not None


@pytest.mark.parametrize("piece", [1, 7])
def test_pieces_of_a_file_see_the_same(group: Group, store: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (9, 30, 31, 77):
        change(store, LAYOUT.at(number) + 1, b"\x77")
    change(store, LAYOUT.at(50), bytes(60))
    change(store, LAYOUT.at(90) + 16, (90).to_bytes(4))
    whole = check(group, store)
    monkeypatch.setattr(index_files, "PIECE", piece)
    read: list[int] = []
    assert check(group, store, rest=read.append) == whole
    assert max(read) <= piece * (ENTRY_SIZE + SLOT_SIZE) + ENTRY_SIZE + HEADER_SIZE


def test_each_fault_is_told_by_one_part_of_the_log(group: Group, store: Path) -> None:
    """Also one that a search for the part's begin meets, and one between two parts."""
    change(store, LAYOUT.at(MESSAGES), bytes(60))
    change(store, LAYOUT.at(31) + 4, b"\x01")
    change(store, LAYOUT.at(77) + 16, (77).to_bytes(4))
    whole = reasons(check(group, store))
    assert len(whole) == 5
    for size in (1000, 3000, 20_000):
        told: list[tuple[int | None, IndexReason]] = []
        for start in range(0, group.master.end, size):
            told += reasons(check(group, store, Extent(start, min(start + size, group.master.end))))
        assert told == whole


def test_a_long_run_of_damage_ends_the_search(group: Group, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_files, "MOST_SKIPPED", 10)
    change(store, LAYOUT.at(MESSAGES), bytes(20 * 20))
    found = check(group, store, Extent(group.messages[40].offset, group.master.end))
    assert found is not None
    assert [fault.reason for fault in found.files] == [IndexReason.ORDER]


def test_a_disk_that_does_not_return_the_file_is_told(
    group: Group, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = index_files._read

    def broken(fd: int, size: int, at: int) -> bytes:
        if at >= LAYOUT.at(50):
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, size, at)

    monkeypatch.setattr(index_files, "_read", broken)
    assert reasons(check(group, store)) == [(None, IndexReason.UNREADABLE)]


def test_what_is_no_file_is_left_alone(group: Group, store: Path) -> None:
    os.mkfifo(index_of(store).with_name("20261130094734152"))
    index_of(store).with_name("20261130094734153").mkdir()
    assert check(group, store) == IndexCheck(entries=2 * MESSAGES)


def test_a_bad_file_is_waited_for_once(group: Group, store: Path) -> None:
    """Every part of the log meets it."""
    change(store, 36, (50).to_bytes(4))
    waits: list[float] = []
    for start in range(0, group.master.end, 8000):
        found = check(group, store, Extent(start, min(start + 8000, group.master.end)), waits.append)
        assert reasons(found) == [(None, IndexReason.HEADER)]
    assert len(waits) == queue_files.ATTEMPTS - 1


def test_a_full_file_goes_on_in_another_one(group: Group, store: Path) -> None:
    """In the middle of a message; the first entry of the next file has the time since the full one's end."""
    small = Layout(slots=10, entries=40)
    assert small.size == 40 + 10 * (4 + 80)
    index_of(store).unlink()
    files = Indexes(small)
    files.follow(bytes(group.master.data), group.messages)
    files.save(store)
    assert len(files.files) > 3
    assert check(group, store) == IndexCheck(entries=2 * MESSAGES)
