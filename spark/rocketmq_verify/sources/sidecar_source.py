"""A replica's log read through its sidecar (`sources.Source`): digests are made there, so that little travels.

All requests only read, so those that fail with a temporary error are repeated with growing pauses, until nothing has
arrived for the options' `patience`. What was answered before is not requested again.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import grpc
import msgspec

from rocketmq_api.channels import ApiError, NoAnswerError
from rocketmq_api.log_readers import BlockingLogReader, Checks, Range
from rocketmq_api.log_view import MAX_CHECK, MAX_RANGES, MAX_READ, LogView
from rocketmq_formats.soundness.indexes import IndexCheck
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queue_states import QueueState
from rocketmq_formats.soundness.structure import Structure
from rocketmq_formats.store.epoch_file import EpochList, EpochOrderError
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaLog, ReplicaName
from rocketmq_verify.sources.queues import Derived
from rocketmq_verify.sources.source import (
    MOST_UNREADABLE,
    UNSERVED,
    BrokenError,
    GoneError,
    Opened,
    SourceError,
    SourceOptions,
    check_chunks,
    check_extent,
)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 3.0
"""Seconds between two tries; each is drawn from the upper half of it, so that many callers do not come at the same
time."""
MAX_CALL: Final = 1 << 30
"""Bytes to digest with one call; the sidecar ends the call earlier if it takes long."""

STREAMED: Final = 1 << 20
"""Bytes of one read in a stream, whose reader may stop at any time."""

T = TypeVar("T")


class SidecarSource(Opened):
    def __init__(
        self,
        name: ReplicaName,
        address: str,
        options: SourceOptions,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Raises `OSError`: a TLS file cannot be read."""
        self.name = name
        self._address, self._options = address, options
        self._reader = BlockingLogReader(address, tls=options.tls)
        self._unreadable = 0
        self._tries = _Tries(name, options.patience, now, sleep, draw)

    def describe(self) -> ReplicaLog:
        view = self._tried(self._reader.get_log)
        try:
            return _replica_log(self.name, view)
        except EpochOrderError as error:
            raise SourceError(self.name, f"{self._address}: impossible epochs: {error}") from error

    def digests(self, chunks: Sequence[Chunk]) -> Iterator[ChunkDigest]:
        check_chunks(chunks)
        done = 0
        self._tries.begin()
        while done < len(chunks):
            ranges, before = _ranges(chunks, done), done
            try:
                digests = self._reader.digest(ranges, bytes_per_second=self._options.bytes_per_second)
                for digest in islice(digests, len(ranges)):
                    chunk = chunks[done]
                    done += 1
                    yield ChunkDigest(self.name, chunk.offset, chunk.length, digest)
                    self._tries.begin()
                if done == before:
                    raise NoAnswerError(self._address, grpc.StatusCode.UNAVAILABLE, "no digest came", {})
            except ApiError as error:
                if error.status is grpc.StatusCode.DATA_LOSS and self._unreadable < MOST_UNREADABLE:
                    self._unreadable += 1
                    chunk = chunks[done]
                    done += 1
                    yield ChunkDigest(self.name, chunk.offset, chunk.length, None, str(error))
                    continue
                self._tries.failed(error)

    def read(self, extent: Extent) -> bytes:
        check_extent(extent)
        data = bytearray()
        while len(data) < extent.length:
            offset = extent.start + len(data)
            length = min(MAX_READ, extent.end - offset)
            data += self._tried(partial(self._reader.read, offset, length))
        return bytes(data)

    def stream(self, extent: Extent) -> Iterator[memoryview]:
        for start in range(extent.start, extent.end, STREAMED):
            yield memoryview(self.read(Extent(start, min(start + STREAMED, extent.end))))

    def structures(self, extent: Extent, until: int, segment_size: int) -> Iterator[Structure]:  # noqa: ARG002 - its own
        for part in _parts(extent):
            answer = self._checked(part, until, structure=True)
            found = self._decoded(answer.structure, Structure)
            if found.extent != part:
                raise SourceError(self.name, f"{self._address}: the structure of {found.extent} instead of {part}")
            yield found

    def derived(self, extent: Extent, until: int) -> Derived:
        """The replica's consume queues and index files against its own log in `extent`, at most `MAX_CHECK` bytes.

        Raises:
            GoneError: the log does not have all of them (any longer).
        """
        answer = self._checked(extent, until, queues=True)
        indexes = self._decoded(answer.indexes, IndexCheck) if answer.indexes else None
        return Derived(tuple(self._decoded(state, QueueState) for state in answer.queues), indexes)

    def close(self) -> None:
        self._reader.close()

    def _checked(self, part: Extent, until: int, **what: bool) -> Checks:
        rate = self._options.bytes_per_second
        wanted = Range(part.start, part.length)
        try:
            return self._tried(lambda: self._reader.check(wanted, until, **what, bytes_per_second=rate))
        except SourceError as error:
            if isinstance(error.__cause__, ApiError) and error.__cause__.status is grpc.StatusCode.UNIMPLEMENTED:
                raise SourceError(self.name, UNSERVED) from error
            raise

    def _decoded(self, text: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            raise SourceError(self.name, f"{self._address}: an impossible answer: {error}") from error

    def _tried(self, call: Callable[[], T]) -> T:
        self._tries.begin()
        while True:
            try:
                return call()
            except ApiError as error:
                self._tries.failed(error)


class _Tries:
    """The attempts of one request, or since the last progress."""

    def __init__(
        self,
        name: ReplicaName,
        patience: float,
        now: Callable[[], float],
        sleep: Callable[[float], None],
        draw: Callable[[], float],
    ) -> None:
        self._name, self._patience = name, patience
        self._now, self._sleep, self._draw = now, sleep, draw
        self.begin()

    def begin(self) -> None:
        """Start again: a new request, or progress."""
        self._pause = FIRST_PAUSE
        self._until = self._now() + self._patience

    def failed(self, error: ApiError) -> None:
        """Wait, or raise what the failure means."""
        if error.status is grpc.StatusCode.NOT_FOUND:
            raise GoneError(self._name, str(error)) from error
        if error.status is grpc.StatusCode.DATA_LOSS:
            raise BrokenError(self._name, str(error)) from error
        if not _passes(error):
            raise SourceError(self._name, str(error)) from error
        pause = self._pause * (1 + self._draw()) / 2
        if self._now() + pause > self._until:
            raise SourceError(self._name, f"{error} (tried for {self._patience:g} s)") from error
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._sleep(pause)


def _passes(error: ApiError) -> bool:
    """Whether another attempt may help: no answer yet, or too many callers."""
    return isinstance(error, NoAnswerError) or error.status is grpc.StatusCode.RESOURCE_EXHAUSTED


def _parts(extent: Extent) -> Iterator[Extent]:
    for start in range(extent.start, extent.end, MAX_CHECK):
        yield Extent(start, min(start + MAX_CHECK, extent.end))


def _ranges(chunks: Sequence[Chunk], begin: int) -> list[Range]:
    """The ranges of one call: the chunks from `begin` on, as many as it may have."""
    ranges: list[Range] = []
    total = 0
    for chunk in chunks[begin : begin + MAX_RANGES]:
        total += chunk.length
        if total > MAX_CALL:
            break
        ranges.append(Range(chunk.offset, chunk.length))
    return ranges


def _replica_log(name: ReplicaName, view: LogView) -> ReplicaLog:
    return ReplicaLog(
        name=name,
        broker_id=view.broker_id,
        group=f"{view.cluster_name}/{view.broker_name}" if view.broker_name else "",
        min_offset=view.min_offset,
        confirm_offset=view.confirm_offset,
        max_offset=view.max_offset,
        segment_size=view.segment_size,
        segments=tuple(view.segment_starts()),
        epochs=EpochList.of(view.epochs),
        master=view.master,
        strict=view.strict,
        short=view.short,
        given_up=tuple(
            GivenUp(start=start, end=end, epoch=epoch, at_millis=at) for start, end, epoch, at in view.given_up
        ),
    )
