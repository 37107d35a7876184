"""The rows of the checks that a task makes, as plain dicts: `batches` makes Arrow of them for Spark, `local` takes them
as they are, because Arrow's import takes longer than a small run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.indexes import IndexCheck
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.engine.scanner import Queues
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.queues import Derived, IndexResult, QueueResult, check_derived
from rocketmq_verify.sources.replicas import in_parallel
from rocketmq_verify.sources.source import SIDECAR, GoneError, Source, SourceError, SourceOptions
from rocketmq_verify.sources.work import QUEUE_EXTENT, Content, Place, Task, Work

if TYPE_CHECKING:
    from rocketmq_verify.sources.sidecar_source import SidecarSource

NOWHERE: Final = -1
"""The offset of a row with an error."""

Row = dict[str, Any]
"""By the names of the columns (`batches.SCHEMAS`); those that are not there are null."""


def checked(task: Task) -> Iterator[Row]:
    """The rows of a task that checks; for an unreadable replica a last one with `error` and its name only."""
    make = _MAKERS[task.content]
    with closing(open_source(task.place.name, task.place.spec, task.options)) as source:
        try:
            for some in make(source, task):
                yield from some
        except SourceError as error:
            yield error_row(task.place.name, error)


def error_row(replica: ReplicaName, error: SourceError) -> Row:
    """Of any content."""
    return {"replica": replica, "error": error.reason, "offset": NOWHERE, "length": 0, "epoch": NOWHERE}


def structures(source: Source, task: Task) -> Iterator[list[Row]]:
    """One row per part."""
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
            yield [row]


def queues(source: Source, task: Task) -> Iterator[list[Row]]:
    """Replicas whose files are here are checked against the records of the task's log, which is read once for all of
    them. A sidecar checks its replica's queues against the replica's own log."""
    size = task.work.plan.segment_size
    here = tuple(place for place in task.work.queues_of if place.has_files)
    with ExitStack() as stack:
        remote: dict[ReplicaName, SidecarSource] = {}
        for place in task.work.queues_of:
            if not place.has_files:
                remote[place.name] = stack.enter_context(_sidecar(place, task.options))
        for whole in task.extents():
            for start in range(whole.start, whole.end, QUEUE_EXTENT):
                extent = Extent(start, min(start + QUEUE_EXTENT, whole.end))
                others: dict[str, Derived] = {}
                # each reads its own log, at the limited rate
                calls = {name: partial(_remote, sidecar, extent, task.work) for name, sidecar in remote.items()}
                for name, found in in_parallel(calls).items():
                    if isinstance(found, SourceError):
                        del remote[name]
                        yield [error_row(name, found)]
                    elif isinstance(found, BaseException):
                        raise found
                    else:
                        others[name] = found
                until = task.zone.extent.end
                pieces = source.stream(Extent(extent.start, until)) if here else ()
                records = rows.pieces_batches(pieces, extent, until, size)
                try:
                    results = check_derived(records, extent, here, others)
                except GoneError:
                    continue  # others may still have it, and units that point there; nothing is known about them
                if results:
                    yield [_result_row(result) for result in results]


def _sidecar(place: Place, options: SourceOptions) -> "SidecarSource":
    from rocketmq_verify.sources.sidecar_source import SidecarSource  # noqa: PLC0415 - imports gRPC

    return SidecarSource(place.name, place.spec.removeprefix(f"{SIDECAR}:"), options)


def _remote(sidecar: "SidecarSource", extent: Extent, work: Work) -> Derived:
    """As far as the replica's own log is compared; nothing if it has expired there."""
    zone = work.zone(sidecar.name)
    own = extent if zone is None else extent.meet(zone.extent)
    nothing = Derived((), None)
    if not own.length:
        return nothing
    try:
        return sidecar.derived(own, own.end if zone is None else zone.extent.end)
    except GoneError:
        return nothing


def _result_row(result: QueueResult | IndexResult) -> Row:
    row: Row = {
        "replica": result.replica,
        "start": result.extent.start,
        "end": result.extent.end,
        "check": msgspec.json.encode(result.check).decode(),
    }
    if isinstance(result, IndexResult):
        counts = dict.fromkeys(("units", "lag", "superseded", "faults"), 0)
        row |= {"topic": None, "queueId": None}
        faults = result.check.fault_count + len(result.check.files)
        return row | counts | {"indexEntries": result.check.entries, "indexFaults": faults}
    return row | {
        "topic": result.topic,
        "queueId": result.queue_id,
        "units": result.check.units,
        "lag": result.check.lag,
        "superseded": result.check.superseded,
        "faults": result.check.fault_count,
        "indexEntries": 0,
        "indexFaults": 0,
    }


def counted(queues: Queues, row: Row) -> Queues:
    """With the counts of a row, or of the sums of many. Those of bad indexes are for `with_faults`."""
    found = queues.plus(units=row["units"], lag=row["lag"], superseded=row["superseded"], faults=row["faults"])
    return msgspec.structs.replace(found, index_entries=found.index_entries + row["indexEntries"])


def with_faults(queues: Queues, row: Row) -> Queues:
    """With what a row that has faults describes."""
    replica, extent = ReplicaName(row["replica"]), Extent(row["start"], row["end"])
    if row["topic"] is None:
        return queues.with_faulty_index(
            IndexResult(replica, extent, msgspec.json.decode(row["check"], type=IndexCheck))
        )
    check = msgspec.json.decode(row["check"], type=QueueCheck)
    return queues.with_faulty(QueueResult(replica, row["topic"], row["queueId"], extent, check))


_MAKERS: Final[dict[Content, Callable[[Source, Task], Iterator[list[Row]]]]] = {
    Content.STRUCTURE: structures,
    Content.QUEUES: queues,
}
