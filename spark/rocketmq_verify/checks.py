"""The checks of one log by itself, after the replicas were compared: its structure, and consume queues. Called by
`job`.

Replicas that agree have one structure, so each byte is checked in one of them: the best one that has it, the next one
where that lacks it or cannot be read. Consume queues and index files are each replica's own: where there are files,
they are checked against the log of one replica; a sidecar checks those of its replica against the replica's own log.
Only results travel from sidecars.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_formats.soundness.records import LARGEST_RECORD
from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, common, covered, merged, without
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.shapes import bad_indexes, bad_queues, bad_structure, joined
from rocketmq_verify.engine.scanner import Errors, Scanner
from rocketmq_verify.run import Checked, QueueSummary
from rocketmq_verify.sources.source import UNSERVED
from rocketmq_verify.sources.work import Place, Work

QUEUE_WORK: Final = 4
"""How much more work a byte is for consume queues than for digests."""


class Share(NamedTuple):
    """What is checked in one replica's log."""

    place: Place
    own: tuple[Extent, ...]
    leads: tuple[Extent, ...]
    """In front of these: a record that begins there may end in `own`."""

    @property
    def pieces(self) -> tuple[Extent, ...]:
        return tuple(sorted([*self.own, *self.leads]))


def witnesses(places: Sequence[Place], lineage: Lineage, found: Sequence[Finding]) -> list[Place]:
    """The replicas whose log may be checked, the best one first: files before sidecars, the common history before
    others, then the one that has most of what was compared."""
    both = covered(zone.extent for zone in lineage.zones)
    zones = {zone.replica: sum(part.length for part in common([zone.extent], both)) for zone in lineage.zones}
    apart = {replica for finding in found if finding.kind is Kind.STALE_TAIL for replica in finding.replicas}
    there = [place for place in places if place.name in zones]
    return sorted(there, key=lambda place: (place.has_files, place.name not in apart, zones[place.name]), reverse=True)


def wanted(plan: Plan) -> tuple[Extent, ...]:
    """What is checked: all that is read, and what one replica alone has."""
    return merged([*plan.pieces, *plan.alone])


def share(place: Place, lineage: Lineage, left: Iterable[Extent]) -> Share:
    """What this replica has of what is left."""
    zone = lineage.zone(place.name)
    assert zone is not None
    gone = [
        finding.extent
        for finding in lineage.findings
        if finding.kind is Kind.MISSING_SEGMENT and place.name in finding.replicas
    ]
    there, size = without([zone.extent], gone), lineage.segment_size
    own = common(left, there)
    leads = [
        Extent(max(extent.start - extent.start % size, extent.start - LARGEST_RECORD), extent.start) for extent in own
    ]
    return Share(place, own, without(common(leads, there), own))


def check_structure(
    scanner: Scanner, places: Sequence[Place], work: Work, lineage: Lineage, *, known: Sequence[Extent]
) -> Checked:
    """Check the structure of what the plan reads as a whole, in the first of these replicas that has it."""
    left = wanted(work.plan)
    findings: list[Finding] = []
    all_parts: list[Structure] = []
    faults = 0
    errors: Errors = {}
    for place in places:
        own = share(place, lineage, left)
        if not own.own:
            continue
        parts, failed = scanner.structures(place, _planned(work, own))
        errors |= failed
        found = joined(parts)
        if found is not None:
            found = _without_leads(found, own)
            reported = [*known, *(finding.extent for finding in findings)]
            findings += bad_structure(found, lineage, reported)
            all_parts += [part for part in parts if common([part.extent], own.own)]
            left = without(left, [part.extent for part in parts])
            faults += found.fault_count
    whole = joined(all_parts)
    if whole is not None:
        whole = msgspec.structs.replace(whole, fault_count=faults)
    if not left:
        errors = {}  # another replica was checked instead
    return Checked(findings=tuple(findings), structure=whole, unchecked=_why(errors), suspects=_again(left, errors))


def _without_leads(found: Structure, share: Share) -> Structure:
    """Only with faults that reach into what was to be checked."""
    faults = tuple(fault for fault in found.faults if common([fault.extent], share.own))
    return msgspec.structs.replace(
        found, faults=faults, fault_count=found.fault_count - len(found.faults) + len(faults)
    )


def check_queues(
    scanner: Scanner, places: Sequence[Place], work: Work, lineage: Lineage, *, known: Sequence[Extent]
) -> Checked:
    """Check the consume queues and index files of all these replicas, as far as the plan reads the log as a whole."""
    left = pieces = wanted(work.plan)
    findings: list[Finding] = []
    summary: QueueSummary | None = None
    suspects: list[Extent] = []
    errors: Errors = {}
    for place in places:
        own = share(place, lineage, left)
        if not own.own:
            continue
        left = without(left, own.own)
        queued = msgspec.structs.replace(
            _planned(work, own), queues_of=tuple(places), per_task=work.per_task // QUEUE_WORK
        )
        found, failed = scanner.queues(place, queued)
        errors |= failed
        rows: list[tuple[ReplicaName, str, int, Extent, QueueCheck]] = [
            (faulty.replica, faulty.topic, faulty.queue_id, faulty.extent, faulty.check) for faulty in found.faulty
        ]
        findings += bad_queues(rows, lineage, known)
        findings += bad_indexes([(one.replica, one.extent, one.check) for one in found.faulty_indexes], lineage, known)
        suspects += found.suspects
        counts = QueueSummary(
            units=found.units,
            lag=found.lag,
            superseded=found.superseded,
            faults=found.faults,
            index_entries=found.index_entries,
            index_faults=found.index_faults,
        )
        summary = counts.plus(summary)
    return Checked(
        findings=tuple(findings),
        queues=summary,
        suspects=(*suspects, *_again(pieces, errors)),
        unchecked=_why(errors),
    )


def _planned(work: Work, share: Share) -> Work:
    plan = msgspec.structs.replace(work.plan, pieces=share.pieces, alone=())
    return msgspec.structs.replace(work, plan=plan)


def _again(extents: Sequence[Extent], errors: Errors) -> tuple[Extent, ...]:
    """What the next run has to check because this one could not; another release has to come first."""
    return tuple(extents) if any(reason != UNSERVED for reason in errors.values()) else ()


def _why(errors: Errors) -> tuple[str, ...]:
    return tuple(f"{replica}: {reason}" for replica, reason in sorted(errors.items()))
