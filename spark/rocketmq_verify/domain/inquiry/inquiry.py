"""From differing chunks to findings: what to read next, what it means, and when it is enough. Called by the job.

In this order:
1. where a replica differs beyond its consistent point: is that another history? Then it is one finding, and the replica
   is left out from there on, or it would hide what else differs in the same chunks;
2. the other differences, by the way in which replicas differ, so that a replica which is wrong everywhere does not use
   up the reads for one that has lost a bit: down to bytes, records, and which copy is right;
3. what differed and then did not: do the reads of one replica differ from each other?
4. what should be there and is not: read it again;
5. where a log ends before others do: is that its end, or damage?
6. where epoch tables contradict each other: do they describe the same bytes?
However much differs, findings are bounded; the last of a kind counts the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_formats.soundness.records import RecordKind
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.inquiry.compare import ChunkResult, Groups, Rest, Tally, grouped
from rocketmq_verify.domain.inquiry.ends import damage_at, early_ends
from rocketmq_verify.domain.inquiry.judge import by_the_ledger, is_counted, judge
from rocketmq_verify.domain.inquiry.narrow import Requests, Suspect, first_difference, narrow
from rocketmq_verify.domain.inquiry.tables import wrong_tables
from rocketmq_verify.domain.inquiry.tails import find_tails
from rocketmq_verify.domain.inquiry.windows import Found, agreed, contents_of, locate, message, names_by
from rocketmq_verify.domain.model import ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.chunks import common, without
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.planning.table_findings import missing_segment, unreadable

MOST_NAMED: Final = 16
"""Records reported one by one for each way in which replicas differ at their place."""
BATCH: Final = 16
"""Chunks narrowed at once."""
MOST_EXAMINED: Final = 64
"""Chunks of one way with three and more contents, when enough was named."""
MOST_UNSTEADY: Final = 16
"""Chunks that are read again because they differed once."""
READS: Final = 6
"""Times that each of them is read again."""
_BLANK_HEAD: Final = 8


def inquire(
    lineage: Lineage, tally: Tally, as_before: Sequence[tuple[Extent, frozenset[ReplicaName]]] = ()
) -> Requests[tuple[Finding, ...]]:
    """Findings about what differs or is missing by the tally; those of the tables are in `lineage` already.

    Args:
        as_before: cells in which only these replicas have what an earlier run read (`ledger`).
    """
    results = [msgspec.structs.replace(result, groups=_counting(result, lineage, {})) for result in tally.results()]
    tails = yield from find_tails(lineage, results)
    findings = [finding for finding, _ in tails.values() if finding is not None]
    by_groups: dict[Groups, list[ChunkResult]] = {}
    for result in results:
        groups = _counting(result, lineage, {replica: start for replica, (_, start) in tails.items()})
        if len(groups) > 1:
            by_groups.setdefault(groups, []).append(result)
    done: set[int] = set()
    differing_now = [(result.chunk.extent, _all(groups)) for groups, found in by_groups.items() for result in found]
    for groups, differing in sorted(by_groups.items(), key=lambda item: item[1][0].chunk):
        rest = Rest() if any(replica in tails for replica in _all(groups)) else tally.rest.get(groups, Rest())
        found = yield from _records(lineage, groups, differing, rest, done, as_before=as_before)
        findings += found
    findings += yield from _unsteady(differing_now, findings)
    findings += yield from _missing(lineage, tally)
    findings += yield from _ends(lineage, findings)
    findings += yield from wrong_tables(lineage)
    return tuple(findings)


def still_true(findings: Sequence[Finding], planned: Lineage, latest: Lineage) -> tuple[Finding, ...]:
    """Findings from bytes that are still true by the replicas' descriptions after everything was read.

    What expired, was cut, or was rewritten in a new epoch in between is dropped; the next run examines it.
    """
    return tuple(finding for finding in findings if _stands(finding, planned, latest))


def _stands(finding: Finding, planned: Lineage, latest: Lineage) -> bool:
    for replica in {copy.replica for copy in finding.copies} | set(finding.replicas):
        before, after = planned.zone(replica), latest.zone(replica)
        if before is None or after is None:
            return False
        beyond = finding.first_difference is not None and finding.first_difference >= before.end
        if beyond and not _still_ends(finding, latest):
            return False
        if after.extent.meet(finding.extent) != before.extent.meet(finding.extent):
            return False
        if finding.extent.length and finding.extent.end <= after.extent.start:
            return False  # it has expired as a whole
        if (finding.extent.start < before.sure) != (finding.extent.start < after.sure):
            return False
    return True


def _still_ends(finding: Finding, latest: Lineage) -> bool:
    """Whether the tables still have an end where this finding is: a replica that catches up writes there."""
    return any(
        other.kind.traits.names_end and finding.extent.start <= other.extent.start < finding.extent.end
        for other in latest.findings
    )


def _counting(result: ChunkResult, lineage: Lineage, tails: dict[ReplicaName, int]) -> Groups:
    """Replicas that count in this chunk, by what they have: their zone still holds it, with no other history there."""
    end = result.chunk.extent.end
    zones = {zone.replica: zone.extent for zone in lineage.zones}

    def counts(replica: ReplicaName) -> bool:
        zone = zones.get(replica)
        return (
            zone is not None
            and zone.meet(result.chunk.extent) == result.chunk.extent
            and end <= tails.get(replica, end)
        )

    groups = (tuple(replica for replica in group if counts(replica)) for group in result.groups)
    return tuple(sorted((group for group in groups if group), key=lambda group: (-len(group), group)))


def _records(
    lineage: Lineage,
    groups: Groups,
    differing: Sequence[ChunkResult],
    rest: Rest,
    done: set[int],
    *,
    as_before: Sequence[tuple[Extent, frozenset[ReplicaName]]],
) -> Requests[list[Finding]]:
    """The differing records of these chunks, in which replicas differ in one way; `done`: starts already reported.

    In parts of a chunk fewer replicas may differ than in the whole: each way there is bounded by itself.
    """
    replicas = _all(groups)
    findings: list[Finding] = []
    named: dict[Groups, int] = {}
    left = {groups: rest}

    def count(way: Groups, more: Rest) -> None:
        left[way] = left.get(way, Rest()).plus(more)

    for first in range(0, len(differing), BATCH):
        chunks = differing[first : first + BATCH]
        if _enough(groups, named, first):
            for result in chunks:
                count(groups, Rest.of(result.chunk.extent))
            continue
        narrowed = yield from narrow(Suspect(result.chunk.extent, replicas) for result in chunks)
        for way, more in narrowed.rest.items():
            count(way, more)
        end = 0
        for place in narrowed.places:
            way = grouped(place.contents)
            offset = place.differences(end)
            while offset is not None and named.get(way, 0) < MOST_NAMED:
                found = yield from locate(offset, tuple(sorted(place.contents)), lineage)
                if found is None:
                    break
                end = found.extent.end
                if found.extent.start not in done and _differs(found, lineage):
                    done.add(found.extent.start)
                    finding = _finding(lineage, found, offset, as_before=_there(found.extent, as_before))
                    findings.append(finding)
                    named[way] = named.get(way, 0) + (finding.kind is Kind.CORRUPT_RECORD)
                offset = place.differences(end)
            if offset is not None and named.get(way, 0) >= MOST_NAMED:
                count(way, Rest.of(place.extent))
    left = {way: more for way, more in left.items() if more.count}
    if left:
        findings.append(_more(lineage, findings, left))
    return findings


def _enough(groups: Groups, named: Mapping[Groups, int], examined: int) -> bool:
    """Whether the rest of these chunks is only counted. With three and more contents of a chunk, one damaged replica
    must not use up the names of another."""
    total = sum(named.values())
    if len(groups) == 2:
        return total >= MOST_NAMED
    return total >= MOST_NAMED * len(groups) or (total >= MOST_NAMED and examined >= MOST_EXAMINED)


def _ends(lineage: Lineage, reported: Sequence[Finding]) -> Requests[list[Finding]]:
    """Damage where a log seems to end."""
    findings: list[Finding] = []
    for end in early_ends(lineage):
        found = yield from damage_at(end, lineage)
        if isinstance(found, Finding):
            findings.append(found)
        elif found is not None and not any(finding.extent.meet(found.extent).length for finding in reported):
            copies = found.window.copies
            if end.replica in copies and end.partner in copies:
                first = first_difference(copies[end.replica], copies[end.partner])
                if first is not None:
                    findings.append(_finding(lineage, found, found.extent.start + first, copies))
    return findings


def _differs(found: Found, lineage: Lineage) -> bool:
    """Whether the copies still differ, now that they were read.

    A log that was cut and is copied again was not equal for a while. The place stays a suspect, and the next run reads
    it.
    """
    contents, compared = contents_of(found, lineage)
    return len(grouped({replica: data[:compared] for replica, data in contents.items()})) > 1


def _there(extent: Extent, as_before: Sequence[tuple[Extent, frozenset[ReplicaName]]]) -> frozenset[ReplicaName]:
    """Replicas that have this as it was before."""
    cells = [(cell, replicas) for cell, replicas in as_before if cell.meet(extent).length]
    if not cells or sum(cell.meet(extent).length for cell, _ in cells) < extent.length:
        return frozenset()
    return frozenset.intersection(*(replicas for _, replicas in cells))


def _finding(
    lineage: Lineage,
    found: Found,
    difference: int,
    whole: dict[ReplicaName, bytes] | None = None,
    *,
    as_before: frozenset[ReplicaName] = frozenset(),
) -> Finding:
    """`whole`: the record as each has it, if some replicas end before it."""
    contents, compared = (whole, found.extent.length) if whole else contents_of(found, lineage)
    unused = found.kind is RecordKind.BLANK and len({data[:_BLANK_HEAD] for data in contents.values()}) == 1
    old = by_the_ledger(contents, found.extent.start, found.extent.length, compared, as_before=as_before)
    copies = judge(contents, found.extent.start, found.extent.length, compared, old=old)
    wrong = tuple(copy.replica for copy in copies if copy.right is False)
    right = tuple(copy.replica for copy in copies if copy.right)
    if unused:
        return Finding(
            kind=Kind.UNUSED_BYTES,
            replicas=tuple(copy.replica for copy in copies),
            extent=found.extent,
            first_difference=difference,
            segment=difference - difference % lineage.segment_size,
            epoch=lineage.epoch_at(difference),
            detail=f"the unused end of a file differs from {difference} on: no message is affected",
        )
    # a damaged copy can be well-formed under another name
    sure = right or tuple(copy.replica for copy in copies if copy.right is None)
    names = names_by(found, sure, lineage) or names_by(found, contents, lineage)
    name = agreed(names.values()) or found.name
    where = _where(found, name, names)
    if wrong and right and old is None and is_counted(contents, found.extent.start, found.extent.length, compared):
        detail = (
            f"{where} differs: {len(right)} of {len(copies)} agree ({_and(right)}) and no checksum decides, so it is "
            f"damaged in {_and(wrong)} unless these are wrong in the same way"
        )
    elif wrong and right:
        detail = f"{where} is damaged in {_and(wrong)} and right in {_and(right)}"
    elif wrong and len(wrong) == len(copies):
        detail = f"{where} differs, and no copy is right"
    elif wrong:
        unsure = tuple(copy.replica for copy in copies if copy.right is None)
        detail = f"{where} is damaged in {_and(wrong)}; it is unknown which of {_and(unsure)} is right"
    else:
        detail = (
            f"{where} differs between {_and(tuple(copy.replica for copy in copies))}; it is unknown which copy is right"
        )
    return Finding(
        kind=Kind.CORRUPT_RECORD,
        replicas=wrong or tuple(copy.replica for copy in copies),
        extent=found.extent,
        first_difference=difference,
        segment=difference - difference % lineage.segment_size,
        epoch=lineage.epoch_at(difference),
        record=name,
        copies=copies,
        detail=detail,
    )


def _where(found: Found, name: RecordName | None, names: Mapping[ReplicaName, RecordName]) -> str:
    """`names`: as each copy that may be right tells it."""
    offset = found.extent.start
    if found.kind is RecordKind.BLANK:
        return f"the blank at {offset} that ends a file"
    if name is None or (found.kind is not RecordKind.RECORD and name.topic is None):
        return f"what is at {offset}, {found.extent.length} bytes that no copy has as a whole record,"
    told: dict[str, list[ReplicaName]] = {}
    for replica, one in sorted(names.items()):
        told.setdefault(message(one), []).append(replica)
    if len(told) > 1:
        each = " or ".join(f"{what} (in {_and(who)})" for what, who in told.items())
        return f"{each}, at {offset},"
    return f"{message(name)} at {offset}"


def _more(lineage: Lineage, findings: Sequence[Finding], left: Mapping[Groups, Rest]) -> Finding:
    """A finding for all that was not examined one by one. It is unknown whose copies are right there: it names every
    replica outside of a majority, and all without a majority."""
    rest = Rest()
    for more in left.values():
        rest = rest.plus(more)
    replicas = sorted({replica for way in left for replica in _outside(way)})
    corrupt = any(finding.kind is Kind.CORRUPT_RECORD for finding in findings)
    return Finding(
        kind=Kind.CORRUPT_RECORD if corrupt or not findings else Kind.UNUSED_BYTES,
        replicas=tuple(replicas),
        extent=Extent(rest.first, rest.end),
        first_difference=rest.first,
        segment=rest.first - rest.first % lineage.segment_size,
        epoch=lineage.epoch_at(rest.first),
        detail=f"{_and(tuple(replicas))}: {rest.count} more places differ up to offset {rest.end}, in {rest.bytes} "
        "bytes; they were not examined one by one",
    )


def _outside(way: Groups) -> tuple[ReplicaName, ...]:
    """Replicas outside of the majority; all if none of these contents has one."""
    largest, *others = way
    outside = _all(tuple(others))
    return outside if len(largest) > len(outside) else _all(way)


def _unsteady(
    differing: Sequence[tuple[Extent, Sequence[ReplicaName]]], found: Sequence[Finding]
) -> Requests[list[Finding]]:
    """Replicas that return other bytes at each read, of chunks that differed and then did not."""
    left = [
        (extent, replicas)
        for extent, replicas in sorted(differing)
        if not any(one.kind.traits.explains_difference and one.extent.meet(extent).length for one in found)
    ][:MOST_UNSTEADY]
    requests = tuple(ReadRequest(replica, extent, digest=True) for extent, replicas in left for replica in replicas)
    seen: list[list[bytes]] = [[] for _ in requests]
    for _ in range(READS if requests else 0):
        answers = yield requests
        for own, answer in zip(seen, answers, strict=True):
            if answer is not None and answer not in own[-1:]:
                own.append(answer)
    why = "its reads of these bytes differ from each other; check its disk, memory and kernel log"
    return [
        unreadable(request.replica, [request.extent], why)
        for request, own in zip(requests, seen, strict=True)
        if len(own) > len(set(own))  # a log that is copied again changes too, but never back
    ]


def _missing(lineage: Lineage, tally: Tally) -> Requests[list[Finding]]:
    """Bytes that replicas should have, did not have, and still lack, without files already reported as missing."""
    requests: list[ReadRequest] = []
    for zone in lineage.zones:
        reported = [
            finding.extent
            for finding in lineage.findings
            if finding.kind is Kind.MISSING_SEGMENT and zone.replica in finding.replicas
        ]
        lacks = common(tally.missing.get(zone.replica, ()), [zone.extent])
        requests += [ReadRequest(zone.replica, extent, digest=True) for extent in without(lacks, reported)]
    requests = requests[: MOST_NAMED * 4]
    answers = (
        (yield tuple(ReadRequest(request.replica, _probe(request.extent), digest=True) for request in requests))
        if requests
        else ()
    )
    return [
        missing_segment(request.replica, request.extent, lineage.segment_size)
        for request, answer in zip(requests, answers, strict=True)
        if answer is None
    ]


def _probe(extent: Extent) -> Extent:
    """Its last byte, which is missing if any byte is."""
    return Extent(max(extent.start, extent.end - 1), extent.end)


def _all(groups: Groups) -> tuple[ReplicaName, ...]:
    return tuple(sorted(replica for group in groups for replica in group))


def _and(replicas: Sequence[ReplicaName]) -> str:
    return " and ".join(replicas)
