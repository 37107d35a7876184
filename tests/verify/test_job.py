"""Whole runs, on one Spark session and without Spark: faults in real directories, and watermarks."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify import job
from rocketmq_verify.domain.findings import Kind, Severity, State
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.inquiry.watermarks import Watermarks
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.cursor import next_leg
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.domain.verdict import EXIT_CONTINUES, Result
from rocketmq_verify.engine.local import LocalScanner
from rocketmq_verify.engine.scanner import Errors
from rocketmq_verify.engine.session import Engine, SessionOptions
from rocketmq_verify.history.runs import Group as HistoryGroup
from rocketmq_verify.history.store import HistoryStore
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.run import EngineKind, Request, Run
from rocketmq_verify.sources.replicas import Replicas
from rocketmq_verify.sources.source import SourceOptions
from rocketmq_verify.sources.work import Place, Work, parse_place
from tests.verify.history.stores import save_all
from tests.verify.planted.faults import CHUNK, SEGMENT, Group

Runs = Callable[..., Run]

SPARK = (pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(300))


@pytest.fixture(params=[EngineKind.LOCAL, pytest.param(EngineKind.SPARK, marks=SPARK)])
def run(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Makes whole runs, in each way to read and compare."""
    kind: EngineKind = request.param
    own = Engine(SessionOptions())
    engine: Engine = own if kind is EngineKind.LOCAL else request.getfixturevalue("engine")

    def made(places: tuple[Place, ...], **changes: object) -> Run:
        asked = Request(group=HistoryGroup("C", "broker-a"), places=places, chunk_size=CHUNK, engine=kind)
        return job.run(msgspec.structs.replace(asked, **changes), engine, NoProgress())

    yield made
    own.stop()


@pytest.mark.parametrize(
    ("kind", "limit", "starts"),
    [
        (EngineKind.AUTO, 1 << 30, False),
        (EngineKind.AUTO, 0, True),
        (EngineKind.LOCAL, 0, False),
        (EngineKind.SPARK, 1 << 30, True),
    ],
)
def test_spark_starts_for_large_logs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: EngineKind, limit: int, starts: bool
) -> None:
    class StartedError(Exception):
        pass

    class NoSpark(Engine):
        def start(self) -> None:
            raise StartedError

    monkeypatch.setattr(job, "LOCAL_BYTES", limit)
    engine = NoSpark(SessionOptions())
    asked = Request(group=HistoryGroup("C", "a"), places=save_all(Group().fill(5), tmp_path), engine=kind)
    with pytest.raises(StartedError) if starts else nullcontext():
        assert job.run(asked, engine, NoProgress()).verdict.result is Result.ALIGNED
    engine.stop()


def test_aligned(run: Runs, tmp_path: Path) -> None:
    whole = Group().fill()
    done = run(save_all(whole, tmp_path))
    confirmed = [message for message in whole.messages if message.end <= whole.master.confirm]
    assert done.verdict.result is Result.ALIGNED, done.verdict
    assert done.verdict.aligned_up_to == whole.master.confirm
    assert done.verdict.read_bytes == 3 * whole.master.confirm
    assert done.checked.structure is not None
    assert done.checked.structure.records == len(confirmed)
    assert done.checked.queues is not None
    assert (done.checked.queues.units, done.checked.queues.faults) == (3 * len(confirmed), 0)


def test_a_flipped_byte_is_found_again_until_it_is_repaired(run: Runs, tmp_path: Path) -> None:
    damaged = Group().fill(120)
    message = damaged.messages[30]
    damaged["b"].flip(message.body_start)
    places = save_all(damaged, tmp_path / "stores")
    history = str(tmp_path / "history")
    first = run(places, history_path=history)
    second = run(places, history_path=history)
    for done in (first, second):
        (finding,) = done.verdict.findings
        assert finding.kind is Kind.CORRUPT_RECORD
        assert finding.replicas == ("b",)
        assert finding.record is not None
        assert (finding.record.physical_offset, finding.record.queue_offset) == (message.offset, message.queue_offset)
        assert done.verdict.exit_code == 1
    assert 0 < second.verdict.compared_bytes < first.verdict.compared_bytes
    damaged["b"].flip(message.body_start)
    start = message.body_start - message.body_start % SEGMENT
    file = tmp_path / "stores" / "b" / "commitlog" / f"{start:020d}"
    file.write_bytes(bytes(damaged["b"].data[start : start + SEGMENT]))
    third = run(places, history_path=history)
    fourth = run(places, history_path=history)
    assert (third.verdict.result, fourth.verdict.result) == (Result.ALIGNED, Result.ALIGNED)
    assert fourth.verdict.compared_bytes == 0
    assert len(fourth.earlier) == 4


def test_a_missing_file_and_a_bad_queue(run: Runs, tmp_path: Path) -> None:
    damaged = Group().fill(120)
    places = save_all(damaged, tmp_path)
    (tmp_path / "c" / "commitlog" / f"{SEGMENT:020d}").unlink()
    queue = tmp_path / "a" / "consumequeue" / "Orders" / "3" / f"{0:020d}"
    units = bytearray(queue.read_bytes())
    units[7 * 20 + 7] ^= 1
    queue.write_bytes(units)
    done = run(places)
    assert done.verdict.counts["missingSegment"] == 1
    found = [finding for finding in done.findings if finding.kind is Kind.QUEUE_MISMATCH]
    assert {finding.replicas for finding in found} == {("a",)}
    assert {finding.record.queue_offset for finding in found if finding.record is not None} == {7}
    assert done.verdict.exit_code == 1


def test_a_bad_queue_is_found_again_until_it_is_repaired(run: Runs, tmp_path: Path) -> None:
    places = save_all(Group().fill(120), tmp_path / "stores")
    queue = tmp_path / "stores" / "a" / "consumequeue" / "Orders" / "3" / f"{0:020d}"
    whole = queue.read_bytes()
    queue.write_bytes(whole[: 7 * 20 + 7] + bytes([whole[7 * 20 + 7] ^ 1]) + whole[7 * 20 + 8 :])
    history = str(tmp_path / "history")
    for _ in range(2):
        done = run(places, history_path=history)
        assert done.verdict.exit_code == 1
        assert {finding.kind for finding in done.findings} == {Kind.QUEUE_MISMATCH}
    queue.write_bytes(whole)
    for _ in range(2):
        done = run(places, history_path=history)
        assert done.verdict.result is Result.ALIGNED
    assert done.verdict.compared_bytes == 0


def test_bytes_that_are_equally_wrong_everywhere(run: Runs, tmp_path: Path) -> None:
    damaged = Group().fill(40)
    message = damaged.messages[11]
    for replica in damaged.replicas:
        replica.flip(message.body_start + 1)
    places = save_all(damaged, tmp_path / "stores")
    for _ in range(2):  # what is found stays suspect
        done = run(places, history_path=str(tmp_path / "history"))
        (finding,) = done.verdict.findings
        assert finding.kind is Kind.BAD_STRUCTURE
        assert finding.replicas == ("a", "b", "c")
        assert finding.first_difference == message.offset


def test_a_record_that_ends_where_only_one_replica_has_bytes(run: Runs, tmp_path: Path) -> None:
    behind = Group(strict=False).fill(40)
    message = behind.put(500)
    for slave in behind.slaves:
        behind.copy(slave, message.body_start + 100 - message.offset)
    behind.master.flip(message.body_start + 300)
    done = run(save_all(behind, tmp_path)[::-1])
    (finding,) = [one for one in done.findings if one.severity is Severity.MISMATCH]
    assert (finding.kind, finding.replicas, finding.extent.start) == (Kind.BAD_STRUCTURE, ("a",), message.offset)


def test_a_record_that_ended_behind_what_an_earlier_run_compared(run: Runs, tmp_path: Path) -> None:
    """Its beginning was compared by the run before."""
    group, history = Group(strict=False).fill(40), str(tmp_path / "history")
    message = group.put(500)
    part = message.offset + 300
    for replica in group.replicas[1:]:
        group.copy(replica, 300)
    whole, group.master.end, group.master.confirm = group.master.end, part, part
    assert run(save_all(group, tmp_path / "1"), history_path=history).verdict.result is Result.ALIGNED
    group.master.end = group.master.confirm = whole
    group.master.flip(message.body_start + 300)
    group.sync()
    done = run(save_all(group, tmp_path / "2"), history_path=history)
    (finding,) = done.findings
    assert (finding.kind, finding.extent.start) == (Kind.BAD_STRUCTURE, message.offset)


def test_a_replica_that_cannot_be_read(run: Runs, tmp_path: Path) -> None:
    places = (*save_all(Group().fill(), tmp_path)[:2], parse_place("c=sidecar:127.0.0.1:1"))
    quick = SourceOptions(patience=0.1)
    assert run(places, options=quick).verdict.result is Result.UNVERIFIED
    assert run(places, options=quick, allow_unreachable=True).verdict.result is Result.ALIGNED


def test_a_lagging_replica_is_no_alarm(run: Runs, tmp_path: Path) -> None:
    behind = Group(strict=False).fill()
    for _ in range(30):
        behind.put(500)
    done = run(save_all(behind, tmp_path))
    assert done.verdict.result is Result.ALIGNED
    assert done.verdict.counts["lagging"] == 2


def test_what_one_replica_alone_has_is_checked_in_legs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte once, and at most a file in a leg of one file."""
    behind = Group(strict=False).fill(60)
    for _ in range(60):
        behind.put(700)
    places = save_all(behind, tmp_path)
    whole = local(places)
    most: list[int] = []
    structures = LocalScanner.structures

    def noted(self: LocalScanner, place: Place, work: Work) -> tuple[list[Structure], Errors]:
        most.append(work.plan.expected_bytes)
        return structures(self, place, work)

    monkeypatch.setattr(LocalScanner, "structures", noted)
    legs = local(places, first_leg=1, clock=Ticking(1000))
    assert behind.master.end - whole.verdict.aligned_up_to > 2 * SEGMENT
    assert max(most) <= SEGMENT
    assert legs.checked.structure is not None
    assert legs.checked.structure.records == len(behind.messages)
    assert legs.checked.queues == whole.checked.queues
    assert (legs.verdict.read_bytes, legs.checked.findings) == (whole.verdict.read_bytes, ())


class Ticking:
    """A clock that is so many seconds later at each look."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._now = seconds, 0.0

    def __call__(self) -> float:
        self._now += self._seconds
        return self._now


def local(places: tuple[Place, ...], *, clock: Callable[[], float] = time.perf_counter, **changes: object) -> Run:
    """A run without Spark."""
    asked = Request(group=HistoryGroup("C", "broker-a"), places=places, chunk_size=CHUNK, engine=EngineKind.LOCAL)
    engine = Engine(SessionOptions())
    try:
        return job.run(msgspec.structs.replace(asked, **changes), engine, NoProgress(), clock=clock)
    finally:
        engine.stop()


def test_a_run_whose_time_is_up_is_continued(tmp_path: Path) -> None:
    whole = Group().fill(120)
    places = save_all(whole, tmp_path / "stores")
    how = {"history_path": str(tmp_path / "history"), "time_budget": 5.0, "first_leg": 1}
    ends = []
    for _ in range(2):
        done = local(places, clock=Ticking(10), **how)
        assert done.verdict.result is Result.ALIGNED
        ends.append(done.verdict.aligned_up_to)
        assert done.oldest is not None
        assert done.oldest.read
        assert {span.state for span in done.spans if span.start >= ends[-1]} == {State.UNREAD}
    assert ends == [SEGMENT, 2 * SEGMENT]
    assert done.later_bytes == whole.master.confirm - 2 * SEGMENT
    assert f"the next run continues at {2 * SEGMENT}" in done.verdict.summary
    rest = local(places, history_path=how["history_path"])
    assert (rest.verdict.aligned_up_to, rest.verdict.compared_bytes) == (whole.master.confirm, done.later_bytes)


def test_a_finding_is_told_at_once_and_the_rest_is_read_by_the_next_run(tmp_path: Path) -> None:
    damaged = Group().fill(120)
    early, late = damaged.messages[1], damaged.messages[-20]
    damaged["b"].flip(early.body_start)
    damaged["c"].flip(late.body_start)
    places = save_all(damaged, tmp_path / "stores")
    how = {"history_path": str(tmp_path / "history"), "first_leg": 1}
    first = local(places, clock=Ticking(10), time_budget=5.0, **how)
    assert (first.verdict.result, first.verdict.exit_code) == (Result.MISMATCH, EXIT_CONTINUES)
    assert [finding.replicas for finding in first.findings] == [("b",)]
    assert first.verdict.summary.endswith(f"are not read yet, the next run continues at {SEGMENT}")
    second = local(places, **how)
    assert (second.verdict.result, second.verdict.exit_code) == (Result.MISMATCH, 1)
    assert [finding.replicas for finding in second.findings] == [("b",), ("c",)]
    assert "not read yet" not in second.verdict.summary


@pytest.mark.parametrize(
    ("budget", "checks", "most"),
    [(0.0, True, 4_000_000), (0.0, False, 12_000_000), (30.0, True, 500_000), (30.0, False, 1_500_000)],
)
def test_the_first_leg_takes_a_part_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: float, checks: bool, most: int
) -> None:
    """Of two minutes or of half of the run's time; digests, structure and queues each read at the rate."""
    sizes: list[int] = []

    def noted(pieces: Sequence[Extent], size: int, segment_size: int) -> tuple[tuple[Extent, ...], tuple[Extent, ...]]:
        sizes.append(size)
        return next_leg(pieces, size, segment_size)

    monkeypatch.setattr(job, "next_leg", noted)
    places = save_all(Group().fill(5), tmp_path)
    options = SourceOptions(bytes_per_second=100_000)
    local(places, clock=lambda: 0.0, time_budget=budget, options=options, structure=checks, queues=checks)
    assert sizes == [most]


def test_the_time_of_reading_is_that_of_all_legs(tmp_path: Path) -> None:
    whole = Group().fill(120)
    done = local(save_all(whole, tmp_path), clock=Ticking(1000), first_leg=1)
    legs = -(-whole.master.confirm // SEGMENT)
    assert legs > 2
    assert done.timings.scan == done.figures.reading_seconds == 1000 * legs


def test_a_replica_that_failed_in_an_earlier_leg_lacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Group().fill(120)
    places = save_all(whole, tmp_path)
    compare_digests = LocalScanner.compare_digests
    legs = 0

    def failing(self: LocalScanner, these: Sequence[Place], work: Work, lineage: Lineage) -> tuple[Tally, Errors]:
        nonlocal legs
        legs += 1
        tally, errors = compare_digests(self, these, work, lineage)
        return tally, {**errors, ReplicaName("c"): "gone"} if legs == 1 else errors

    monkeypatch.setattr(LocalScanner, "compare_digests", failing)
    done = local(places, clock=Ticking(1000), first_leg=1, allow_unreachable=True, history_path=str(tmp_path / "h"))
    assert legs > 2
    assert (done.verdict.result, done.verdict.aligned_up_to) == (Result.ALIGNED, whole.master.confirm)
    assert {finding.kind for finding in done.findings} == {Kind.UNREACHABLE}
    kept = HistoryStore(str(tmp_path / "h"), now_ms=lambda: 1).load(HistoryGroup("C", "broker-a"))
    assert kept is not None
    assert kept.suspects == ()


def test_what_expired_during_a_leg_does_not_come_back_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = Group().fill(120)
    for replica in damaged.replicas:
        replica.flip(damaged.messages[3].body_start)
    places = save_all(damaged, tmp_path)
    looks, describe = 0, Replicas.describe

    def expiring(self: Replicas) -> list[ReplicaLog]:
        nonlocal looks
        looks += 1
        if looks == 3:  # after the first leg was read
            for place in places:
                (tmp_path / place.name / "commitlog" / f"{0:020d}").unlink()
        return describe(self)

    monkeypatch.setattr(Replicas, "describe", expiring)
    done = local(places, clock=Ticking(1000), first_leg=1, queues=False)
    assert looks > 5
    assert (done.verdict.result, done.findings) == (Result.ALIGNED, ())


def test_a_run_that_is_killed_has_kept_what_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = Group().fill(120)
    damaged["b"].flip(damaged.messages[3].body_start)
    places = save_all(damaged, tmp_path / "stores")
    history = str(tmp_path / "history")
    kept = 0
    save_progress = HistoryStore.save_progress

    def killed(self: HistoryStore, group: HistoryGroup, run_id: str, watermarks: Watermarks) -> None:
        nonlocal kept
        save_progress(self, group, run_id, watermarks)
        kept += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(HistoryStore, "save_progress", killed)
    with pytest.raises(KeyboardInterrupt):
        local(places, history_path=history, first_leg=1)
    monkeypatch.undo()
    done = local(places, history_path=history)
    assert kept == 1
    # what it had read is not read again, except for the chunk with the damage
    assert done.verdict.compared_bytes == damaged.master.confirm - SEGMENT + CHUNK
    assert [finding.kind for finding in done.findings] == [Kind.CORRUPT_RECORD]
    assert done.checked.structure is not None
