"""One run from the first look at the replicas to the verdict; all decisions are made in `domain`. For `cli`.

look -> what can be compared -> what earlier runs compared -> plan -> legs -> verdict

A leg: digests side by side -> look again -> reads down to messages, of all that differs so far -> structure and consume
queues -> look again -> what is still true -> what is known now is kept. Most runs have one leg.

Digests and checks are the work of a `Scanner`: Spark's, or for a small log one in this process.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import structlog

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify import checks
from rocketmq_verify.alignment import spans
from rocketmq_verify.domain.findings import Finding, Severity
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.inquiry.inquiry import inquire, still_true
from rocketmq_verify.domain.inquiry.names import named
from rocketmq_verify.domain.inquiry.narrow import drive
from rocketmq_verify.domain.inquiry.unsettled import lasting, reported_places, unsettled
from rocketmq_verify.domain.inquiry.watermarks import Watermarks, advanced, ages, anchored, fresh, still_anchored
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.ages import oldest
from rocketmq_verify.domain.planning.chunks import Plan, alone_cells, by_cells, common, covered, merged, plan, within
from rocketmq_verify.domain.planning.cursor import LEG_SECONDS, again, in_order, late, leg_bytes, next_leg, overdue
from rocketmq_verify.domain.planning.identities import check_identities
from rocketmq_verify.domain.planning.lineage import Lineage, lineage, other_sizes
from rocketmq_verify.domain.planning.table_findings import unreachable, unreadable
from rocketmq_verify.domain.repair import Repair, repairs
from rocketmq_verify.domain.verdict import in_order as findings_in_order
from rocketmq_verify.domain.verdict import verdict
from rocketmq_verify.engine.local import LocalScanner
from rocketmq_verify.engine.scanner import Scanner
from rocketmq_verify.engine.session import Engine
from rocketmq_verify.history.folders import Folder, HistoryError
from rocketmq_verify.history.runs import Figures, RunSummary, new_run_id
from rocketmq_verify.past import Past
from rocketmq_verify.progress import Progress
from rocketmq_verify.run import Checked, EngineKind, Request, Run, Timings
from rocketmq_verify.sizes import format_bytes
from rocketmq_verify.sources.replicas import DIGEST_COST, Replicas
from rocketmq_verify.sources.same_store import store_of
from rocketmq_verify.sources.work import Work

if TYPE_CHECKING:
    from rocketmq_verify.history.ledger_file import LedgerFile
    from rocketmq_verify.history.store import HistoryStore

T = TypeVar("T")
log = structlog.get_logger(__name__)

LOCAL_BYTES: Final = 4 << 30
"""Of the log: up to this, a run takes less time than Spark's start."""
FIRST_SHARE: Final = 1 / 2
"""Of the run's time, for the first leg at a limited rate: what it has read is kept before the time is up."""
SHOWN_RUNS: Final = 60
"""Earlier runs in a report."""


def run(
    request: Request,
    engine: Engine,
    progress: Progress,
    *,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Verify. The caller stops the engine, which is started here if there is anything to compare.

    Raises:
        SpecError: a replica's place has no log.
        StrangersError: the same replica twice, or one of another group.
        SegmentSizeError: logs of different configurations.
        SessionError: Spark does not start.
        HistoryError: the history cannot be read.
    """
    replicas = Replicas(request.places, request.options)
    try:
        return _Job(request, engine, progress, replicas, now_ms=now_ms, clock=clock).run()
    finally:
        replicas.close()


class _Job:
    def __init__(
        self,
        request: Request,
        engine: Engine,
        progress: Progress,
        replicas: Replicas,
        *,
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._request, self._engine, self._progress, self._replicas = request, engine, progress, replicas
        self._now_ms, self._clock = now_ms, clock
        self._began, self._started_ms = clock(), now_ms()
        self._run_id = new_run_id()
        self._later: tuple[Extent, ...] = ()
        """What was to be read when the time was up."""
        self._owed: tuple[Extent, ...] = ()
        """Of it, where an earlier run found damage."""
        self._seconds: dict[str, float] = {}
        self._checked = Checked()
        self._changed: tuple[Finding, ...] = ()
        """Of the checks, where the log changed since: not judged, and read again by the next run."""
        self._seen: Lineage | None = None
        """The last look of the leg before."""
        self._unsettled: tuple[Extent, ...] = ()
        self._lasting: tuple[Extent, ...] = ()
        self._store: HistoryStore | None = None
        if request.history_path:
            self._store = self._history(request.history_path)
        own = self._ledger(request.ledger_path) if request.ledger_path else None
        self._past = Past(own or self._store, request, run_id=self._run_id)

    def run(self) -> Run:
        request, replicas = self._request, self._replicas
        self._progress.phase(f"reading the states of {len(request.places)} replicas")
        before = self._timed("states", replicas.describe)
        check_identities(before)
        replicas.failed.update(other_sizes(before))
        before = [log for log in before if log.name not in replicas.failed]
        first = lineage(before)
        marks = Watermarks()
        what = plan(first, (), chunk_size=request.chunk_size)
        copies = min(len(first.zones), 2)
        if copies < (1 if request.ledger_path else 2):
            if not copies and self._store is not None:
                self._past.load(before, first)  # all may be lost
            return self._concluded(before, first, what=what, tally=Tally(), standing=(), marks=None)
        if not self._is_local(sum(extent.length for extent in covered((one.extent for one in first.zones), copies))):
            self._engine.start()
            self._progress.phase("starting Spark")
        if self._store is not None:
            marks = self._store.load(request.group) or marks  # a file system of Hadoop's waits for Spark
        self._past.load(before, first)
        marks = drive(still_anchored(marks, before), replicas.answer)
        new, known = fresh(marks, before, first), ages(marks, before, first, now_ms=self._started_ms)
        what = plan(
            first,
            new,
            chunk_size=self._past.chunk_size,
            again=again(
                known,
                now_ms=self._started_ms,
                ran_ms=marks.ran_ms,
                promise_ms=request.reread_ms,
                chunk_size=self._past.chunk_size,
                cell_size=self._past.cell_size,
            ),
            full=request.full or copies < 2,
            cell_size=self._past.cell_size,
        )
        if not (request.structure or request.queues):
            what = msgspec.structs.replace(what, alone=alone_cells(what, first))
        return self._read(
            self._started(what),
            marks,
            before,
            first,
            what=what,
            pieces=by_cells(what, in_order(what, new, known, marks.suspects)),
            new=new,
        )

    def _read(
        self,
        scanner: Scanner,
        marks: Watermarks,
        before: Sequence[ReplicaLog],
        first: Lineage,
        *,
        what: Plan,
        pieces: tuple[Extent, ...],
        new: Sequence[Extent],
    ) -> Run:
        """Read these pieces of the plan, in legs; `new`: what no run has read."""
        tally, began, size = Tally(), self._clock(), self._request.first_leg
        if rate := self._request.options.bytes_per_second:
            left = self._left_seconds()
            seconds = LEG_SECONDS if left is None else min(LEG_SECONDS, max(left, 0.0) * FIRST_SHARE)
            passes = 1 + self._request.structure + self._request.queues  # each reads the leg once
            size = max(min(size, int(rate * seconds / passes)), 1)
        done: tuple[Extent, ...] = ()
        while True:
            leg, pieces = next_leg(pieces, size, first.segment_size)
            done = merged([*done, *leg])
            so_far = msgspec.structs.replace(within(what, done), full=what.full and not pieces)
            part = within(what, leg)
            last, standing, kept = self._leg(scanner, marks, before, first, part=part, so_far=so_far, tally=tally)
            read = sum(extent.length for extent in done)
            size = leg_bytes(read, self._clock() - began, left_seconds=self._left_seconds())
            if not pieces or not size:
                break
            self._keep(kept)
        self._later = pieces
        if self._store is not None:
            kept = drive(anchored(kept, last), self._replicas.answer)
        self._owed = common(pieces, marks.suspects)
        unread = common(within(what, pieces).pieces, new)
        return self._concluded(before, last, what=so_far, tally=tally, standing=standing, marks=kept, unread=unread)

    def _leg(
        self,
        scanner: Scanner,
        marks: Watermarks,
        before: Sequence[ReplicaLog],
        first: Lineage,
        *,
        part: Plan,
        so_far: Plan,
        tally: Tally,
    ) -> tuple[Lineage, tuple[Finding, ...], Watermarks]:
        """Read `part`, and judge all that is read `so_far`: what was seen last, the findings, and what is known now.

        A difference can only be judged with those before it: another history is known by where it begins.
        """
        self._progress.phase(f"comparing {format_bytes(part.expected_bytes)} of {len(first.zones)} replicas")
        tally.merge(self._timed("scan", lambda: self._compare(scanner, part, first)))
        drive(self._past.take_digests(part, first, tally), self._replicas.answer)
        self._progress.phase("examining the differences")
        second = self._both_looks(before)
        before_now = self._past.as_before(second)
        found = self._timed("inquiry", lambda: drive(inquire(second, tally, before_now), self._replicas.answer))
        checked = self._check(scanner, part, second, tally, found)
        changes = self._past.changes(part, second, (*found, *second.findings), self._now_ms())
        checked = checked.plus(drive(changes, self._replicas.answer))
        seen_ms, last = self._now_ms(), self._both_looks(before)
        # what an earlier leg found stood at its last look, and is not read again by this one
        earlier = still_true(self._checked.findings, self._seen or second, last)
        standing = (*still_true((*found, *checked.findings), second, last), *earlier)
        self._checked, self._seen = self._checked.plus(checked), last
        examined = (*found, *self._checked.findings, *self._changed)
        dropped = tuple(finding for finding in examined if finding not in standing)
        self._checked = msgspec.structs.replace(
            self._checked, findings=tuple(finding for finding in self._checked.findings if finding in standing)
        )
        self._changed = tuple(finding for finding in dropped if finding not in found)
        self._unsettled = unsettled(tally, last, examined, standing)
        self._lasting = lasting(self._unsettled, marks)
        sound = self._request.structure and not self._checked.unchecked
        self._past.update(last, (*last.findings, *standing), self._unsettled, alone=sound, now_ms=seen_ms)
        kept = self._marks(marks, before, last, what=so_far, tally=tally, standing=standing, dropped=dropped)
        return last, standing, kept

    def _left_seconds(self) -> float | None:
        budget = self._request.time_budget
        return budget - (self._clock() - self._began) if budget else None

    def _keep(self, marks: Watermarks) -> None:
        """For the next run, if this one is killed. What cannot be kept does not end the run."""
        self._past.save()
        if self._store is None:
            return
        try:
            self._store.save_progress(self._request.group, self._run_id, marks)
        except HistoryError as error:
            log.warning("the progress of this run is not kept: a run that is killed reads it again", error=str(error))

    def _is_local(self, size: int) -> bool:
        """Whether `size` bytes of the log are compared without Spark."""
        engine = self._request.engine
        return engine is EngineKind.LOCAL or (engine is EngineKind.AUTO and size <= LOCAL_BYTES)

    def _started(self, what: Plan) -> Scanner:
        """What reads this plan; waits for Spark."""
        alone = sum(extent.length for extent in what.alone) if what.cell_size else 0
        if self._is_local(what.expected_bytes + alone):
            return LocalScanner(self._progress)
        self._engine.start()
        self._engine.spark()
        from rocketmq_verify.engine.scan import SparkScanner  # noqa: PLC0415 - imports pyspark, as the engine has done

        return SparkScanner(self._engine, self._progress)

    def _both_looks(self, before: Sequence[ReplicaLog]) -> Lineage:
        """The lineage of `before` and of a look now, for the replicas that can still be read."""
        after = self._replicas.describe()
        return lineage([log for log in before if log.name not in self._replicas.failed], after)

    def _compare(self, scanner: Scanner, what: Plan, first: Lineage) -> Tally:
        places = [place for place in self._request.places if place.name not in self._replicas.failed]
        if alone := alone_cells(what, first):
            what = msgspec.structs.replace(what, pieces=merged([*what.pieces, *alone]))
        work = Work.of(what, first, self._request.options)
        tally, errors = scanner.compare_digests(places, work, first)
        self._replicas.failed.update(errors)
        for name in self._replicas.failed:  # in an earlier leg too: it is not read, which is another finding
            tally.missing.pop(name, None)
        remote = sum(not place.has_files for place in places)
        self._replicas.travelled += tally.chunks * remote * DIGEST_COST
        return tally

    def _check(self, scanner: Scanner, what: Plan, second: Lineage, tally: Tally, found: Sequence[Finding]) -> Checked:
        """Check the log by itself, and consume queues."""
        request = self._request
        places = [place for place in request.places if place.name not in self._replicas.failed]
        witnesses = checks.witnesses(places, second, found)
        work = Work.of(what, second, request.options)
        checked = Checked()
        known = reported_places(tally, found)
        if request.structure:
            self._progress.phase("checking the structure of the log")
            checked = self._timed(
                "structure", lambda: checks.check_structure(scanner, witnesses, work, second, known=known)
            )
            checked = msgspec.structs.replace(checked, findings=self._named(checked.findings, second))
        if request.queues:
            self._progress.phase("checking consume queues")
            queues = self._timed("queues", lambda: checks.check_queues(scanner, witnesses, work, second, known=known))
            checked = checked.plus(queues)
        return checked

    def _named(self, findings: Sequence[Finding], seen: Lineage) -> tuple[Finding, ...]:
        return drive(named(findings, seen), self._replicas.answer)

    def _marks(
        self,
        marks: Watermarks,
        before: Sequence[ReplicaLog],
        last: Lineage,
        *,
        what: Plan,
        tally: Tally,
        standing: Sequence[Finding],
        dropped: Sequence[Finding],
    ) -> Watermarks:
        """Differences are read again in any case; faults that are equal in all replicas have to be added."""
        everywhere = [finding for finding in standing if finding in self._checked.findings]
        return advanced(
            marks,
            [log for log in before if log.name not in self._replicas.failed],
            last,
            plan=what,
            tally=tally,
            unsettled=(*dropped, *everywhere),
            suspects=self._checked.suspects,
            began_ms=self._started_ms,
            now_ms=self._now_ms(),
        )

    def _concluded(
        self,
        before: Sequence[ReplicaLog],
        last: Lineage,
        *,
        what: Plan,
        tally: Tally,
        standing: Sequence[Finding],
        marks: Watermarks | None,
        unread: tuple[Extent, ...] = (),
    ) -> Run:
        """`unread`: what no run has read yet, because the time was up."""
        ends = self._named(last.findings, last)
        request, failed = self._request, self._replicas.failed
        lost = [unreachable(name, why) for name, why in sorted(failed.items())]
        lost += [
            unreadable(name, extents, tally.why[name])
            for name, extents in sorted(tally.unreadable.items())
            if name not in failed
        ]
        now_ms, promise_ms = self._started_ms, request.reread_ms
        known = () if marks is None else ages(marks, before, last, now_ms=now_ms)
        old = late(known, last, now_ms=now_ms, promise_ms=promise_ms)
        too_old = [age.extent for age in overdue(known, now_ms=now_ms, promise_ms=promise_ms)]
        there = [] if failed else before
        ends += drive(self._past.lost(there, last, now_ms), self._replicas.answer)
        self._past.save()
        findings = findings_in_order((*ends, *standing, *lost, *([] if old is None else [old])))
        result = verdict(
            before,
            last,
            what,
            tally,
            findings,
            group=request.group.broker_name or None,
            allow_unreachable=request.allow_unreachable,
            unsettled=(*self._unsettled, *too_old),
            later=unread,
            lasting=self._lasting,
            owed=self._owed,
            continues=bool(self._later) and not self._past.told_once,
            as_it_was=self._past.as_it_was if self._past.cell_size else None,
        )
        masters = tuple(log.name for log in before if log.master)
        figures = Figures(
            started_ms=self._started_ms,
            seconds=self._clock() - self._began,
            reading_seconds=self._seconds.get("scan", 0.0),
            travelled_bytes=self._replicas.travelled,
        )
        run_id = self._run_id
        seen = what if what.pieces else msgspec.structs.replace(what, pieces=self._past.as_it_was)
        states = spans(result, seen, unread=[age.extent for age in known if not age.read])
        earlier: tuple[RunSummary, ...] = ()
        problem = ""
        if self._store is not None:
            try:
                self._store.save(request.group, run_id, result, watermarks=marks, spans=states, figures=figures)
                earlier = self._store.last(request.group, SHOWN_RUNS)
            except HistoryError as error:
                problem = str(error)
        return Run(
            run_id=run_id,
            group=request.group,
            verdict=result,
            findings=findings,
            plan=what,
            masters=masters,
            checked=self._checked,
            repairs=self._repairs(findings, before, masters),
            timings=self._timings(),
            figures=figures,
            spans=states,
            earlier=earlier,
            last_full_ms=None if marks is None else marks.last_full_ms,
            oldest=oldest(age for age in known if age.read),
            later_bytes=sum(extent.length for extent in self._later),
            ledger=self._past.report(),
            history_error=problem,
        )

    def _repairs(
        self, findings: Sequence[Finding], before: Sequence[ReplicaLog], masters: Sequence[ReplicaName]
    ) -> tuple[Repair, ...]:
        request = self._request
        return repairs(
            [finding for finding in findings if finding.severity is not Severity.INFORMATION],
            replicas=[log.name for log in before if log.name not in self._replicas.failed],
            masters=masters,
            group=request.broker_group or None,
            on_kubernetes=bool(request.broker_group),
            stores={place.name: str(store_of(place)) for place in request.places if place.has_files},
        )

    def _timed(self, what: str, work: Callable[[], T]) -> T:
        began = self._clock()
        try:
            return work()
        finally:
            self._seconds[what] = self._seconds.get(what, 0.0) + self._clock() - began

    def _timings(self) -> Timings:
        names = ("states", "scan", "inquiry", "structure", "queues")
        return Timings(
            total=self._clock() - self._began,
            session=self._engine.started_seconds,
            warm_up=self._engine.warm_seconds,
            **{name: self._seconds.get(name, 0.0) for name in names},
        )

    def _history(self, path: str) -> "HistoryStore":
        from rocketmq_verify.history.store import HistoryStore  # noqa: PLC0415 - imports Arrow

        return HistoryStore(path, now_ms=self._now_ms, hadoop=self._hadoop)

    def _ledger(self, path: str) -> "LedgerFile":
        from rocketmq_verify.history.ledger_file import LedgerFile  # noqa: PLC0415 - imports Arrow

        return LedgerFile(Path(path), saved_ms=self._started_ms)

    def _hadoop(self, uri: str) -> Folder:
        self._engine.start()  # a run that has nothing to compare is kept too
        spark = self._engine.spark()
        # only now: two threads must not import pyspark at the same time
        from rocketmq_verify.history.hadoop import HadoopFolder  # noqa: PLC0415

        return HadoopFolder(spark, uri)
