"""Findings of the structural check, of consume queues and of index files. Called by `checks`, after the replicas were
compared."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.indexes import IndexCheck, IndexFault
from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_formats.soundness.structure import MAX_FAULTS, Fault, Structure, add_topics, join
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage

MOST_NAMED: Final = 16
"""Faults reported one by one; of queues, in each queue."""
MOST_QUEUES: Final = 16
"""Queues reported one by one, of each replica."""
MOST_ENTRIES: Final = 16
"""Entries of index files reported one by one, of each replica."""


def joined(parts: Iterable[Structure]) -> Structure | None:
    """All that was checked, as one; None if nothing was."""
    ordered = sorted(parts, key=lambda part: part.extent)
    return join(ordered) if ordered else None


def added(one: Structure | None, other: Structure | None) -> Structure | None:
    """Counts and faults of both; they may lie between each other."""
    if one is None or other is None:
        return other if one is None else one
    topics = dict(one.topics)
    add_topics(topics, other.topics)
    return msgspec.structs.replace(
        one,
        extent=Extent(min(one.extent.start, other.extent.start), max(one.extent.end, other.extent.end)),
        records=one.records + other.records,
        record_bytes=one.record_bytes + other.record_bytes,
        blanks=one.blanks + other.blanks,
        blank_bytes=one.blank_bytes + other.blank_bytes,
        skipped_bytes=one.skipped_bytes + other.skipped_bytes,
        unread=one.unread + other.unread,
        topics=topics,
        faults=(*one.faults, *other.faults)[:MAX_FAULTS],
        fault_count=one.fault_count + other.fault_count,
    )


def bad_structure(found: Structure, lineage: Lineage, reported: Sequence[Extent]) -> list[Finding]:
    """Faults that are equal in all replicas; the others are `reported` with the differences, and with the right
    copy."""
    everywhere = [fault for fault in found.faults if not any(fault.extent.meet(extent).length for extent in reported)]
    findings = [_bad_structure(fault, lineage) for fault in everywhere[:MOST_NAMED]]
    more = len(everywhere) - len(findings) + found.fault_count - len(found.faults)
    if more > 0 and findings:
        last = everywhere[-1].extent
        names = findings[-1].replicas
        findings.append(
            Finding(
                kind=Kind.BAD_STRUCTURE,
                replicas=names,
                extent=Extent(everywhere[len(findings) - 1].extent.start, max(last.end, found.extent.end)),
                epoch=lineage.epoch_at(last.start),
                detail=f"{more} more places are not sound records, {_in(names)}",
            )
        )
    return findings


def _bad_structure(fault: Fault, lineage: Lineage) -> Finding:
    start = fault.extent.start
    lack = {
        replica
        for finding in lineage.findings
        if finding.kind is Kind.MISSING_SEGMENT and finding.extent.meet(fault.extent).length
        for replica in finding.replicas
    }
    here = {zone.replica for zone in lineage.zones if zone.extent.meet(fault.extent).length == fault.extent.length}
    names = tuple(sorted(here - lack))
    return Finding(
        kind=Kind.BAD_STRUCTURE,
        replicas=names,
        extent=fault.extent,
        first_difference=start,
        segment=start - start % lineage.segment_size,
        epoch=lineage.epoch_at(start),
        detail=f"no sound record from {start} to {fault.extent.end}, {_in(names)}: {fault.detail} "
        f"({fault.reason.value})",
    )


def _in(names: Sequence[ReplicaName]) -> str:
    if not names:
        return "in no replica as a whole"
    return f"in {names[0]}, which alone has these bytes" if len(names) == 1 else f"equally in {', '.join(names)}"


def bad_queues(
    found: Iterable[tuple[ReplicaName, str, int, Extent, QueueCheck]], lineage: Lineage, reported: Sequence[Extent]
) -> list[Finding]:
    """Queues that do not point to their messages, without records that are already reported as damaged.

    Args:
        found: replica, topic, queue id, the range of the log that was checked, the result.
    """
    findings: list[Finding] = []
    queues: dict[ReplicaName, int] = {}
    rest: dict[ReplicaName, list[int]] = {}
    for replica, topic, queue_id, extent, check in found:
        faults = [
            fault
            for fault in check.faults
            if fault.physical_offset is None
            or not any(other.start <= fault.physical_offset < other.end for other in reported)
        ]
        if not faults:
            continue
        queues[replica] = queues.get(replica, 0) + 1
        named = MOST_NAMED if queues[replica] <= MOST_QUEUES else 0
        for number, fault in enumerate(faults):
            offset = fault.physical_offset
            at = extent.start if offset is None else max(offset, 0)
            if number >= named:
                rest.setdefault(replica, []).append(at)
                continue
            findings.append(
                Finding(
                    kind=Kind.QUEUE_MISMATCH,
                    replicas=(replica,),
                    extent=Extent(at, at),
                    segment=None if offset is None else at - at % lineage.segment_size,
                    epoch=None if offset is None else lineage.epoch_at(at),
                    record=RecordName(
                        physical_offset=at, size=0, topic=topic, queue_id=queue_id, queue_offset=fault.queue_offset
                    ),
                    detail=f"{replica}: message {fault.queue_offset} of queue {queue_id} of {topic}: {fault.detail} "
                    f"({fault.reason.value})",
                )
            )
    for replica, places in sorted(rest.items()):
        last = max(*places, *(finding.extent.start for finding in findings if replica in finding.replicas))
        findings.append(
            Finding(
                kind=Kind.QUEUE_MISMATCH,
                replicas=(replica,),
                extent=Extent(last, last),  # a finding that has a name comes first
                detail=f"{replica}: {len(places)} more units of consume queues do not point to their messages, from "
                f"offset {min(places)} on",
            )
        )
    return findings


def bad_indexes(
    found: Iterable[tuple[ReplicaName, Extent, IndexCheck]], lineage: Lineage, reported: Sequence[Extent]
) -> list[Finding]:
    """Index files that do not lead to their messages, without records that are already reported as damaged.

    Args:
        found: replica, the range of the log that was checked, the result.
    """
    faults: dict[ReplicaName, dict[IndexFault, int]] = {}
    more: dict[ReplicaName, int] = {}
    for replica, extent, check in found:
        own = faults.setdefault(replica, {})
        for fault in (*check.faults, *check.files):
            place = fault.physical_offset
            if place is None or not any(other.start <= place < other.end for other in reported):
                own.setdefault(fault, _start(lineage, replica, extent) if place is None else max(place, 0))
        more[replica] = more.get(replica, 0) + check.fault_count - len(check.faults)
    findings = []
    for replica, own in sorted(faults.items()):
        named = sorted(own.items(), key=lambda pair: (pair[1], pair[0].file, pair[0].entry or 0))[:MOST_ENTRIES]
        findings += [_bad_entry(replica, fault, at, lineage) for fault, at in named]
        rest = len(own) - len(named) + more[replica]
        if rest and named:
            last = named[-1][1]
            findings.append(
                Finding(
                    kind=Kind.INDEX_MISMATCH,
                    replicas=(replica,),
                    extent=Extent(last, last),
                    detail=f"{replica}: {rest} more entries of index files do not lead to their messages",
                )
            )
    return findings


def _start(lineage: Lineage, replica: ReplicaName, extent: Extent) -> int:
    """Where the log of this replica begins: a bad file is seen from each extent, and reported once."""
    zone = lineage.zone(replica)
    return extent.start if zone is None else zone.extent.start


def _bad_entry(replica: ReplicaName, fault: IndexFault, at: int, lineage: Lineage) -> Finding:
    known = fault.physical_offset is not None
    return Finding(
        kind=Kind.INDEX_MISMATCH,
        replicas=(replica,),
        extent=Extent(at, at),
        segment=at - at % lineage.segment_size if known else None,
        epoch=lineage.epoch_at(at) if known else None,
        detail=f"{replica}: index file {fault.file}: {fault.detail} ({fault.reason.value})",
    )
