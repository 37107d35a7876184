"""The result of a run: one word, one sentence, an exit code. Everything that shows a result shows this.

The JSON of a run is `msgspec.json.encode` of this struct, with keys in camelCase; `schema_version` grows when a key
changes its meaning or is removed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from rocketmq_verify.domain.findings import Finding, Kind, Severity
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.model import Extent, ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, common, covered
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.reports import FindingReport, report

__all__ = [
    "EXIT_CODES",
    "SCHEMA_VERSION",
    "FindingReport",
    "ReplicaReport",
    "Result",
    "Verdict",
    "in_order",
    "report",
    "verdict",
]

SCHEMA_VERSION: Final = 1
_ORDER: Final = {Severity.MISMATCH: 0, Severity.UNVERIFIED: 1, Severity.INFORMATION: 2}


class Result(StrEnum):
    ALIGNED = "aligned"
    MISMATCH = "mismatch"
    UNVERIFIED = "unverified"


EXIT_CODES: Final = {Result.ALIGNED: 0, Result.MISMATCH: 1, Result.UNVERIFIED: 3}


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One replica, as it was and as far as it was compared."""

    name: ReplicaName
    broker_id: int | None
    master: bool
    min_offset: int
    confirm_offset: int
    max_offset: int
    epochs: tuple[tuple[int, int], ...]
    """`[epoch, startOffset]`."""
    compared_from: int | None
    compared_up_to: int | None
    """None where nothing of it was compared."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = SCHEMA_VERSION
    group: str | None
    result: Result
    exit_code: int
    summary: str
    """One sentence."""
    aligned_up_to: int | None
    """Everything that at least two replicas have below this offset is equal, as far as this run or earlier ones read
    it; None where nothing could be compared."""
    epoch: int | None
    """Of the byte before `aligned_up_to`; None where no table has it."""
    confirm_offset: int
    """Of the group."""
    full: bool
    """Everything was read, not only what is new and a sample."""
    compared_bytes: int
    """Of the log."""
    read_bytes: int
    """The same, times the replicas that have them."""
    new_bytes: int
    old_bytes: int
    chunks: int
    moved: tuple[ReplicaName, ...]
    """Not judged: gone, rebuilt or emptied during the run."""
    counts: dict[str, int]
    """Findings by kind; every kind is there."""
    replicas: tuple[ReplicaReport, ...]
    findings: tuple[FindingReport, ...]


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """As reports show them: by severity, offset, replica."""
    return tuple(
        sorted(
            findings,
            key=lambda finding: (_ORDER[finding.severity], finding.extent.start, finding.replicas, finding.kind),
        )
    )


def verdict(
    logs: Sequence[ReplicaLog],
    lineage: Lineage,
    plan: Plan,
    tally: Tally,
    findings: Iterable[Finding],
    *,
    group: str | None = None,
    allow_unreachable: bool = False,
    unsettled: Sequence[Extent] = (),
    lasting: Sequence[Extent] = (),
) -> Verdict:
    """The verdict on a run.

    Args:
        lineage: of both looks.
        findings: all of them, the lineage's own too.
        allow_unreachable: a replica that could not be read does not make the run unverified, while two could.
        unsettled: what differed and changed during the run: not judged.
        lasting: the part of it that an earlier run could not settle either: not verified.
    """
    ordered = in_order(findings)
    up_to = _aligned_up_to(lineage, tally, ordered, unsettled)
    mismatches = [finding for finding in ordered if finding.severity is Severity.MISMATCH]
    unread = [finding for finding in ordered if finding.severity is Severity.UNVERIFIED]
    strange = _strangers(lineage, ordered)
    empty = not any(log.extent.length for log in logs) and len(logs) > 1
    if mismatches:
        result = Result.MISMATCH
    elif (up_to is None and not empty) or (unread and not allow_unreachable) or strange or lasting:
        result = Result.UNVERIFIED
    else:
        result = Result.ALIGNED
    epoch = None if up_to is None else lineage.epoch_at(max(up_to - 1, 0))
    epoch = None if epoch == -1 else epoch
    return Verdict(
        group=group,
        result=result,
        exit_code=EXIT_CODES[result],
        summary=_summary(
            result,
            up_to=up_to,
            epoch=epoch,
            mismatches=mismatches,
            unread=unread,
            strange=strange,
            lasting=lasting,
            logs=logs,
            lineage=lineage,
        ),
        aligned_up_to=up_to,
        epoch=epoch,
        confirm_offset=lineage.confirm_offset,
        full=plan.full,
        compared_bytes=tally.bytes,
        read_bytes=tally.read_bytes,
        new_bytes=plan.new_bytes,
        old_bytes=plan.old_bytes,
        chunks=tally.chunks,
        moved=lineage.moved,
        counts={kind.value: count for kind, count in _counts(ordered).items()},
        replicas=tuple(_replica(log, lineage) for log in logs),
        findings=tuple(report(finding) for finding in ordered),
    )


def _aligned_up_to(
    lineage: Lineage, tally: Tally, findings: Iterable[Finding], unsettled: Sequence[Extent]
) -> int | None:
    """The end of what is equal in at least two replicas, at most up to the first mismatch."""
    reach = {zone.replica: zone.extent.end for zone in lineage.zones}
    limit: int | None = None
    for finding in findings:
        at = finding.extent.start if finding.first_difference is None else finding.first_difference
        if finding.severity is Severity.MISMATCH:
            limit = at if limit is None else min(limit, at)
        if finding.kind.traits.ends_comparison:
            for replica in set(finding.replicas) & reach.keys():
                reach[replica] = min(reach[replica], at)
    for zone in lineage.zones:
        # what was read, and has expired since, is in front of the zone
        for lack in common(tally.missing.get(zone.replica, ()), [zone.extent])[:1]:
            reach[zone.replica] = min(reach[zone.replica], lack.start)
    both = covered(Extent(zone.extent.start, reach[zone.replica]) for zone in lineage.zones)
    if not both:
        return None if limit is None or not reach else min(limit, max(reach.values()))
    return min([both[-1].end, *([] if limit is None else [limit]), *(extent.start for extent in unsettled)])


def _strangers(lineage: Lineage, findings: Iterable[Finding]) -> tuple[ReplicaName, ...]:
    """Replicas with another history from their first byte on: their table lost it, or they are of another group."""
    starts = {zone.replica: zone.extent.start for zone in lineage.zones}
    return tuple(
        replica
        for finding in findings
        if finding.kind is Kind.STALE_TAIL
        for replica in finding.replicas
        if finding.extent.start == starts.get(replica)
    )


def _counts(findings: Iterable[Finding]) -> dict[Kind, int]:
    found = Counter(finding.kind for finding in findings)
    return {kind: found[kind] for kind in Kind}


def _replica(log: ReplicaLog, lineage: Lineage) -> ReplicaReport:
    zone = lineage.zone(log.name)
    return ReplicaReport(
        name=log.name,
        broker_id=log.broker_id,
        master=log.master,
        min_offset=log.min_offset,
        confirm_offset=log.confirm_offset,
        max_offset=log.max_offset,
        epochs=tuple(log.epochs.starts()),
        compared_from=None if zone is None else zone.extent.start,
        compared_up_to=None if zone is None else zone.extent.end,
    )


def _summary(
    result: Result,
    *,
    up_to: int | None,
    epoch: int | None,
    mismatches: Sequence[Finding],
    unread: Sequence[Finding],
    strange: Sequence[ReplicaName],
    lasting: Sequence[Extent],
    logs: Sequence[ReplicaLog],
    lineage: Lineage,
) -> str:
    where = f"aligned up to offset {up_to}" + ("" if epoch is None else f" at epoch {epoch}")
    if result is Result.MISMATCH:
        first = mismatches[0]
        more = len(mismatches) - 1
        tail = "" if not more else f" (and {more} more finding{'s' if more > 1 else ''})"
        return f"mismatch: {first.detail}{tail}"
    if result is Result.ALIGNED:
        if up_to is None:
            return f"{len(logs)} replicas, all without messages"
        apart = (
            ""
            if not unread
            else f"; not read: {', '.join(sorted(name for finding in unread for name in finding.replicas))}"
        )
        moved = f"; not judged, because it changed during the run: {', '.join(lineage.moved)}" if lineage.moved else ""
        return f"{len(lineage.zones)} replicas {where}{apart}{moved}"
    if lasting and not unread:
        others = "" if up_to is None else f"; the replicas are {where}"
        return (
            f"not verified: the bytes from {lasting[0].start} to {lasting[0].end} differ in every run and change while "
            f"they are read{others}"
        )
    return f"not verified: {_why_not(where if up_to is not None else None, unread, strange, logs, lineage)}"


def _why_not(
    where: str | None,
    unread: Sequence[Finding],
    strange: Sequence[ReplicaName],
    logs: Sequence[ReplicaLog],
    lineage: Lineage,
) -> str:
    others = "" if where is None else f"; the others are {where}"
    if unread:
        return f"{unread[0].detail}{others}"
    if strange and where is not None:
        return f"{' and '.join(strange)} and {lineage.reference} have no history in common{others}"
    if len(logs) < 2:
        return f"{len(logs)} replica could be read; a comparison needs two"
    moved = f"; during the run {', '.join(lineage.moved)} was rebuilt, emptied or deleted" if lineage.moved else ""
    return f"no two of {len(logs)} replicas have confirmed bytes in common{moved}"
