"""Whether epoch tables that contradict each other describe the same bytes: then one of them is wrong. Part of
`inquiry`."""

from typing import Final

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.inquiry.compare import grouped
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.model import ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage

PROBE: Final = 4 << 10
"""Bytes: some records, with their times."""


def wrong_tables(lineage: Lineage) -> Requests[list[Finding]]:
    """One finding for each start where replicas have the same bytes under different epochs."""
    findings: list[Finding] = []
    for rival in lineage.rivals:
        names = sorted(rival.epochs)
        probe = Extent(rival.extent.start, min(rival.extent.start + PROBE, rival.extent.end))
        answers = yield tuple(ReadRequest(name, probe, digest=True) for name in names)
        there = {name: digest for name, digest in zip(names, answers, strict=True) if digest is not None}
        for same in grouped(there):
            by_epoch: dict[int, list[ReplicaName]] = {}
            for name in same:
                by_epoch.setdefault(rival.epochs[name], []).append(name)
            if len(by_epoch) > 1:
                findings.append(_wrong_table(rival.start, by_epoch, lineage))
    return findings


def _wrong_table(start: int, by_epoch: dict[int, list[ReplicaName]], lineage: Lineage) -> Finding:
    ranked = sorted(by_epoch, key=lambda epoch: (-len(by_epoch[epoch]), epoch))
    most = len(by_epoch[ranked[0]]) > len(by_epoch[ranked[1]])
    told = " and ".join(f"of epoch {epoch} in {' and '.join(by_epoch[epoch])}" for epoch in ranked)
    return Finding(
        kind=Kind.DIVERGENT_HISTORY,
        replicas=tuple(sorted(name for epoch in ranked[1 if most else 0 :] for name in by_epoch[epoch])),
        extent=Extent(start, start),  # no byte is wrong
        first_difference=start,
        segment=start - start % lineage.segment_size,
        detail=f"epoch tables contradict each other: the bytes from {start} on are {told}, and they are equal, so a "
        "table is wrong (epochFileCheckpoint)",
    )
