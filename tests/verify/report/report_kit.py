"""Verdicts, plans and runs made up for tests of the history and the report."""

from collections.abc import Iterable

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.findings import Copy, Finding, Kind, Severity
from rocketmq_verify.domain.inquiry.watermarks import Watermark, Watermarks
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.domain.planning.chunks import Plan
from rocketmq_verify.domain.reports import report
from rocketmq_verify.domain.verdict import ReplicaReport, Result, Verdict
from rocketmq_verify.history.runs import Figures, Group

SEGMENT = 1 << 20
GROUP = Group("DefaultCluster", "broker-a")
A, B, C = (ReplicaName(f"broker-a-{one}") for one in range(3))
NOW = 1_790_000_000_000


def replica(name: ReplicaName, end: int = 8 * SEGMENT, **changes: object) -> ReplicaReport:
    fields: dict[str, object] = {
        "name": name,
        "broker_id": int(name[-1]) + 1,
        "master": name == A,
        "min_offset": 0,
        "confirm_offset": end,
        "max_offset": end,
        "epochs": ((1, 0), (4, 3 * SEGMENT)),
        "compared_from": 0,
        "compared_up_to": end,
    }
    return ReplicaReport(**(fields | changes))  # type: ignore[arg-type] # fields of the struct


def verdict(
    replicas: Iterable[ReplicaReport] | None = None, findings: Iterable[Finding] = (), **changes: object
) -> Verdict:
    made = tuple(replicas or (replica(A), replica(B), replica(C)))
    found = tuple(report(one) for one in findings)
    bad = any(one.severity is Severity.MISMATCH for one in found)
    confirm = max(one.confirm_offset for one in made)
    fields: dict[str, object] = {
        "group": "orders",
        "result": Result.MISMATCH if bad else Result.ALIGNED,
        "exit_code": int(bad),
        "summary": f"mismatch: {found[0].detail}" if bad else f"3 replicas aligned up to offset {confirm} at epoch 4",
        "aligned_up_to": confirm,
        "epoch": 4,
        "confirm_offset": confirm,
        "full": False,
        "compared_bytes": 2 * SEGMENT,
        "read_bytes": 6 * SEGMENT,
        "new_bytes": 2 * SEGMENT,
        "old_bytes": 6 * SEGMENT,
        "chunks": 2,
        "moved": (),
        "counts": {kind.value: sum(one.kind is kind for one in found) for kind in Kind},
        "replicas": made,
        "findings": found,
    }
    return Verdict(**(fields | changes))  # type: ignore[arg-type] # fields of the struct


def plan(pieces: Iterable[Extent] = (Extent(6 * SEGMENT, 8 * SEGMENT),), *, segment: int = SEGMENT) -> Plan:
    return Plan(
        pieces=tuple(pieces),
        borders=(),
        chunk_size=1 << 20,
        segment_size=segment,
        full=False,
        new_bytes=2 * SEGMENT,
        old_bytes=6 * SEGMENT,
    )


def flipped(at: int = 5 * SEGMENT + 5000, *, topic: str = "orders-eu", wrong: ReplicaName = B) -> Finding:
    """One byte of a message differs in one copy."""
    good = bytes(range(64))
    bad = good[:16] + bytes((good[16] ^ 0x20,)) + good[17:]
    return Finding(
        kind=Kind.CORRUPT_RECORD,
        replicas=(wrong,),
        extent=Extent(at - 200, at + 300),
        first_difference=at,
        segment=at - at % SEGMENT,
        epoch=4,
        record=RecordName(
            physical_offset=at - 200,
            size=500,
            topic=topic,
            queue_id=3,
            queue_offset=1234,
            store_timestamp=NOW - 86_400_000,
            keys="order-7",
            unique_key="7F00000100002A9F0000",
        ),
        copies=tuple(
            Copy(
                replica=one,
                right=one != wrong,
                reason="body CRC wrong" if one == wrong else "body CRC right",
                hex_offset=at - 16,
                hex=(bad if one == wrong else good).hex(),
            )
            for one in (A, B, C)
        ),
        detail=f"message 1234 of queue 3 of {topic} at {at - 200} is damaged in {wrong}; {A} and {C} have it right",
    )


def marks(end: int = 8 * SEGMENT, suspects: Iterable[tuple[int, int]] = (), full: int | None = None) -> Watermarks:
    epochs = EpochList.of([(1, 0), (4, 3 * SEGMENT)])
    return Watermarks(
        replicas=tuple(
            Watermark(
                replica=one,
                broker_id=1,
                offset=end,
                epochs=epochs,
                ages=(Aged(0, SEGMENT, NOW), Aged(SEGMENT, 2 * SEGMENT, NOW, read=False)),
            )
            for one in (A, B, C)
        ),
        suspects=tuple(Extent(*one) for one in suspects),
        last_full_ms=full,
        ran_ms=NOW,
    )


def figures(started_ms: int = NOW, seconds: float = 4.5) -> Figures:
    return Figures(started_ms=started_ms, seconds=seconds, reading_seconds=0.5, travelled_bytes=4096)
