"""A replica's log read from its files (`sources.Source`): on a laptop, or on a mounted volume. Works for Java brokers
and for running brokers too."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocketmq_commitlog.digests import DigestJob
from rocketmq_commitlog.errors import AbsentError, LogReadError, NoFolderError, UnreadableError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.state import LogPaths, read_state
from rocketmq_commitlog.token_bucket import TokenBucket
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_formats.soundness.structure_check import StructureCheck
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaLog, ReplicaName
from rocketmq_verify.sources.source import (
    MOST_UNREADABLE,
    BrokenError,
    GoneError,
    Opened,
    SourceError,
    SourceOptions,
    SpecError,
    check_chunks,
    check_extent,
)

BITE: Final = 4 << 20
"""Bytes between two checks of the clock."""
STREAMED: Final = 256 << 10
"""Bytes of a piece: it stays in the processor's cache until it is processed."""


class FileSource(Opened):
    def __init__(
        self,
        name: ReplicaName,
        directory: Path,
        options: SourceOptions,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._paths = LogPaths.of(directory)
        self._log: LogFolder | None = None
        self._bucket = TokenBucket(options.bytes_per_second) if options.bytes_per_second else None
        self._now, self._sleep = now, sleep
        self._unreadable = 0

    def describe(self) -> ReplicaLog:
        """See `Source`.

        Raises:
            SpecError: there is no such directory.
        """
        try:
            state = read_state(self._paths, sleep=self._sleep)
        except NoFolderError as error:
            raise SpecError(f"{self.name}: {error}") from error
        except LogReadError as error:
            raise SourceError(self.name, str(error)) from error
        return ReplicaLog(
            name=self.name,
            broker_id=state.broker_id,
            group=state.group,
            min_offset=state.min_offset,
            confirm_offset=state.confirm_offset,
            max_offset=state.max_offset,
            segment_size=state.segment_size,
            segments=state.segments,
            short=state.short,
            epochs=state.epochs,
            given_up=state.given_up,
        )

    def digests(self, chunks: Sequence[Chunk]) -> Iterator[ChunkDigest]:
        check_chunks(chunks)
        left = deque(chunks)
        while left:
            job = DigestJob(self._folder(), ((chunk.offset, chunk.length) for chunk in left))
            error = yield from self._work(job, left)
            if error is None:
                return
            self._unreadable += 1
            if self._unreadable > MOST_UNREADABLE:
                raise SourceError(self.name, str(error)) from error
            chunk = left.popleft()
            yield ChunkDigest(self.name, chunk.offset, chunk.length, None, str(error))

    def _work(self, job: DigestJob, left: deque[Chunk]) -> Generator[ChunkDigest, None, UnreadableError | None]:
        """Take chunks from `left` until all are done, or the first one cannot be read: then the error."""
        while not job.done:
            cost = job.cost
            try:
                digests = job.work(BITE)
            except UnreadableError as error:
                return error
            except LogReadError as error:
                raise SourceError(self.name, str(error)) from error
            for digest in digests:
                chunk = left.popleft()
                yield ChunkDigest(self.name, chunk.offset, chunk.length, digest)
            self._rest(job.cost - cost)
        return None

    def read(self, extent: Extent) -> bytes:
        check_extent(extent)
        try:
            data = self._folder().read(extent.start, extent.length)
        except AbsentError as error:
            raise GoneError(self.name, str(error)) from error
        except UnreadableError as error:
            raise BrokenError(self.name, str(error)) from error
        except LogReadError as error:
            raise SourceError(self.name, str(error)) from error
        self._rest(extent.length)
        return data

    def stream(self, extent: Extent) -> Iterator[memoryview]:
        folder = self._folder()
        buffer = memoryview(bytearray(STREAMED))
        for start in range(extent.start, extent.end, STREAMED):
            piece = buffer[: min(STREAMED, extent.end - start)]
            try:
                folder.read_into(start, piece)
            except AbsentError as error:
                raise GoneError(self.name, str(error)) from error
            except LogReadError as error:
                raise SourceError(self.name, str(error)) from error
            yield piece
            self._rest(len(piece))

    def structures(self, extent: Extent, until: int, segment_size: int) -> Iterator[Structure]:
        check = StructureCheck(extent, segment_size, aligned=False)
        with suppress(GoneError):
            check.feed_until_done(self.stream(Extent(extent.start, until)))
        yield check.finish()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _folder(self) -> LogFolder:
        """The folder with its current files: a file that was created again has the name of the open one."""
        try:
            if self._log is None:
                self._log = LogFolder(self._paths.commit_log)
            else:
                self._log.refresh()
        except LogReadError as error:
            raise SourceError(self.name, str(error)) from error
        return self._log

    def _rest(self, amount: int) -> None:
        pause = 0.0 if self._bucket is None else self._bucket.take(amount, self._now())
        if pause > 0:
            self._sleep(pause)
