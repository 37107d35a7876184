"""LogReader of log_reader.proto in front of a `ServedLog`: digests and bytes of the log at a limited rate, so that
replication in the same process never starves. Registered by `grpc_port`; the .proto documents the rpcs.

Threads read the files and keep the rate: the event loop, which replicates, is only involved once per message. They read
in bites, and between two bites a thread rests and checks whether the caller is still connected.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, Never, TypeVar

import grpc
import msgspec
import structlog
from grpc import aio
from msgspec.structs import replace

from rocketmq_api import log_reader_pb2 as pb
from rocketmq_api.log_reader_pb2_grpc import LogReaderServicer
from rocketmq_api.log_view import MAX_CHECK, MAX_RANGE, MAX_RANGES, MAX_READ, LogView
from rocketmq_commitlog.digests import PIECE, DigestJob
from rocketmq_commitlog.errors import AbsentError, LogReadError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.range_check import RangeResult, check_range
from rocketmq_commitlog.token_bucket import TokenBucket
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_formats.soundness.structure import OTHER_TOPICS, Structure, TopicCount, add_topics
from rocketmq_sidecar.ports.served_log import LogUnknownError, ServedLog

log = structlog.get_logger(__name__)

SERVICE: Final = pb.DESCRIPTOR.services_by_name["LogReader"].full_name

MAX_CALLS: Final = 2
"""Calls of Digest, Read and Check at a time."""
TURN: Final = 10.0
"""Seconds after which a Digest that has answered anything ends, so that other calls can run."""
BITE: Final = 0.1
"""How much is read between two rests, in seconds at the rate."""
LARGEST_BITE: Final = 4 << 20
"""Upper bound of a bite in bytes."""
GATHER: Final = 0.5
"""Seconds for which digests are collected into one message: messages cost more than digests."""
BREATH: Final = 0.001
"""Seconds of rest after each piece of a Check, which works with the interpreter held: replication comes first."""
MOST_FAULTS: Final = 1000
"""Faults of queues that one Check describes; the others are counted."""
MOST_TOPICS: Final = 2048
"""Topics that one Check counts by name."""
LONGEST_TOPIC: Final = 255
QUEUES_A_MESSAGE: Final = 32
READ_PIECE: Final = 512 << 10
"""Bytes of one message; below the port's limit, which is 1 MiB."""
_LARGEST: Final = 2**63 - 1

T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class LogReader(LogReaderServicer):
    """One per process; used in the event loop only."""

    def __init__(self, served: ServedLog, *, bytes_per_second: float) -> None:
        """`bytes_per_second`: for all callers together."""
        self._served = served
        self._bucket = TokenBucket(bytes_per_second)
        self._calls = 0

    async def GetLog(  # noqa: N802 - the .proto's names
        self,
        request: pb.GetLogRequest,  # noqa: ARG002
        context: aio.ServicerContext[pb.GetLogRequest, pb.GetLogResponse],
    ) -> pb.GetLogResponse:
        try:
            return pb.GetLogResponse(log=message_of(await self._served.view()))
        except LogUnknownError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except LogReadError as error:
            await _unreadable(context, error)

    async def Digest(  # noqa: N802
        self, request: pb.DigestRequest, context: aio.ServicerContext[pb.DigestRequest, pb.DigestResponse]
    ) -> AsyncIterator[pb.DigestResponse]:
        ranges = [(wanted.offset, wanted.length) for wanted in request.ranges]
        if not 0 < len(ranges) <= MAX_RANGES:
            await _invalid(context, f"ranges: from 1 to {MAX_RANGES}")
        if not all(0 <= offset <= _LARGEST - MAX_RANGE and 0 <= length <= MAX_RANGE for offset, length in ranges):
            await _invalid(context, f"ranges: offset from 0, length from 0 to {MAX_RANGE}")
        if request.bytes_per_second < 0:
            await _invalid(context, "bytes_per_second: 0 or more")
        buckets = [self._bucket, *(TokenBucket(rate) for rate in (request.bytes_per_second,) if rate)]
        with self._call() as admitted:
            if not admitted:
                await _busy(context)
            try:
                folder = await asyncio.to_thread(LogFolder, self._served.path)
                async with aclosing(self._digests(DigestJob(folder, ranges), buckets)) as answers:
                    async for answer in answers:
                        yield answer
            except LogReadError as error:
                await _unreadable(context, error)

    async def Read(  # noqa: N802
        self, request: pb.ReadRequest, context: aio.ServicerContext[pb.ReadRequest, pb.ReadResponse]
    ) -> AsyncIterator[pb.ReadResponse]:
        offset, end = request.offset, request.offset + request.length
        if not (offset >= 0 and 0 < request.length <= MAX_READ and end <= _LARGEST):
            await _invalid(context, f"offset from 0, length from 1 to {MAX_READ}")
        with self._call() as admitted:
            if not admitted:
                await _busy(context)
            try:
                folder = await asyncio.to_thread(LogFolder, self._served.path)
                while offset < end:
                    await asyncio.sleep(_debt([self._bucket]))
                    data = await asyncio.to_thread(folder.read, offset, min(READ_PIECE, end - offset))
                    offset += len(data)
                    _charge([self._bucket], len(data))
                    self._served.counts.sent += len(data)
                    yield pb.ReadResponse(data=data)
            except AbsentError as error:
                await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            except LogReadError as error:
                await _unreadable(context, error)

    async def Check(  # noqa: N802
        self, request: pb.CheckRequest, context: aio.ServicerContext[pb.CheckRequest, pb.CheckResponse]
    ) -> AsyncIterator[pb.CheckResponse]:
        extent = Extent(request.range.offset, request.range.offset + request.range.length)
        if not (extent.start >= 0 and 0 < extent.length <= MAX_CHECK and extent.end <= request.until):
            await _invalid(context, f"range: offset from 0, length from 1 to {MAX_CHECK}, until its end or later")
        if not (request.structure or request.queues):
            await _invalid(context, "structure, queues: nothing to check")
        if request.bytes_per_second < 0:
            await _invalid(context, "bytes_per_second: 0 or more")
        buckets = [self._bucket, *(TokenBucket(rate) for rate in (request.bytes_per_second,) if rate)]
        with self._call() as admitted:
            if not admitted:
                await _busy(context)
            gone = threading.Event()
            try:
                answers = await asyncio.to_thread(self._checked, request, extent, buckets, gone)
            except LogReadError as error:
                await _unreadable(context, error)
            finally:
                gone.set()  # as in `_digests`
        if answers is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the log does not have all bytes of {extent}")
        for answer in answers:
            yield answer

    def _checked(
        self, request: pb.CheckRequest, extent: Extent, buckets: list[TokenBucket], gone: threading.Event
    ) -> list[pb.CheckResponse] | None:
        """In a thread, the encoding too: a range may have tens of thousands of queues. None: bytes are missing."""

        def rest(amount: int) -> None:
            self._served.counts.digested += amount
            _charge(buckets, amount)
            pause(max(_debt(buckets), BREATH))

        def pause(seconds: float) -> None:
            if gone.wait(seconds):
                raise _CallerGoneError

        pause(_debt(buckets))
        with LogFolder(self._served.path) as folder:
            result = check_range(
                folder,
                extent,
                request.until,
                structure=request.structure,
                queues_in=self._served.queues_in if request.queues else None,
                rest=rest,
                sleep=pause,
            )
        return None if request.queues and result.queues is None else list(_answers(result))

    async def _digests(self, job: DigestJob, buckets: list[TokenBucket]) -> AsyncGenerator[pb.DigestResponse]:
        ends = time.monotonic() + TURN
        gone = threading.Event()
        answered = False
        try:
            while not job.done and not (answered and time.monotonic() >= ends):
                until, read = min(time.monotonic() + GATHER, ends), job.read
                digests = await asyncio.to_thread(self._gather, job, buckets, until, gone)
                self._served.counts.digested += job.read - read
                yield pb.DigestResponse(digests=[pb.RangeDigest(xxh3_128=digest or b"") for digest in digests])
                answered = True
        finally:
            gone.set()  # the thread of a cancelled call ends at its next check

    def _gather(
        self, job: DigestJob, buckets: list[TokenBucket], until: float, gone: threading.Event
    ) -> list[bytes | None]:
        """In a thread: digests for one message, at least one."""
        bite = int(min(max(min(bucket.rate for bucket in buckets) * BITE, PIECE), LARGEST_BITE))
        digests: list[bytes | None] = []
        while not job.done and not (digests and time.monotonic() >= until):
            if gone.wait(_debt(buckets)):
                break
            cost = job.cost
            try:
                digests += job.work(bite)
            except LogReadError:
                if digests:
                    break  # the next call raises it: these arrive before
                raise
            _charge(buckets, job.cost - cost)
        return digests

    @contextmanager
    def _call(self) -> Iterator[bool]:
        """Whether this call is admitted."""
        admitted = self._calls < MAX_CALLS
        self._calls += admitted
        try:
            yield admitted
        finally:
            self._calls -= admitted


class _CallerGoneError(Exception):
    """Ends the thread of a cancelled Check, whose result is not needed any more."""


def _answers(result: RangeResult) -> Iterator[pb.CheckResponse]:
    """In messages that stay below the port's limit."""
    structure = b"" if result.structure is None else msgspec.json.encode(_with_fewer_topics(result.structure))
    states, described = list[bytes](), 0
    for state in result.queues or ():
        most = max(MOST_FAULTS - described, 1)  # a queue without any would pass as sound
        check, emptied = _with_fewer_faults(state.check, most), _with_fewer_faults(state.emptied, most)
        described += sum(len(kept.faults) for kept in (check, emptied) if kept is not None)
        states.append(msgspec.json.encode(replace(state, check=check, emptied=emptied)))
    indexes = b"" if result.indexes is None else msgspec.json.encode(result.indexes)
    yield pb.CheckResponse(structure=structure, queues=states[:QUEUES_A_MESSAGE], indexes=indexes)
    for index in range(QUEUES_A_MESSAGE, len(states), QUEUES_A_MESSAGE):
        yield pb.CheckResponse(queues=states[index : index + QUEUES_A_MESSAGE])


def _with_fewer_faults(check: QueueCheck | None, most: int) -> QueueCheck | None:
    return None if check is None else replace(check, faults=check.faults[:most])


def _with_fewer_topics(found: Structure) -> Structure:
    topics: dict[str, TopicCount] = {}
    for name, count in found.topics.items():
        known = len(name) <= LONGEST_TOPIC and len(topics) < MOST_TOPICS
        add_topics(topics, {name if known else OTHER_TOPICS: count})
    return replace(found, topics=topics)


def message_of(view: LogView) -> pb.Log:
    """The plain value as a message."""
    return pb.Log(
        cluster_name=view.cluster_name,
        broker_name=view.broker_name,
        broker_id=view.broker_id,
        master=view.master,
        master_epoch=view.master_epoch,
        min_offset=view.min_offset,
        confirm_offset=view.confirm_offset,
        max_offset=view.max_offset,
        segment_size=view.segment_size,
        segments=[pb.SegmentRun(start=run.start, count=run.count) for run in view.segments],
        epochs=[pb.EpochStart(epoch=epoch, start_offset=start) for epoch, start in view.epochs],
        strict=view.strict,
        short_files=[pb.ShortFile(start=start, length=length) for start, length in view.short],
        given_up=[
            pb.GivenUp(start=start, end=end, epoch=epoch, at_millis=at) for start, end, epoch, at in view.given_up
        ],
    )


def _debt(buckets: list[TokenBucket]) -> float:
    """Seconds to rest for what all callers have read before: before reading, so that no answer waits."""
    return max(bucket.take(0, time.monotonic()) for bucket in buckets)


def _charge(buckets: list[TokenBucket], amount: int) -> None:
    for bucket in buckets:
        bucket.take(amount, time.monotonic())


async def _invalid(context: aio.ServicerContext[RequestT, ResponseT], why: str) -> Never:
    log.info("invalid request to read the log", peer=context.peer(), reason=why)
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)


async def _busy(context: aio.ServicerContext[RequestT, ResponseT]) -> Never:
    log.debug("too many calls at once", peer=context.peer(), calls=MAX_CALLS)
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_CALLS} calls are under way: try again")


async def _unreadable(context: aio.ServicerContext[RequestT, ResponseT], error: LogReadError) -> Never:
    log.error("the log cannot be read for the verification", reason=str(error), kind=type(error).__name__)
    await context.abort(grpc.StatusCode.DATA_LOSS, str(error))
