"""Findings from epoch tables, file names and ends, without reading a byte. Called by `lineage`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.given_up import FILE_NAME, GivenUp
from rocketmq_verify.domain.findings import Copy, Finding, Kind
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.points import table

MOST_FINDINGS: Final = 20
"""Of one kind and replica: a damaged table of 1000 entries is reported in a few."""


def unreachable(name: ReplicaName, why: str) -> Finding:
    """For a replica that could not be read."""
    return Finding(
        kind=Kind.UNREACHABLE, replicas=(name,), extent=Extent(0, 0), detail=f"{name} could not be read: {why}"
    )


def unreadable(name: ReplicaName, extents: Sequence[Extent], why: str) -> Finding:
    """For bytes that a replica's disk does not return, while it can be read elsewhere."""
    first, last = extents[0], extents[-1]
    more = "" if len(extents) == 1 else f", {len(extents)} places"
    return Finding(
        kind=Kind.UNREACHABLE,
        replicas=(name,),
        extent=Extent(first.start, last.end),
        first_difference=first.start,
        detail=f"{name} could not be read from {first.start} to {last.end}{more}: {why}",
    )


def contradictions(logs: Sequence[ReplicaLog], confirm: int) -> list[Finding]:
    """Epochs with two starts, both confirmed."""
    starts: dict[int, dict[int, list[ReplicaLog]]] = {}
    for log in logs:
        for epoch, start in table(log).starts():
            starts.setdefault(epoch, {}).setdefault(start, []).append(log)
    found: list[Finding] = []
    for epoch, by_start in sorted(starts.items()):
        if len(by_start) < 2 or len(found) == MOST_FINDINGS:
            continue
        ranked = sorted(by_start, key=lambda start: (-len(by_start[start]), start))
        against = [
            start
            for start in ranked[1:]
            if any(_contradict(epoch, a, b, confirm) for a in by_start[ranked[0]] for b in by_start[start])
        ]
        if not against:
            continue
        majority = len(by_start[ranked[0]]) > len(by_start[ranked[1]])
        wrong = sorted(log.name for start in against for log in by_start[start])
        right = sorted(log.name for log in by_start[ranked[0]])
        starts_text = ", ".join(
            f"{epoch}-{start} in {' and '.join(sorted(log.name for log in by_start[start]))}"
            for start in [ranked[0], *against]
        )
        low, high = min(ranked[0], *against), max(ranked[0], *against)
        found.append(
            Finding(
                kind=Kind.DIVERGENT_HISTORY,
                replicas=tuple(wrong) if majority else tuple(sorted([*wrong, *right])),
                extent=Extent(low, high),
                first_difference=low,
                epoch=epoch,
                segment=low - low % logs[0].segment_size,
                detail=f"epoch {epoch} has two starts below the confirm offset {confirm}: {starts_text}",
            )
        )
    return found


def _contradict(epoch: int, one: ReplicaLog, other: ReplicaLog, confirm: int) -> bool:
    """Whether both claim the same confirmed bytes for `epoch`, but disagree about bytes that both have in front."""
    a, b = table(one).find(epoch), table(other).find(epoch)
    if a is None or b is None:
        return False
    later = max(a.start_offset, b.start_offset)
    if later <= max(one.min_offset, other.min_offset):
        return False
    return later < min(a.end_offset, one.max_offset, b.end_offset, other.max_offset, confirm)


def missing(log: ReplicaLog) -> Iterator[Finding]:
    """Missing files between the first one and the log's end, neighbours as one, and files that end early. Takes as many
    steps as there are files, whatever their names are."""
    size = log.segment_size
    if not log.extent.length or not size:
        return
    expected, reported = log.min_offset - log.min_offset % size, 0
    for segment in (*sorted(set(log.segments)), log.max_offset):
        end = min(segment, log.max_offset)
        if expected < end and reported < MOST_FINDINGS:
            yield missing_segment(log.name, Extent(expected, end), size)
            reported += 1
        expected = max(expected, segment + size)
    lacks = (Extent(start + length, min(start + size, log.max_offset)) for start, length in log.short)
    for extent in [extent for extent in lacks if extent.length][:MOST_FINDINGS]:
        yield missing_segment(log.name, extent, size)


def missing_segment(replica: ReplicaName, extent: Extent, segment_size: int) -> Finding:
    """For bytes that the replica's own description promises."""
    segment = extent.start - extent.start % segment_size
    files = (extent.end - 1 - segment) // segment_size + 1
    what = f"file {segment:020d} is" if files == 1 else f"{files} files from {segment:020d} on are"
    return Finding(
        kind=Kind.MISSING_SEGMENT,
        replicas=(replica,),
        extent=extent,
        first_difference=extent.start,
        segment=segment,
        detail=f"{what} missing or too short in {replica}: it lacks the bytes from {extent.start} to {extent.end}",
    )


def early_ends(
    before: Sequence[ReplicaLog], latest: Mapping[ReplicaName, ReplicaLog], gone: AbstractSet[ReplicaName], confirm: int
) -> Iterator[Finding]:
    """Replicas that still end before what was confirmed at the beginning of the run.

    What a replica has noted as confirmed it had: if it ends before its note, at both looks, it has lost the rest. But
    Java's note may be older than a cut to a new master's log. So after a change of masters the notes of some, without
    a promise, do not prove that bytes are lost that no log has.
    """
    logs = [log for log in before if log.name not in gone]
    ends = {log.name: latest[log.name].max_offset for log in logs}
    notes = {log.name: min(log.confirm_offset, latest[log.name].confirm_offset) for log in logs}
    longest = max(ends.values(), default=0)
    doubtful = {log.name for log in logs if not log.strict and len(table(latest[log.name]).entries) > 1}
    losers = [log for log in logs if notes[log.name] > longest]
    if len(losers) < len(logs):
        losers = [log for log in losers if log.name not in doubtful]
    if losers:
        yield _lost_confirmed(losers, ends, longest, max(notes[log.name] for log in losers))
    lost = {log.name for log in losers}
    for log in logs:
        end, noted = ends[log.name], notes[log.name]
        if log.name in lost:
            noted = min(noted, longest)
        if end < noted:
            others = " and ".join(sorted(other for other in ends if ends[other] >= noted))
            or_old = "; or its note is older than a cut" if log.name in doubtful else ""
            rest = f"the log of {others} is longer" if others else "no log that was read is that long"
            yield Finding(
                kind=Kind.LOST_CONFIRMED if log.strict else Kind.LOST_COPY,
                replicas=(log.name,),
                extent=Extent(end, noted),
                detail=f"{log.name} ends at {end} and has noted {notes[log.name]} as confirmed: it lost the bytes in "
                f"between (cut, or a crash{or_old}); {rest}",
            )
        elif end < confirm and end >= notes[log.name]:
            yield Finding(
                kind=Kind.LAGGING,
                replicas=(log.name,),
                extent=Extent(end, confirm),
                detail=f"{log.name} ends at {end}, {confirm - end} bytes before the confirm offset {confirm}",
            )


def _lost_confirmed(losers: Sequence[ReplicaLog], ends: Mapping[ReplicaName, int], longest: int, noted: int) -> Finding:
    names = tuple(sorted(log.name for log in losers))
    own = ", ".join(f"{name} ends at {ends[name]}" for name in names)
    return Finding(
        kind=Kind.LOST_CONFIRMED,
        replicas=names,
        extent=Extent(longest, noted),
        detail=f"the bytes from {longest} to {noted} are lost: {' and '.join(names)} noted them as confirmed, and no "
        f"replica that was read has them ({own})",
    )


def given_up(logs: Iterable[ReplicaLog]) -> Iterator[Finding]:
    """What replicas have noted as acknowledged and lost. Each knows only what it had acknowledged itself."""
    losses: dict[tuple[int, int], dict[ReplicaName, GivenUp]] = {}
    for log in logs:
        for one in log.given_up:
            losses.setdefault((one.epoch, one.start), {})[log.name] = one
    for (epoch, start), noted in sorted(losses.items()):
        most = max(noted.values(), key=lambda one: (one.end, -one.at_millis))
        names = sorted(noted)
        yield Finding(
            kind=Kind.LOST_CONFIRMED,
            replicas=tuple(names),
            extent=Extent(start, most.end),
            epoch=epoch,
            detail=f"{most} by {' and '.join(names)}; newer messages may be at these offsets. When you have dealt with "
            f"it, delete {FILE_NAME} in storePathRootDir of {' and '.join(names)}",
        )


def longer(
    before: Sequence[ReplicaLog],
    latest: Mapping[ReplicaName, ReplicaLog],
    gone: AbstractSet[ReplicaName],
    reference: ReplicaLog,
    *,
    looks: int,
) -> Iterator[Finding]:
    """Replicas with bytes beyond the end of a log with a newer epoch, whose end does not change.

    What a `strict` replica confirmed of them was promised, and the newer master does not have it: lost. That is certain
    only after two looks, because the replicas are not described at the same instant. What two others noted as
    confirmed was in their SyncStateSet, so a newer master without it was none of that set: nothing is verified then.
    """
    end = max(reference.max_offset, latest[reference.name].max_offset)
    newest = table(reference).last_epoch
    noted: dict[ReplicaName, int] = {}
    for log in before:
        if log.name in gone or min(log.max_offset, latest[log.name].max_offset) <= end:
            continue
        if log.max_offset == latest[log.name].max_offset and table(log).find(newest) is None and newest >= 0:
            promised = min(log.confirm_offset, log.max_offset) if log.strict and looks > 1 else 0
            if promised > end:
                yield _lost(log.name, Extent(end, promised), reference)
            if promised < log.max_offset:
                yield stale_tail(log.name, Extent(max(end, promised), log.max_offset), None, reference.name)
            note = min(log.confirm_offset, latest[log.name].confirm_offset, log.max_offset)
            if not promised and note > end and looks > 1:
                noted[log.name] = note
    if len(noted) > 1:
        yield _dropped(reference, Extent(end, sorted(noted.values())[-2]), sorted(noted))


def _dropped(reference: ReplicaLog, extent: Extent, names: Sequence[ReplicaName]) -> Finding:
    return Finding(
        kind=Kind.LOST_COPY,
        replicas=(reference.name,),
        extent=extent,
        detail=f"{' and '.join(names)} have noted the bytes from {extent.start} to {extent.end} as confirmed; "
        f"{reference.name}, which has a newer epoch, lacks them: they drop these bytes when they connect to it",
    )


def _lost(replica: ReplicaName, extent: Extent, reference: ReplicaLog) -> Finding:
    return Finding(
        kind=Kind.DIVERGENT_HISTORY,
        replicas=tuple(sorted((replica, reference.name))),
        extent=extent,
        first_difference=extent.start,
        segment=extent.start - extent.start % reference.segment_size,
        copies=(
            Copy(replica=replica, right=None, reason="its confirm offset is beyond this"),
            Copy(replica=reference.name, right=None, reason="it has a newer epoch and ends before this"),
        ),
        detail=f"{replica} has confirmed the bytes from {extent.start} to {extent.end}; {reference.name}, which has a "
        f"newer epoch, ends at {extent.start} and lacks them: {replica} drops them when it connects to its master",
    )


def stale_tail(replica: ReplicaName, extent: Extent, epoch: int | None, reference: ReplicaName) -> Finding:
    """For bytes of another history than the reference's."""
    return Finding(
        kind=Kind.STALE_TAIL,
        replicas=(replica,),
        extent=extent,
        first_difference=extent.start,
        epoch=epoch,
        detail=f"{replica} has {extent.length} bytes from {extent.start} on that are not in the history of "
        f"{reference}, which has a newer epoch; it drops them when it connects to its master",
    )
