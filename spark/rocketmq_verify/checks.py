"""The checks of one log by itself, after the replicas were compared: its structure, and consume queues. Called by
`job`.

Replicas that agree have one structure, so it is checked in one of them: in all new bytes if its files can be read, in
a small sample if they travel through a sidecar. Consume queues are each replica's own, and are checked where there are
files, against the log of one replica.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.chunks import ALL, Piece, common, covered
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.shapes import bad_queues, bad_structure, joined
from rocketmq_verify.engine import scan
from rocketmq_verify.run import Checked, QueueSummary
from rocketmq_verify.sources.work import Place, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_PER_MILLION: Final = 400
"""Of the bytes that were compared: what may travel from a sidecar for the check of the structure."""
WINDOW: Final = 64 << 10
MOST_WINDOWS: Final = 1024


def witness(places: Sequence[Place], lineage: Lineage, found: Sequence[Finding]) -> Place | None:
    """The replica whose log is checked: files before sidecars, the common history before others, then the one that has
    most of what was compared."""
    both = covered(zone.extent for zone in lineage.zones)
    zones = {zone.replica: sum(part.length for part in common([zone.extent], both)) for zone in lineage.zones}
    apart = {replica for finding in found if finding.kind is Kind.STALE_TAIL for replica in finding.replicas}
    there = [place for place in places if place.name in zones]
    return max(there, key=lambda place: (place.has_files, place.name not in apart, zones[place.name]), default=None)


def check_structure(
    spark: "SparkSession", place: Place, work: Work, lineage: Lineage, *, known: Sequence[Extent], at_once: int
) -> Checked:
    """Check the structure of what the plan reads as a whole."""
    pieces = tuple(piece for piece in work.plan.pieces if piece.per_million == ALL)
    if not place.has_files:
        pieces = _windows(pieces, copies=len(work.zones), seed=work.plan.seed)
    parts: list[Structure] = []
    if pieces:
        plan = msgspec.structs.replace(work.plan, pieces=pieces)
        parts, _ = scan.structures(spark, place, msgspec.structs.replace(work, plan=plan), at_once=at_once)
    found = joined(parts)
    if found is None:
        return Checked(sampled=not place.has_files)
    findings = bad_structure(found, lineage, known)
    travelled = 0 if place.has_files else sum(piece.extent.length for piece in pieces)
    return Checked(findings=tuple(findings), structure=found, sampled=not place.has_files, travelled=travelled)


def check_queues(
    spark: "SparkSession",
    place: Place,
    places: Sequence[Place],
    work: Work,
    lineage: Lineage,
    *,
    known: Sequence[Extent],
    at_once: int,
) -> Checked:
    """Check every replica's consume queues, as far as the plan reads the log as a whole; nothing without files."""
    names = {zone.replica for zone in lineage.zones}
    own = tuple(candidate for candidate in places if candidate.has_files and candidate.name in names)
    pieces = tuple(piece for piece in work.plan.pieces if piece.per_million == ALL)
    if not own or not place.has_files or not pieces:
        return Checked()
    plan = msgspec.structs.replace(work.plan, pieces=pieces)
    queued = msgspec.structs.replace(work, plan=plan, queues_of=own, per_task=work.per_task // 4)
    found, _ = scan.queues(spark, place, queued, at_once=at_once)
    rows: list[tuple[ReplicaName, str, int, Extent, QueueCheck]] = [
        (faulty.replica, faulty.topic, faulty.queue_id, faulty.extent, faulty.check) for faulty in found.faulty
    ]
    return Checked(
        findings=tuple(bad_queues(rows, lineage, known)),
        queues=QueueSummary(units=found.units, lag=found.lag, superseded=found.superseded, faults=found.faults),
        suspects=found.suspects,
    )


def _windows(pieces: Sequence[Piece], *, copies: int, seed: int) -> tuple[Piece, ...]:
    """Random windows of these pieces, in their order."""
    total = sum(piece.extent.length for piece in pieces)
    count = min(total * copies * SAMPLE_PER_MILLION // ALL // WINDOW, MOST_WINDOWS)
    chance = random.Random(seed)  # noqa: S311 - a sample, no secret
    starts = sorted({chance.randrange(total // WINDOW) * WINDOW for _ in range(count)})
    found: list[Piece] = []
    begin = 0
    for piece in pieces:
        end = begin + piece.extent.length
        for start in starts:
            if begin <= start < end:
                at = piece.extent.start + start - begin
                found.append(Piece(Extent(at, min(at + WINDOW, piece.extent.end))))
        begin = end
    return tuple(found)
