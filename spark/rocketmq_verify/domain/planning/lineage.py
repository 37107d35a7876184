"""How far each replica's log can be compared, by the replicas' own descriptions. Called by the job before bytes are
read (what to read), and with a second look after that (what is still true).

The epoch tables record which master wrote which bytes: two logs with an epoch from the same start are equal up to the
earlier of its ends, their consistent point (RIP-44, section Truncation algorithm). The log with the highest last epoch,
then the longest, is the reference. Each other log is *sure* up to its point with the reference: a difference there
breaks PrefixAligned. Beyond it a replica may rightly have other bytes (a stale tail), or the same bytes while its table
lacks an epoch (a slave gets the entry of a master that was elected again only when it reconnects). So bytes beyond the
point are compared too, but a difference that lasts to the end is not a mismatch.

Some contradictions are only apparent:
- a master that restarts within its epoch rewrites that epoch's entry, from its end; slaves have the old one until they
  connect. Two starts of one epoch contradict each other only where both claim the same bytes for it;
- entries vanish from the front (expired files, EpochList's limit), so two tables may have nothing in common;
- a slave of a Java master confirms what it has itself, so a confirm offset counts only up to the consistent point,
  unless the replica is `strict`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.points import consistent_point, settled, table
from rocketmq_verify.domain.planning.rivals import Rival, rivals
from rocketmq_verify.domain.planning.table_findings import contradictions, early_ends, given_up, longer, missing


class SegmentSizeError(Exception):
    """Replicas whose files differ in size: not one configuration, and chunks would not match."""


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one replica's log that is compared."""

    replica: ReplicaName
    extent: Extent
    """From its first byte to its end, or to the group's confirm offset if that is less."""
    sure: int
    """Below, a difference is a mismatch; from here on, one that lasts to the zone's end is `beyond`."""
    beyond: Kind = Kind.STALE_TAIL
    """STALE_TAIL, or DIVERGENT_HISTORY if nothing explains another history."""
    end: int
    """Of its log: bytes up to here show which record the last compared bytes belong to."""
    last_epoch: int = -1
    """Of its table."""
    promised: int = 0
    """Below, a difference is always DIVERGENT_HISTORY: a `strict` replica's own confirm offset."""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """What the replicas' epoch tables have in common, after one look at the replicas or two."""

    reference: ReplicaName | None
    """None: no replica has any bytes."""
    epochs: EpochList
    """The reference's."""
    confirm_offset: int
    """Of the group; 0 without a reference."""
    segment_size: int
    zones: tuple[Zone, ...]
    findings: tuple[Finding, ...]
    rivals: tuple[Rival, ...] = ()
    """Where tables may contradict each other; the bytes decide."""
    moved: tuple[ReplicaName, ...] = ()
    """Replicas that are not judged: deleted, rebuilt or emptied between two looks."""

    def zone(self, replica: ReplicaName) -> Zone | None:
        return next((zone for zone in self.zones if zone.replica == replica), None)

    def epoch_at(self, offset: int) -> int:
        """Of the reference; -1 where its table has no entry."""
        entry = self.epochs.entry_at(offset)
        return -1 if entry is None else entry.epoch


def lineage(before: Sequence[ReplicaLog], after: Sequence[ReplicaLog] | None = None) -> Lineage:
    """What can be compared, and findings from the tables alone.

    Args:
        after: a later look at the same replicas; then only what is in both looks counts.

    Raises:
        SegmentSizeError: files of different sizes.
    """
    size = segment_size((*before, *(after or ())))
    before = [msgspec.structs.replace(log, segment_size=size) for log in before]
    after = None if after is None else [msgspec.structs.replace(log, segment_size=size) for log in after]
    latest = {log.name: log for log in (before if after is None else after)}
    logs = settled(before, tuple(latest.values()))
    gone = {log.name for log in before} - {log.name for log in logs}
    filled = [log for log in logs if log.extent.length]
    if not filled:
        return Lineage(
            reference=None,
            epochs=EpochList(),
            confirm_offset=0,
            segment_size=size,
            zones=(),
            findings=(*early_ends(before, latest, gone, 0), *given_up(latest.values())),
            moved=tuple(sorted(gone)),
        )
    reference = max(filled, key=lambda log: (table(log).last_epoch, log.max_offset, log.master))
    points = {log.name: consistent_point(log, reference) for log in filled}
    promised = (min(log.confirm_offset, log.max_offset if log.strict else points[log.name] or 0) for log in filled)
    confirm = max(0, min(max(promised), reference.max_offset))
    zones = [_zone(log, points[log.name], reference, confirm) for log in filled]
    if after is not None:
        zones = _clipped(zones, lineage(before).zones)
    findings = [
        *contradictions(filled, confirm),
        *(finding for log in filled for finding in missing(log)),
        *early_ends(before, latest, gone, confirm),
        *longer(before, latest, gone, reference, looks=1 if after is None else 2),
        *given_up(latest[log.name] for log in logs),
    ]
    return Lineage(
        reference=reference.name,
        epochs=table(reference),
        confirm_offset=confirm,
        segment_size=reference.segment_size,
        zones=tuple(zone for zone in zones if zone.extent.length),
        findings=tuple(findings),
        rivals=tuple(rivals(filled, confirm)),
        moved=tuple(sorted(gone)),
    )


def segment_size(logs: Iterable[ReplicaLog]) -> int:
    """Of all files of the group; 0 without files.

    A log without files does not show it, and one whose only file was cut shows its length: both count as of the others'
    size. (A length that divides the others' counts as another configuration.)

    Raises:
        SegmentSizeError: files of different sizes.
    """
    ordered = sorted(logs, key=lambda log: log.segment_size)
    size = ordered[-1].segment_size if ordered else 0
    for log in ordered:
        if log.segment_size == size or not log.segments:
            continue
        if len(log.segments) > 1 or log.segments[0] % size or not log.segment_size or size % log.segment_size == 0:
            raise SegmentSizeError(
                f"files of {log.name} have {log.segment_size} bytes, those of {ordered[-1].name} {size}: "
                "mappedFileSizeCommitLog must be equal in a group; verify only directories of one group"
            )
    return size


def other_sizes(logs: Sequence[ReplicaLog]) -> dict[ReplicaName, str]:
    """Replicas whose files differ in size from those of two and more others, and of most: one of them does not stop
    the comparison of the others. None where most do not agree."""
    sizes = Counter(log.segment_size for log in logs if log.segments)
    if len(sizes) < 2:
        return {}
    (size, count), (_, next_count) = sizes.most_common(2)
    most = [log for log in logs if log.segment_size == size]
    if count < 2 or count == next_count:
        return {}
    found: dict[ReplicaName, str] = {}
    for log in logs:
        try:
            segment_size((most[0], log))
        except SegmentSizeError as error:
            found[log.name] = str(error)
    return found


def _zone(log: ReplicaLog, point: int | None, reference: ReplicaLog, confirm: int) -> Zone:
    extent = Extent(log.min_offset, min(log.max_offset, confirm))
    beyond = Kind.STALE_TAIL
    sure = extent.start if point is None else point
    if point is None and (own := table(log).entries):
        # tables that begin at 0 are complete: two first masters, or two groups. One epoch with two starts comes from a
        # master that restarted; what it wrote before is the same
        theirs = table(reference).entries
        whole = own[0].start_offset == theirs[0].start_offset == 0 and own[0].epoch != theirs[0].epoch
        beyond = Kind.DIVERGENT_HISTORY if whole else beyond
    return Zone(
        replica=log.name,
        extent=extent,
        sure=max(min(sure, extent.end), extent.start),
        beyond=beyond,
        end=log.max_offset,
        last_epoch=table(log).last_epoch,
        promised=min(log.confirm_offset, extent.end) if log.strict else 0,
    )


def _clipped(zones: Iterable[Zone], earlier: Iterable[Zone]) -> list[Zone]:
    planned = {zone.replica: zone for zone in earlier}
    found = []
    for zone in zones:
        if (plan := planned.get(zone.replica)) is None:
            continue
        extent = zone.extent.meet(plan.extent)
        sure = max(min(zone.sure, plan.sure, extent.end), extent.start)
        beyond = zone.beyond if plan.beyond == zone.beyond else Kind.STALE_TAIL
        found.append(
            msgspec.structs.replace(
                zone, extent=extent, sure=sure, beyond=beyond, promised=min(zone.promised, plan.promised)
            )
        )
    return found
