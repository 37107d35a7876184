"""What differs and cannot be settled is not aligned, and not forever without a word."""

from __future__ import annotations

import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.inquiry.compare import ChunkResult, Tally
from rocketmq_verify.domain.inquiry.unsettled import reported_places
from rocketmq_verify.domain.model import Chunk, ReadRequest, ReplicaName
from rocketmq_verify.domain.verdict import Result
from tests.verify.planted.faults import CHUNK, SEGMENT, Group, verify

A, B, C = (ReplicaName(name) for name in "abc")


def test_a_place_that_reads_otherwise_each_time_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Group().fill()
    bad = made["b"]
    sound = bad.answer
    monkeypatch.setattr(bad, "answer", lambda request: _flaky(request, sound(request)))
    first = verify(made.replicas)
    assert (first.verdict.result, first.verdict.aligned_up_to) == (Result.ALIGNED, 2 * CHUNK)
    again = verify(made.replicas, marks=first.marks)
    assert (again.verdict.result, again.verdict.exit_code) == (Result.UNVERIFIED, 3)
    assert f"the bytes from {2 * CHUNK} to {3 * CHUNK} differ in every run" in again.verdict.summary
    monkeypatch.undo()
    assert verify(made.replicas, marks=again.marks).verdict.result is Result.ALIGNED


def _flaky(request: ReadRequest, answer: bytes | None) -> bytes | None:
    """The digest of one chunk is wrong, its bytes are right."""
    whole = request.digest and request.extent == Extent(2 * CHUNK, 3 * CHUNK)
    return bytes(16) if whole else answer


def test_what_expires_while_it_is_read_does_not_hold_back_what_is_aligned() -> None:
    made = Group().fill(200)

    def expire() -> None:
        for one in made.replicas:
            if one.min < SEGMENT:
                made.expire(one)

    run = verify(made.replicas, meanwhile=expire, every=5)
    assert run.tally.missing
    assert (run.verdict.result, run.verdict.aligned_up_to) == (Result.ALIGNED, made.master.end)


def test_a_replica_that_was_rebuilt_meanwhile_is_named() -> None:
    made = Group().fill()
    run = verify(made.replicas, meanwhile=lambda: made.rebuild(made["c"]), every=10)
    assert run.verdict.summary.endswith("not judged, because it changed during the run: c")


def test_only_the_differing_part_of_a_chunk_is_reported() -> None:
    tally = Tally()
    tally.add(ChunkResult(chunk=Chunk(0, 4096, 1), groups=((A, B), (C,)), missing=()))
    tally.add(ChunkResult(chunk=Chunk(4096, 4096, 1), groups=((A, B), (C,)), missing=()))
    assert reported_places(tally, ()) == (Extent(0, 8192),)

    def finding(kind: Kind, start: int, end: int) -> Finding:
        return Finding(kind=kind, replicas=(C,), extent=Extent(start, end), detail="why")

    assert reported_places(tally, [finding(Kind.CORRUPT_RECORD, 100, 300)]) == (Extent(100, 300), Extent(4096, 8192))
    assert reported_places(tally, [finding(Kind.UNUSED_BYTES, 100, 300), finding(Kind.STALE_TAIL, 5000, 9000)]) == ()
