"""A run without Spark, in threads of this process: starting Spark takes longer than reading a few GiB. For `job`.

Reading and hashing release the interpreter. The log is compared in parts, of which all replicas are read at the same
time: memory does not grow with it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.domain.inquiry.compare import Tally, compare
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaName
from rocketmq_verify.domain.planning.chunks import split
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.engine.scanner import Errors, Queues
from rocketmq_verify.engine.task_rows import Row, checked, counted, with_faults
from rocketmq_verify.progress import Progress
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.replicas import in_parallel
from rocketmq_verify.sources.source import Source, SourceError
from rocketmq_verify.sources.work import Content, Place, Task, Work, tasks

PART_BYTES: Final = 256 << 20
"""Of the log, compared at once."""
PART_CHUNKS: Final = 4096
"""The same for small chunks: their digests are in memory."""
TASK_BYTES: Final = 64 << 20
"""Of the log, checked between two signs of progress, where files are read."""
ROWS: Final = 1024
"""Results of checks in memory at once: a row for each queue and 8 MiB of the log."""


class LocalScanner:
    """`Scanner` without Spark."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def compare_digests(self, places: Sequence[Place], work: Work, lineage: Lineage) -> tuple[Tally, Errors]:
        tally, errors = Tally(), Errors()
        size = work.plan.chunk_size
        parts = split(work.plan.pieces, -(-work.plan.expected_bytes // min(PART_BYTES, PART_CHUNKS * size)) or 1, size)
        with ExitStack() as stack:
            readers = {place.name: _Reader(place, work, stack) for place in places if work.zone(place.name) is not None}
            for done, part in enumerate(parts):
                self._progress.step(done, len(parts))
                calls = {name: partial(reader.read, part) for name, reader in readers.items() if name not in errors}
                digests: dict[Chunk, list[ChunkDigest]] = {}
                for name, found in in_parallel(calls).items():
                    if isinstance(found, BaseException):
                        raise found
                    if (error := readers[name].error) is not None:
                        errors[name] = error.reason
                    for chunk, digest in found:
                        digests.setdefault(chunk, []).append(digest)
                for chunk, there in digests.items():
                    tally.add(compare(chunk, there, lineage))
                    tally.cells.add_chunk(work.plan, chunk, there)
        return tally, errors

    def structures(self, place: Place, work: Work) -> tuple[list[Structure], Errors]:
        errors = Errors()
        rows = self._rows(place, Content.STRUCTURE, work, errors)
        found = [msgspec.json.decode(row["structure"], type=Structure) for row in rows]
        return sorted(found, key=lambda structure: structure.extent), errors

    def queues(self, place: Place, work: Work) -> tuple[Queues, Errors]:
        errors = Errors()
        found = Queues()
        for row in self._rows(place, Content.QUEUES, work, errors):
            found = counted(found, row)
            if row["faults"] or row["indexFaults"]:
                found = with_faults(found, row)
        return found, errors

    def _rows(self, place: Place, content: Content, work: Work, errors: Errors) -> Iterator[Row]:
        """One task after the other: the checks are work for the interpreter, which has one thread."""
        todo = tasks((place,), content, msgspec.structs.replace(work, per_task=TASK_BYTES))
        for done, task in enumerate(todo):
            self._progress.step(done, len(todo))
            for row in _streamed(checked(task)):
                if row.get("error") is not None:
                    errors[ReplicaName(row["replica"])] = row["error"]
                else:
                    yield row


class _Reader:
    """One replica's digests, part by part."""

    def __init__(self, place: Place, work: Work, stack: ExitStack) -> None:
        zone = work.zone(place.name)
        assert zone is not None
        self._source: Source = stack.enter_context(closing(open_source(place.name, place.spec, work.options)))
        self._task = Task(place=place, content=Content.DIGESTS, pieces=(), zone=zone, work=work, options=work.options)
        self.error: SourceError | None = None

    def read(self, part: tuple[Any, ...]) -> list[tuple[Chunk, ChunkDigest]]:
        """The digests of its chunks of this part, up to an error."""
        chunks = list(msgspec.structs.replace(self._task, pieces=part).chunks())
        found: list[tuple[Chunk, ChunkDigest]] = []
        try:
            for chunk, digest in zip(chunks, self._source.digests(chunks), strict=True):
                found.append((chunk, digest))
        except SourceError as error:
            self.error = error
        return found


def _streamed(rows: Iterator[Row]) -> Iterator[Row]:
    """These rows, made a few at a time in threads, so that Ctrl-C ends a run whatever a replica does."""
    while some := _waited(lambda: list(islice(rows, ROWS))):
        yield from some


def _waited(work: Callable[[], list[Row]]) -> list[Row]:
    (found,) = in_parallel({"": work}).values()
    if isinstance(found, BaseException):
        raise found
    return found
