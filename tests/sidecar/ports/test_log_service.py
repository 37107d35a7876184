"""LogReader of the sidecar before real files, over real gRPC: values, refusals, pace, turns, and callers who go."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import msgspec
import pytest
import xxhash
from grpc import aio

from rocketmq_api import log_reader_pb2 as pb
from rocketmq_api.channels import ApiError, NoAnswerError, RefusedError
from rocketmq_api.log_reader_pb2_grpc import LogReaderStub
from rocketmq_api.log_readers import LogReaderClient, Range, view_of
from rocketmq_api.log_view import MAX_CHECK, MAX_RANGE, MAX_RANGES, MAX_READ, LogView, SegmentRun, runs_of
from rocketmq_commitlog.digests import DigestJob
from rocketmq_commitlog.errors import UnreadableError
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_formats.store.segment_names import segment_name
from rocketmq_runtime.config.settings import build_settings
from rocketmq_runtime.grpc.server import GrpcServer
from rocketmq_sidecar.ports import log_service
from rocketmq_sidecar.ports.grpc_port import make_grpc_server
from rocketmq_sidecar.ports.log_service import message_of
from rocketmq_sidecar.ports.served_log import LogCounts, LogUnknownError
from rocketmq_sidecar.settings import SidecarSettings
from tests.commitlog.kit import SEGMENT, Log
from tests.ports import free_ports
from tests.sidecar.ports.test_grpc_port import Admin

HOST = "127.0.0.1"
LARGE = 1 << 20
FULL = LogView(
    cluster_name="C",
    broker_name="a",
    broker_id=2,
    master=True,
    master_epoch=7,
    min_offset=SEGMENT,
    confirm_offset=9000,
    max_offset=9500,
    segment_size=SEGMENT,
    segments=(SegmentRun(SEGMENT, 2), SegmentRun(4 * SEGMENT, 1)),
    epochs=((1, 0), (7, 5000)),
    strict=True,
    short=((SEGMENT, 100),),
    given_up=((6000, 6100, 7, 1_790_000_000_000), (9100, 9200, 8, 0)),
)


class Served:
    """A log in `path` that is described as the test says."""

    def __init__(self, path: Path) -> None:
        self.path, self.counts = path, LogCounts()
        self.answer: LogView | Exception = FULL

    @property
    def queues_in(self) -> Path:
        return self.path.parent

    async def view(self) -> LogView:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@asynccontextmanager
async def opened(served: Served, **keys: str) -> AsyncIterator[str]:
    (port,) = free_ports(1)
    values = {"controllerAddr": "127.0.0.1:1", "bindAddress": HOST, "sidecarGrpcPort": str(port), "brokerName": "a"}
    settings = build_settings(SidecarSettings, {**values, **keys}).settings
    door: GrpcServer = make_grpc_server(settings, Admin(), lambda: None, served)
    await door.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        await door.stop()


async def digests(client: LogReaderClient, *ranges: tuple[int, int], rate: int = 0) -> list[bytes | None]:
    return [one async for one in client.digest([Range(*one) for one in ranges], bytes_per_second=rate)]


@pytest.fixture
def written() -> Log:
    return Log(LARGE, segment=LARGE).fill(3)


@pytest.fixture
def served(tmp_path: Path, written: Log) -> Served:
    return Served(written.save(tmp_path) / "commitlog")


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses take no time; what they would have taken."""
    pauses: list[float] = []

    def charge(buckets: list[log_service.TokenBucket], amount: int) -> None:
        pauses.append(max(bucket.take(amount, 0.0) for bucket in buckets))

    monkeypatch.setattr(log_service, "_charge", charge)
    monkeypatch.setattr(log_service, "_debt", lambda _: 0.0)
    return pauses


# Values


@pytest.mark.parametrize(
    "view",
    [FULL, LogView(cluster_name="C", broker_name="a", min_offset=0, confirm_offset=0, max_offset=0, segment_size=0)],
)
async def test_a_view_goes_there_and_back(served: Served, view: LogView) -> None:
    served.answer = view
    async with opened(served) as address, LogReaderClient(address) as client:
        assert await client.get_log() == view


def test_files_in_rows() -> None:
    starts = [0, 10, 20, 40, 60, 70]
    runs = runs_of(starts, 10)
    assert runs == (SegmentRun(0, 3), SegmentRun(40, 1), SegmentRun(60, 2))
    view = LogView(
        cluster_name="", broker_name="", min_offset=0, confirm_offset=0, max_offset=0, segment_size=10, segments=runs
    )
    assert list(view.segment_starts()) == starts
    assert runs_of([], 10) == ()


@pytest.mark.parametrize(
    ("size", "start", "count"), [(0, 0, 1), (10, 0, 0), (10, 0, 1 << 40), (10, -10, 1), (-1, 0, 1), (10, 0, -1)]
)
def test_files_that_cannot_be(size: int, start: int, count: int) -> None:
    message = message_of(FULL)
    message.segment_size = size
    message.segments[0].start, message.segments[0].count = start, count
    with pytest.raises(ApiError, match="cannot be"):
        view_of("a:1", message)


@pytest.mark.parametrize(("start", "end", "epoch"), [(-1, 5, 1), (5, 5, 1), (0, 5, -2)])
def test_losses_that_cannot_be(start: int, end: int, epoch: int) -> None:
    message = message_of(FULL)
    message.given_up[1].start, message.given_up[1].end, message.given_up[1].epoch = start, end, epoch
    with pytest.raises(ApiError, match="losses cannot be"):
        view_of("a:1", message)


async def test_digests_of_what_there_is(served: Served, written: Log) -> None:
    path, whole = served.path, bytes(written.data).ljust(3 * LARGE, b"\0")
    (path / segment_name(2 * LARGE)).unlink()
    ranges = [(LARGE, LARGE), (0, 10), (LARGE + 5, 0), (2 * LARGE - 5, 10), (3 * LARGE, 7), (9 << 40, 1)]
    async with opened(served) as address, LogReaderClient(address) as client:
        found = await digests(client, *ranges)
    expected = [xxhash.xxh3_128_digest(whole[start - LARGE : start - LARGE + size]) for start, size in ranges]
    assert found == [expected[0], None, expected[2], None, expected[4], None]
    assert served.counts.digested >= LARGE + 7
    assert served.counts.sent == 0


async def test_bytes_of_the_log(served: Served, written: Log) -> None:
    async with opened(served) as address, LogReaderClient(address) as client:
        assert await client.read(LARGE + 5, 2 * LARGE - 7) == written.data[5 : 2 * LARGE - 2]
        with pytest.raises(RefusedError, match=segment_name(0)) as caught:
            await client.read(LARGE - 1, 2)
        assert caught.value.status is grpc.StatusCode.NOT_FOUND
    assert served.counts.sent == 2 * LARGE - 7


async def checks(address: str, **request: object) -> list[pb.CheckResponse]:
    async with aio.insecure_channel(address) as channel:
        return [answer async for answer in LogReaderStub(channel).Check(pb.CheckRequest(**request))]


async def test_checks_of_what_there_is(served: Served) -> None:
    whole = pb.Range(offset=LARGE, length=LARGE)
    async with opened(served) as address:
        (answer,) = await checks(address, range=whole, until=4 * LARGE, structure=True, queues=True)
        found = msgspec.json.decode(answer.structure, type=Structure)
        assert (found.extent, found.fault_count) == (Extent(LARGE, 2 * LARGE), 0)
        assert found.records > 0
        file = served.path / segment_name(LARGE)
        file.write_bytes(file.read_bytes()[:-5000] + bytes(5000))
        (answer,) = await checks(address, range=whole, until=4 * LARGE, structure=True)
        assert msgspec.json.decode(answer.structure, type=Structure).fault_count > 0
        file.unlink()
        with pytest.raises(aio.AioRpcError, match="all bytes") as caught:
            await checks(address, range=whole, until=4 * LARGE, queues=True)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert served.counts.sent == 0
    assert served.counts.digested > 2 * LARGE


@pytest.mark.parametrize(
    ("offset", "length", "until", "what"),
    [
        (0, 0, 9, {"structure": True}),
        (-1, 5, 9, {"structure": True}),
        (0, MAX_CHECK + 1, 2 * MAX_CHECK, {"structure": True}),
        (0, 10, 9, {"structure": True}),
        (0, 10, 10, {}),
        (0, 10, 10, {"structure": True, "bytes_per_second": -1}),
    ],
)
async def test_checks_that_cannot_be(
    served: Served, offset: int, length: int, until: int, what: dict[str, object]
) -> None:
    async with opened(served) as address:
        with pytest.raises(aio.AioRpcError) as caught:
            await checks(address, range=pb.Range(offset=offset, length=length), until=until, **what)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_as_many_ranges_as_there_may_be(served: Served, no_hurry: list[float]) -> None:
    async with opened(served) as address, LogReaderClient(address) as client:
        found = await digests(client, *[(LARGE + number, 3) for number in range(MAX_RANGES)])
    assert len(found) == MAX_RANGES
    assert None not in found


# Refusals


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [(0, 1)] * (MAX_RANGES + 1),
        [(0, 1), (0, MAX_RANGE + 1)],
        [(-1, 1)],
        [(0, -1)],
        [(2**63 - 1, 1)],
    ],
)
async def test_ranges_that_cannot_be(served: Served, ranges: list[tuple[int, int]]) -> None:
    async with opened(served) as address, LogReaderClient(address) as client:
        with pytest.raises(RefusedError, match="ranges") as caught:
            await digests(client, *ranges)
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_rate_that_cannot_be(served: Served) -> None:
    async with opened(served) as address, LogReaderClient(address) as client:
        with pytest.raises(RefusedError, match="bytes_per_second"):
            await digests(client, (LARGE, 1), rate=-1)


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (0, -1), (-1, 1), (0, MAX_READ + 1), (2**63 - 1, 1)])
async def test_bytes_that_cannot_be(served: Served, offset: int, length: int) -> None:
    async with opened(served) as address, aio.insecure_channel(address) as channel:
        with pytest.raises(aio.AioRpcError, match="length") as caught:
            async for _ in LogReaderStub(channel).Read(pb.ReadRequest(offset=offset, length=length)):
                pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_log_that_is_not_known_yet(served: Served) -> None:
    served.answer = LogUnknownError("the broker has not opened the log yet: try again")
    async with opened(served) as address, LogReaderClient(address) as client:
        with pytest.raises(NoAnswerError, match="not opened"):
            await client.get_log()


async def test_a_disk_that_cannot_be_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = UnreadableError(served.path, "cannot be read at 7: Input/output error")

    def fails(*_: object) -> None:
        raise broken

    served.answer = broken
    monkeypatch.setattr(DigestJob, "work", fails)
    async with opened(served) as address, LogReaderClient(address) as client:
        for ask in (client.get_log(), digests(client, (LARGE, 1))):
            with pytest.raises(ApiError, match="Input/output") as caught:
                await ask
            assert caught.value.status is grpc.StatusCode.DATA_LOSS


async def test_no_folder(tmp_path: Path) -> None:
    async with opened(Served(tmp_path / "none")) as address, LogReaderClient(address) as client:
        with pytest.raises(ApiError, match="no such folder"):
            await digests(client, (0, 1))


# Pace, turns, callers


async def test_reading_is_paced_for_all_callers_together(served: Served, no_hurry: list[float]) -> None:
    async with opened(served, verifyMaxBytesPerSecond="1000000") as address, LogReaderClient(address) as client:
        await digests(client, (LARGE, 2 * LARGE))
        await client.read(LARGE, LARGE)
    assert no_hurry[-1] == pytest.approx(3 * LARGE / 1e6, abs=0.1), "the debt of the digests goes on for the bytes"


async def test_a_caller_s_own_limit(served: Served, no_hurry: list[float]) -> None:
    async with opened(served) as address, LogReaderClient(address) as client:
        await digests(client, (LARGE, LARGE), rate=100_000)
        assert no_hurry[-1] == pytest.approx(LARGE / 1e5, abs=0.1)
        no_hurry.clear()
        await digests(client, (LARGE, LARGE))
        assert max(no_hurry) < 0.1, "was that caller's alone"


async def test_a_call_ends_when_its_turn_is_over_but_not_before_it_answered(
    served: Served, no_hurry: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_service, "TURN", 0.0)
    async with opened(served, verifyMaxBytesPerSecond="1000000") as address, LogReaderClient(address) as client:
        assert len(await digests(client, (LARGE, LARGE), (LARGE, LARGE))) == 1
        assert len(await digests(client, (LARGE, 10), (LARGE, 20), (LARGE, 2 * LARGE))) == 2


class Gate:
    """Digests stand still until they are let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.entered = threading.Event(), threading.Semaphore(0)
        self.bites = 0
        real: Callable[[DigestJob, int], list[bytes | None]] = DigestJob.work

        def work(job: DigestJob, budget: int) -> list[bytes | None]:
            self.bites += 1
            self.entered.release()
            assert self.open.wait(60)
            return real(job, budget)

        monkeypatch.setattr(DigestJob, "work", work)

    async def wait_for(self, calls: int) -> None:
        for _ in range(calls):
            assert await asyncio.to_thread(self.entered.acquire, timeout=60)


async def test_two_calls_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with opened(served) as address, LogReaderClient(address) as client:
        under_way = [asyncio.ensure_future(digests(client, (LARGE, 10))) for _ in range(2)]
        await gate.wait_for(2)
        for ask in (digests(client, (LARGE, 10)), client.read(LARGE, 10)):
            with pytest.raises(RefusedError, match="try again") as caught:
                await ask
            assert caught.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await client.get_log() == FULL
        gate.open.set()
        assert await asyncio.gather(*under_way) == [await digests(client, (LARGE, 10))] * 2


async def refused(client: LogReaderClient) -> bool:
    try:
        await digests(client, (LARGE, 10))
    except RefusedError:
        return True
    return False


@pytest.mark.parametrize("goes", ["cancelled", "deadline", "has enough"])
async def test_a_caller_who_goes_makes_room(served: Served, monkeypatch: pytest.MonkeyPatch, goes: str) -> None:
    monkeypatch.setattr(log_service, "GATHER", 0.0)
    gate = Gate(monkeypatch)
    many = [Range(LARGE, LARGE)] * 1000

    async def all_of(client: LogReaderClient) -> None:
        async for _ in client.digest(many, timeout=2.0 if goes == "deadline" else 60):
            if goes == "has enough":
                break

    async with opened(served) as address, LogReaderClient(address) as client:
        under_way = [asyncio.ensure_future(all_of(client)) for _ in range(2)]
        await gate.wait_for(2)
        if goes == "cancelled":
            for task in under_way:
                task.cancel()
        if goes == "has enough":
            gate.open.set()
        results = await asyncio.gather(*under_way, return_exceptions=True)
        gate.open.set()
        assert all(result is None or isinstance(result, asyncio.CancelledError | NoAnswerError) for result in results)
        while await refused(client):  # until the server has noticed
            await asyncio.sleep(0)
    assert gate.bites < 100, "nobody works for those who went"


async def test_without_a_log_there_is_no_such_service() -> None:
    (port,) = free_ports(1)
    values = {"controllerAddr": "127.0.0.1:1", "bindAddress": HOST, "sidecarGrpcPort": str(port), "brokerName": "a"}
    door = make_grpc_server(build_settings(SidecarSettings, values).settings, Admin(), lambda: None)
    await door.start()
    try:
        async with LogReaderClient(f"{HOST}:{port}") as client:
            with pytest.raises(RefusedError) as caught:
                await client.get_log()
            assert caught.value.status is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await door.stop()
