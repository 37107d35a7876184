"""Which bytes are read again, and how old the knowledge of each is: against a model of single bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.planning.ages import MOST_AGES, Aged, believed, oldest, renewed, together
from rocketmq_verify.domain.planning.cursor import LARGEST_LEG, again, leg_bytes, next_leg, overdue
from tests.verify.planted.planted_kit import deterministic

CHUNK = 4096
HOUR = 3_600_000
WEEK = 7 * 24 * HOUR
Bytes = dict[int, tuple[int, bool]]
"""Of each byte since when it is known, and whether it was read."""


def bytes_of(ages: tuple[Aged, ...]) -> Bytes:
    return {at: (age.since_ms, age.read) for age in ages for at in range(age.start, age.end)}


def ordered(ages: tuple[Aged, ...]) -> bool:
    ends = [(age.start, age.end) for age in ages]
    return all(start < end for start, end in ends) and all(one[1] <= other[0] for one, other in pairwise(ends))


extents = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda pair: Extent(pair[0], pair[0] + pair[1]))


@deterministic
@given(st.lists(st.tuples(st.lists(extents, max_size=3), extents), min_size=1, max_size=8))
def test_what_a_run_reads_is_new_and_what_it_sees_begins_to_age(runs: list[tuple[list[Extent], Extent]]) -> None:
    ages: tuple[Aged, ...] = ()
    model: Bytes = {}
    for now, (read, there) in enumerate(runs, 1):
        ages = renewed(ages, [there], read, now)
        model |= {at: (now, True) for extent in read for at in range(extent.start, extent.end)}
        for at in range(there.start, there.end):
            model.setdefault(at, (now, False))
        assert bytes_of(ages) == model
        assert ordered(ages)


@deterministic
@given(st.lists(st.tuples(extents, st.lists(extents, max_size=4)), min_size=1, max_size=4))
def test_the_age_of_a_group_is_that_of_the_oldest_copy(logs: list[tuple[Extent, list[Extent]]]) -> None:
    known = []
    for number, (zone, reads) in enumerate(logs):
        ages: tuple[Aged, ...] = ()
        for now, read in enumerate(reads, 1):
            ages = renewed(ages, (), [read], 10 * now + number)
        known.append((zone, ages))
    expected: Bytes = {}
    for at in range(100):
        copies = [bytes_of(ages).get(at, (99, False)) for zone, ages in known if zone.start <= at < zone.end]
        if len(copies) > 1:
            expected[at] = (min(since for since, _ in copies), all(read for _, read in copies))
    found = together(known, 99)
    assert bytes_of(found) == expected
    assert ordered(found)


def test_what_is_remembered_is_bounded_and_never_too_young() -> None:
    ages: tuple[Aged, ...] = ()
    for now in range(MOST_AGES + 40):
        ages = renewed(ages, (), [Extent(now * 10, now * 10 + 10)], now)
        assert len(ages) <= MOST_AGES
    assert all(age.since_ms <= age.start // 10 for age in ages)
    assert sum(age.extent.length for age in ages) == 10 * (MOST_AGES + 40)
    apart: tuple[Aged, ...] = ()
    for now in range(MOST_AGES + 9):
        apart = renewed(apart, (), [Extent(now * 10, now * 10 + 5)], now)
    assert len(apart) == MOST_AGES


def test_a_time_that_lies_ahead_is_not_believed() -> None:
    (age,) = believed([Aged(0, 100, 5_000)], Extent(20, 200), 4_999)
    assert age == Aged(20, 100, 0)
    assert again([age], now_ms=4_999, ran_ms=6_000, promise_ms=WEEK, chunk_size=CHUNK) == ()
    assert again([age], now_ms=WEEK, ran_ms=WEEK + 5, promise_ms=WEEK, chunk_size=CHUNK) == (Extent(20, 100),)


@deterministic
@given(
    pauses=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    first=st.integers(1, 3_000_000),
    growth=st.integers(0, 200_000),
    cell=st.sampled_from([0, 64 * CHUNK]),
)
def test_every_byte_is_read_again_in_time(pauses: list[int], first: int, growth: int, cell: int) -> None:
    """Also when runs come at irregular times, as long as one pause is at most twice the one before it."""
    now, ran, end, pause = WEEK, None, first, 1
    ages: tuple[Aged, ...] = ()
    for wanted in pauses * 4:
        pause = min(wanted, 2 * pause)
        now += pause * HOUR
        read = again(ages, now_ms=now, ran_ms=ran, promise_ms=WEEK, chunk_size=CHUNK, cell_size=cell)
        new = Extent(max((age.end for age in ages), default=0), end)
        ages = renewed(ages, (), [*read, new] if new.length else read, now)
        assert overdue(ages, now_ms=now, promise_ms=WEEK) == ()
        held = oldest(ages)
        assert held is not None
        # and after the next run may be missed, too
        assert held.since_ms + WEEK > now + pause * HOUR
        ran, end = now, end + growth


@pytest.mark.parametrize(("cell", "oldest_part"), [(0, 0.55), (64 << 20, 0.65)])
def test_the_work_is_spread_over_the_runs(cell: int, oldest_part: float) -> None:
    """Also where a cell of the ledger is more than the part of one run."""
    size = 1 << 30
    now, ran, most = WEEK, None, 0
    ages = renewed((), (), [Extent(0, size)], now)
    ran = now
    for _ in range(24 * 30):
        now += HOUR
        read = again(ages, now_ms=now, ran_ms=ran, promise_ms=WEEK, chunk_size=1 << 20, cell_size=cell)
        most = max(most, sum(extent.length for extent in read))
        ages, ran = renewed(ages, (), read, now), now
    assert most <= max(size * 2 // (7 * 24) + (1 << 20), cell)
    held = oldest(ages)
    assert held is not None
    assert now - held.since_ms < oldest_part * WEEK


def test_a_small_log_is_read_as_a_whole_before_it_is_too_old() -> None:
    """The part of one run is less than a chunk."""
    ages = renewed((), (), [Extent(0, 10 * CHUNK)], WEEK)
    assert again(ages, now_ms=WEEK + HOUR, ran_ms=WEEK, promise_ms=WEEK, chunk_size=CHUNK) == ()
    late = 2 * WEEK - HOUR
    assert again(ages, now_ms=late, ran_ms=late - HOUR, promise_ms=WEEK, chunk_size=CHUNK) == (Extent(0, 10 * CHUNK),)


def test_a_promise_of_no_time_reads_everything_in_every_run() -> None:
    ages = renewed((), (), [Extent(0, 10_000)], 5)
    assert again(ages, now_ms=5, ran_ms=5, promise_ms=0, chunk_size=CHUNK) == (Extent(0, 10_000),)


@deterministic
@given(st.lists(extents, max_size=5), st.integers(1, 60))
def test_legs_are_all_of_it_cut_at_files(pieces: list[Extent], most: int) -> None:
    rest, found = tuple(pieces), []
    while rest:
        leg, rest = next_leg(rest, most, 8)
        assert leg
        assert sum(piece.length for piece in leg) <= max(most, 8)
        found += leg
        assert not rest or rest[0].start % 8 == 0 or rest[0] in pieces
    assert sorted(at for piece in found for at in range(piece.start, piece.end)) == sorted(
        at for piece in pieces for at in range(piece.start, piece.end)
    )


def test_a_leg_takes_some_minutes_and_not_more_than_is_left() -> None:
    gib = 1 << 30
    assert leg_bytes(gib, 10.0, left_seconds=None) == 12 * gib
    assert leg_bytes(gib, 10.0, left_seconds=30.0) == 3 * gib
    assert leg_bytes(gib, 10.0, left_seconds=-1.0) == 0
    assert leg_bytes(gib, 0.0, left_seconds=None) == LARGEST_LEG
    assert leg_bytes(1, 1000.0, left_seconds=None) == 1


def test_bytes_that_were_never_read_are_overdue_too() -> None:
    ages = renewed((), [Extent(0, 100)], [Extent(0, 40)], 5)
    assert overdue(ages, now_ms=5 + WEEK, promise_ms=WEEK) == ()
    ages = renewed(ages, [Extent(0, 200)], [Extent(0, 40)], 6)
    assert overdue(ages, now_ms=6 + WEEK, promise_ms=WEEK) == (Aged(40, 100, 5, read=False),)
