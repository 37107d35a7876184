"""Damage that looks like something harmless: behind a replica's end, behind its consistent point, in a stale tail."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Kind, Severity
from rocketmq_verify.domain.inquiry import ends
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.domain.repair import repairs
from rocketmq_verify.domain.verdict import Result
from tests.verify.logs_kit import log
from tests.verify.planted.faults import SEGMENT, Group, verify

deterministic = settings(
    derandomize=True, max_examples=40
)  # fmt: skip


def mismatches(replicas: object) -> list[tuple[Kind, tuple[str, ...], int]]:
    run = verify(replicas)  # type: ignore[arg-type] # a group's
    assert (run.verdict.result is Result.MISMATCH) == (run.verdict.exit_code == 1)
    return [(one.kind, one.replicas, one.extent.start) for one in run.findings if one.severity is Severity.MISMATCH]


# tables and ends


def test_what_a_strict_replica_noted_and_its_new_master_has_not_is_lost() -> None:
    old, new = log("a", end=1000, confirm=960, strict=True), log("b", [(1, 0), (2, 900)], 950, strict=True)
    lost, tail = lineage([old, new], [old, new]).findings
    assert (lost.kind, lost.replicas, lost.extent) == (Kind.DIVERGENT_HISTORY, ("a", "b"), Extent(950, 960))
    assert (tail.kind, tail.replicas, tail.extent) == (Kind.STALE_TAIL, ("a",), Extent(960, 1000))
    (plan,) = (one for one in repairs([lost], replicas=(old.name, new.name, log("c").name)) if one.steps)
    assert "Rebuild nothing" in plan.steps[0].text
    # one look: the master may have written it after it was looked at
    assert {one.kind for one in lineage([old, new]).findings} == {Kind.STALE_TAIL}
    grown = log("b", [(1, 0), (2, 900)], 1200, strict=True)
    assert lineage([old, new], [old, grown]).findings == ()


def test_a_log_without_a_file_has_no_size_that_differs() -> None:
    seen = lineage([log("a"), log("b"), msgspec.structs.replace(log("c", [], 0), segment_size=0)])
    assert (seen.segment_size, [one.kind for one in seen.findings]) == (1000, [Kind.LAGGING])
    cut = lineage(
        [
            log("a", end=1900),
            log("b", end=1900),
            msgspec.structs.replace(log("c", end=1300, begin=1000), segment_size=437),
        ]
    )
    assert (cut.segment_size, [one.kind for one in cut.findings]) == (1000, [Kind.LAGGING])


# ends


@pytest.mark.parametrize("who", ["a", "b", "c"])
@pytest.mark.parametrize("elected_again", [False, True])
def test_a_log_that_seems_to_end_at_a_damaged_record_is_damaged(who: str, elected_again: bool) -> None:
    """Read from files, a log ends where no record follows: a broken head is taken for its end."""
    made = Group().fill(40)
    if elected_again:  # its slaves label what comes with the old epoch
        made.elect(made.master)
    for _ in range(30):
        made.put(600)
    made.sync()
    message = made.messages[60]
    made[who].flip(message.offset + 5)
    made[who].end = made[who].confirm = message.offset
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, (who,), message.offset)]
    run = verify(made.replicas)
    damaged = next(one for one in run.findings if one.kind is Kind.CORRUPT_RECORD)
    assert damaged.extent == Extent(message.offset, message.end)
    assert damaged.record is not None
    assert damaged.record.queue_offset == message.queue_offset
    assert {copy.replica: copy.right for copy in damaged.copies} == {name: name != who for name in "abc"}


def test_a_file_whose_first_record_is_broken_is_damaged_and_one_that_is_not_there_yet_is_not() -> None:
    made = Group().fill(100)
    start = made.master.end - made.master.end % SEGMENT
    b = made["b"]
    b.flip(start + 5)
    b.end = b.confirm = start
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, ("b",), start)]
    del b.data[start:]
    assert mismatches(made.replicas) == []


def test_a_log_that_ends_where_its_file_was_cut_is_damaged() -> None:
    made = Group().fill()
    b, end = made["b"], made.messages[50].end
    b.lost = {end - end % SEGMENT: end % SEGMENT + 100}
    b.end = b.confirm = end
    assert mismatches(made.replicas) == [(Kind.MISSING_SEGMENT, ("b",), end)]


@deterministic
@given(index=st.integers(30, 58), zeros=st.booleans())
def test_a_log_that_is_behind_with_nothing_or_another_history_there_is_behind(index: int, zeros: bool) -> None:
    made = Group().fill()
    b, end = made["b"], made.messages[index].end
    b.end = b.confirm = end
    if zeros:
        b.data[end:] = bytes(len(b.data) - end)
    else:
        other = Group().fill(index + 1)
        other.clock += 1_000_000
        other.fill(40)
        b.data[end:] = other.master.data[end : len(b.data)]
    assert mismatches(made.replicas) == []


@pytest.mark.parametrize("who", ["a", "b", "c"])
@pytest.mark.parametrize("near", [256, 1024])
def test_a_hole_of_zeros_larger_than_the_first_look_hides_no_damage(
    monkeypatch: pytest.MonkeyPatch, who: str, near: int
) -> None:
    monkeypatch.setattr(ends, "NEAR", near)
    made = Group().fill(60)
    hole = made.messages[30:34]
    made[who].data[hole[0].offset : hole[-1].end] = bytes(hole[-1].end - hole[0].offset)
    made[who].end = made[who].confirm = hole[0].offset
    assert hole[-1].end - hole[0].offset > near
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, (who,), hole[0].offset)]


def test_a_record_larger_than_the_first_look_and_damaged_late_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "NEAR", 1024)
    made = Group().fill(40)
    made.put(3000)
    made.fill(10)
    message, b = made.messages[40], made["b"]
    b.flip(message.end - 3)
    b.end = b.confirm = message.offset
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, ("b",), message.offset)]


def test_a_log_that_grows_past_what_looks_broken_is_not_damaged() -> None:
    made = Group().fill()
    b, message = made["b"], made.messages[50]
    b.flip(message.offset + 5)
    b.end = b.confirm = message.offset
    run = verify(made.replicas, meanwhile=lambda: made.copy(b, 50), every=100)
    assert run.verdict.result is Result.ALIGNED


# behind the consistent point


@deterministic
@given(offset=st.integers(90, 680), bit=st.integers(0, 7))
def test_a_last_record_with_a_wrong_body_behind_the_consistent_point_is_no_stale_tail(offset: int, bit: int) -> None:
    made = Group(2).fill(20)
    made.elect(made.master)  # again; b does not hear of it while it is connected
    for _ in range(5):
        made.put(700)
    made.sync()
    message = made.messages[-1]
    made["b"].flip(message.offset + offset, bit)
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, ("b",), message.offset)]


def test_a_stale_tail_of_one_damaged_and_one_sound_record_is_a_stale_tail() -> None:
    made = Group(2, strict=False).fill(20)
    for _ in range(3):
        made.put(500)
    made.elect(made["b"])
    for _ in range(30):
        made.put(500)
    tail = made["b"].epochs[-1][1]
    made["a"].flip(tail + 200)
    run = verify(made.replicas)
    assert [one.kind for one in run.findings if one.replicas == ("a",)] == [Kind.STALE_TAIL, Kind.LAGGING]


@deterministic
@given(offset=st.integers(12, 39), bit=st.integers(0, 7))
def test_a_last_record_with_another_queue_is_no_stale_tail_if_it_was_stored_in_the_same_moment(
    offset: int, bit: int
) -> None:
    made = Group(3).fill(20)
    made.elect(made.master)
    for _ in range(5):
        made.put(700)
    made.sync()
    message = made.messages[-1]
    made["b"].flip(message.offset + offset, bit)
    if 28 <= offset < 36:
        return  # its place: no record any more
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, ("b",), message.offset)]


@pytest.mark.parametrize("table", ["short", "gone"])
@pytest.mark.parametrize("last", [1, 3])
def test_last_records_with_other_times_are_no_stale_tail_where_no_epoch_begins(table: str, last: int) -> None:
    """Its table does not show the newest epoch, so its last bytes may be another history by the tables."""
    made = Group(3).fill(20)
    made.elect(made["b"])
    for _ in range(5):
        made.put(700)
    made.sync()
    made["c"].epochs = made["c"].epochs[:1] if table == "short" else []
    for message in made.messages[-last:]:
        made["c"].flip(message.offset + 60, 3)  # storeTimestamp
    assert mismatches(made.replicas) == [
        (Kind.CORRUPT_RECORD, ("c",), message.offset) for message in made.messages[-last:]
    ]


def test_a_slave_that_ends_within_a_damaged_record_is_damaged() -> None:
    made = Group(3).fill(40)
    for _ in range(3):
        made.put(2000)
    message = made.messages[-3]
    made.copy(made["b"])
    made.copy(made["c"], message.end - 300 - made["c"].end)
    made.master.confirm = made["c"].end
    made["c"].flip(message.offset + 500)
    assert made["c"].end < message.end
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, ("c",), message.offset)]


def test_the_last_record_of_all_with_a_broken_head_is_damaged_though_nothing_follows() -> None:
    made = Group(3).fill(40)
    message = made.messages[-1]
    made["b"].flip(message.offset + 5)
    made["b"].end = made["b"].confirm = message.offset
    assert mismatches(made.replicas) == [(Kind.CORRUPT_RECORD, ("b",), message.offset)]


@deterministic
@given(got=st.integers(1, 700), remnants=st.booleans())
def test_a_record_that_has_not_come_whole_is_no_damage(got: int, remnants: bool) -> None:
    """A slave whose master died within a record: behind it are zeros, or what was cut there, of the same size."""
    made, other = Group(3).fill(40), Group(3).fill(40)
    other.clock += 1_000_000
    for one in (made, other):
        one.put(700)
        one.copy(one["b"])
    message, c = made.messages[-1], made["c"]
    whole = made.master.data[: message.end]
    c.data = bytearray(whole[: message.offset + got])
    c.data += other.master.data[len(c.data) :] if remnants else bytes(len(made.master.data) - len(c.data))
    assert c.end == message.offset
    assert mismatches(made.replicas) == []


def test_a_blank_of_another_file_makes_no_finding() -> None:
    made = Group(2).fill(100)
    data = made["a"].data
    one, other = SEGMENT, 3 * SEGMENT
    data[one : one + SEGMENT], data[other : other + SEGMENT] = data[other : other + SEGMENT], data[one : one + SEGMENT]
    run = verify(made.replicas)
    assert {one.replicas for one in run.findings if one.record is not None} == {("a",)}
    assert [one.replicas for one in run.findings if one.record is None] == [("a", "b")], "not examined one by one"


@pytest.mark.parametrize("known_strict", [False, True])
def test_a_stale_tail_is_found_without_the_reference_where_that_has_no_bytes(known_strict: bool) -> None:
    """`a` is in step with the reference `c`, whose table has forgotten why."""
    made = Group(3, known_strict=known_strict).fill(10)
    stale, made.replicas = made["b"], [made["a"], made["c"]]
    stale_group = Group(2, known_strict=known_strict).fill(10)
    stale_group.clock += 500_000
    for _ in range(30):
        stale_group.put(700)  # no other replica copies it
    stale.data, stale.end = stale_group.master.data, stale_group.master.end
    made.elect(made["a"])
    made.elect(made["c"])
    for _ in range(60):
        made.put(700)
    made.sync()
    made.expire(made["c"], 3)
    made["c"].epochs = [(7, made["c"].min - 100)]
    stale.min = SEGMENT
    made["a"].flip(made.messages[20].body_start, 3)
    made.replicas.append(stale)
    run = verify(made.replicas)
    assert [one.replicas for one in run.findings if one.kind is Kind.STALE_TAIL] == [("b",)]
    assert not [one for one in run.findings if one.kind is Kind.DIVERGENT_HISTORY]


def test_a_cut_file_hides_no_damage_in_front_of_the_cut() -> None:
    made = Group().fill(100)
    message = made.messages[20]
    file = message.offset - message.offset % SEGMENT
    made["a"].lost = {file: message.end - file + 300}
    made["b"].flip(message.body_start)
    found = mismatches(made.replicas)
    assert (Kind.CORRUPT_RECORD, ("b",), message.offset) in found
    assert (Kind.MISSING_SEGMENT, ("a",)) in {(kind, replicas) for kind, replicas, _ in found}


def test_logs_without_a_byte_in_common_are_not_aligned() -> None:
    made = Group(2).fill(20)
    for _ in range(100):
        made.put(700)
    made.master.confirm = made.master.end
    made.expire(made.master, 3)
    assert made["a"].min > made["b"].end
    run = verify(made.replicas)
    assert (run.verdict.result, run.verdict.aligned_up_to) == (Result.UNVERIFIED, None)
