"""What is said in the end, and its JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_verify.domain.findings import Copy, Finding, Kind
from rocketmq_verify.domain.inquiry.compare import ChunkResult, Tally
from rocketmq_verify.domain.model import Chunk, ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.chunks import plan
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.domain.planning.table_findings import unreachable
from rocketmq_verify.domain.verdict import Result, Verdict, in_order, verdict
from tests.verify.logs_kit import log

A, B, C = (ReplicaName(name) for name in "abc")


def verdict_of(logs: Sequence[ReplicaLog], *findings: Finding, allow: bool = False) -> Verdict:
    seen = lineage(logs)
    what = plan(seen, [zone.extent for zone in seen.zones], chunk_size=4096)
    return verdict(logs, seen, what, Tally(), [*seen.findings, *findings], group="broker-a", allow_unreachable=allow)


def finding(kind: Kind, start: int = 100, *replicas: ReplicaName) -> Finding:
    return Finding(
        kind=kind, replicas=replicas or (B,), extent=Extent(start, start + 50), first_difference=start, detail="why"
    )


def test_aligned() -> None:
    found = verdict_of([log("a", [(1, 0), (4, 500)]), log("b", [(1, 0), (4, 500)])])
    assert (found.result, found.exit_code) == (Result.ALIGNED, 0)
    assert found.summary == "2 replicas aligned up to offset 1000 at epoch 4"
    assert (found.aligned_up_to, found.epoch, found.confirm_offset) == (1000, 4, 1000)
    assert (found.new_bytes, found.old_bytes) == (1000, 0)


def test_a_lagging_replica_does_not_hold_back_the_others() -> None:
    found = verdict_of([log("a"), log("b"), log("c", end=300)])
    assert (found.result, found.aligned_up_to) == (Result.ALIGNED, 1000)
    assert found.counts["lagging"] == 1
    assert found.summary == "a and b aligned up to offset 1000 at epoch 1; c up to offset 300"
    assert verdict_of([log("a"), log("c", end=300)]).aligned_up_to == 300


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.traits.severity.value == "mismatch"])
def test_mismatches(kind: Kind) -> None:
    found = verdict_of([log("a"), log("b"), log("c")], finding(kind, 400), finding(kind, 200))
    assert (found.result, found.exit_code, found.aligned_up_to) == (Result.MISMATCH, 1, 200)
    assert found.summary == "mismatch: why (and 1 more finding)"
    assert [one.start for one in found.findings] == [200, 400]


def test_unreachable_replicas() -> None:
    gone = unreachable(C, "connection refused")
    found = verdict_of([log("a"), log("b")], gone)
    assert (found.result, found.exit_code, found.aligned_up_to) == (Result.UNVERIFIED, 3, 1000)
    assert found.summary == (
        "not verified: c could not be read: connection refused; 2 replicas aligned up to offset 1000 at epoch 1"
    )
    found = verdict_of([log("a"), log("b")], gone, allow=True)
    assert (found.exit_code, found.summary) == (0, "2 replicas aligned up to offset 1000 at epoch 1; not read: c")
    assert verdict_of([log("a")], gone, allow=True).exit_code == 3
    assert verdict_of([log("a"), log("b")], gone, finding(Kind.CORRUPT_RECORD)).exit_code == 1


def test_nothing_to_compare() -> None:
    assert verdict_of([log("a")]).summary == "not verified: 1 replica could be read; a comparison needs two"
    assert verdict_of([]).exit_code == 3
    assert verdict_of([log("a", [], 0), log("b", [], 0)]).summary == "2 replicas, all without messages"
    apart = verdict_of([log("a", end=1000), log("b", [(1, 0)], begin=1000, end=1000, confirm=1000)])
    assert apart.result is Result.UNVERIFIED


def test_a_replica_counts_only_for_what_was_compared_with_another() -> None:
    found = verdict_of([log("a", end=3000), log("b", end=3000), log("c", end=500, begin=0), log("d", end=2500)])
    assert found.summary == "a and b aligned up to offset 3000 at epoch 1; c up to offset 500; d up to offset 2500"
    apart = verdict_of([log("a", end=3000, begin=1000), log("b", end=3000, begin=1000), log("c", end=500)])
    assert apart.summary == "a and b aligned up to offset 3000 at epoch 1; c was compared with no other", (
        "its bytes have expired in the others"
    )
    tail = verdict_of([log("a"), log("b"), log("c")], finding(Kind.STALE_TAIL, 500, C))
    assert tail.summary == "a and b aligned up to offset 1000 at epoch 1; c up to offset 500"


def test_lost_bytes_are_not_aligned() -> None:
    logs = [log(name, end=600, confirm=1000) for name in "abc"]
    found = verdict_of(logs)
    assert (found.result, found.exit_code, found.aligned_up_to) == (Result.MISMATCH, 1, 600)
    assert found.summary == (
        "mismatch: the bytes from 600 to 1000 are lost: a and b and c noted them as confirmed, and no replica that was "
        "read has them (a ends at 600, b ends at 600, c ends at 600)"
    )
    assert verdict_of([log(name, [], 0, confirm=1000) for name in "ab"]).exit_code == 1
    one = verdict_of([log("a"), log("b"), log("c", end=600, confirm=900)])
    assert (one.result, one.exit_code, one.aligned_up_to) == (Result.UNVERIFIED, 3, 1000)
    assert one.summary == (
        "not verified: c ends at 600 and has noted 900 as confirmed: it lost the bytes in between (cut, or a crash); "
        "the log of a and b is longer; a and b aligned up to offset 1000 at epoch 1; c up to offset 600"
    )
    assert verdict_of([log("a"), log("b"), log("c", end=600, confirm=900)], allow=True).exit_code == 3


def test_what_expired_meanwhile_does_not_hold_back() -> None:
    before = [log("a", end=5000), log("b", end=5000), log("c", end=5000)]
    seen = lineage(before, [log(name, begin=2000, end=5500) for name in "abc"])
    what = plan(seen, (), chunk_size=4096)
    tally = Tally()
    for replica in (A, B):
        tally.add(ChunkResult(chunk=Chunk(1000, 1000, 1), groups=(), missing=(replica,)))
    found = verdict(before, seen, what, tally, seen.findings)
    assert (found.result, found.aligned_up_to) == (Result.ALIGNED, 5000)
    tally.add(ChunkResult(chunk=Chunk(3000, 500, 1), groups=(), missing=(A, B)))
    found = verdict(before, seen, what, tally, seen.findings)
    assert (found.result, found.aligned_up_to) == (Result.ALIGNED, 3000)


def test_a_replica_of_another_history_is_not_verified() -> None:
    found = verdict_of([log("a"), log("b"), log("c")], finding(Kind.STALE_TAIL, 0, C))
    assert (found.result, found.aligned_up_to) == (Result.UNVERIFIED, 1000)
    assert "c and a have no history in common" in found.summary
    tail = verdict_of([log("a"), log("b"), log("c")], finding(Kind.STALE_TAIL, 500, C))
    assert (tail.result, tail.aligned_up_to) == (Result.ALIGNED, 1000)
    two = verdict_of([log("a"), log("c")], finding(Kind.STALE_TAIL, 500, C))
    assert (two.result, two.aligned_up_to) == (Result.ALIGNED, 500)


def test_order_is_by_severity_offset_and_replica() -> None:
    kinds = [Kind.LAGGING, Kind.UNREACHABLE, Kind.CORRUPT_RECORD]
    found = in_order([finding(kind, 10) for kind in kinds] + [finding(Kind.CORRUPT_RECORD, 5)])
    assert [(one.kind, one.extent.start) for one in found] == [
        (Kind.CORRUPT_RECORD, 5),
        (Kind.CORRUPT_RECORD, 10),
        (Kind.UNREACHABLE, 10),
        (Kind.LAGGING, 10),
    ]


def test_json() -> None:
    whole = Finding(
        kind=Kind.CORRUPT_RECORD,
        replicas=(B,),
        extent=Extent(1100, 1400),
        first_difference=1150,
        segment=1000,
        epoch=4,
        record=RecordName(physical_offset=1100, size=300, topic="T", queue_id=3, queue_offset=7, unique_key="U"),
        copies=(Copy(replica=A, right=True, reason="body CRC right", hex_offset=1134, hex="00ff"),),
        detail="why",
    )
    found = verdict_of([log("a", end=2000), log("b", end=2000)], whole)
    data = msgspec.json.decode(msgspec.json.encode(found))
    assert {"schemaVersion", "exitCode", "alignedUpTo", "confirmOffset", "comparedBytes", "newBytes"} <= data.keys()
    assert data["findings"] == [
        {
            "kind": "corruptRecord",
            "severity": "mismatch",
            "replicas": ["b"],
            "start": 1100,
            "end": 1400,
            "firstDifference": 1150,
            "segment": "00000000000000001000",
            "epoch": 4,
            "record": {
                "physicalOffset": 1100,
                "size": 300,
                "topic": "T",
                "queueId": 3,
                "queueOffset": 7,
                "storeTimestamp": None,
                "keys": None,
                "uniqueKey": "U",
            },
            "copies": [{"replica": "a", "right": True, "reason": "body CRC right", "hexOffset": 1134, "hex": "00ff"}],
            "detail": "why",
        }
    ]
    assert data["counts"] == {kind.value: int(kind is Kind.CORRUPT_RECORD) for kind in Kind}
    assert data["replicas"][0] == {
        "name": "a", "brokerId": 97, "master": False, "minOffset": 0, "confirmOffset": 2000, "maxOffset": 2000,
        "epochs": [[1, 0]], "comparedFrom": 0, "comparedUpTo": 2000,
    }  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(found), type=Verdict) == found
