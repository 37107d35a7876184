"""Up to where two logs, or two descriptions of one log, have one history. Used by `lineage` and `table_findings`."""

from collections.abc import Sequence

import msgspec

from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.model import ReplicaLog


def table(log: ReplicaLog) -> EpochList:
    """The epochs without entries that start beyond the log's end: that part was lost (docs/rip-map.md)."""
    return log.epochs.truncate_suffix(log.max_offset + 1)


def consistent_point(one: ReplicaLog, other: ReplicaLog) -> int | None:
    """Up to here the same masters wrote both logs; None if the tables do not show it.

    Without a table on either side, all that both have counts as common (brokers without controllers).
    """
    ours, theirs = table(one), table(other)
    end = min(one.max_offset, other.max_offset)
    if not ours.entries and not theirs.entries:
        return end
    for entry in reversed(ours.entries):
        same = theirs.find(entry.epoch)
        if same is not None and same.start_offset == entry.start_offset:
            return min(entry.end_offset, same.end_offset, end)
    return None


def settled(before: Sequence[ReplicaLog], after: Sequence[ReplicaLog]) -> tuple[ReplicaLog, ...]:
    """What stayed of the logs between two looks: without what expired, was cut, or was rewritten in another epoch.

    Replicas that are not in both looks, or whose looks have nothing in common (rebuilt, emptied), are left out.
    """
    latest = {log.name: log for log in after}
    found = []
    for log in before:
        later = latest.get(log.name)
        if later is None or later.segment_size != log.segment_size:
            continue
        if log.broker_id != later.broker_id and None not in {log.broker_id, later.broker_id}:
            continue
        end = min(own_point(log, later), log.max_offset)
        start = max(log.min_offset, later.min_offset)
        if log.extent.length and end <= start:
            continue
        found.append(
            msgspec.structs.replace(
                log,
                min_offset=start,
                max_offset=end,
                confirm_offset=min(log.confirm_offset, end),
                # a file is missing only if both looks lack it
                segments=tuple(sorted({*log.segments, *later.segments})),
                short=tuple(file for file in log.short if file in later.short),
                epochs=log.epochs.truncate_suffix(end + 1),
                strict=log.strict and later.strict,
            )
        )
    return tuple(found)


def own_point(log: ReplicaLog, later: ReplicaLog) -> int:
    """Up to here nothing was cut or rewritten; bytes are never rewritten without an entry of a new epoch."""
    if not (log.epochs.entries and later.epochs.entries):
        first = (log.epochs.entries or later.epochs.entries or (None,))[0]
        end = min(log.max_offset, later.max_offset)
        return end if first is None else min(end, max(first.start_offset, log.min_offset))
    point = consistent_point(log, later)
    return -1 if point is None else point
