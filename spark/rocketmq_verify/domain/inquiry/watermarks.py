"""What earlier runs have compared, and when, so that a run reads what is new, and of the rest what was not read for the
longest time. Kept in the history.

A watermark belongs to a replica's log, not to its name: after the replica was rebuilt (another broker id), lost bytes,
or rewrote some in another epoch, it holds only as far as the compared log and the current one agree. A group that was
deleted and created again has the same names, ids and epochs: so the digest of the last compared bytes is kept (the
anchor), and a mark whose bytes are missing or different does not hold at all. What differed or was missing is kept as
`suspects` and read again in every run, so that one bad file does not make every run read all that was written after it.
A suspect stays until that place was read right in every replica that had it: the one with the damage may be away.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.model import ReadRequest, ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.ages import Aged, believed, renewed, together
from rocketmq_verify.domain.planning.chunks import Plan, common, covered, merged, without
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.planning.points import consistent_point

ANCHOR: Final = 4 << 10
"""Bytes: some records, with their times."""
MOST_SUSPECTS: Final = 1024
"""Extents; beyond that the last ones are joined to one."""


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared of one replica's log."""

    replica: ReplicaName
    broker_id: int | None
    offset: int
    """The end of what there was to compare."""
    epochs: EpochList
    """Its table at that time."""
    anchor: bytes = b""
    """xxh3-128 of the ANCHOR bytes before `offset`; empty: unknown."""
    ages: tuple[Aged, ...] = ()
    """What was read below `offset`, and since when it is known: ascending, disjoint."""


class Watermarks(msgspec.Struct, frozen=True, kw_only=True):
    """Of one group, after a run."""

    replicas: tuple[Watermark, ...] = ()
    suspects: tuple[Extent, ...] = ()
    """What differed, was missing, or could not be settled: ascending, disjoint."""
    last_full_ms: int | None = None
    """When a run that read everything ended, in milliseconds since 1970."""
    ran_ms: int | None = None
    """When the last run began; None: there was none."""


def valid_up_to(mark: Watermark | None, log: ReplicaLog) -> int:
    """Below this offset the log is the one that was compared; its first byte if none is."""
    if mark is None or (mark.broker_id != log.broker_id and None not in {mark.broker_id, log.broker_id}):
        return log.min_offset
    compared = msgspec.structs.replace(log, max_offset=mark.offset, epochs=mark.epochs)
    if bool(mark.epochs.entries) != bool(log.epochs.entries):
        return log.min_offset
    point = consistent_point(compared, log)
    return log.min_offset if point is None else max(point, log.min_offset)


def still_anchored(marks: Watermarks, logs: Iterable[ReplicaLog]) -> Requests[Watermarks]:
    """The marks without those of logs that were created again since: these are read again as a whole. A mark below a
    log's first byte has no effect."""
    begins = {log.name: log.min_offset for log in logs}
    asked = [mark for mark in marks.replicas if mark.anchor and begins.get(mark.replica, mark.offset) < mark.offset]
    answers = (yield _anchors(asked)) if asked else ()
    gone = {mark.replica for mark, digest in zip(asked, answers, strict=True) if digest != mark.anchor}
    kept = tuple(mark for mark in marks.replicas if mark.replica not in gone)
    return msgspec.structs.replace(marks, replicas=kept)


def anchored(marks: Watermarks, lineage: Lineage) -> Requests[Watermarks]:
    """The marks with anchors for the next run, if they are of this one."""
    ends = {zone.replica: zone.extent.end for zone in lineage.zones}
    asked = [mark for mark in marks.replicas if ends.get(mark.replica) == mark.offset]
    answers = (yield _anchors(asked)) if asked else ()
    found = {mark.replica: digest or b"" for mark, digest in zip(asked, answers, strict=True)}
    return msgspec.structs.replace(
        marks,
        replicas=tuple(
            msgspec.structs.replace(mark, anchor=found.get(mark.replica, mark.anchor)) for mark in marks.replicas
        ),
    )


def _anchors(marks: Iterable[Watermark]) -> tuple[ReadRequest, ...]:
    return tuple(
        ReadRequest(mark.replica, Extent(max(mark.offset - ANCHOR, 0), mark.offset), digest=True) for mark in marks
    )


def fresh(marks: Watermarks, logs: Iterable[ReplicaLog], lineage: Lineage) -> tuple[Extent, ...]:
    """What has to be read because no run compared its current bytes, or damage was found there."""
    known = {mark.replica: mark for mark in marks.replicas}
    found = list(marks.suspects)
    for log in logs:
        zone = lineage.zone(log.name)
        if zone is not None:
            # when it was read does not matter here
            ages = _held(known.get(log.name), log, now_ms=0)
            found += without([zone.extent], [age.extent for age in ages if age.read])
    return common(found, [zone.extent for zone in lineage.zones])


def ages(marks: Watermarks, logs: Iterable[ReplicaLog], lineage: Lineage, *, now_ms: int) -> tuple[Aged, ...]:
    """How old the knowledge is of what can be compared: ascending, disjoint."""
    known = {mark.replica: mark for mark in marks.replicas}
    zones = {zone.replica: zone.extent for zone in lineage.zones}
    held = [(zones[log.name], _held(known.get(log.name), log, now_ms)) for log in logs if log.name in zones]
    return together(held, now_ms)


def _held(mark: Watermark | None, log: ReplicaLog, now_ms: int) -> tuple[Aged, ...]:
    """What the mark knows of the log as it is now."""
    if mark is None:
        return ()
    return believed(mark.ages, Extent(log.min_offset, valid_up_to(mark, log)), now_ms)


def advanced(
    marks: Watermarks,
    logs: Sequence[ReplicaLog],
    latest: Lineage,
    *,
    plan: Plan,
    tally: Tally,
    unsettled: Iterable[Finding] = (),
    suspects: Iterable[Extent] = (),
    began_ms: int,
    now_ms: int,
) -> Watermarks:
    """The marks after a run whose chunks were all read.

    Args:
        marks: of `still_anchored`.
        logs: the first look, which the plan was made from.
        latest: of both looks; what it does not contain was not settled.
        unsettled: findings that `still_true` dropped.
        suspects: other places that have to be read again.
        began_ms: nothing that the run read is known since an earlier time.
    """
    known = {mark.replica: mark for mark in marks.replicas}
    zones = {zone.replica: zone.extent for zone in latest.zones}
    again = [result.chunk.extent for result in tally.results()]
    again += [extent for lacks in (tally.missing, tally.unreadable) for extents in lacks.values() for extent in extents]
    again += [Extent(rest.first, rest.end) for rest in tally.rest.values()]
    again += [finding.extent for finding in unsettled]
    again += suspects
    again += without(marks.suspects, [*plan.pieces, *plan.alone])
    away = [Extent(0, mark.offset) for name, mark in known.items() if name not in zones]
    again += common(marks.suspects, away)
    both = covered(zones.values())
    for log in logs:
        zone = zones.get(log.name)
        if zone is not None:
            there = common(both, [zone])
            known[log.name] = Watermark(
                replica=log.name,
                broker_id=log.broker_id,
                offset=zone.end,
                epochs=log.epochs,
                ages=renewed(
                    _held(known.get(log.name), log, began_ms),
                    there,
                    without(
                        [*common(there, plan.pieces), *common([zone], plan.alone)],
                        tally.unreadable.get(log.name, ()),
                    ),
                    began_ms,
                ),
            )
    here = covered((log.extent for log in logs), copies=1)
    return Watermarks(
        replicas=tuple(known[name] for name in sorted(known)),
        suspects=_bounded(common(merged(again), here)),
        last_full_ms=now_ms if plan.full else marks.last_full_ms,
        ran_ms=began_ms,
    )


def _bounded(extents: tuple[Extent, ...]) -> tuple[Extent, ...]:
    if len(extents) <= MOST_SUSPECTS:
        return extents
    return (*extents[: MOST_SUSPECTS - 1], Extent(extents[MOST_SUSPECTS - 1].start, extents[-1].end))
