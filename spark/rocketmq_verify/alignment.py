"""The state of every byte of every replica after a run, as spans, and as a map of few cells for people.

Made of the verdict and the plan, which do not grow with the log; `history` keeps the spans, the report draws the map.
Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import State
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, common, covered, merged, without
from rocketmq_verify.domain.verdict import ReplicaReport, Verdict

MOST_CELLS: Final = 160
"""Cells of the map in a row."""
_SHORTEST_COLUMN: Final = 4096
MOST_REPLICAS: Final = 32
"""Rows of the map."""
MOST_SPANS: Final = 100_000
"""Of one run; findings and pieces are few, so a run has some hundreds."""


_RANK: Final = {state: rank for rank, state in enumerate(State)}
ALARMING: Final = frozenset({State.DIFFERING, State.MISSING})
"""Shown even for one byte of a cell; otherwise a cell shows the state of most of its bytes."""


class Span(msgspec.Struct, frozen=True):
    """A range of one replica's log in one state."""

    replica: ReplicaName
    start: int
    end: int
    state: State

    @property
    def extent(self) -> Extent:
        return Extent(self.start, self.end)


class Cell(msgspec.Struct, frozen=True):
    """Neighbouring cells of one replica's row with one state: columns `[first, last)` of the map."""

    replica: ReplicaName
    first: int
    last: int
    state: State


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas by columns; a column is a part of a file, a file, or several."""

    start: int
    """Physical offset of the first column; a file's start."""
    width: int
    """Bytes of a column."""
    columns: int
    segment_size: int
    replicas: tuple[ReplicaName, ...]
    left_out: int
    """Replicas beyond MOST_REPLICAS."""
    cells: tuple[Cell, ...]


def spans(verdict: Verdict, plan: Plan, *, unread: Iterable[Extent] = ()) -> tuple[Span, ...]:
    """The spans of each replica's bytes: ascending, disjoint, neighbours differ in state.

    Args:
        unread: what no run has read yet.
    """
    unread = tuple(unread)
    zones = {reported.name: _zone(reported) for reported in verdict.replicas}
    both = covered(zones.values())
    found: list[Span] = []
    for replica in verdict.replicas:
        zone = zones[replica.name]
        all_of_it = Extent(replica.min_offset, replica.max_offset)
        layers: list[tuple[State, Iterable[Extent]]] = [
            (State.UNREAD if replica.compared_up_to is None else State.BEHIND, [all_of_it]),
            (State.ALONE, [zone]),
            (State.EARLIER, common([zone], both)),
            (State.UNREAD, common([zone], unread)),
            (State.VERIFIED, common([zone], plan.pieces)),
            *_findings(verdict, replica.name, all_of_it),
        ]
        found += _painted(replica.name, layers)
    return tuple(found[:MOST_SPANS])


def _zone(replica: ReplicaReport) -> Extent:
    if replica.compared_from is None or replica.compared_up_to is None:
        return Extent(0, 0)
    return Extent(replica.compared_from, replica.compared_up_to)


def _findings(verdict: Verdict, replica: ReplicaName, log: Extent) -> Iterable[tuple[State, Iterable[Extent]]]:
    own = [finding for finding in verdict.findings if replica in finding.replicas]
    for state in (State.BEHIND, State.DIFFERING, State.MISSING):
        yield (
            state,
            [Extent(finding.start, finding.end).meet(log) for finding in own if finding.kind.traits.state is state],
        )


def _painted(replica: ReplicaName, layers: Iterable[tuple[State, Iterable[Extent]]]) -> list[Span]:
    """Later layers over earlier ones."""
    layered: dict[State, tuple[Extent, ...]] = {}
    for state, extents in layers:
        over = [extent for extent in extents if extent.length]
        if over:
            layered = {below: without(own, over) for below, own in layered.items()}
            layered[state] = merged([*layered.get(state, ()), *over])
    painted = [Span(replica, extent.start, extent.end, state) for state, own in layered.items() for extent in own]
    painted.sort(key=lambda span: span.start)
    found: list[Span] = []
    for span in painted:
        if found and found[-1].end == span.start and found[-1].state is span.state:
            found[-1] = Span(replica, found[-1].start, span.end, span.state)
        else:
            found.append(span)
    return found


def chart(of: Sequence[Span], segment_size: int, *, unread: Iterable[ReplicaName] = ()) -> Map | None:
    """The map of these spans; None where there are no bytes.

    Args:
        segment_size: bytes of a file.
        unread: replicas that could not be read: rows in one state.
    """
    names = sorted({span.replica for span in of} | set(unread))
    if not of or segment_size <= 0:
        return None
    start = min(span.start for span in of) // segment_size * segment_size
    end = max(span.end for span in of)
    width = _column(end - start, segment_size)
    columns = -(-(end - start) // width)
    shown = names[:MOST_REPLICAS]
    cells: list[Cell] = []
    for name in shown:
        own = [span for span in of if span.replica == name]
        if not own:
            cells.append(Cell(name, 0, columns, State.UNREAD))
            continue
        cells += _cells(name, own, start, width, columns)
    return Map(
        start=start,
        width=width,
        columns=columns,
        segment_size=segment_size,
        replicas=tuple(shown),
        left_out=len(names) - len(shown),
        cells=tuple(cells),
    )


def _column(length: int, segment_size: int) -> int:
    """Bytes of a column: a whole part of a file or several whole files, so that each file's border is a column's
    border."""
    if length > segment_size * MOST_CELLS // 2:
        return -(-length // (segment_size * MOST_CELLS)) * segment_size
    # in a log that has only begun to fill its file, a column is a small part: one bad byte must not colour it all
    parts = max(min(segment_size * MOST_CELLS // max(length, 1), segment_size // _SHORTEST_COLUMN), 1)
    while segment_size % parts:
        parts -= 1
    return segment_size // parts


def _cells(name: ReplicaName, own: Iterable[Span], start: int, width: int, columns: int) -> list[Cell]:
    row: list[dict[State, int]] = [{} for _ in range(columns)]
    for span in own:
        for column in range((span.start - start) // width, min((span.end - 1 - start) // width + 1, columns)):
            part = Extent(start + column * width, start + (column + 1) * width).meet(span.extent)
            row[column][span.state] = row[column].get(span.state, 0) + part.length
    found: list[Cell] = []
    for column, parts in enumerate(row):
        if not parts:
            continue
        state = max(parts, key=lambda candidate: (candidate in ALARMING, parts[candidate], -_RANK[candidate]))
        if found and found[-1].last == column and found[-1].state is state:
            found[-1] = Cell(name, found[-1].first, column + 1, state)
        else:
            found.append(Cell(name, column, column + 1, state))
    return found


def totals(of: Iterable[Span]) -> dict[ReplicaName, dict[State, int]]:
    """Bytes by replica and state, for every state."""
    found: dict[ReplicaName, dict[State, int]] = {}
    for span in of:
        own = found.setdefault(span.replica, dict.fromkeys(State, 0))
        own[span.state] += span.extent.length
    return found
