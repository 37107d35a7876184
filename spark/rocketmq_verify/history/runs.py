"""What the history keeps of a run, for the job and for reports; without Arrow, whose import takes longer than a small
run. `rows` writes and reads it."""

import secrets
from typing import Annotated, Final, TypedDict

import msgspec

from rocketmq_verify.domain.verdict import Result, Verdict

MOST_REPLICAS: Final = 1000
LONGEST_VERDICT: Final = 4 << 20
"""Of a run's JSON; a longer one is left out."""

Name = Annotated[str, msgspec.Meta(max_length=1024)]
Text = Annotated[str, msgspec.Meta(max_length=100_000)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Offset


class Group(msgspec.Struct, frozen=True):
    """The group of a history. On a laptop the cluster may be empty, and the broker name comes from `--group`."""

    cluster: str
    broker_name: str


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Times and bytes of a run."""

    started_ms: Count
    """Since 1970."""
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    """From the command to the verdict."""
    reading_seconds: Annotated[float, msgspec.Meta(ge=0)]
    """Of these while digests were made."""
    travelled_bytes: Count = 0
    """Bytes over the network."""


class ReplicaPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One replica at the time of a run."""

    name: Name
    broker_id: int | None
    master: bool
    min_offset: Offset
    confirm_offset: Offset
    max_offset: Offset
    compared_from: Offset | None
    compared_up_to: Offset | None


class OfRun(msgspec.Struct, frozen=True, kw_only=True):
    """How the row of each table begins."""

    cluster: Name
    broker_name: Name
    run_id: Name
    saved_ms: Count
    """When it was written, in milliseconds since 1970; ascending from run to run even if clocks are not."""


class Head(TypedDict):
    """The fields of `OfRun`."""

    cluster: str
    broker_name: str
    run_id: str
    saved_ms: int


def head_of(group: Group, run_id: str, saved_ms: int) -> Head:
    return Head(cluster=group.cluster, broker_name=group.broker_name, run_id=run_id, saved_ms=saved_ms)


class RunSummary(OfRun, frozen=True, kw_only=True):
    """One row of `runs`; the table's columns are these."""

    started_ms: Count
    seconds: float
    reading_seconds: float
    travelled_bytes: Count
    result: Result
    summary: Text
    aligned_up_to: Offset | None
    epoch: int | None
    confirm_offset: Offset
    full: bool
    compared_bytes: Count
    read_bytes: Count
    new_bytes: Count
    old_bytes: Count
    chunks: Count
    mismatches: Count
    findings: Count
    replicas: Annotated[tuple[ReplicaPoint, ...], msgspec.Meta(max_length=MOST_REPLICAS)]
    verdict: Annotated[str, msgspec.Meta(max_length=LONGEST_VERDICT)] = ""
    """The run's JSON; empty in rows that were merged into one file, and where it was too long."""

    @property
    def bytes_per_second(self) -> float:
        """Read from all replicas together, while digests were made; 0 if nothing was read."""
        return self.read_bytes / self.reading_seconds if self.reading_seconds > 0 else 0.0

    def without_verdict(self) -> "RunSummary":
        """The same in less space."""
        return msgspec.structs.replace(self, verdict="")

    def lag(self, replica: ReplicaPoint) -> int:
        """Bytes that the group has confirmed and this replica did not have."""
        return max(self.confirm_offset - replica.max_offset, 0)


def new_run_id() -> str:
    """A random id."""
    return secrets.token_hex(8)


def summary(group: Group, run_id: str, saved_ms: int, verdict: Verdict, figures: Figures) -> RunSummary:
    """The row of a run."""
    text = msgspec.json.encode(verdict).decode()
    return RunSummary(
        **head_of(group, run_id, saved_ms),
        started_ms=figures.started_ms,
        seconds=figures.seconds,
        reading_seconds=figures.reading_seconds,
        travelled_bytes=figures.travelled_bytes,
        result=verdict.result,
        summary=verdict.summary[:100_000],
        aligned_up_to=verdict.aligned_up_to,
        epoch=verdict.epoch,
        confirm_offset=verdict.confirm_offset,
        full=verdict.full,
        compared_bytes=verdict.compared_bytes,
        read_bytes=verdict.read_bytes,
        new_bytes=verdict.new_bytes,
        old_bytes=verdict.old_bytes,
        chunks=verdict.chunks,
        mismatches=sum(finding.severity == "mismatch" for finding in verdict.findings),
        findings=len(verdict.findings),
        replicas=tuple(
            ReplicaPoint(**{name: getattr(replica, name) for name in ReplicaPoint.__struct_fields__})
            for replica in verdict.replicas[:MOST_REPLICAS]
        ),
        verdict=text if len(text) <= LONGEST_VERDICT else "",
    )
