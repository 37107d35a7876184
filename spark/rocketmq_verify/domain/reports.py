"""Findings as JSON shows them, keys in camelCase. Part of `verdict.Verdict`."""

import msgspec

from rocketmq_verify.domain.findings import Copy, Finding, Kind, Severity
from rocketmq_verify.domain.model import ReplicaName


class CopyReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`findings.Copy` in JSON."""

    replica: ReplicaName
    right: bool | None
    reason: str
    hex_offset: int
    hex: str


class RecordReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`model.RecordName` in JSON."""

    physical_offset: int
    size: int
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    store_timestamp: int | None
    keys: str | None
    unique_key: str | None


class FindingReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`findings.Finding` in JSON."""

    kind: Kind
    severity: Severity
    replicas: tuple[ReplicaName, ...]
    start: int
    end: int
    first_difference: int | None
    segment: str | None
    """The file's name."""
    epoch: int | None
    record: RecordReport | None
    copies: tuple[CopyReport, ...]
    detail: str


def report(finding: Finding) -> FindingReport:
    """For JSON."""
    record = finding.record
    return FindingReport(
        kind=finding.kind,
        severity=finding.severity,
        replicas=finding.replicas,
        start=finding.extent.start,
        end=finding.extent.end,
        first_difference=finding.first_difference,
        segment=None if finding.segment is None else f"{finding.segment:020d}",
        epoch=None if finding.epoch == -1 else finding.epoch,
        record=None if record is None else RecordReport(**msgspec.structs.asdict(record)),
        copies=tuple(_copy(copy) for copy in finding.copies),
        detail=finding.detail,
    )


def _copy(copy: Copy) -> CopyReport:
    return CopyReport(**msgspec.structs.asdict(copy))
