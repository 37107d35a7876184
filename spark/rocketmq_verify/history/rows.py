"""The history's files as tables of Parquet: the rows, and how they are checked when read. Called by `store`.

Nothing read is trusted: a file is parsed with its checksums, within bounds, and every row is checked against the types
here before use. A file that lacks a column, or has one more, is skipped: its checksum is over other rows.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import parquet as pq

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import MAX_ENTRIES, EpochList, EpochOrderError
from rocketmq_settings.verify import LARGEST_CHUNK_SIZE, SMALLEST_CHUNK_SIZE
from rocketmq_verify.alignment import Span
from rocketmq_verify.domain.findings import State
from rocketmq_verify.domain.inquiry.cells import DIGEST_BYTES
from rocketmq_verify.domain.inquiry.ledger import MOST_CELLS, Cell, Ledger
from rocketmq_verify.domain.inquiry.watermarks import MOST_SUSPECTS, Watermark, Watermarks
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.ages import MOST_AGES, Aged
from rocketmq_verify.history.runs import MOST_REPLICAS, Count, Group, Name, Offset, OfRun, RunSummary, head_of

LONGEST_FILE: Final = 32 << 20
"""Bytes of a Parquet file."""
LONGEST_ROWS: Final = 256 << 20
"""Bytes of its rows when unpacked."""
MOST_ROWS: Final = 200_000
LARGEST_CELL_SIZE: Final = 1 << 40
"""Of a ledger."""


class FileError(Exception):
    """Bytes that are none of our files, or not all of one."""


class _Start(msgspec.Struct, frozen=True):
    epoch: int
    start_offset: Offset


class _Age(msgspec.Struct, frozen=True):
    start: Offset
    end: Offset
    since_ms: Count
    read: bool


class _Mark(msgspec.Struct, frozen=True):
    replica: Name
    broker_id: int | None
    offset: Offset
    epochs: Annotated[tuple[_Start, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
    anchor: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")] | None = None
    """In hex."""
    ages: Annotated[tuple[_Age, ...], msgspec.Meta(max_length=MOST_AGES)] = ()


class _Range(msgspec.Struct, frozen=True):
    start: Offset
    end: Offset


class MarksRow(OfRun, frozen=True, kw_only=True):
    """The one row of a file of `watermarks`."""

    base: Name
    """The file that the run began with; empty: none."""
    last_full_ms: Count | None
    ran_ms: Count | None
    marks: Annotated[tuple[_Mark, ...], msgspec.Meta(max_length=MOST_REPLICAS)]
    suspects: Annotated[tuple[_Range, ...], msgspec.Meta(max_length=MOST_SUSPECTS)]

    def watermarks(self) -> Watermarks:
        """Raises `FileError`: they contradict themselves."""
        replicas = []
        for mark in self.marks:
            try:
                epochs = EpochList.of((epoch.epoch, epoch.start_offset) for epoch in mark.epochs)
            except EpochOrderError as error:
                raise FileError(f"epochs of {mark.replica!r}: {error}") from error
            ages = tuple(Aged(age.start, age.end, age.since_ms, age.read) for age in mark.ages)
            _check_order("ages", [age.extent for age in ages])
            replicas.append(
                Watermark(
                    replica=ReplicaName(mark.replica),
                    broker_id=mark.broker_id,
                    offset=mark.offset,
                    epochs=epochs,
                    anchor=bytes.fromhex(mark.anchor or ""),
                    ages=ages,
                )
            )
        if len({replica.replica for replica in replicas}) != len(replicas):
            raise FileError("two watermarks of one replica")
        suspects = tuple(Extent(suspect.start, suspect.end) for suspect in self.suspects)
        _check_order("suspects", suspects)
        return Watermarks(
            replicas=tuple(replicas), suspects=suspects, last_full_ms=self.last_full_ms, ran_ms=self.ran_ms
        )


def _check_order(what: str, extents: Iterable[Extent]) -> None:
    """Raises `FileError`: they are not ascending and disjoint."""
    before = 0
    for extent in extents:
        if not before <= extent.start < extent.end:
            raise FileError(f"{what} out of order at {extent.start}")
        before = extent.end


class SpanRow(OfRun, frozen=True, kw_only=True):
    """A row of `ranges`: the state of a range of a replica's log after a run."""

    replica: Name
    start: Offset
    end: Offset
    state: State

    def span(self) -> Span:
        return Span(ReplicaName(self.replica), self.start, self.end, self.state)


class _Cell(msgspec.Struct, frozen=True):
    start: Offset
    digest: Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{2 * DIGEST_BYTES}}}$")]
    """In hex."""
    first_epoch: int
    last_epoch: int
    first_ms: Count
    last_ms: Count
    copies: Annotated[int, msgspec.Meta(ge=1, le=MOST_REPLICAS)]


class LedgerRow(OfRun, frozen=True, kw_only=True):
    """The one row of a file of `ledger`."""

    chunk_size: Annotated[int, msgspec.Meta(ge=SMALLEST_CHUNK_SIZE, le=LARGEST_CHUNK_SIZE)]
    cell_size: Annotated[int, msgspec.Meta(ge=SMALLEST_CHUNK_SIZE, le=LARGEST_CELL_SIZE)]
    segment_size: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    cells: Annotated[tuple[_Cell, ...], msgspec.Meta(max_length=MOST_CELLS)]

    def ledger(self) -> Ledger:
        """Raises `FileError`: it contradicts itself."""
        if self.chunk_size & (self.chunk_size - 1) or self.cell_size % self.chunk_size:
            raise FileError(f"cells of {self.cell_size} bytes with chunks of {self.chunk_size}")
        _check_order("cells", [Extent(cell.start, cell.start + self.cell_size) for cell in self.cells])
        if any(cell.start % self.cell_size or cell.first_ms > cell.last_ms for cell in self.cells):
            raise FileError("cells that are not on their grid, or were confirmed before they were read")
        return Ledger(
            chunk_size=self.chunk_size,
            cell_size=self.cell_size,
            segment_size=self.segment_size,
            cells=tuple(
                Cell(
                    cell.start,
                    bytes.fromhex(cell.digest),
                    cell.first_epoch,
                    cell.last_epoch,
                    cell.first_ms,
                    cell.last_ms,
                    cell.copies,
                )
                for cell in self.cells
            ),
        )


def ledger_row(group: Group, run_id: str, saved_ms: int, ledger: Ledger) -> LedgerRow:
    """The row of a run's ledger."""
    return LedgerRow(
        **head_of(group, run_id, saved_ms),
        chunk_size=ledger.chunk_size,
        cell_size=ledger.cell_size,
        segment_size=ledger.segment_size,
        cells=tuple(
            _Cell(
                cell.start,
                cell.digest.hex(),
                cell.first_epoch,
                cell.last_epoch,
                cell.first_ms,
                cell.last_ms,
                cell.copies,
            )
            for cell in ledger.cells
        ),
    )


def marks_row(group: Group, run_id: str, saved_ms: int, base: str, marks: Watermarks) -> MarksRow:
    """The row of a run's watermarks."""
    return MarksRow(
        **head_of(group, run_id, saved_ms),
        base=base,
        last_full_ms=marks.last_full_ms,
        ran_ms=marks.ran_ms,
        marks=tuple(
            _Mark(
                replica.replica,
                replica.broker_id,
                replica.offset,
                tuple(_Start(*pair) for pair in replica.epochs.starts()),
                replica.anchor.hex(),
                tuple(_Age(age.start, age.end, age.since_ms, age.read) for age in replica.ages),
            )
            for replica in marks.replicas
        ),
        suspects=tuple(_Range(suspect.start, suspect.end) for suspect in marks.suspects),
    )


def span_rows(group: Group, run_id: str, saved_ms: int, spans: Iterable[Span]) -> list[SpanRow]:
    """The rows of a run's spans."""
    return [
        SpanRow(
            **head_of(group, run_id, saved_ms),
            replica=span.replica,
            start=span.start,
            end=span.end,
            state=span.state,
        )
        for span in spans
    ]


Row = TypeVar("Row", RunSummary, MarksRow, SpanRow, LedgerRow)

_TEXT, _INT, _BOOL, _FLOAT = pa.string(), pa.int64(), pa.bool_(), pa.float64()


def _fields(types: Mapping[str, pa.DataType]) -> list[pa.Field]:
    return [pa.field(name, kind) for name, kind in types.items()]


_HEAD: Final = dict.fromkeys(OfRun.__struct_fields__, _TEXT) | {"saved_ms": _INT}
_POINT: Final = {"name": _TEXT, "broker_id": _INT, "master": _BOOL} | dict.fromkeys(
    ("min_offset", "confirm_offset", "max_offset", "compared_from", "compared_up_to"), _INT
)
_RUN: Final = (
    _HEAD
    | dict.fromkeys(RunSummary.__struct_fields__[len(_HEAD) :], _INT)
    | {"seconds": _FLOAT, "reading_seconds": _FLOAT, "result": _TEXT, "summary": _TEXT, "full": _BOOL, "verdict": _TEXT}
    | {"replicas": pa.list_(pa.struct(_fields(_POINT)))}
)
_MARKS: Final = _HEAD | {
    "base": _TEXT,
    "last_full_ms": _INT,
    "ran_ms": _INT,
    "marks": pa.list_(
        pa.struct(
            _fields(
                {
                    "replica": _TEXT,
                    "broker_id": _INT,
                    "offset": _INT,
                    "epochs": pa.list_(pa.struct(_fields({"epoch": _INT, "start_offset": _INT}))),
                    "anchor": _TEXT,
                    "ages": pa.list_(pa.struct(_fields({"start": _INT, "end": _INT, "since_ms": _INT, "read": _BOOL}))),
                }
            )
        )
    ),
    "suspects": pa.list_(pa.struct(_fields({"start": _INT, "end": _INT}))),
}
_SPANS: Final = _HEAD | {"replica": _TEXT, "start": _INT, "end": _INT, "state": _TEXT}
_LEDGER: Final = (
    _HEAD
    | dict.fromkeys(("chunk_size", "cell_size", "segment_size"), _INT)
    | {
        "cells": pa.list_(
            pa.struct(_fields({name: _TEXT if name == "digest" else _INT for name in _Cell.__struct_fields__}))
        )
    }
)
_SCHEMAS: Final = {
    RunSummary: pa.schema(_fields(_RUN)),
    MarksRow: pa.schema(_fields(_MARKS)),
    SpanRow: pa.schema(_fields(_SPANS)),
    LedgerRow: pa.schema(_fields(_LEDGER)),
}


_CHECKSUM: Final = b"rocketmq-ha.rows.sha256"


def _checksum(rows: Sequence[Row]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(rows)).hexdigest().encode()


def encode(rows: Sequence[Row], kind: type[Row]) -> bytes:
    """A Parquet file, compressed, with checksums over its pages and one over the rows: Parquet's footer has none, and
    says which page belongs to which column."""
    plain = [msgspec.to_builtins(row) for row in rows]
    out = pa.BufferOutputStream()
    schema = _SCHEMAS[kind].with_metadata({_CHECKSUM: _checksum(rows)})
    table = pa.Table.from_pylist(plain, schema=schema)
    pq.write_table(table, out, compression="zstd", write_page_checksum=True)
    return out.getvalue().to_pybytes()


def decode(data: bytes, kind: type[Row], group: Group | None) -> list[Row]:
    """The rows of a file; at least one. `group`: None: of any group.

    Raises:
        FileError: torn, too long, another table, an impossible row, or another group's.
    """
    if len(data) > LONGEST_FILE:
        raise FileError(f"longer than {LONGEST_FILE} bytes")
    names = list(kind.__struct_fields__)
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        meta = file.metadata
        unpacked = sum(meta.row_group(at).total_byte_size for at in range(min(meta.num_row_groups, 1000)))
        if not 0 < meta.num_rows <= MOST_ROWS or meta.num_row_groups > 1000 or unpacked > LONGEST_ROWS:
            raise FileError(f"{meta.num_rows} rows of {unpacked} bytes")
        if missing := set(names) - set(file.schema_arrow.names):
            raise FileError(f"without {', '.join(sorted(missing))}")
        plain = file.read(columns=names, use_threads=False).to_pylist()
        rows = [msgspec.convert(row, kind) for row in plain]
        if (file.schema_arrow.metadata or {}).get(_CHECKSUM) != _checksum(rows):
            raise FileError("the checksum of its rows is another one")
    except (OSError, UnicodeError, pa.ArrowException, msgspec.ValidationError) as error:
        raise FileError(str(error).partition("\n")[0][:300]) from error
    for row in rows:
        if group is not None and (row.cluster, row.broker_name) != (group.cluster, group.broker_name):
            raise FileError(f"of another group: {row.cluster[:100]!r} {row.broker_name[:100]!r}")
    return rows
