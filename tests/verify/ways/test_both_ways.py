"""One store, read as files and through sidecars: the same findings, with the same names and places."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocketmq_commitlog import queue_files
from rocketmq_commitlog.errors import UnreadableError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.state import NATIVE_IDENTITY
from rocketmq_formats.store.consume_queue import pack_units
from rocketmq_formats.store.given_up import FILE_NAME, GivenUp, GivenUpNotes, encode_given_up
from rocketmq_formats.store.index_file import HEADER_SIZE, SLOT_SIZE
from rocketmq_formats.store.segment_names import segment_name
from rocketmq_verify.domain.findings import Kind, Severity
from tests.verify.history.stores import QUEUE, TOPIC, save_all
from tests.verify.index_kit import LAYOUT, index_of, save_index
from tests.verify.planted.faults import CHUNK, SEGMENT, Group
from tests.verify.ways.ways_kit import Sidecars, sidecars, verify

pytestmark = pytest.mark.processes
"""Waits for gRPC on loopback."""


@pytest.fixture(scope="module")
def doors() -> Iterator[Sidecars]:
    with sidecars(3) as running:
        yield running


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_files, "PAUSE", 0.0)


def log_file(root: Path, name: str, start: int) -> Path:
    return root / name / "commitlog" / segment_name(start)


def change(file: Path, at: int, data: bytes) -> None:
    whole = bytearray(file.read_bytes())
    whole[at : at + len(data)] = data
    file.write_bytes(whole)


def flip(group: Group, root: Path, names: str, at: int) -> None:
    for name in names:
        file = log_file(root, name, at - at % SEGMENT)
        change(file, at % SEGMENT, bytes([file.read_bytes()[at % SEGMENT] ^ 1]))


def queue_file(root: Path, name: str) -> Path:
    return root / name / "consumequeue" / TOPIC / str(QUEUE) / segment_name(0)


def nothing(group: Group, root: Path) -> None:
    pass


def body_of_one(group: Group, root: Path) -> None:
    flip(group, root, "b", group.messages[20].body_start)


def body_of_all(group: Group, root: Path) -> None:
    flip(group, root, "abc", group.messages[20].body_start)


def magic_of_all(group: Group, root: Path) -> None:
    flip(group, root, "abc", group.messages[20].offset + 5)


def length_of_all(group: Group, root: Path) -> None:
    flip(group, root, "abc", group.messages[20].offset + 3)


def zeros_in_all(group: Group, root: Path) -> None:
    for name in "abc":
        change(log_file(root, name, SEGMENT), 4096, bytes(4096))


def unit_that_leads_nowhere(group: Group, root: Path) -> None:
    change(queue_file(root, "c"), 7 * 20, pack_units([(group.messages[7].offset + 1, 500, 0)]))


def unit_behind_the_last_one(group: Group, root: Path) -> None:
    (root / "c" / NATIVE_IDENTITY).touch()  # Java leaves old units there
    change(queue_file(root, "c"), len(group.messages) * 20, pack_units([(900 << 20, 500, 0)]))


def unit_with_other_tags(group: Group, root: Path) -> None:
    change(queue_file(root, "a"), 9 * 20, pack_units([(group.messages[9].offset, group.messages[9].size, 77)]))


def units_alike_in_all(group: Group, root: Path) -> None:
    for name in "abc":
        change(queue_file(root, name), 9 * 20, bytes(20))


def queues_deleted(group: Group, root: Path) -> None:
    shutil.rmtree(root / "b" / "consumequeue")


def queues_deleted_in_all(group: Group, root: Path) -> None:
    for name in "abc":
        shutil.rmtree(root / name / "consumequeue")


def missing_file(group: Group, root: Path) -> None:
    log_file(root, "b", SEGMENT).unlink()


def zeros_in_the_only_copy(group: Group, root: Path) -> None:
    for name in "bc":
        log_file(root, name, 0).unlink()
    log_file(root, "a", 0).write_bytes(bytes(SEGMENT))


def body_of_the_others_where_one_lacks_the_file(group: Group, root: Path) -> None:
    log_file(root, "a", SEGMENT).unlink()
    damaged = next(one for one in group.messages if one.offset > SEGMENT)
    flip(group, root, "bc", damaged.body_start)


def confirmed_tail_lost_in_all(group: Group, root: Path) -> None:
    end = group.messages[-4].offset
    for name in "abc":
        file = log_file(root, name, end - end % SEGMENT)
        file.write_bytes(file.read_bytes()[: end % SEGMENT].ljust(SEGMENT, b"\0"))


def confirmed_tail_lost_in_one(group: Group, root: Path) -> None:
    end = group.messages[-4].offset
    file = log_file(root, "c", end - end % SEGMENT)
    file.write_bytes(file.read_bytes()[: end % SEGMENT].ljust(SEGMENT, b"\0"))


def acknowledged_and_given_up(group: Group, root: Path) -> None:
    """Newer messages are there since."""
    loss = GivenUp(start=group.messages[20].offset, end=group.messages[24].offset, epoch=1, at_millis=7)
    for name, end in (("a", loss.end), ("b", loss.end - 100)):
        text = encode_given_up(GivenUpNotes(given_up=(replace(loss, end=end),)))
        (root / name / FILE_NAME).write_bytes(text)


def cut_file(group: Group, root: Path) -> None:
    file = log_file(root, "b", SEGMENT)
    file.write_bytes(file.read_bytes()[:1000])


def indexed(group: Group, root: Path) -> None:
    """Official brokers have index files, ours do not; two entries for each message here."""
    for name in "abc":
        save_index(root / name, group.messages)


def entry_of_another_key(group: Group, root: Path) -> None:
    indexed(group, root)
    change(index_of(root / "b"), LAYOUT.at(9), bytes([0x12]))


def entry_that_leads_into_a_record(group: Group, root: Path) -> None:
    indexed(group, root)
    for name in "abc":
        change(index_of(root / name), LAYOUT.at(10) + 4, (group.messages[4].offset + 1).to_bytes(8))


def chain_in_a_circle(group: Group, root: Path) -> None:
    indexed(group, root)
    change(index_of(root / "c"), LAYOUT.at(9) + 16, (9).to_bytes(4))


def slots_deleted(group: Group, root: Path) -> None:
    indexed(group, root)
    change(index_of(root / "a"), HEADER_SIZE, bytes(LAYOUT.slots * SLOT_SIZE))


def page_of_an_index_zeroed(group: Group, root: Path) -> None:
    indexed(group, root)
    change(index_of(root / "b"), LAYOUT.at(20), bytes(400))


def index_that_counts_too_much(group: Group, root: Path) -> None:
    indexed(group, root)
    change(index_of(root / "b"), 36, (1 << 30).to_bytes(4))


CASES: list[tuple[Callable[[Group, Path], None], set[Kind]]] = [
    (nothing, set()),
    (body_of_one, {Kind.CORRUPT_RECORD}),
    (body_of_all, {Kind.BAD_STRUCTURE}),
    (magic_of_all, {Kind.BAD_STRUCTURE}),
    (length_of_all, {Kind.BAD_STRUCTURE}),
    (zeros_in_all, {Kind.BAD_STRUCTURE}),
    (unit_that_leads_nowhere, {Kind.QUEUE_MISMATCH}),
    (unit_behind_the_last_one, {Kind.QUEUE_MISMATCH}),
    (unit_with_other_tags, {Kind.QUEUE_MISMATCH}),
    (units_alike_in_all, {Kind.QUEUE_MISMATCH}),
    (zeros_in_the_only_copy, {Kind.BAD_STRUCTURE}),
    (body_of_the_others_where_one_lacks_the_file, {Kind.MISSING_SEGMENT, Kind.BAD_STRUCTURE}),
    (queues_deleted, {Kind.QUEUE_MISMATCH}),
    (queues_deleted_in_all, {Kind.QUEUE_MISMATCH}),
    (missing_file, {Kind.MISSING_SEGMENT}),
    (cut_file, {Kind.MISSING_SEGMENT}),
    (confirmed_tail_lost_in_all, {Kind.LOST_CONFIRMED}),
    (confirmed_tail_lost_in_one, {Kind.LOST_COPY}),
    (indexed, set()),
    (entry_of_another_key, {Kind.INDEX_MISMATCH}),
    (entry_that_leads_into_a_record, {Kind.INDEX_MISMATCH}),
    (chain_in_a_circle, {Kind.INDEX_MISMATCH}),
    (slots_deleted, {Kind.INDEX_MISMATCH}),
    (page_of_an_index_zeroed, {Kind.INDEX_MISMATCH}),
    (index_that_counts_too_much, {Kind.INDEX_MISMATCH}),
    (acknowledged_and_given_up, {Kind.LOST_CONFIRMED}),
]


def test_a_broken_sector_hides_nothing_else(tmp_path: Path, doors: Sidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of b, which has a wrong bit elsewhere, too."""
    group = Group().fill(60)
    places = save_all(group, tmp_path)
    body_of_one(group, tmp_path)
    bad = group.messages[3].offset
    whole = LogFolder.read_into

    def broken(self: LogFolder, offset: int, target: memoryview) -> None:
        if self.path.parent.name == "b" and offset <= bad < offset + len(target):
            raise UnreadableError(self.path, f"cannot be read at {bad}: Input/output error")
        whole(self, offset, target)

    monkeypatch.setattr(LogFolder, "read_into", broken)
    files, through = verify(places), verify(doors.of(places))
    for found in (files, through):
        assert {(one.kind, one.replicas) for one in found.findings} == {
            (Kind.CORRUPT_RECORD, ("b",)),
            (Kind.UNREACHABLE, ("b",)),
        }
        (unread,) = [one for one in found.findings if one.kind is Kind.UNREACHABLE]
        assert unread.extent.start <= bad < unread.extent.end
        assert unread.extent.length <= CHUNK
        assert "Input/output error" in unread.detail
        assert found.verdict.exit_code == 1
    assert through.told == files.told


def test_only_replicas_that_have_the_bytes_are_named(tmp_path: Path) -> None:
    group = Group().fill(60)
    places = save_all(group, tmp_path)
    body_of_the_others_where_one_lacks_the_file(group, tmp_path)
    told = [one for one in verify(places).findings if one.kind is Kind.BAD_STRUCTURE]
    assert [one.replicas for one in told] == [("b", "c")]


@pytest.mark.parametrize(("damage", "kinds"), CASES, ids=[damage.__name__ for damage, _ in CASES])
def test_both_ways_find_the_same(
    tmp_path: Path, doors: Sidecars, damage: Callable[[Group, Path], None], kinds: set[Kind]
) -> None:
    group = Group().fill(60)
    places = save_all(group, tmp_path)
    damage(group, tmp_path)
    files = verify(places)
    assert kinds <= {finding.kind for finding in files.findings}
    bad = [kind for kind in kinds if kind.traits.severity is not Severity.INFORMATION]
    assert bool(bad) == bool(files.verdict.exit_code), files.findings
    through = verify(doors.of(places))
    assert (files.unchecked, through.unchecked) == ((), ())
    assert through.told == files.told
    assert through.entries == files.entries
    if damage is indexed:
        assert files.entries == 3 * 2 * sum(one.end <= group.master.confirm for one in group.messages)
    assert through.verdict.summary == files.verdict.summary


def test_lost_messages_are_told_until_the_note_is_deleted(tmp_path: Path, doors: Sidecars) -> None:
    group = Group().fill(60)
    places = save_all(group, tmp_path)
    acknowledged_and_given_up(group, tmp_path)
    first, end = group.messages[20], group.messages[24].offset
    for way in (places, doors.of(places)):
        (found,) = verify(way).findings
        assert (found.kind, found.replicas, found.epoch) == (Kind.LOST_CONFIRMED, ("a", "b"), 1)
        assert (found.extent.start, found.extent.end) == (first.offset, end)
        assert found.detail.startswith(
            f"the acknowledged messages from {first.offset} to {end} were given up when epoch 1 began without them,"
            " noted 1970-01-01T00:00:00Z by a and b"
        )
        assert found.record is None, "a newer message is there"
        assert f"the last message before them is message {group.messages[19].queue_offset} " in found.detail
    for name in "ab":
        (tmp_path / name / FILE_NAME).unlink()
    for way in (places, doors.of(places)):
        assert verify(way).verdict.exit_code == 0


def test_a_note_that_cannot_be_read_is_not_silence(tmp_path: Path, doors: Sidecars) -> None:
    places = save_all(Group().fill(60), tmp_path)
    (tmp_path / "b" / FILE_NAME).write_bytes(b"no JSON")
    for way in (places, doors.of(places)):
        (found,) = verify(way).findings
        assert (found.kind, found.replicas) == (Kind.UNREACHABLE, ("b",))
        assert f"{FILE_NAME}: damaged" in found.detail
