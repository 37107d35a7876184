"""The ledger in a run: which one it is, what is read for it, what it shows, and what becomes of it. For `job`; what the
digests mean is decided in `domain.inquiry.ledger` and `domain.inquiry.changes`."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import structlog

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.inquiry.cells import Read
from rocketmq_verify.domain.inquiry.changes import ended, examine, told
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.inquiry.ledger import (
    MOST_CELLS,
    Cell,
    Ledger,
    blocking,
    compared,
    cut_chunks,
    updated,
    without_expired,
)
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, merged
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.history.folders import HistoryError, UnreadLedgerError
from rocketmq_verify.history.runs import Group
from rocketmq_verify.run import Checked, LedgerReport, Request

MADE_AGAIN: Final = "the log was made again since the ledger was written, which begins again"

log = structlog.get_logger(__name__)


class Keeper(Protocol):
    """Where the ledger is: a history, or a file."""

    def load_ledger(self, group: Group) -> tuple[Ledger | None, str]:
        """The ledger, if there is one, and what to tell about it. Raises `HistoryError`."""

    def save_ledger(self, group: Group, run_id: str, ledger: Ledger) -> None:
        """Keep it, durably. Raises `HistoryError`."""


class Past:
    """Of one run; without a keeper it does nothing."""

    def __init__(self, keeper: Keeper | None, request: Request, *, run_id: str) -> None:
        self._keeper, self._request, self._run_id = keeper, request, run_id
        self.chunk_size = request.chunk_size
        """Of the run: the ledger's, if there is one."""
        self.cell_size = 0 if keeper is None else max(request.cell_size, request.chunk_size)
        """0: there is no ledger."""
        self.as_it_was: tuple[Extent, ...] = ()
        """What was read and is what it was, in every replica that has it."""
        self.told_once = False
        """Whether a finding is not made again, because the ledger takes what is there now."""
        self._group = request.group
        self._segment_size = 0
        self._unread = False
        self._end = 0
        """Of the ledger, when the run began."""
        self._known: dict[int, Cell] = {}
        self._kept: dict[int, Cell] = {}
        self._notes: list[str] = []
        self._read: Read = {}
        self._replaced: frozenset[int] = frozenset()
        self._mixed: dict[Extent, frozenset[ReplicaName]] = {}
        self._confirmed = self._changed = self._entered = 0
        self._oldest_ms: int | None = None

    def load(self, logs: Sequence[ReplicaLog], lineage: Lineage) -> None:
        """Take the ledger, without what has expired in all replicas: if there are several, and all were described. One
        alone may be a copy that has less.

        Raises:
            HistoryError: it cannot be read, or is of another group or log.
        """
        if self._keeper is None:
            return
        self._segment_size = lineage.segment_size
        if self._request.ledger_path:
            self._group = _owner(self._group, logs)
        try:
            found, note = self._keeper.load_ledger(self._group)
        except UnreadLedgerError as error:
            self._notes.append(str(error))
            self.cell_size, self._unread = 0, True
            return
        self._notes += [note] if note else []
        if found is None:
            return
        self._segment_size = self._segment_size or found.segment_size
        if found.segment_size != self._segment_size:
            if self._request.ledger_path:
                raise HistoryError(
                    f"{self._request.ledger_path}: the ledger of a log with files of {found.segment_size} bytes, these "
                    f"have {self._segment_size}"
                )
            self._notes.append(f"the ledger is of a log with files of {found.segment_size} bytes, it begins again")
            return
        if found.chunk_size != self.chunk_size:
            self._notes.append(f"chunks of {found.chunk_size} bytes, as the ledger has them")
        self.chunk_size, self.cell_size = found.chunk_size, found.cell_size
        self._known = self._kept = {cell.start: cell for cell in found.cells}
        self._end = max(self._known, default=0) + self.cell_size if self._known else 0
        if len(logs) == len(self._request.places) > 1:
            self._known = without_expired(self._known, min(one.min_offset for one in logs))

    def take_digests(self, part: Plan, first: Lineage, tally: Tally) -> Requests[None]:
        """Take the digests of the cells that were read completely, this part of the plan at last."""
        yield from cut_chunks(part, first, tally.cells)
        self._read = tally.cells.take(self.cell_size) if self.cell_size else {}

    def as_before(self, latest: Lineage) -> tuple[tuple[Extent, frozenset[ReplicaName]], ...]:
        """Cells that only some replicas have as they were, of all that was read so far, and those beside them: a record
        may reach into these. What one replica alone once had proves nothing against others."""
        cells = compared(self._read, self._known, latest, self.cell_size)
        read = {one.extent.start: one for one in cells if one.cell.copies > 1}
        mixed = [start for start, one in read.items() if one.current and one.changed]
        for start in (at for own in mixed for at in (own - self.cell_size, own, own + self.cell_size)):
            if start in read:
                self._mixed[read[start].extent] = frozenset(read[start].current)
        return tuple(self._mixed.items())

    def changes(self, part: Plan, latest: Lineage, found: Iterable[Finding], now_ms: int) -> Requests[Checked]:
        """What is not what it was, as far as `found` does not explain it."""
        if not self._read:
            return Checked()
        cells = compared(self._read, self._known, latest, self.cell_size)
        # one alone may be a copy of another log: the ledger stays as it is
        several = len(latest.zones) > 1
        known = self._known if several else {}
        changes = yield from examine(cells, known, part, latest, tuple(found), now_ms=now_ms)
        self._replaced = changes.replaced if several else frozenset()
        if changes.made_again:
            self._notes.append(MADE_AGAIN)
        confirmed = [one for one in cells if one.same]
        self._confirmed += len(confirmed)
        self._changed += sum(bool(one.changed) for one in cells)
        self.as_it_was = merged([*self.as_it_was, *(one.extent for one in confirmed if not one.changed)])
        since = [one.cell.first_ms for one in confirmed] + ([] if self._oldest_ms is None else [self._oldest_ms])
        self._oldest_ms = min(since, default=None)
        return Checked(findings=changes.findings, suspects=changes.unsteady)

    def update(
        self, latest: Lineage, standing: Sequence[Finding], unsettled: Iterable[Extent], *, alone: bool, now_ms: int
    ) -> None:
        """After all is judged that was read so far.

        Args:
            alone: what one replica alone has was checked by itself.
            now_ms: of the last look, in milliseconds since 1970.
        """
        if not self._read:
            return
        replaced = told(self._replaced, standing)
        self.told_once |= bool(replaced)
        before = len(self._known.keys() - replaced)
        self._known = updated(
            self._known,
            self._read,
            latest,
            cell_size=self.cell_size,
            blocked=(*blocking(standing), *unsettled),
            alone_from=self._end if alone else None,
            replaced=replaced,
            now_ms=now_ms,
        )
        self._entered += len(self._known) - before
        self._read, self._replaced = {}, frozenset()
        if len(self._known) >= MOST_CELLS:
            self._notes.append(f"it is full: {MOST_CELLS} cells")

    def lost(self, logs: Sequence[ReplicaLog], latest: Lineage, now_ms: int) -> Requests[tuple[Finding, ...]]:
        """What was confirmed and is beyond the end of all logs now. Only of a history, and if all replicas were read:
        others may be copies that have less."""
        whole = len(logs) == len(self._request.places) > 1 and not latest.moved
        if self._request.ledger_path or not whole:
            return ()
        changes = yield from ended(self._known, logs, latest, cell_size=self.cell_size, now_ms=now_ms)
        if changes.made_again:
            self._notes.append(MADE_AGAIN)
        self.told_once |= bool(changes.replaced)
        self._known = {start: cell for start, cell in self._known.items() if start not in changes.replaced}
        return changes.findings

    def save(self) -> None:
        """Keep it. What cannot be kept does not end the run."""
        if self._keeper is None or self._unread or self._known == self._kept:
            return
        ledger = Ledger(
            chunk_size=self.chunk_size,
            cell_size=self.cell_size,
            segment_size=self._segment_size,
            cells=tuple(self._known[start] for start in sorted(self._known)),
        )
        try:
            self._keeper.save_ledger(self._group, self._run_id, ledger)
        except HistoryError as error:
            log.warning("the ledger of this run is not kept", error=str(error))
            self._notes.append(f"it is not kept: {error}")
        else:
            self._kept = self._known

    def report(self) -> LedgerReport | None:
        """None: there is no ledger."""
        if self._keeper is None:
            return None
        return LedgerReport(
            cells=len(self._known),
            cell_size=self.cell_size,
            confirmed=self._confirmed,
            changed=self._changed,
            entered=self._entered,
            oldest_ms=self._oldest_ms,
            notes=tuple(dict.fromkeys(self._notes)),
        )


def _owner(group: Group, logs: Iterable[ReplicaLog]) -> Group:
    """Whose ledger it is: by the stores themselves, if the user names no group."""
    cluster, _, name = next((log.group for log in logs if log.group), "").rpartition("/")
    return Group(cluster, name) if name and not group.broker_name else group
