"""Differences that led to no finding: deleted, cut or rewritten during the run. Called by the job.

The next run reads such places again; until then they are not judged. A place that cannot be settled in two runs is not
verified, whatever the reason: otherwise a disk or a replica that returns other bytes at each read would never be
noticed.
"""

from collections.abc import Iterable, Sequence

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding, Severity
from rocketmq_verify.domain.inquiry.compare import Groups, Tally
from rocketmq_verify.domain.inquiry.watermarks import Watermarks
from rocketmq_verify.domain.planning.chunks import common, covered, merged
from rocketmq_verify.domain.planning.lineage import Lineage


def unsettled(
    tally: Tally, latest: Lineage, found: Iterable[Finding], standing: Sequence[Finding]
) -> tuple[Extent, ...]:
    """Bytes that at least two replicas still have, that differed or were missing, and that no finding covers.

    Args:
        found: findings from bytes; those in `standing` are still true; the tables' own are in `latest`.
    """
    zones = {zone.replica: zone.extent for zone in latest.zones}

    def there(extent: Extent, groups: Groups) -> bool:
        holders = [
            group
            for group in groups
            if any(replica in zones and zones[replica].meet(extent).length == extent.length for replica in group)
        ]
        return len(holders) > 1

    reported = [*standing, *latest.findings]
    open_ends = [extent for extent, groups in unexplained(tally, reported) if there(extent, groups)]
    open_ends += [
        finding.extent for finding in found if finding.severity is Severity.MISMATCH and finding not in standing
    ]
    for replica, extents in tally.missing.items():
        lacks = common(extents, [zones[replica]]) if replica in zones else ()
        open_ends += [extent for extent in lacks if not _in(extent, reported)]
    return common(open_ends, covered(zones.values()))


def lasting(now: Iterable[Extent], earlier: Watermarks) -> tuple[Extent, ...]:
    """The unsettled places that an earlier run suspected too."""
    return common(now, earlier.suspects)


def reported_places(tally: Tally, findings: Sequence[Finding]) -> tuple[Extent, ...]:
    """Where replicas differ, for the checks of one log by itself: damage there is reported already, with the right
    copy. Without the rest of a chunk that differs in one record, and without stale tails."""
    own = [finding.extent for finding in findings if finding.kind.traits.covers_extent]
    return merged([*own, *(extent for extent, _ in unexplained(tally, findings))])


def unexplained(tally: Tally, findings: Sequence[Finding]) -> list[tuple[Extent, Groups]]:
    """Chunks that differ, and how, without those that a finding covers."""
    extents = [(result.chunk.extent, result.groups) for result in tally.results()]
    extents += [(Extent(rest.first, rest.end), groups) for groups, rest in tally.rest.items()]
    return [(extent, groups) for extent, groups in extents if not _in(extent, findings)]


def _in(extent: Extent, findings: Iterable[Finding]) -> bool:
    return any(finding.kind.traits.explains_difference and finding.extent.meet(extent).length for finding in findings)
