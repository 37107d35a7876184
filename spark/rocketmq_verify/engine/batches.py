"""The work of a task of Spark: reads from one replica and makes Arrow batches. Called by `datasource` on the executors;
without Spark, so that it can be tested and measured alone.

A replica that cannot be read makes a row with the error and ends the task: an exception would end the whole job, after
Spark had repeated the other tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa

from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queue_states import QueueState
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaName
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.queues import QueueResult, check_queues
from rocketmq_verify.sources.replicas import in_parallel
from rocketmq_verify.sources.sidecar_source import SidecarSource
from rocketmq_verify.sources.source import SIDECAR, GoneError, Source, SourceError
from rocketmq_verify.sources.work import QUEUE_EXTENT, Content, Task, Work

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
            yield _error(schema, task.place.name, error)


def _error(schema: pa.Schema, replica: ReplicaName, error: SourceError) -> pa.RecordBatch:
    known: dict[str, object] = {"replica": replica, "error": error.reason, "offset": NOWHERE, "length": 0}
    known |= {"epoch": NOWHERE}
    return pa.RecordBatch.from_pylist([{name: known.get(name) for name in schema.names}], schema=schema)


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
            arrays += [pa.array(column, field.type) for column, field in zip(columns, list(schema)[1:-1], strict=True)]
            yield pa.RecordBatch.from_arrays([*arrays, pa.nulls(count, pa.string())], schema=schema)


def record_columns(source: Source, extent: Extent, until: int, segment_size: int) -> Iterator[rows.Columns]:
    """The records that start in `extent`; nothing is read from `until` on. Ends where bytes have expired."""
    with suppress(GoneError):
        for batch in rows.pieces_batches(source.stream(Extent(extent.start, until)), extent, until, segment_size):
            if batch.columns.topic:
                yield batch.columns


def _structures(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[Content.STRUCTURE]
    for extent in task.extents():
        for found in source.structures(extent, task.zone.extent.end, task.work.plan.segment_size):
            row = {
                "replica": task.place.name,
                "start": found.extent.start,
                "end": found.extent.end,
                "records": found.records,
                "recordBytes": found.record_bytes,
                "blankBytes": found.blank_bytes,
                "skippedBytes": found.skipped_bytes,
                "faults": found.fault_count,
                "structure": msgspec.json.encode(found).decode(),
                "error": None,
            }
            yield pa.RecordBatch.from_pylist([row], schema=schema)


def _queues(source: Source, task: Task) -> Iterator[pa.RecordBatch]:
    """Replicas whose files are here are checked against the records of the task's log, which is read once for all of
    them. A sidecar checks its replica's queues against the replica's own log."""
    schema = SCHEMAS[Content.QUEUES]
    size = task.work.plan.segment_size
    here = tuple(place for place in task.work.queues_of if place.has_files)
    with ExitStack() as stack:
        remote = {}
        for place in task.work.queues_of:
            if not place.has_files:
                remote[place.name] = stack.enter_context(
                    SidecarSource(place.name, place.spec.removeprefix(f"{SIDECAR}:"), task.options)
                )
        for whole in task.extents():
            for start in range(whole.start, whole.end, QUEUE_EXTENT):
                extent = Extent(start, min(start + QUEUE_EXTENT, whole.end))
                others: dict[str, Sequence[QueueState]] = {}
                # each reads its own log, at the limited rate
                calls = {name: partial(_remote_queues, sidecar, extent, task.work) for name, sidecar in remote.items()}
                for name, found in in_parallel(calls).items():
                    if isinstance(found, SourceError):
                        del remote[name]
                        yield _error(schema, name, found)
                    elif isinstance(found, BaseException):
                        raise found
                    else:
                        others[name] = found
                until = task.zone.extent.end
                pieces = source.stream(Extent(extent.start, until)) if here else ()
                records = rows.pieces_batches(pieces, extent, until, size)
                try:
                    results = check_queues(records, extent, here, others)
                except GoneError:
                    continue  # others may still have it, and units that point there; nothing is known about them
                if results:
                    yield pa.RecordBatch.from_pylist([_queue_row(result, extent) for result in results], schema=schema)


def _remote_queues(sidecar: SidecarSource, extent: Extent, work: Work) -> tuple[QueueState, ...]:
    """As far as the replica's own log is compared; nothing if it has expired there."""
    zone = work.zone(sidecar.name)
    own = extent if zone is None else extent.meet(zone.extent)
    if not own.length:
        return ()
    try:
        return sidecar.queues(own, own.end if zone is None else zone.extent.end)
    except GoneError:
        return ()


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
