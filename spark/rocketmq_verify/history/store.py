"""What earlier runs of a group found and compared, in Parquet files that any tool can read. Called by the job.

    PATH/<cluster>/<broker name>/runs/        a row per run: result, offsets, figures, ends of all replicas, the verdict
                                 ranges/      the state of each range of each replica (`alignment.Span`)
                                 watermarks/  what need not be read again (`domain.watermarks`)
                                 ledger/      what the log was (`domain.inquiry.ledger`)

Files are named `<time of saving in ms>-<run id>.parquet`, written whole, and never changed. The newest watermarks that
can be read count. Two runs at the same time are safe: suspects of one that the other could not see are added when they
are loaded, so that no difference is lost. Watermarks are written after each leg of a run, and last: what a run
compared since then that died is read again. A file that is torn or foreign is skipped, with one line in the log.

Kept: `keep_runs` runs, of which all except the newest are merged into one file from time to time; the ranges and the
watermarks of the newest few; the newest ledger and the one before.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import structlog

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.alignment import Span
from rocketmq_verify.domain.inquiry.ledger import Ledger
from rocketmq_verify.domain.inquiry.watermarks import MOST_SUSPECTS, Watermarks
from rocketmq_verify.domain.planning.chunks import merged
from rocketmq_verify.domain.verdict import Verdict
from rocketmq_verify.history.folders import Folder, HistoryError, UnreadLedgerError, path_part
from rocketmq_verify.history.open_folder import open_folder
from rocketmq_verify.history.rows import (
    LONGEST_FILE,
    FileError,
    LedgerRow,
    MarksRow,
    Row,
    SpanRow,
    decode,
    encode,
    ledger_row,
    marks_row,
    span_rows,
)
from rocketmq_verify.history.runs import Figures, Group, RunSummary, summary

RUNS: Final = "runs"
RANGES: Final = "ranges"
WATERMARKS: Final = "watermarks"
LEDGER: Final = "ledger"
KEEP_RUNS: Final = 1000
KEEP_FEW: Final = 32
"""Files of ranges and of watermarks."""
KEEP_LEDGERS: Final = 2
MERGE_AT: Final = 128
"""Files of runs; then all but `KEEP_SINGLE` become one."""
KEEP_SINGLE: Final = 32
MOST_TRIED: Final = 64
"""Files tried for watermarks; if all of them are unreadable, there are no watermarks."""

_NAME: Final = re.compile(r"([0-9]{15})-([a-z0-9]{1,40})\.parquet")
_RUN_ID: Final = re.compile(r"[a-z0-9]{1,40}")
_LAST_MS: Final = 10**15 - 1

log = structlog.get_logger(__name__)


class HistoryStore:
    """The histories of all groups under one path. Not thread-safe; processes may use a path at the same time."""

    def __init__(
        self,
        path: str,
        *,
        now_ms: Callable[[], int],
        hadoop: Callable[[str], Folder] | None = None,
        keep_runs: int = KEEP_RUNS,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            path: a directory or a URI, see `open_folder`.
            now_ms: wall clock, in milliseconds since 1970.
            hadoop: makes a `hadoop.HadoopFolder`, if there is a Spark session.

        Raises:
            HistoryError: no file system for this path.
        """
        self._folder = open_folder(path, hadoop)
        self._now_ms = now_ms
        self._keep_runs = min(max(keep_runs, 1), KEEP_RUNS)
        self._bases: dict[Group, str] = {}

    def load(self, group: Group) -> Watermarks | None:
        """What need not be read again; None if no run has saved any. `save` notes that its run began with these.

        Raises:
            HistoryError: the folder cannot be read. (Unreadable files are skipped.)
        """
        folder = _folder(group, WATERMARKS)
        newest: MarksRow | None = None
        self._bases[group] = ""
        marks = Watermarks()
        suspects: list[Extent] = []
        for name in reversed(self._names(folder)[-MOST_TRIED:]):
            if newest is not None and name <= newest.base:
                break
            row = next(iter(self._rows(folder, name, MarksRow, group)), None)
            try:
                found = None if row is None else row.watermarks()
            except FileError as error:
                _skipped(folder, name, str(error))
                continue
            if row is None or found is None:
                continue
            if newest is None:
                newest, marks = row, found
                self._bases[group] = name
            # of the others only those that the newest run could not see: saved after it had begun
            suspects += found.suspects
        if newest is None:
            return None
        return msgspec.structs.replace(marks, suspects=_bounded(suspects))

    def last(self, group: Group, most: int) -> tuple[RunSummary, ...]:
        """The newest `most` runs, oldest first.

        Raises:
            HistoryError: the folder cannot be read.
        """
        found: dict[str, RunSummary] = {}
        for row in self._newest_runs(group, self._names(_folder(group, RUNS))):
            found.setdefault(row.run_id, row)
            if len(found) >= min(most, self._keep_runs):
                break
        return tuple(sorted(found.values(), key=_age))[-most:] if most > 0 else ()

    def ranges(self, group: Group, run_id: str) -> tuple[Span, ...]:
        """The states of all replicas' bytes after that run; empty if it is too old. Raises `HistoryError`."""
        folder = _folder(group, RANGES)
        for name in reversed(self._names(folder)):
            if name.endswith(f"-{run_id}.parquet"):
                return tuple(row.span() for row in self._rows(folder, name, SpanRow, group))
        return ()

    def save(
        self,
        group: Group,
        run_id: str,
        verdict: Verdict,
        *,
        watermarks: Watermarks | None,
        spans: tuple[Span, ...],
        figures: Figures,
    ) -> RunSummary:
        """Keep a run, durably.

        Args:
            run_id: of `new_run_id`.
            watermarks: None: the run did not get that far, the earlier ones stay.

        Raises:
            HistoryError: it is not kept, or not all of it; the verdict is still true.
        """
        if _RUN_ID.fullmatch(run_id) is None:
            raise ValueError(f"run id {run_id!r}: letters a to z and digits, at most 40")
        saved_ms = self._next_ms(group)
        name = f"{saved_ms:015d}-{run_id}.parquet"
        row = summary(group, run_id, saved_ms, verdict, figures)
        if spans:
            rows = span_rows(group, run_id, saved_ms, spans)
            self._folder.write(_folder(group, RANGES), name, encode(rows, SpanRow))
        self._folder.write(_folder(group, RUNS), name, encode([row], RunSummary))
        if watermarks is not None:
            self._bases[group] = self._save_watermarks(group, run_id, saved_ms, watermarks)
        try:
            self._tidy(group)
        except HistoryError as error:
            log.warning("old files of the history stay: check that they can be listed and removed", error=str(error))
        return row

    def save_progress(self, group: Group, run_id: str, watermarks: Watermarks) -> None:
        """Keep what is known in the middle of a run, durably; `save`, or the next call, replaces it.

        Raises:
            HistoryError: it is not kept.
        """
        self._save_watermarks(group, run_id, self._next_ms(group), watermarks)

    def load_ledger(self, group: Group) -> tuple[Ledger | None, str]:
        """The newest ledger that can be trusted, and what to tell about those that cannot; None: no such one.

        Raises:
            UnreadLedgerError: it cannot be read now.
            HistoryError: the folder cannot be read.
        """
        folder, bad = _folder(group, LEDGER), list[str]()
        for name in reversed(self._names(folder)):
            try:
                data = self._folder.read(folder, name, LONGEST_FILE)
            except HistoryError as error:
                raise UnreadLedgerError(f"the ledger cannot be read now and is not used: {error}") from error
            try:
                row = next(iter(decode(data, LedgerRow, group)))
                return row.ledger(), "; ".join(bad)
            except FileError as error:
                _skipped(folder, name, str(error))
                bad.append(f"{folder}/{name} is damaged and not used: {error}")
        return None, "; ".join(bad)

    def save_ledger(self, group: Group, run_id: str, ledger: Ledger) -> None:
        """Keep the ledger, durably.

        Raises:
            HistoryError: it is not kept.
        """
        folder, saved_ms = _folder(group, LEDGER), self._next_ms(group)
        row = ledger_row(group, run_id, saved_ms, ledger)
        self._folder.write(folder, f"{saved_ms:015d}-{run_id}.parquet", encode([row], LedgerRow))
        for name in self._names(folder)[:-KEEP_LEDGERS]:
            self._folder.remove(folder, name)

    def _save_watermarks(self, group: Group, run_id: str, saved_ms: int, watermarks: Watermarks) -> str:
        """A run's progress has the base that the run began with: other runs since then count when it is loaded."""
        folder = _folder(group, WATERMARKS)
        name = f"{saved_ms:015d}-{run_id}.parquet"
        row = marks_row(group, run_id, saved_ms, self._bases.get(group, ""), watermarks)
        self._folder.write(folder, name, encode([row], MarksRow))
        for earlier in self._names(folder):
            if earlier < name and earlier.endswith(f"-{run_id}.parquet"):
                self._folder.remove(folder, earlier)
        return name

    def _next_ms(self, group: Group) -> int:
        """After every other even if this machine's clock is late: the newest name has to be the newest file."""
        names = [self._names(_folder(group, kind)) for kind in (RUNS, RANGES, WATERMARKS, LEDGER)]
        latest = max((int(own[-1][:15]) for own in names if own), default=0)
        return min(max(self._now_ms(), latest + 1, 0), _LAST_MS)

    def _tidy(self, group: Group) -> None:
        for kind in (RANGES, WATERMARKS):
            for name in self._names(_folder(group, kind))[:-KEEP_FEW]:
                self._folder.remove(_folder(group, kind), name)
        folder = _folder(group, RUNS)
        names = self._names(folder)
        if len(names) < MERGE_AT:
            return
        old = names[:-KEEP_SINGLE]
        rows: dict[str, RunSummary] = {}
        # stop at a file that cannot be read now: it would be removed without being in the merged one
        for row in self._newest_runs(group, old, strict=True):
            rows.setdefault(row.run_id, row.without_verdict())
            if len(rows) >= self._keep_runs - KEEP_SINGLE:
                break
        if rows:
            kept = sorted(rows.values(), key=_age)
            # the name of the newest of them, so that it sorts where they were; rows that exist twice until the files
            # are removed have the same run id
            target = f"{int(old[-1][:15]):015d}-m{secrets.token_hex(8)}.parquet"
            self._folder.write(folder, target, encode(kept, RunSummary))
        for name in old:
            self._folder.remove(folder, name)

    def _newest_runs(self, group: Group, names: list[str], *, strict: bool = False) -> Iterator[RunSummary]:
        folder = _folder(group, RUNS)
        for name in reversed(names):
            rows = self._rows(folder, name, RunSummary, group, strict=strict)
            yield from sorted(rows, key=_age, reverse=True)

    def _rows(self, folder: str, name: str, kind: type[Row], group: Group, *, strict: bool = False) -> list[Row]:
        """The rows of a file; empty if it cannot be trusted, or, unless `strict`, cannot be read (`HistoryError`)."""
        try:
            return decode(self._folder.read(folder, name, LONGEST_FILE), kind, group)
        except (HistoryError, FileError) as error:
            if strict and isinstance(error, HistoryError):
                raise
            _skipped(folder, name, str(error))
            return []

    def _names(self, folder: str) -> list[str]:
        """Names of our files, oldest first."""
        return [name for name in self._folder.names(folder) if _NAME.fullmatch(name)]


def _folder(group: Group, kind: str) -> str:
    return f"{path_part(group.cluster)}/{path_part(group.broker_name)}/{kind}"


def _age(row: RunSummary) -> tuple[int, str]:
    return row.saved_ms, row.run_id


def _skipped(folder: str, name: str, why: str) -> None:
    log.warning("a file of the history is skipped: remove it if it is not wanted", file=f"{folder}/{name}", reason=why)


def _bounded(suspects: list[Extent]) -> tuple[Extent, ...]:
    found = merged(suspects)
    if len(found) <= MOST_SUSPECTS:
        return found
    return (*found[: MOST_SUSPECTS - 1], Extent(found[MOST_SUSPECTS - 1].start, found[-1].end))
