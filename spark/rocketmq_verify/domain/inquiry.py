"""From differing chunks to findings: what to ask next, what it means, and when it is enough. Called by the job.

In this order:
1. where a replica differs behind its consistent point: is that another history? Then it is one finding, and the replica
   is left out from there on, or it would hide what else differs in the same chunks;
2. the other differences, by the way in which replicas differ, so that a replica which is wrong everywhere does not use
   up the questions for one that has lost a bit: down to bytes, records, and which copy is right;
3. what should be there and is not: asked for once more;
4. where a log ends before others do: is that its end, or damage?
However much differs, findings are bounded; the last of a kind says how much more there is.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rocketmq_verify.domain.chunks import common, without
from rocketmq_verify.domain.compare import ChunkResult, Groups, Rest, Tally
from rocketmq_verify.domain.ends import ENDS, damage_at, early_ends
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.histories import History
from rocketmq_verify.domain.judge import judge
from rocketmq_verify.domain.model import Ask, Extent, ReplicaName
from rocketmq_verify.domain.narrow import Questions, Suspect, first_difference, narrow
from rocketmq_verify.domain.records import RecordKind
from rocketmq_verify.domain.table_findings import missing_segment
from rocketmq_verify.domain.tails import find_tails
from rocketmq_verify.domain.windows import Found, contents_of, locate

MOST_NAMED: Final = 16
"""Records told one by one for each way in which replicas differ."""
BATCH: Final = 16
"""Chunks narrowed at once."""
_BLANK_HEAD: Final = 8


def inquire(history: History, tally: Tally) -> Questions[tuple[Finding, ...]]:
    """Findings of what the tally says differs or is missing; those of the tables are in `history` already."""
    results = [msgspec.structs.replace(one, groups=_counting(one, history, {})) for one in tally.results()]
    tails = yield from find_tails(history, results)
    findings = [finding for finding, _ in tails.values() if finding is not None]
    by_groups: dict[Groups, list[ChunkResult]] = {}
    for result in results:
        groups = _counting(result, history, {replica: start for replica, (_, start) in tails.items()})
        if len(groups) > 1:
            by_groups.setdefault(groups, []).append(result)
    done: set[int] = set()
    for groups, differing in sorted(by_groups.items(), key=lambda item: item[1][0].chunk):
        rest = Rest() if any(replica in tails for replica in _all(groups)) else tally.rest.get(groups, Rest())
        found = yield from _records(history, groups, differing, rest, done)
        findings += found
    findings += yield from _missing(history, tally)
    findings += yield from _ends(history, findings)
    return tuple(findings)


def still_true(findings: Sequence[Finding], planned: History, latest: History) -> tuple[Finding, ...]:
    """Of findings from bytes, those that a look at the replicas after everything was read leaves standing.

    What expired, was cut, or was written anew in a new epoch meanwhile is no finding; the next run sees what it is.
    """
    return tuple(finding for finding in findings if _stands(finding, planned, latest))


def _stands(finding: Finding, planned: History, latest: History) -> bool:
    for replica in {copy.replica for copy in finding.copies} | set(finding.replicas):
        before, after = planned.zone(replica), latest.zone(replica)
        if before is None or after is None:
            return False
        beyond = finding.first_difference is not None and finding.first_difference >= before.end
        if beyond and not _still_ends(finding, latest):
            return False
        if after.extent.meet(finding.extent) != before.extent.meet(finding.extent):
            return False
        if (finding.extent.start < before.sure) != (finding.extent.start < after.sure):
            return False
    return True


def _still_ends(finding: Finding, latest: History) -> bool:
    """Whether the tables still tell of an end where this finding is: who moves on writes there."""
    return any(
        one.kind in ENDS and finding.extent.start <= one.extent.start < finding.extent.end for one in latest.findings
    )


def _counting(result: ChunkResult, history: History, tails: dict[ReplicaName, int]) -> Groups:
    """Who counts in this chunk, by what they have: whose zone still holds it, and who has no other history there."""
    end = result.chunk.extent.end
    zones = {zone.replica: zone.extent for zone in history.zones}

    def counts(replica: ReplicaName) -> bool:
        zone = zones.get(replica)
        return (
            zone is not None
            and zone.meet(result.chunk.extent) == result.chunk.extent
            and end <= tails.get(replica, end)
        )

    groups = (tuple(one for one in group if counts(one)) for group in result.groups)
    return tuple(sorted((group for group in groups if group), key=lambda group: (-len(group), group)))


def _records(
    history: History, groups: Groups, differing: Sequence[ChunkResult], rest: Rest, done: set[int]
) -> Questions[list[Finding]]:
    """The differing records of these chunks, in which replicas differ in one way; `done`: starts told already."""
    replicas = _all(groups)
    findings: list[Finding] = []
    named = 0
    for first in range(0, len(differing), BATCH):
        chunks = differing[first : first + BATCH]
        if named >= MOST_NAMED:
            for result in chunks:
                rest = rest.plus(Rest.of(result.chunk.extent))
            continue
        narrowed = yield from narrow(Suspect(result.chunk.extent, replicas) for result in chunks)
        for more in narrowed.rest.values():
            rest = rest.plus(more)
        end = 0
        for place in narrowed.places:
            if named >= MOST_NAMED and place.extent.end > end:
                rest = rest.plus(Rest.of(place.extent))
                continue
            offset = place.differences(end)
            while offset is not None and named < MOST_NAMED:
                found = yield from locate(offset, tuple(sorted(place.contents)), history)
                if found is None:
                    break
                end = found.extent.end
                if found.extent.start not in done:
                    done.add(found.extent.start)
                    finding = _finding(history, found, offset)
                    findings.append(finding)
                    named += finding.kind is Kind.CORRUPT_RECORD
                offset = place.differences(end)
    if rest.count:
        findings.append(_more(history, groups, findings, rest))
    return findings


def _ends(history: History, told: Sequence[Finding]) -> Questions[list[Finding]]:
    """Where a log seems to end and is damaged."""
    findings: list[Finding] = []
    for end in early_ends(history):
        found = yield from damage_at(end, history)
        if isinstance(found, Finding):
            findings.append(found)
        elif found is not None and not any(one.extent.meet(found.extent).length for one in told):
            copies = found.window.copies
            first = first_difference(copies[end.replica], copies[end.partner]) or 0
            findings.append(_finding(history, found, found.extent.start + first, copies))
    return findings


def _finding(history: History, found: Found, difference: int, whole: dict[ReplicaName, bytes] | None = None) -> Finding:
    """`whole`: the record as each has it, where replicas are concerned that end before it."""
    contents, compared = (whole, found.extent.length) if whole else contents_of(found, history)
    unused = found.kind is RecordKind.BLANK and len({data[:_BLANK_HEAD] for data in contents.values()}) == 1
    copies = judge(contents, found.extent.start, found.extent.length, compared)
    wrong = tuple(copy.replica for copy in copies if copy.right is False)
    right = tuple(copy.replica for copy in copies if copy.right)
    where = _where(found)
    if unused:
        return Finding(
            kind=Kind.UNUSED_BYTES,
            replicas=tuple(copy.replica for copy in copies),
            extent=found.extent,
            first_difference=difference,
            segment=difference - difference % history.segment_size,
            epoch=history.epoch_at(difference),
            detail=f"the unused end of a file differs from {difference} on: no message is concerned",
        )
    if wrong and right:
        detail = f"{where} is damaged in {_and(wrong)}; {_and(right)} {_have(right)} it right"
    elif wrong and len(wrong) == len(copies):
        detail = f"{where} differs, and no copy is right"
    elif wrong:
        unsure = tuple(copy.replica for copy in copies if copy.right is None)
        detail = f"{where} is damaged in {_and(wrong)}; which of {_and(unsure)} is right nobody can tell"
    else:
        detail = f"{where} differs between {_and(tuple(copy.replica for copy in copies))}; nobody can tell who is right"
    return Finding(
        kind=Kind.CORRUPT_RECORD,
        replicas=wrong or tuple(copy.replica for copy in copies),
        extent=found.extent,
        first_difference=difference,
        segment=difference - difference % history.segment_size,
        epoch=history.epoch_at(difference),
        record=found.name,
        copies=copies,
        detail=detail,
    )


def _where(found: Found) -> str:
    offset = found.extent.start
    if found.kind is RecordKind.BLANK:
        return f"the blank at {offset} that ends a file"
    name = found.name
    if name is None or name.topic is None:
        return f"what is at {offset}, {found.extent.length} bytes that no copy has as a whole record,"
    return f"message {name.queue_offset} of queue {name.queue_id} of {name.topic} at {offset}"


def _more(history: History, groups: Groups, findings: Sequence[Finding], rest: Rest) -> Finding:
    """What was not looked at one by one."""
    corrupt = [finding for finding in findings if finding.kind is Kind.CORRUPT_RECORD]
    replicas = sorted({replica for finding in corrupt for replica in finding.replicas}) or sorted(_all(groups))
    return Finding(
        kind=Kind.CORRUPT_RECORD if corrupt or not findings else Kind.UNUSED_BYTES,
        replicas=tuple(replicas),
        extent=Extent(rest.first, rest.end),
        first_difference=rest.first,
        segment=rest.first - rest.first % history.segment_size,
        epoch=history.epoch_at(rest.first),
        detail=f"{_and(tuple(replicas))}: {rest.count} more places differ in the same way up to offset {rest.end}, in "
        f"{rest.bytes} bytes; they were not looked at one by one",
    )


def _missing(history: History, tally: Tally) -> Questions[list[Finding]]:
    """Bytes that replicas should have, did not have, and do not have now, without files whose lack is told already."""
    asks: list[Ask] = []
    for zone in history.zones:
        told = [
            one.extent for one in history.findings if one.kind is Kind.MISSING_SEGMENT and zone.replica in one.replicas
        ]
        lacks = common(tally.missing.get(zone.replica, ()), [zone.extent])
        asks += [Ask(zone.replica, extent, digest=True) for extent in without(lacks, told)]
    asks = asks[: MOST_NAMED * 4]
    answers = (yield tuple(Ask(ask.replica, _probe(ask.extent), digest=True) for ask in asks)) if asks else ()
    return [
        missing_segment(ask.replica, ask.extent, history.segment_size)
        for ask, answer in zip(asks, answers, strict=True)
        if answer is None
    ]


def _probe(extent: Extent) -> Extent:
    """The end of it, which is not there if anything of it is not."""
    return Extent(max(extent.start, extent.end - 1), extent.end)


def _all(groups: Groups) -> tuple[ReplicaName, ...]:
    return tuple(sorted(replica for group in groups for replica in group))


def _and(replicas: Sequence[ReplicaName]) -> str:
    return " and ".join(replicas)


def _have(replicas: Sequence[ReplicaName]) -> str:
    return "has" if len(replicas) == 1 else "have"
