"""Impossible numbers, places that vanish: bounded work, typed refusals."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import msgspec
import pytest

from rocketmq_api.channels import ApiError
from rocketmq_api.log_readers import view_of
from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Kind
from rocketmq_verify.domain.inquiry.compare import MOST_MISSING, ChunkResult, Tally
from rocketmq_verify.domain.model import Chunk, ReplicaName
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.domain.planning.table_findings import missing
from rocketmq_verify.sources.replicas import Replicas
from rocketmq_verify.sources.source import SourceOptions, SpecError
from tests.sidecar.ports.test_log_service import FULL, message_of
from tests.verify.history.stores import save_all
from tests.verify.logs_kit import SIZE, log
from tests.verify.planted.faults import Group

A, B = ReplicaName("a"), ReplicaName("b")


def lacking(offset: int) -> ChunkResult:
    return ChunkResult(chunk=Chunk(offset, 100, 1), groups=((A,),), missing=(B,))


def test_a_file_with_an_offset_far_away_costs_no_more_than_a_file() -> None:
    far = 10**15 * SIZE
    strange = msgspec.structs.replace(log("a", end=1500), max_offset=far + 10, segments=(0, SIZE, far))
    (found,) = missing(strange)
    assert (found.kind, found.extent) == (Kind.MISSING_SEGMENT, Extent(2 * SIZE, far))
    assert {one.kind for one in lineage([strange, log("b", end=1500)]).findings} >= {Kind.MISSING_SEGMENT}


@pytest.mark.parametrize(
    ("begin", "end", "size"), [(0, 2**62, 4096), (0, 10, 0), (-1, 10, 4096), (0, -1, 4096), (-(2**62), 2**62, 4096)]
)
def test_a_log_of_impossible_length_is_refused(begin: int, end: int, size: int) -> None:
    message = message_of(FULL)
    del message.segments[:]
    message.min_offset, message.max_offset, message.segment_size = begin, end, size
    with pytest.raises(ApiError, match="cannot be"):
        view_of("a:1", message)


def test_chunks_of_a_missing_file_are_one_range_in_whatever_order_they_come() -> None:
    offsets = [offset * 100 for offset in range(3000)]
    Random(7).shuffle(offsets)
    tally, other = Tally(), Tally()
    for index, offset in enumerate(offsets):
        (tally if index % 2 else other).add(lacking(offset))
    tally.merge(other)
    assert tally.missing == {B: [Extent(0, 300_000)]}


def test_of_many_ranges_the_last_ones_are_joined_and_none_is_forgotten() -> None:
    tally = Tally()
    offsets = [offset * 1000 for offset in range(MOST_MISSING + 500)]
    Random(7).shuffle(offsets)
    for offset in offsets:
        tally.add(lacking(offset))
    kept = tally.missing[B]
    assert len(kept) == MOST_MISSING
    assert all(any(one.start <= offset < one.end for one in kept) for offset in offsets)


def test_a_replica_whose_folder_vanishes_could_not_be_read(tmp_path: Path) -> None:
    places = save_all(Group().fill(20), tmp_path)
    replicas = Replicas(places, SourceOptions())
    assert len(replicas.describe()) == 3
    shutil.rmtree(tmp_path / "b")
    assert [one.name for one in replicas.describe()] == ["a", "c"]
    assert "is no longer there" in replicas.failed[B]
    replicas.close()
    with pytest.raises(SpecError):
        Replicas(places, SourceOptions()).describe()
