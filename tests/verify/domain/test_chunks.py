"""Which ranges are read: algebra of ranges against sets, the grid, and parts for executors."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.planning.chunks import (
    Plan,
    chunks,
    common,
    covered,
    merged,
    plan,
    split,
    without,
)
from rocketmq_verify.domain.planning.lineage import lineage
from tests.verify.logs_kit import log

deterministic = settings(derandomize=True)
extents = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda at: Extent(at[0], sum(at))), max_size=6)


def offsets(found: object) -> list[int]:
    return sorted(at for extent in found for at in range(extent.start, extent.end))  # type: ignore[attr-defined]


@deterministic
@given(one=extents, other=extents)
def test_ranges_are_sets(one: list[Extent], other: list[Extent]) -> None:
    a, b = set(offsets(one)), set(offsets(other))
    assert offsets(merged(one)) == sorted(a)
    assert offsets(common(one, other)) == sorted(a & b)
    assert offsets(without(one, other)) == sorted(a - b)
    count = {at: sum(extent.start <= at < extent.end for extent in one) for at in a}
    assert offsets(covered(one)) == [at for at in sorted(a) if count[at] >= 2]
    for found in (merged(one), common(one, other), without(one, other), covered(one)):
        assert all(x.end < y.start for x, y in itertools.pairwise(found))


def two(end: int, size: int = 1 << 20, borders: tuple[int, ...] = ()) -> tuple[object, Plan]:
    epochs = [(1, 0), *((index + 2, at) for index, at in enumerate(borders))]
    seen = lineage([log("a", epochs, end, size=size), log("b", epochs, end, size=size)])
    return seen, plan(seen, [Extent(0, end)], chunk_size=4096)


def test_chunks_are_cut_at_files_epochs_and_ends() -> None:
    seen, what = two(30_000, size=10_000, borders=(5_000, 21_000))
    found = list(chunks(what, what.pieces, seen))  # type: ignore[arg-type]
    ends = {chunk.extent.end for chunk in found}
    assert {10_000, 20_000, 5_000, 21_000, 4096, 8192, 30_000} <= ends
    assert all(chunk.length <= 4096 for chunk in found)
    assert [chunk.offset for chunk in found[1:]] == [chunk.extent.end for chunk in found[:-1]]
    assert {chunk.epoch for chunk in found if chunk.offset >= 21_000} == {3}


@deterministic
@given(
    end=st.integers(1, 500_000),
    new=st.integers(0, 500_000),
    parts=st.integers(1, 9),
    again=st.integers(0, 500_000),
)
def test_parts_hold_the_same_chunks(end: int, new: int, parts: int, again: int) -> None:
    seen = lineage([log("a", end=end, size=1 << 16), log("b", end=end, size=1 << 16)])
    what = plan(seen, [Extent(min(new, end), end)], chunk_size=4096, again=[Extent(0, again)])
    whole = list(chunks(what, what.pieces, seen))
    groups = split(what.pieces, parts, what.chunk_size)
    assert len(groups) <= parts
    assert [chunk for group in groups for chunk in chunks(what, group, seen)] == whole
    fresh = [chunk for chunk in whole if chunk.offset >= new]
    assert sum(chunk.length for chunk in fresh) == what.new_bytes == max(end - new, 0)
    assert len({chunk.offset for chunk in whole}) == len(whole)
    old = [chunk for chunk in whole if chunk.offset < new]
    assert sum(chunk.length for chunk in old) == min(again, new, end)


def test_a_petabyte_is_planned_at_once() -> None:
    end = 1 << 50
    what = Plan(
        pieces=(Extent(0, end), Extent(end + (1 << 30), end + (1 << 40))),
        borders=(0, end),
        chunk_size=1 << 20,
        segment_size=1 << 30,
        full=False,
        new_bytes=1 << 40,
        old_bytes=end,
    )
    groups = split(what.pieces, 1000, what.chunk_size)
    assert len(groups) == 1000
    work = [sum(piece.length for piece in group) for group in groups]
    assert max(work) < 1.01 * sum(work) / 1000 + (1 << 20)
    seen = lineage([log("a", end=10), log("b", end=10)])
    assert len(list(itertools.islice(chunks(what, groups[7], seen), 1000))) == 1000


@pytest.mark.parametrize("size", [0, 1000, 5000, 1 << 30])
def test_chunk_sizes_are_powers_of_two(size: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        plan(lineage([]), [], chunk_size=size)
