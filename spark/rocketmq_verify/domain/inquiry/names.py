"""Which messages are meant by findings that no comparison has read: damage that is equal in all replicas, and ends that
are lost. Called by the job.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_formats.soundness.records import name_record, record_start
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.inquiry.windows import FAR, NEAR, message, read_window
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.times import when

LOST: Final = frozenset((Kind.LOST_CONFIRMED, Kind.LOST_COPY))


def named(findings: Iterable[Finding], lineage: Lineage) -> Requests[tuple[Finding, ...]]:
    """The same findings, with the message at their place or before it as far as a replica has it."""
    found: list[Finding] = []
    for finding in findings:
        if finding.kind in LOST and finding.record is None and finding.extent.length:
            found.append((yield from _lost(finding, lineage)))
        elif finding.kind is Kind.BAD_STRUCTURE and finding.record is None and finding.first_difference is not None:
            found.append((yield from _damaged(finding, lineage)))
        else:
            found.append(finding)
    return tuple(found)


def _damaged(finding: Finding, lineage: Lineage) -> Requests[Finding]:
    name = yield from _at(finding.extent.start, finding.replicas, lineage)
    if name is None:
        return finding
    return msgspec.structs.replace(finding, record=name, detail=f"{message(name)}: {finding.detail}")


def _lost(finding: Finding, lineage: Lineage) -> Requests[Finding]:
    start = finding.extent.start
    newer = finding.epoch is not None  # given up: other messages are there now
    there = [zone.replica for zone in lineage.zones if zone.extent.start <= start < zone.end and not newer]
    name = yield from _at(start, there, lineage)
    if name is not None:
        return msgspec.structs.replace(
            finding, record=name, detail=f"{finding.detail}; the first of them is {message(name)}"
        )
    before = [zone.replica for zone in lineage.zones if zone.extent.start < start <= zone.end]
    name = yield from _before(start, before, lineage)
    if name is None:
        return finding
    stored = "" if name.store_timestamp is None else f", stored {when(name.store_timestamp)}"
    text = f"the last message before them is {message(name)} at {name.physical_offset}{stored}"
    return msgspec.structs.replace(finding, detail=f"{finding.detail}; {text}")


def _at(offset: int, replicas: Sequence[ReplicaName], lineage: Lineage) -> Requests[RecordName | None]:
    """The record that begins there, by the first replica that gives these bytes; without a topic, if only some of its
    head can be understood."""
    size = lineage.segment_size
    for replica in replicas:
        end = offset - offset % size + size
        data, name = b"", None
        for reach in (NEAR, FAR):
            window = yield from read_window(Extent(offset, min(offset + reach, end)), (replica,), lineage)
            data = window.copies.get(replica, b"")
            name = name_record(data, offset, offset, segment_size=size)
            if name is None or name.topic is not None or len(data) < reach:
                break
        if data:
            return name
    return None


def _before(offset: int, replicas: Sequence[ReplicaName], lineage: Lineage) -> Requests[RecordName | None]:
    """The last record that ends at or before this place and has a whole name: before it are a blank, or damage."""
    size = lineage.segment_size
    for replica in replicas:
        zone = lineage.zone(replica)
        for reach in (NEAR, FAR):
            first = max(offset - reach, 0 if zone is None else zone.extent.start)
            window = yield from read_window(Extent(first, offset), (replica,), lineage)
            data = window.copies.get(replica, b"")
            at: int | None = first + len(data)
            while at is not None and at > first:
                at = record_start(data, first, at - 1, segment_size=size)
                name = None if at is None or at < first else name_record(data, first, at, segment_size=size)
                if name is not None and name.topic is not None:
                    return name
    return None
