"""The checks of one log by itself, after the replicas were compared: its structure, and consume queues. Called by
`job`.

Replicas that agree have one structure, so it is checked in one of them. Consume queues are each replica's own: where
there are files, they are checked against the log of one replica; a sidecar checks those of its replica against the
replica's own log. Only results travel from sidecars.
"""

from collections.abc import Sequence

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.chunks import ALL, Piece, common, covered
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.shapes import bad_queues, bad_structure, joined
from rocketmq_verify.engine.scanner import Errors, Scanner
from rocketmq_verify.run import Checked, QueueSummary
from rocketmq_verify.sources.work import Place, Work


def witness(places: Sequence[Place], lineage: Lineage, found: Sequence[Finding]) -> Place | None:
    """The replica whose log is checked: files before sidecars, the common history before others, then the one that has
    most of what was compared."""
    both = covered(zone.extent for zone in lineage.zones)
    zones = {zone.replica: sum(part.length for part in common([zone.extent], both)) for zone in lineage.zones}
    apart = {replica for finding in found if finding.kind is Kind.STALE_TAIL for replica in finding.replicas}
    there = [place for place in places if place.name in zones]
    return max(there, key=lambda place: (place.has_files, place.name not in apart, zones[place.name]), default=None)


def check_structure(
    scanner: Scanner, place: Place, work: Work, lineage: Lineage, *, known: Sequence[Extent]
) -> Checked:
    """Check the structure of what the plan reads as a whole."""
    pieces = tuple(piece for piece in work.plan.pieces if piece.per_million == ALL)
    parts: list[Structure] = []
    errors: Errors = {}
    if pieces:
        plan = msgspec.structs.replace(work.plan, pieces=pieces)
        parts, errors = scanner.structures(place, msgspec.structs.replace(work, plan=plan))
    found, suspects = joined(parts), _again(pieces, errors)
    if found is None:
        return Checked(unchecked=_why(errors), suspects=suspects)
    findings = tuple(bad_structure(found, lineage, known))
    return Checked(findings=findings, structure=found, unchecked=_why(errors), suspects=suspects)


def check_queues(
    scanner: Scanner,
    place: Place,
    places: Sequence[Place],
    work: Work,
    lineage: Lineage,
    *,
    known: Sequence[Extent],
) -> Checked:
    """Check every replica's consume queues, as far as the plan reads the log as a whole."""
    names = {zone.replica for zone in lineage.zones}
    own = tuple(candidate for candidate in places if candidate.name in names)
    pieces = tuple(piece for piece in work.plan.pieces if piece.per_million == ALL)
    if not own or not pieces:
        return Checked()
    plan = msgspec.structs.replace(work.plan, pieces=pieces)
    queued = msgspec.structs.replace(work, plan=plan, queues_of=own, per_task=work.per_task // 4)
    found, errors = scanner.queues(place, queued)
    rows: list[tuple[ReplicaName, str, int, Extent, QueueCheck]] = [
        (faulty.replica, faulty.topic, faulty.queue_id, faulty.extent, faulty.check) for faulty in found.faulty
    ]
    return Checked(
        findings=tuple(bad_queues(rows, lineage, known)),
        queues=QueueSummary(units=found.units, lag=found.lag, superseded=found.superseded, faults=found.faults),
        suspects=(*found.suspects, *_again(pieces, errors)),
        unchecked=_why(errors),
    )


def _again(pieces: Sequence[Piece], errors: Errors) -> tuple[Extent, ...]:
    """What the next run has to check because this one could not."""
    return tuple(piece.extent for piece in pieces) if errors else ()


def _why(errors: Errors) -> tuple[str, ...]:
    return tuple(f"{replica}: {reason}" for replica, reason in sorted(errors.items()))
