"""What a run may believe of earlier ones."""

from __future__ import annotations

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.inquiry.compare import ChunkResult, Tally
from rocketmq_verify.domain.inquiry.watermarks import (
    MOST_SUSPECTS,
    Watermark,
    Watermarks,
    advanced,
    fresh,
    valid_up_to,
)
from rocketmq_verify.domain.model import Chunk, ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.chunks import plan
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.domain.verdict import Result
from tests.verify.logs_kit import log
from tests.verify.planted.faults import Group, verify

A, B = ReplicaName("a"), ReplicaName("b")


def mark(epochs: list[tuple[int, int]] | None = None, offset: int = 800, broker_id: int | None = 97) -> Watermark:
    table = EpochList.of([(1, 0)] if epochs is None else epochs)
    return Watermark(replica=A, broker_id=broker_id, offset=offset, epochs=table)


def test_a_mark_holds_for_the_log_it_was_made_of() -> None:
    assert valid_up_to(mark(), log("a")) == 800
    assert valid_up_to(mark(), log("a", [(1, 0), (2, 900)], 5000)) == 800
    assert valid_up_to(mark(broker_id=None), log("a")) == 800
    assert valid_up_to(None, log("a", begin=300)) == 300
    assert valid_up_to(mark(), log("a", begin=900, end=2000)) == 900  # expired


def test_a_mark_of_another_log_does_not_hold() -> None:
    assert valid_up_to(mark(broker_id=5), log("a")) == 0  # rebuilt
    assert valid_up_to(mark(), log("a", end=500)) == 500  # lost its end
    assert valid_up_to(mark(), log("a", [(1, 0), (2, 600)])) == 600  # cut and rewritten
    assert valid_up_to(mark([(7, 0)]), log("a")) == 0
    assert valid_up_to(mark([]), log("a")) == 0  # had no epochs then


def run(marks: Watermarks, logs: list[ReplicaLog], tally: Tally | None = None, **how: object) -> Watermarks:
    seen = lineage(logs)
    what = plan(seen, fresh(marks, logs, seen), chunk_size=4096, full=bool(how.get("full")))
    return advanced(marks, logs, seen, plan=what, tally=tally or Tally(), began_ms=4, now_ms=5)


def test_new_bytes_are_new_for_at_least_one_replica() -> None:
    logs = [log("a"), log("b")]
    marks = run(Watermarks(), logs)
    assert fresh(marks, logs, lineage(logs)) == ()
    grown = [log("a", end=1500), log("b", end=1400)]
    assert fresh(marks, grown, lineage(grown)) == (Extent(1000, 1500),)
    rebuilt = [log("a", end=1500), log("b", end=1400, broker_id=5)]
    assert fresh(marks, rebuilt, lineage(rebuilt)) == (Extent(0, 1500),)


def test_suspects_are_read_again_until_they_are_equal() -> None:
    logs = [log("a"), log("b")]
    tally = Tally()
    tally.add(ChunkResult(chunk=Chunk(100, 50, 1), groups=((A,), (B,)), missing=()))
    tally.add(ChunkResult(chunk=Chunk(300, 50, 1), groups=((A,),), missing=(B,)))
    marks = run(Watermarks(), logs, tally)
    assert marks.suspects == (Extent(100, 150), Extent(300, 350))
    assert fresh(marks, logs, lineage(logs)) == marks.suspects
    assert run(marks, logs).suspects == ()


def test_places_with_faults_of_queues_are_read_again() -> None:
    logs = [log("a"), log("b")]
    seen = lineage(logs)
    what = plan(seen, [zone.extent for zone in seen.zones], chunk_size=4096)
    marks = advanced(
        Watermarks(),
        logs,
        seen,
        plan=what,
        tally=Tally(),
        suspects=[Extent(200, 700), Extent(900, 5000)],
        began_ms=4,
        now_ms=5,
    )
    assert fresh(marks, logs, seen) == (Extent(200, 700), Extent(900, 1000))


def test_suspects_are_bounded() -> None:
    logs = [log("a", end=1_000_000), log("b", end=1_000_000)]
    tally = Tally()
    for at in range(0, 1_000_000, 500):
        tally.add(ChunkResult(chunk=Chunk(at, 50, 1), groups=((A,), (B,)), missing=()))
    marks = run(Watermarks(), logs, tally)
    assert len(marks.suspects) <= MOST_SUSPECTS
    assert marks.suspects[-1].end == 999_550


def test_an_absent_replica_keeps_its_mark() -> None:
    marks = run(Watermarks(), [log("a"), log("b")])
    alone = run(marks, [log("a", end=2000), log("c", end=2000)])
    assert {one.replica: one.offset for one in alone.replicas} == {"a": 2000, "b": 1000, "c": 2000}


def test_what_one_replica_alone_has_is_checked_once() -> None:
    logs = [log("a", end=5000), log("b", begin=2000, end=5000)]
    seen = lineage(logs)
    assert plan(seen, fresh(Watermarks(), logs, seen), chunk_size=4096).alone == (Extent(0, 2000),)
    marks = run(Watermarks(), logs)
    assert fresh(marks, logs, seen) == ()


def test_what_a_disk_does_not_return_is_not_read() -> None:
    logs = [log("a"), log("b")]
    tally = Tally()
    tally.add(ChunkResult(chunk=Chunk(100, 50, 1), groups=((A,),), missing=(), unreadable={B: "EIO"}))
    marks = run(Watermarks(), logs, tally)
    known = {mark.replica: mark.ages for mark in marks.replicas}
    assert [age.extent for age in known[A] if age.read] == [Extent(0, 1000)]
    assert [age.extent for age in known[B] if not age.read] == [Extent(100, 150)]


def test_the_last_full_run_is_remembered() -> None:
    assert Watermarks().last_full_ms is None
    marks = run(Watermarks(), [log("a"), log("b")], full=True)
    assert marks.last_full_ms == 5
    assert run(marks, [log("a"), log("b")]).last_full_ms == 5


def test_a_group_that_was_deleted_and_created_again_is_read_as_a_whole() -> None:
    """With the same names, broker ids and epochs."""
    old, new = Group().fill(60), Group()
    new.clock += 5_000_000
    new.fill(80)
    marks = verify(old.replicas).marks
    message = new.messages[5]
    new["b"].flip(message.body_start)
    assert verify(new.replicas, marks=marks).verdict.result is Result.MISMATCH
    shorter = Group()
    shorter.clock += 5_000_000
    shorter.fill(30)
    shorter["b"].flip(shorter.messages[5].body_start)
    assert verify(shorter.replicas, marks=marks).verdict.result is Result.MISMATCH


def test_a_mark_whose_last_bytes_have_expired_or_have_no_anchor_is_believed() -> None:
    made = Group().fill(60)
    marks = verify(made.replicas).marks
    assert all(len(one.anchor) == 16 for one in marks.replicas)
    for _ in range(80):
        made.put(700)
    made.sync()
    for one in made.replicas:
        made.expire(one, 4)
    begin = made.master.min
    assert begin > marks.replicas[0].offset
    assert verify(made.replicas, marks=marks).plan.new_bytes == made.master.end - begin
    again = verify(made.replicas).marks
    plain = msgspec.structs.replace(
        again, replicas=tuple(msgspec.structs.replace(one, anchor=b"") for one in again.replicas)
    )
    assert verify(made.replicas, marks=plain).plan.new_bytes == 0
