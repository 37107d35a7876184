"""How far each replica's log can be compared, from what the replicas say of themselves. Called by the job, before bytes
are read (what to read) and with a second look after that (what to believe).

Who wrote which bytes stands in the epoch tables: two logs that have an epoch from the same start in common are equal
up to the earlier of its ends, their consistent point (RIP-44; ha reference, section 5.1). The replica with the highest
last epoch, then the longest, is the reference; of the others everything up to their point with it is *sure*: a
difference there breaks PrefixAligned. Behind it a replica may have something else by rights (a stale tail), or the
same, where only its table has not heard of an epoch yet (a slave of a master that was elected again learns of that when
it connects anew). So bytes behind the point are compared too, but a difference that lasts to the end is no mismatch.

Not everything that looks like a contradiction is one:
- a master that restarts within its epoch writes that epoch's entry anew, from its end; slaves have the old one until
  they connect. Two starts of one epoch contradict each other only where both claim the same bytes for it;
- entries vanish from the front (expired files, EpochList's limit), so two tables may have nothing in common;
- a slave of a Java master notes as confirmed what it has itself, so a confirm offset counts only up to the consistent
  point, unless the replica is `strict`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import Extent, ReplicaLog, ReplicaName
from rocketmq_verify.domain.points import consistent_point, settled, table
from rocketmq_verify.domain.table_findings import contradictions, lagging, longer, missing


class SegmentSizeError(Exception):
    """Replicas whose files differ in size: no group of one configuration, chunks would not match."""


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """What of one replica is compared."""

    replica: ReplicaName
    extent: Extent
    """From its first byte to its end, or to what the group has confirmed if that is less."""
    sure: int
    """Below, a difference is a mismatch; from here on, one that lasts to the zone's end is `beyond`."""
    beyond: Kind = Kind.STALE_TAIL
    """STALE_TAIL, or DIVERGENT_HISTORY where nothing explains another history."""
    end: int
    """Of its log: bytes up to here help to see what the last compared bytes are part of."""
    last_epoch: int = -1
    """Of its table."""
    promised: int = 0
    """Below, it is DIVERGENT_HISTORY whatever explains it: a `strict` replica's own confirm offset."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables say, at one moment or at two."""

    reference: ReplicaName | None
    """None: no replica has any bytes."""
    epochs: EpochList
    """The reference's."""
    confirm_offset: int
    """What the group has confirmed; 0 without a reference."""
    segment_size: int
    zones: tuple[Zone, ...]
    findings: tuple[Finding, ...]
    moved: tuple[ReplicaName, ...] = ()
    """Replicas that are not judged: gone, rebuilt or emptied between two looks."""

    def zone(self, replica: ReplicaName) -> Zone | None:
        return next((zone for zone in self.zones if zone.replica == replica), None)

    def epoch_at(self, offset: int) -> int:
        """Of the reference; -1 where its table does not say."""
        entry = self.epochs.entry_at(offset)
        return -1 if entry is None else entry.epoch


def history(before: Sequence[ReplicaLog], after: Sequence[ReplicaLog] | None = None) -> History:
    """What can be compared, and what the tables themselves give away.

    Args:
        after: a later look at the same replicas; then only what both looks agree on counts.

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
        return History(
            reference=None,
            epochs=EpochList(),
            confirm_offset=0,
            segment_size=size,
            zones=(),
            findings=(),
            moved=tuple(sorted(gone)),
        )
    reference = max(filled, key=lambda log: (table(log).last_epoch, log.max_offset, log.master))
    points = {log.name: consistent_point(log, reference) for log in filled}
    promised = (min(log.confirm_offset, log.max_offset if log.strict else points[log.name] or 0) for log in filled)
    confirm = max(0, min(max(promised), reference.max_offset))
    zones = [_zone(log, points[log.name], reference, confirm) for log in filled]
    if after is not None:
        zones = _clipped(zones, history(before).zones)
    findings = [
        *contradictions(filled, confirm),
        *(finding for log in filled for finding in missing(log)),
        *lagging(before, latest, gone, confirm),
        *longer(before, latest, gone, reference, looks=1 if after is None else 2),
    ]
    return History(
        reference=reference.name,
        epochs=table(reference),
        confirm_offset=confirm,
        segment_size=reference.segment_size,
        zones=tuple(zone for zone in zones if zone.extent.length),
        findings=tuple(findings),
        moved=tuple(sorted(gone)),
    )


def segment_size(logs: Iterable[ReplicaLog]) -> int:
    """Of all files of the group; 0 without files.

    A log without files has none to see it from, and one whose only file was cut takes its length for it: both count as
    of the others' size. (A length that divides the others' is taken for another configuration.)

    Raises:
        SegmentSizeError: see there.
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


def _zone(log: ReplicaLog, point: int | None, reference: ReplicaLog, confirm: int) -> Zone:
    extent = Extent(log.min_offset, min(log.max_offset, confirm))
    beyond = Kind.STALE_TAIL
    sure = extent.start if point is None else point
    if point is None and (own := table(log).entries):
        # tables that begin at 0 have forgotten nothing: two first masters, or two groups. One epoch with two starts is
        # of a master that restarted; what it wrote before is the same
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
