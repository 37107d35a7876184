"""The work of a task of Spark: reads from one replica and makes Arrow batches. Called by `datasource` on the executors;
without Spark, so that it can be tested and measured alone.

A replica that cannot be read makes a row with the error and ends the task: an exception would end the whole job, after
Spark had repeated the other tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa

from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.records import next_record_start
from rocketmq_formats.soundness.structure import Structure
from rocketmq_formats.soundness.structure_check import StructureCheck
from rocketmq_verify.domain.model import Chunk
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.queue_files import QueueResult, check_queues
from rocketmq_verify.sources.source import GoneError, Source, SourceError
from rocketmq_verify.sources.work import QUEUE_EXTENT, Content, Task

HEAD: Final = 64
BLOCK: Final = 512 << 10
"""Bytes that are parsed at once."""
BATCH: Final = 4096
"""Chunks in a batch."""
NOWHERE: Final = -1
"""The offset of a row with an error."""

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
            yield _error(schema, task, error)


def _error(schema: pa.Schema, task: Task, error: SourceError) -> pa.RecordBatch:
    known: dict[str, object] = {"replica": task.place.name, "error": error.reason, "offset": NOWHERE, "length": 0}
    known |= {"epoch": NOWHERE}
    return pa.RecordBatch.from_pylist([{name: known.get(name) for name in schema.names}], schema=schema)


def _digests(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[Content.DIGESTS]
    size = task.work.plan.segment_size
    chunks = task.chunks()
    while batch := list(islice(chunks, BATCH)):
        digests: list[bytes | None] = []
        try:
            digests.extend(digest.digest for digest in source.digests(batch))
        except SourceError:
            yield _digest_batch(schema, task, batch[: len(digests)], digests, size)
            raise
        yield _digest_batch(schema, task, batch, digests, size)


def _digest_batch(
    schema: pa.Schema, task: Task, chunks: Sequence[Chunk], digests: Sequence[bytes | None], size: int
) -> pa.RecordBatch:
    count = len(chunks)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([task.place.name] * count, pa.string()),
            pa.array([chunk.offset - chunk.offset % size for chunk in chunks], pa.int64()),
            pa.array([chunk.offset for chunk in chunks], pa.int64()),
            pa.array([chunk.length for chunk in chunks], pa.int64()),
            pa.array([chunk.epoch for chunk in chunks], pa.int32()),
            pa.array(digests, pa.binary()),
            pa.nulls(count, pa.string()),
        ],
        schema=schema,
    )


def _records(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[Content.RECORDS]
    for extent in task.extents():
        for columns in record_columns(source, extent, task.zone.extent.end, task.work.plan.segment_size):
            count = len(columns.topic)
            arrays = [pa.array([task.place.name] * count, pa.string())]
            arrays += [pa.array(column, field.type) for column, field in zip(columns, list(schema)[1:-1], strict=True)]
            yield pa.RecordBatch.from_arrays([*arrays, pa.nulls(count, pa.string())], schema=schema)


def record_columns(source: Source, extent: Extent, until: int, segment_size: int) -> Iterator[rows.Columns]:
    """The records that start in `extent`; nothing is read from `until` on. Ends where bytes have expired."""
    with suppress(GoneError):
        for batch in record_batches(source, extent, until, segment_size):
            if batch.columns.topic:
                yield batch.columns


def record_batches(source: Source, extent: Extent, until: int, segment_size: int) -> Iterator[rows.Batch]:
    """The same with how far they reach, `until` may be within a record; raises `GoneError` where bytes have expired."""
    buffer, base = bytearray(), extent.start
    at: int | None = extent.start if extent.start % segment_size == 0 else None
    for piece in source.stream(Extent(extent.start, until)):
        buffer += piece
        if len(buffer) < BLOCK and base + len(buffer) < until:
            continue
        if at is None:
            at = next_record_start(buffer, base, base, segment_size=segment_size)
        if at is None:
            base += max(len(buffer) - HEAD, 0)  # the last bytes may be the beginning of a record's head
            del buffer[:-HEAD]
        else:
            for batch in rows.batches(buffer, base, at, extent.end, segment_size=segment_size):
                at = batch.next_offset
                yield batch
            del buffer[: min(at - base, len(buffer))]
            base = at
        if (base + len(buffer) if at is None else at) >= extent.end:
            return


def _structures(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[Content.STRUCTURE]
    for extent in task.extents():
        found = check_structure(source, extent, task.zone.extent.end, task.work.plan.segment_size)
        row = {
            "replica": task.place.name,
            "start": extent.start,
            "end": extent.end,
            "records": found.records,
            "recordBytes": found.record_bytes,
            "blankBytes": found.blank_bytes,
            "skippedBytes": found.skipped_bytes,
            "faults": found.fault_count,
            "structure": msgspec.json.encode(found).decode(),
            "error": None,
        }
        yield pa.RecordBatch.from_pylist([row], schema=schema)


def check_structure(source: Source, extent: Extent, until: int, segment_size: int) -> Structure:
    """The structural check of `extent`; nothing is read from `until` on. Ends where bytes have expired."""
    check = StructureCheck(extent, segment_size, aligned=False)
    with suppress(GoneError):
        for piece in source.stream(Extent(extent.start, until)):
            check.feed(piece)
            if check.done:
                break
    return check.finish()


def _queues(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[Content.QUEUES]
    size = task.work.plan.segment_size
    for whole in task.extents():
        for start in range(whole.start, whole.end, QUEUE_EXTENT):
            extent = Extent(start, min(start + QUEUE_EXTENT, whole.end))
            records = record_batches(source, extent, task.zone.extent.end, size)
            try:
                results = check_queues(records, extent, task.work.queues_of)
            except GoneError:
                continue  # others may still have it, and units that point there; nothing is known about them
            yield pa.RecordBatch.from_pylist([_queue_row(result, extent) for result in results], schema=schema)


def _queue_row(result: QueueResult, extent: Extent) -> dict[str, object]:
    return {
        "replica": result.replica,
        "topic": result.topic,
        "queueId": result.queue_id,
        "start": extent.start,
        "end": extent.end,
        "units": result.check.units,
        "lag": result.check.lag,
        "superseded": result.check.superseded,
        "faults": result.check.fault_count,
        "check": msgspec.json.encode(result.check).decode(),
        "error": None,
    }


_MAKERS: Final[dict[Content, Callable[[Source, Task], Iterator[pa.RecordBatch]]]] = {
    Content.DIGESTS: _digests,
    Content.RECORDS: _records,
    Content.STRUCTURE: _structures,
    Content.QUEUES: _queues,
}
