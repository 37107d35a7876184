"""The result of a run: one word, one sentence, an exit code. Everything that shows a result shows this.

The JSON of a run is `msgspec.json.encode` of this struct, with keys in camelCase; `schema_version` grows when a key
changes its meaning or is removed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding, Kind, Severity
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, common, covered, without
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.reports import FindingReport, report

__all__ = [
    "EXIT_CODES",
    "EXIT_CONTINUES",
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
EXIT_CONTINUES: Final = 4
"""A mismatch that the next run finds again, and not everything was read: that one reads the rest."""


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
    """Everything was read, not only what is new or old."""
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
    later: Sequence[Extent] = (),
    lasting: Sequence[Extent] = (),
    owed: Sequence[Extent] = (),
    continues: bool = False,
    as_it_was: Sequence[Extent] | None = None,
) -> Verdict:
    """The verdict on a run.

    Args:
        lineage: of both looks.
        findings: all of them, the lineage's own too.
        allow_unreachable: a replica that could not be read does not make the run unverified, while two could.
        unsettled: what differed and changed during the run, or was not read for too long: not judged.
        later: what no run has read yet, because the time was up; the next one continues there.
        lasting: the part of it that an earlier run could not settle either: not verified.
        continues: the time was up, and the next run finds again what this one found.
        as_it_was: what is what it was by the ledger; None without a ledger. It counts for a replica that is read alone.
        owed: where an earlier run found damage, and this one did not read, because the time was up: not verified.
    """
    ordered = in_order(findings)
    reach, limit = _reach(lineage, tally, ordered)
    up_to = _aligned_up_to(lineage, reach, limit, (*unsettled, *later, *owed))
    mismatches = [finding for finding in ordered if finding.severity is Severity.MISMATCH]
    unread = [finding for finding in ordered if finding.kind is Kind.UNREACHABLE]
    unsure = [finding for finding in ordered if finding.severity is Severity.UNVERIFIED and finding not in unread]
    strange = _strangers(lineage, ordered)
    past = () if as_it_was is None or up_to is not None else _as_it_was(lineage, as_it_was)
    alone = _alone(lineage, past) + _continues(later) if past else ""
    holes = without([Extent(past[0].start, past[-1].end)], past) if past else ()
    empty = not any(log.extent.length for log in logs) and len(logs) > 1
    if mismatches:
        result = Result.MISMATCH
    elif (
        (up_to is None and not empty and not alone)
        or (unread and not allow_unreachable)
        or unsure
        or strange
        or lasting
        or owed
        or holes
    ):
        result = Result.UNVERIFIED
    else:
        result = Result.ALIGNED
    epoch = None if up_to is None else lineage.epoch_at(max(up_to - 1, 0))
    epoch = None if epoch == -1 else epoch
    return Verdict(
        group=group,
        result=result,
        exit_code=EXIT_CONTINUES if result is Result.MISMATCH and continues else EXIT_CODES[result],
        summary=_summary(
            result,
            rest=_continues(later),
            where=alone or None if up_to is None else _where(up_to, epoch, lineage, reach) + _continues(later),
            mismatches=mismatches,
            unread=unread,
            unsure=unsure,
            strange=strange,
            lasting=lasting,
            owed=owed,
            holes=holes,
            logs=logs,
            lineage=lineage,
            ledger=as_it_was is not None,
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


def _reach(lineage: Lineage, tally: Tally, findings: Iterable[Finding]) -> tuple[dict[ReplicaName, int], int | None]:
    """How far each replica was compared, and where the first mismatch is."""
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
    return reach, limit


def _aligned_up_to(
    lineage: Lineage, reach: Mapping[ReplicaName, int], limit: int | None, unsettled: Sequence[Extent]
) -> int | None:
    """The end of what is equal in at least two replicas, at most up to the first mismatch."""
    both = covered(Extent(zone.extent.start, reach[zone.replica]) for zone in lineage.zones)
    if not both:
        return None if limit is None or not reach else min(limit, max(reach.values()))
    return min([both[-1].end, *([] if limit is None else [limit]), *(extent.start for extent in unsettled)])


def _where(up_to: int, epoch: int | None, lineage: Lineage, reach: Mapping[ReplicaName, int]) -> str:
    """Which replicas are aligned, each up to its own end: one that ends before others does not count beyond that."""
    own = {zone.replica: Extent(zone.extent.start, reach[zone.replica]) for zone in lineage.zones}
    both = covered(own.values())
    alone = sorted(name for name, extent in own.items() if not common([extent], both))
    ends = {name: min(extent.end, up_to) for name, extent in own.items() if name not in alone}
    whole = sorted(name for name, end in ends.items() if end == up_to)
    shorter = [f"{name} up to offset {end}" for name, end in sorted(ends.items()) if end < up_to]
    shorter += [f"{name} was compared with no other" for name in alone]
    who = f"{len(whole)} replicas" if not shorter else " and ".join(whole)
    at_epoch = "" if epoch is None else f" at epoch {epoch}"
    return "; ".join([f"{who} aligned up to offset {up_to}{at_epoch}", *shorter])


def _as_it_was(lineage: Lineage, as_it_was: Sequence[Extent]) -> tuple[Extent, ...]:
    """What of a replica that is read alone is what it was; nothing if there are more."""
    return common([lineage.zones[0].extent], as_it_was) if len(lineage.zones) == 1 else ()


def _alone(lineage: Lineage, past: Sequence[Extent]) -> str:
    zone = lineage.zones[0]
    length = sum(extent.length for extent in past)
    rest = zone.extent.length - length
    more = f"; {rest} bytes are not in the ledger" if rest else ""
    return f"{zone.replica} is what it was, {length} bytes from {past[0].start} to {past[-1].end}{more}"


def _continues(later: Sequence[Extent]) -> str:
    length = sum(extent.length for extent in later)
    return f"; {length} bytes are not read yet, the next run continues at {later[0].start}" if later else ""


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
    rest: str,
    where: str | None,
    mismatches: Sequence[Finding],
    unread: Sequence[Finding],
    unsure: Sequence[Finding],
    strange: Sequence[ReplicaName],
    lasting: Sequence[Extent],
    owed: Sequence[Extent],
    holes: Sequence[Extent],
    logs: Sequence[ReplicaLog],
    lineage: Lineage,
    ledger: bool,
) -> str:
    if result is Result.MISMATCH:
        first = mismatches[0]
        more = len(mismatches) - 1
        tail = "" if not more else f" (and {more} more finding{'s' if more > 1 else ''})"
        return f"mismatch: {first.detail}{tail}{rest}"
    if result is Result.ALIGNED:
        if where is None:
            return f"{len(logs)} replicas, all without messages"
        apart = (
            ""
            if not unread
            else f"; not read: {', '.join(sorted(name for finding in unread for name in finding.replicas))}"
        )
        moved = f"; not judged, because it changed during the run: {', '.join(lineage.moved)}" if lineage.moved else ""
        return f"{where}{apart}{moved}"
    why = (
        (*unread, *unsure)[0].detail
        if unread or unsure
        else _why_not(strange, lasting, owed, logs, lineage, holes=holes, ledger=ledger)
    )
    return f"not verified: {why}" + ("" if where is None else f"; {where}")


def _why_not(
    strange: Sequence[ReplicaName],
    lasting: Sequence[Extent],
    owed: Sequence[Extent],
    logs: Sequence[ReplicaLog],
    lineage: Lineage,
    *,
    holes: Sequence[Extent],
    ledger: bool,
) -> str:
    if lasting:
        return (
            f"the bytes from {lasting[0].start} to {lasting[0].end} differ in every run and change while they are read"
        )
    if owed:
        return f"the bytes from {owed[0].start} to {owed[0].end} were damaged, and were not read again: the time was up"
    if holes:
        return (
            f"the ledger had nothing of the bytes from {holes[0].start} to {holes[0].end}, which differed or were "
            "damaged when it was written, or they were not read now"
        )
    if strange and len(lineage.zones) > 1:
        return f"{' and '.join(strange)} and {lineage.reference} have no history in common"
    if len(logs) < 2:
        but = ", and the ledger had nothing of it" if ledger and logs else ""
        return f"{len(logs)} replica could be read; a comparison needs two{but}"
    moved = f"; during the run {', '.join(lineage.moved)} was rebuilt, emptied or deleted" if lineage.moved else ""
    return f"no two of {len(logs)} replicas have confirmed bytes in common{moved}"
