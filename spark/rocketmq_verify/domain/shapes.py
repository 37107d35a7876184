"""Findings of the structural check and of consume queues. Called by the job, after the replicas were compared."""

from collections.abc import Iterable, Sequence
from typing import Final

from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.histories import History
from rocketmq_verify.domain.model import Extent, RecordName, ReplicaName
from rocketmq_verify.domain.queues import QueueCheck
from rocketmq_verify.domain.structure import Fault, Structure, join

MOST_NAMED: Final = 16
"""Faults told one by one; of queues, in each queue."""
MOST_QUEUES: Final = 16
"""Queues told one by one, of each replica."""


def joined(parts: Iterable[Structure]) -> Structure | None:
    """All that was checked as one; None if nothing was."""
    ordered = sorted(parts, key=lambda part: part.extent)
    return join(ordered) if ordered else None


def bad_structure(found: Structure, history: History, told: Sequence[Extent]) -> list[Finding]:
    """Faults that all replicas have alike: others are told with what differs (`told`), and by which copy is right."""
    alike = [fault for fault in found.faults if not any(fault.extent.meet(one).length for one in told)]
    findings = [_bad_structure(fault, history) for fault in alike[:MOST_NAMED]]
    more = len(alike) - len(findings) + found.fault_count - len(found.faults)
    if more > 0 and findings:
        last = alike[-1].extent
        names = findings[-1].replicas
        findings.append(
            Finding(
                kind=Kind.BAD_STRUCTURE,
                replicas=names,
                extent=Extent(alike[len(findings) - 1].extent.start, max(last.end, found.extent.end)),
                epoch=history.epoch_at(last.start),
                detail=f"{more} more places are no sound records, alike in {', '.join(names)}",
            )
        )
    return findings


def _bad_structure(fault: Fault, history: History) -> Finding:
    start = fault.extent.start
    names = tuple(
        sorted(zone.replica for zone in history.zones if zone.extent.meet(fault.extent).length == fault.extent.length)
    )
    return Finding(
        kind=Kind.BAD_STRUCTURE,
        replicas=names,
        extent=fault.extent,
        first_difference=start,
        segment=start - start % history.segment_size,
        epoch=history.epoch_at(start),
        detail=f"no sound record from {start} to {fault.extent.end}, alike in {', '.join(names)}: {fault.detail} "
        f"({fault.reason.value})",
    )


def bad_queues(
    found: Iterable[tuple[ReplicaName, str, int, QueueCheck]], history: History, told: Sequence[Extent]
) -> list[Finding]:
    """Queues that do not lead to their messages; not those of records that are told already as damaged."""
    findings: list[Finding] = []
    queues: dict[ReplicaName, int] = {}
    rest: dict[ReplicaName, int] = {}
    for replica, topic, queue_id, check in found:
        faults = [
            fault
            for fault in check.faults
            if fault.physical_offset is None or not any(one.start <= fault.physical_offset < one.end for one in told)
        ]
        if not faults:
            continue
        queues[replica] = queues.get(replica, 0) + 1
        if queues[replica] > MOST_QUEUES:
            rest[replica] = rest.get(replica, 0) + len(faults)
            continue
        rest[replica] = rest.get(replica, 0) + len(faults) - len(faults[:MOST_NAMED])
        for fault in faults[:MOST_NAMED]:
            offset = fault.physical_offset
            at = max(offset or 0, 0)
            findings.append(
                Finding(
                    kind=Kind.QUEUE_MISMATCH,
                    replicas=(replica,),
                    extent=Extent(at, at),
                    segment=None if offset is None else at - at % history.segment_size,
                    epoch=None if offset is None else history.epoch_at(at),
                    record=RecordName(
                        physical_offset=at, size=0, topic=topic, queue_id=queue_id, queue_offset=fault.queue_offset
                    ),
                    detail=f"{replica}: message {fault.queue_offset} of queue {queue_id} of {topic}: {fault.detail} "
                    f"({fault.reason.value})",
                )
            )
    for replica, count in sorted(rest.items()):
        if count:
            findings.append(
                Finding(
                    kind=Kind.QUEUE_MISMATCH,
                    replicas=(replica,),
                    extent=Extent(0, 0),
                    detail=f"{replica}: {count} more units of consume queues do not lead to their messages",
                )
            )
    return findings
