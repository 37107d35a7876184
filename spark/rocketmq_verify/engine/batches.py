"""The work of a task of Spark: reads from one replica and makes Arrow batches. Called by `datasource` on the executors;
without Spark, so that it can be tested and measured alone.

A replica that cannot be read makes a row with the error and ends the task: an exception would end the whole job, after
Spark had repeated the other tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Final

import pyarrow as pa

from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.model import Chunk, ChunkDigest
from rocketmq_verify.engine import task_rows
from rocketmq_verify.engine.task_rows import Row, error_row
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.source import GoneError, Source, SourceError
from rocketmq_verify.sources.work import Content, Task

BATCH: Final = 4096
"""Chunks in a batch."""

_DIGESTS: Final = (
    ("replica", pa.string()),
    ("segment", pa.int64()),
    ("offset", pa.int64()),
    ("length", pa.int64()),
    ("epoch", pa.int32()),
    ("digest", pa.binary()),
    ("error", pa.string()),
)
_RECORDS: Final = (
    ("replica", pa.string()),
    ("topic", pa.string()),
    ("queueId", pa.int32()),
    ("queueOffset", pa.int64()),
    ("physicalOffset", pa.int64()),
    ("storeTimestamp", pa.int64()),
    ("size", pa.int32()),
    ("bodySize", pa.int32()),
    ("crcOk", pa.bool_()),
    ("keys", pa.string()),
    ("tagsCode", pa.int64()),
    ("queued", pa.bool_()),
    ("error", pa.string()),
)
_STRUCTURE: Final = (
    ("replica", pa.string()),
    ("start", pa.int64()),
    ("end", pa.int64()),
    ("records", pa.int64()),
    ("recordBytes", pa.int64()),
    ("blankBytes", pa.int64()),
    ("skippedBytes", pa.int64()),
    ("faults", pa.int64()),
    ("structure", pa.string()),
    ("error", pa.string()),
)
_QUEUES: Final = (
    ("replica", pa.string()),
    ("topic", pa.string()),
    ("queueId", pa.int32()),
    ("start", pa.int64()),
    ("end", pa.int64()),
    ("units", pa.int64()),
    ("lag", pa.int64()),
    ("superseded", pa.int64()),
    ("faults", pa.int64()),
    ("indexEntries", pa.int64()),
    ("indexFaults", pa.int64()),
    ("check", pa.string()),
    ("error", pa.string()),
)
SCHEMAS: Final = {
    Content.DIGESTS: pa.schema(_DIGESTS),
    Content.RECORDS: pa.schema(_RECORDS),
    Content.STRUCTURE: pa.schema(_STRUCTURE),
    Content.QUEUES: pa.schema(_QUEUES),
}


def read(task: Task) -> Iterator[pa.RecordBatch]:
    """The task's rows; for an unreadable replica a last row with `error` and its name only."""
    make = _MAKERS[task.content]
    schema = SCHEMAS[task.content]
    with closing(open_source(task.place.name, task.place.spec, task.options)) as source:
        try:
            yield from make(source, task)
        except SourceError as error:
            yield pa.RecordBatch.from_pylist([error_row(task.place.name, error)], schema=schema)


def _digests(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[Content.DIGESTS]
    size = task.work.plan.segment_size
    chunks = task.chunks()
    while batch := list(islice(chunks, BATCH)):
        digests: list[ChunkDigest] = []
        try:
            digests.extend(source.digests(batch))
        except SourceError:
            yield _digest_batch(schema, task, batch[: len(digests)], digests, size)
            raise
        yield _digest_batch(schema, task, batch, digests, size)


def _digest_batch(
    schema: pa.Schema, task: Task, chunks: Sequence[Chunk], digests: Sequence[ChunkDigest], size: int
) -> pa.RecordBatch:
    count = len(chunks)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([task.place.name] * count, pa.string()),
            pa.array([chunk.offset - chunk.offset % size for chunk in chunks], pa.int64()),
            pa.array([chunk.offset for chunk in chunks], pa.int64()),
            pa.array([chunk.length for chunk in chunks], pa.int64()),
            pa.array([chunk.epoch for chunk in chunks], pa.int32()),
            pa.array([one.digest for one in digests], pa.binary()),
            pa.array([one.error or None for one in digests], pa.string()),
        ],
        schema=schema,
    )


def _records(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[Content.RECORDS]
    for extent in task.extents():
        for columns in record_columns(source, extent, task.zone.extent.end, task.work.plan.segment_size):
            count = len(columns.topic)
            arrays = [pa.array([task.place.name] * count, pa.string())]
            arrays += [
                pa.array(column, field.type) for column, field in zip(columns[:-1], list(schema)[1:-1], strict=True)
            ]
            yield pa.RecordBatch.from_arrays([*arrays, pa.nulls(count, pa.string())], schema=schema)


def record_columns(source: Source, extent: Extent, until: int, segment_size: int) -> Iterator[rows.Columns]:
    """The records that start in `extent`; nothing is read from `until` on. Ends where bytes have expired."""
    with suppress(GoneError):
        for batch in rows.pieces_batches(source.stream(Extent(extent.start, until)), extent, until, segment_size):
            if batch.columns.topic:
                yield batch.columns


def _structures(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    return _of_rows(Content.STRUCTURE, task_rows.structures(source, task))


def _queues(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    return _of_rows(Content.QUEUES, task_rows.queues(source, task))


def _of_rows(content: Content, found: Iterator[list[Row]]) -> Iterator[pa.RecordBatch]:
    for some in found:
        yield pa.RecordBatch.from_pylist(some, schema=SCHEMAS[content])


_MAKERS: Final[dict[Content, Callable[[Source, Task], Iterator[pa.RecordBatch]]]] = {
    Content.DIGESTS: _digests,
    Content.RECORDS: _records,
    Content.STRUCTURE: _structures,
    Content.QUEUES: _queues,
}
