"""What differed and came to no finding: gone, cut or written anew while it was looked at. Called by the job.

Such places are read again by the next run, and nothing is said of them meanwhile. That has to end somewhere: a place
that cannot be settled in two runs is not verified, whatever the reason is; a disk that reads otherwise each time, or a
replica that answers so, would never be noticed else.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from rocketmq_verify.domain.chunks import common, covered, merged
from rocketmq_verify.domain.compare import Groups, Tally
from rocketmq_verify.domain.findings import Finding, Kind, Severity
from rocketmq_verify.domain.histories import History
from rocketmq_verify.domain.model import Extent
from rocketmq_verify.domain.watermarks import Watermarks

_EXPLAINS: Final = frozenset(
    {Kind.CORRUPT_RECORD, Kind.DIVERGENT_HISTORY, Kind.STALE_TAIL, Kind.UNUSED_BYTES, Kind.MISSING_SEGMENT}
)
_ELSEWHERE: Final = frozenset({Kind.STALE_TAIL, Kind.UNUSED_BYTES, Kind.LAGGING})


def unsettled(
    tally: Tally, latest: History, found: Iterable[Finding], standing: Sequence[Finding]
) -> tuple[Extent, ...]:
    """What at least two replicas still have, that differed or was missing, and is in no finding.

    Args:
        found: by bytes, of which those in `standing` are still true; the tables' own are in `latest`.
    """
    zones = {zone.replica: zone.extent for zone in latest.zones}

    def there(extent: Extent, groups: Groups) -> bool:
        holders = [
            group
            for group in groups
            if any(one in zones and zones[one].meet(extent).length == extent.length for one in group)
        ]
        return len(holders) > 1

    told = [*standing, *latest.findings]
    open_ends = [extent for extent, groups in unexplained(tally, told) if there(extent, groups)]
    open_ends += [one.extent for one in found if one.severity is Severity.MISMATCH and one not in standing]
    for replica, extents in tally.missing.items():
        lacks = common(extents, [zones[replica]]) if replica in zones else ()
        open_ends += [one for one in lacks if not _in(one, told)]
    return common(open_ends, covered(zones.values()))


def lasting(now: Iterable[Extent], earlier: Watermarks) -> tuple[Extent, ...]:
    """Of what is not settled, that which was suspected by an earlier run."""
    return common(now, earlier.suspects)


def told(tally: Tally, findings: Sequence[Finding]) -> tuple[Extent, ...]:
    """Where replicas differ, for the check of one log by itself: what is wrong there is told already, with the copy
    that is right. Not the rest of a chunk that differs in one record, nor what only a stale tail has otherwise."""
    own = [one.extent for one in findings if one.kind not in _ELSEWHERE]
    return merged([*own, *(extent for extent, _ in unexplained(tally, findings))])


def unexplained(tally: Tally, findings: Sequence[Finding]) -> list[tuple[Extent, Groups]]:
    """Chunks that differ, and how, without those that are in a finding."""
    extents = [(result.chunk.extent, result.groups) for result in tally.results()]
    extents += [(Extent(rest.first, rest.end), groups) for groups, rest in tally.rest.items()]
    return [(extent, groups) for extent, groups in extents if not _in(extent, findings)]


def _in(extent: Extent, findings: Iterable[Finding]) -> bool:
    return any(one.kind in _EXPLAINS and one.extent.meet(extent).length for one in findings)
