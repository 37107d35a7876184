"""Digests side by side, and what is kept of many of them."""

from __future__ import annotations

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.inquiry.compare import MOST_DIFFERING, ChunkResult, Rest, Tally, compare, grouped
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaName
from rocketmq_verify.domain.planning.lineage import lineage
from tests.verify.logs_kit import log

A, B, C = (ReplicaName(name) for name in "abc")
SEEN = lineage([log("a"), log("b"), log("c", begin=0, end=500, confirm=500)])


def digest(replica: ReplicaName, value: bytes | None, offset: int = 0, length: int = 100) -> ChunkDigest:
    return ChunkDigest(replica, offset, length, value)


def test_groups_are_largest_first() -> None:
    assert grouped({C: b"1", A: b"2", B: b"1"}) == ((B, C), (A,))
    assert grouped({}) == ()


def test_only_replicas_with_the_whole_chunk_take_part() -> None:
    chunk = Chunk(0, 100, 1)
    found = compare(chunk, [digest(A, b"x"), digest(B, b"x"), digest(C, b"y")], SEEN)
    assert (found.groups, found.missing, found.differs, found.compared) == (((A, B), (C,)), (), True, True)
    late = Chunk(450, 100, 1)
    found = compare(late, [digest(name, b"x", 450) for name in (A, B, C)], SEEN)
    assert (found.groups, found.missing) == (((A, B),), ())


def test_a_replica_without_a_digest_of_the_chunk_is_missing() -> None:
    found = compare(Chunk(0, 100, 1), [digest(A, b"x"), digest(B, None), digest(C, b"x", 0, 50)], SEEN)
    assert (found.groups, found.missing, found.compared) == (((A,),), (B, C), False)


def result(offset: int, *groups: tuple[ReplicaName, ...], missing: tuple[ReplicaName, ...] = ()) -> ChunkResult:
    return ChunkResult(chunk=Chunk(offset, 100, 1), groups=groups, missing=missing)


def test_a_tally_keeps_the_first_of_each_way_to_differ() -> None:
    tally = Tally()
    for offset in range(MOST_DIFFERING * 200, 0, -100):
        tally.add(result(offset, (A, B), (C,)))
    tally.add(result(70, (A, C), (B,)))
    kept = tally.results()
    assert len(kept) == MOST_DIFFERING + 1
    assert kept[0].chunk.offset == 70
    assert kept[-1].chunk.offset == MOST_DIFFERING * 100
    rest = tally.rest[(A, B), (C,)]
    assert rest == Rest(MOST_DIFFERING, MOST_DIFFERING * 100, (MOST_DIFFERING + 1) * 100, MOST_DIFFERING * 200 + 100)


def test_tallies_add_up_in_any_order() -> None:
    results = [result(at * 100, (A,), (B,)) if at % 3 else result(at * 100, (A,), missing=(B,)) for at in range(2000)]
    whole, one, other = Tally(), Tally(), Tally()
    for index, each in enumerate(results):
        whole.add(each)
        (one if index % 2 else other).add(each)
    other.merge(one)
    assert other.results() == whole.results()
    assert (other.rest, other.chunks, other.bytes, other.read_bytes) == (
        whole.rest, whole.chunks, whole.bytes, whole.read_bytes,
    )  # fmt: skip


def test_missing_neighbours_are_one() -> None:
    tally = Tally()
    for offset in (300, 100, 200, 900):
        tally.add(result(offset, (A,), missing=(B,)))
    assert tally.missing == {B: [Extent(100, 400), Extent(900, 1000)]}
    assert tally.bytes == 0
