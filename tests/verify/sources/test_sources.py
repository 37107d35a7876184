"""Sources: the same log read from its files and through a sidecar, and what happens when it cannot be read."""

import asyncio
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import pytest
import xxhash
from msgspec.structs import replace

from rocketmq_api.channels import ApiError, NoAnswerError, RefusedError
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.log_readers import Range
from rocketmq_api.log_view import MAX_RANGES, MAX_READ, LogView, SegmentRun
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_formats.store.segment_names import segment_name
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaLog, ReplicaName
from rocketmq_verify.sources import sidecar_source
from rocketmq_verify.sources import source as sources
from rocketmq_verify.sources.file_source import FileSource
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.replicas import Replicas
from rocketmq_verify.sources.sidecar_source import SidecarSource
from rocketmq_verify.sources.source import GoneError, SourceError, SourceOptions, SpecError
from rocketmq_verify.sources.work import Place
from tests.commitlog.kit import SEGMENT, Log, save_small
from tests.controller.grpc_kit import Authority
from tests.ports import free_ports
from tests.sidecar.ports.test_log_service import FULL, Served, opened

A = ReplicaName("a")
LARGE = 1 << 20


def chunk(offset: int, length: int) -> Chunk:
    return Chunk(offset, length, 1)


def files(directory: Path, **options: float) -> FileSource:
    source = open_source(A, f"files:{directory}", SourceOptions(**options))  # type: ignore[arg-type]
    assert isinstance(source, FileSource)
    return source


# Specs


@pytest.mark.parametrize(
    "spec",
    ["", "files:", "files", "sidecar:", "sidecar:host", "sidecar:host:", "sidecar::1", "sidecar:h:0", "sidecar:h:65536",
     "sidecar:h:1x", "http://h:1", "/data"],
)  # fmt: skip
def test_what_names_nothing(spec: str) -> None:
    with pytest.raises(SpecError, match="give files:DIRECTORY or sidecar:HOST:PORT"):
        open_source(A, spec)


def test_a_tls_file_that_is_not_there(tmp_path: Path) -> None:
    none = str(tmp_path / "none.pem")
    with pytest.raises(SpecError, match=r"none\.pem"):
        open_source(A, "sidecar:h:1", SourceOptions(tls=ClientTls(cert_file=none, key_file=none, ca_file=none)))


def test_what_is_sent_to_workers() -> None:
    for error in (SourceError(A, "why"), GoneError(A, "why")):
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), back.replica) == (type(error), "a: why", A)
    tls = ClientTls(cert_file="c", key_file="k", ca_file="a")
    options = SourceOptions(tls=tls, bytes_per_second=5)
    assert pickle.loads(pickle.dumps(options)) == options


# Files


def test_a_log_in_files(tmp_path: Path) -> None:
    written = Log(SEGMENT).fill(3)
    save_small(written.save(tmp_path), confirmed=written.records[-2], epochs=((2, SEGMENT),), broker_id=3)
    with files(tmp_path) as source:
        assert source.describe() == ReplicaLog(
            name=A,
            broker_id=3,
            group="C/a",
            min_offset=SEGMENT,
            confirm_offset=written.records[-2],
            max_offset=written.end,
            segment_size=SEGMENT,
            segments=(SEGMENT, 2 * SEGMENT, 3 * SEGMENT),
            epochs=EpochList.of([(2, SEGMENT)]),
        )
        digest = xxhash.xxh3_128_digest(written.data[10:110])
        assert list(source.digests([chunk(SEGMENT + 10, 100), chunk(0, 5)])) == [
            ChunkDigest(A, SEGMENT + 10, 100, digest),
            ChunkDigest(A, 0, 5, None),
        ]
        assert source.read(Extent(SEGMENT + 1, 2 * SEGMENT + 1)) == written.data[1 : SEGMENT + 1]
        with pytest.raises(GoneError, match=segment_name(0)):
            source.read(Extent(SEGMENT - 1, SEGMENT + 1))


@pytest.mark.parametrize("damage", ["a stray name", "a file that is too long"])
def test_one_bad_log_does_not_stop_the_others(tmp_path: Path, damage: str) -> None:
    places = [Place(ReplicaName(name), f"files:{Log(0).fill(3).save(tmp_path / name)}") for name in "abc"]
    folder = tmp_path / "b" / "commitlog"
    if damage == "a stray name":
        (folder / segment_name(77)).write_bytes(b"x")
    else:
        file = folder / segment_name(SEGMENT)
        file.write_bytes(file.read_bytes() + bytes(4096))
    replicas = Replicas(places, SourceOptions())
    assert [log.name for log in replicas.describe()] == ["a", "c"]
    assert list(replicas.failed) == ["b"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_file_that_is_none_is_missing_and_no_more(tmp_path: Path, make: Callable[[Path], None]) -> None:
    written = Log(0).fill(3)
    file = written.save(tmp_path) / "commitlog" / segment_name(SEGMENT)
    file.unlink()
    make(file)
    with files(tmp_path) as source:
        assert source.describe().segments == (0, 2 * SEGMENT)
        assert [one.digest is None for one in source.digests([chunk(0, 100), chunk(SEGMENT, 100)])] == [False, True]
        with pytest.raises(GoneError, match="is not a file"):
            source.read(Extent(SEGMENT, SEGMENT + 10))


def test_a_file_that_was_created_again(tmp_path: Path) -> None:
    """A slave that is rebuilt while it is read."""
    old, new = Log().put(b"old"), Log().put(b"new")
    source = files(old.save(tmp_path))
    assert source.read(Extent(0, 100)) == old.data[:100]
    (tmp_path / "commitlog" / segment_name(0)).unlink()
    new.save(tmp_path)
    assert source.read(Extent(0, 100)) == new.data[:100]
    assert list(source.digests([chunk(0, 100)])) == [ChunkDigest(A, 0, 100, xxhash.xxh3_128_digest(new.data[:100]))]


def test_no_log_is_the_user_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"a: .*no such folder"):
        files(tmp_path).describe()


def test_a_log_that_went_away(tmp_path: Path) -> None:
    source = files(Log().put(b"x").save(tmp_path))
    source.describe()
    (tmp_path / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(SourceError, match="no such folder"):
        list(source.digests([chunk(0, 1)]))


def test_damaged_epochs(tmp_path: Path) -> None:
    (Log().put(b"x").save(tmp_path) / "epochFileCheckpoint").write_bytes(b"?")
    with pytest.raises(SourceError, match="epochFileCheckpoint"):
        files(tmp_path).describe()


@pytest.mark.parametrize("bad", [chunk(-1, 1), chunk(0, -1), chunk(0, sources.MAX_CHUNK + 1)])
def test_chunks_that_no_source_accepts(tmp_path: Path, bad: Chunk) -> None:
    for source in (files(tmp_path), open_source(A, "sidecar:h:1")):
        with pytest.raises(ValueError, match="a chunk of"):
            next(source.digests([bad]))
        with pytest.raises(ValueError, match="bytes from"):
            source.read(Extent(0, sources.MAX_EXTENT + 1))
        source.close()


def test_files_are_read_at_a_rate(tmp_path: Path) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    root = Log(segment=LARGE).fill(12).save(tmp_path)
    source = FileSource(A, root, SourceOptions(bytes_per_second=LARGE), now=lambda: clock[0], sleep=sleep)
    assert len(list(source.digests([chunk(number * LARGE, LARGE) for number in range(12)]))) == 12
    assert clock[0] == pytest.approx(12, abs=0.2)
    source.read(Extent(0, 2 * LARGE))
    assert clock[0] == pytest.approx(14, abs=0.2)


# A sidecar


async def in_thread(
    address: str, work: Callable[[sources.Source], object], *, tls: ClientTls | None = None, patience: float = 30.0
) -> object:
    def run() -> object:
        source = open_source(A, f"sidecar:{address}", SourceOptions(tls=tls, patience=patience))
        try:
            return work(source)
        finally:
            source.close()

    return await asyncio.to_thread(run)


async def test_both_sources_give_the_same(tmp_path: Path) -> None:
    written = Log(LARGE, segment=LARGE).fill(12)
    served = Served(written.save(tmp_path) / "commitlog")
    (served.path / segment_name(3 * LARGE)).unlink()
    chunks = [chunk(start + half, LARGE // 2) for start in range(0, 14 * LARGE, LARGE) for half in (0, LARGE // 2)]
    parts = [Extent(LARGE, LARGE + 100), Extent(4 * LARGE, 4 * LARGE + MAX_READ + 5)]

    def everything(source: sources.Source) -> object:
        with pytest.raises(GoneError):
            source.read(Extent(3 * LARGE - 10, 3 * LARGE + 10))
        return list(source.digests(chunks)), [source.read(part) for part in parts], list(source.digests([]))

    async with opened(served) as address:
        assert await in_thread(address, everything) == everything(files(tmp_path))


async def test_a_log_described_by_a_sidecar(tmp_path: Path) -> None:
    async with opened(Served(tmp_path)) as address:
        assert await in_thread(address, lambda source: source.describe()) == ReplicaLog(
            name=A,
            broker_id=2,
            group="C/a",
            min_offset=SEGMENT,
            confirm_offset=9000,
            max_offset=9500,
            segment_size=SEGMENT,
            segments=(SEGMENT, 2 * SEGMENT, 4 * SEGMENT),
            epochs=EpochList.of([(1, 0), (7, 5000)]),
            master=True,
            strict=True,
            short=((SEGMENT, 100),),
            given_up=(
                GivenUp(start=6000, end=6100, epoch=7, at_millis=1_790_000_000_000),
                GivenUp(start=9100, end=9200, epoch=8, at_millis=0),
            ),
        )


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (replace(FULL, epochs=((7, 0), (1, 5000))), "impossible epochs"),
        (replace(FULL, segments=(SegmentRun(0, 1 << 40),)), "cannot be"),
    ],
)
async def test_a_sidecar_with_an_impossible_answer(tmp_path: Path, view: LogView, says: str) -> None:
    served = Served(tmp_path)
    served.answer = view
    async with opened(served) as address:
        with pytest.raises(SourceError, match=says):
            await in_thread(address, lambda source: source.describe())


async def test_a_sidecar_that_does_not_listen() -> None:
    (port,) = free_ports(1)
    for work in (
        lambda source: source.describe(),
        lambda source: list(source.digests([chunk(0, 1)])),
        lambda source: source.read(Extent(0, 1)),
    ):
        with pytest.raises(SourceError, match=f"a: 127.0.0.1:{port}: .*tried for 0.2 s"):
            await in_thread(f"127.0.0.1:{port}", work, patience=0.2)


async def test_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    (cert, key), (own_cert, own_key) = authority.issue("server"), authority.issue("verify")
    keys = {
        "sidecarGrpcTlsCertFile": str(cert),
        "sidecarGrpcTlsKeyFile": str(key),
        "sidecarGrpcTlsCaFile": str(authority.cert),
    }
    tls = ClientTls(cert_file=str(own_cert), key_file=str(own_key), ca_file=str(authority.cert))

    def describe(source: sources.Source) -> object:
        return source.describe().broker_id

    async with opened(Served(tmp_path), **keys) as address:
        assert await in_thread(address, describe, tls=tls) == 2
        with pytest.raises(SourceError, match=r"tried for 0\.2 s"):
            await in_thread(address, describe, patience=0.2)


# Trying again


class Reader:
    """A sidecar that answers as the test says: digests by offset, or an error that comes in their place."""

    def __init__(self, *answers: int | ApiError) -> None:
        self.answers = list(answers)
        self.asked: list[list[int]] = []

    def get_log(self) -> LogView:
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return FULL

    def digest(self, ranges: Sequence[Range], *, bytes_per_second: int) -> Iterator[bytes | None]:
        """An answer n is n digests, and the stream's end."""
        self.asked.append([one.offset for one in ranges])
        while self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, ApiError):
                raise answer
            for one in ranges[:answer]:
                yield one.offset.to_bytes(16)
            return

    def close(self) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def error(status: grpc.StatusCode, kind: type[ApiError] = NoAnswerError) -> ApiError:
    return kind("a:1", status, "why", {})


GONE_QUIET = error(grpc.StatusCode.UNAVAILABLE)
BUSY = error(grpc.StatusCode.RESOURCE_EXHAUSTED, RefusedError)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asking(clock: Clock) -> Callable[..., SidecarSource]:
    def make(reader: Reader, **options: float) -> SidecarSource:
        source = SidecarSource(
            A,
            "a:1",
            SourceOptions(**options),
            now=lambda: clock.now,
            sleep=clock.sleep,
            draw=lambda: 1.0,  # type: ignore[arg-type]
        )
        source.close()
        source._reader = reader  # type: ignore[assignment]
        return source

    return make


def offsets(found: Sequence[ChunkDigest]) -> list[int]:
    assert all(one.digest == one.offset.to_bytes(16) for one in found)
    return [one.offset for one in found]


def test_pauses_grow_and_end(clock: Clock, asking: Callable[..., SidecarSource]) -> None:
    with pytest.raises(SourceError, match="tried for 10 s"):
        asking(Reader(*[GONE_QUIET] * 100), patience=10.0).describe()
    assert clock.pauses[:6] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0])
    assert max(clock.pauses) == 3.0
    assert 6.0 < clock.now <= 10.0


def test_what_was_answered_is_not_asked_again(clock: Clock, asking: Callable[..., SidecarSource]) -> None:
    """Calls end early, break, are refused for a while; all digests come, in their order."""
    reader = Reader(2, GONE_QUIET, BUSY, 1, 0, 3)
    found = list(asking(reader).digests([chunk(number, 1) for number in range(6)]))
    assert offsets(found) == list(range(6))
    assert [asked[0] for asked in reader.asked] == [0, 2, 2, 2, 3, 3]
    assert clock.pauses == pytest.approx([0.1, 0.2, 0.1])


def test_progress_renews_patience(clock: Clock, asking: Callable[..., SidecarSource]) -> None:
    answers: list[int | ApiError] = []
    for _ in range(20):
        answers += [GONE_QUIET, GONE_QUIET, GONE_QUIET, 1]
    found = list(asking(Reader(*answers), patience=1.0).digests([chunk(number, 1) for number in range(20)]))
    assert offsets(found) == list(range(20))
    assert clock.now > 10


@pytest.mark.parametrize(
    "status", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DATA_LOSS]
)
def test_what_does_not_pass(clock: Clock, asking: Callable[..., SidecarSource], status: grpc.StatusCode) -> None:
    with pytest.raises(SourceError, match="why"):
        asking(Reader(error(status, RefusedError))).describe()
    assert clock.pauses == []


def test_calls_have_a_size(asking: Callable[..., SidecarSource]) -> None:
    reader = Reader(*[MAX_RANGES] * 10)
    assert len(list(asking(reader).digests([chunk(n, 1) for n in range(MAX_RANGES + 1)]))) == MAX_RANGES + 1
    assert [len(asked) for asked in reader.asked] == [MAX_RANGES, 1]
    reader = Reader(*[MAX_RANGES] * 10)
    most = sidecar_source.MAX_CALL // sources.MAX_CHUNK
    list(asking(reader).digests([chunk(n, sources.MAX_CHUNK) for n in range(most + 1)]))
    assert [len(asked) for asked in reader.asked] == [most, 1]


def test_a_sidecar_that_cannot_check_is_named_by_its_age(asking: Callable[..., SidecarSource]) -> None:
    class Old(Reader):
        def check(self, *asked: object, **more: object) -> None:
            raise error(grpc.StatusCode.UNIMPLEMENTED, RefusedError)

    with pytest.raises(SourceError) as refused:
        list(asking(Old()).structures(Extent(0, 9), 9, 1000))
    assert refused.value.reason == sources.UNSERVED
    with pytest.raises(SourceError) as refused:
        asking(Old()).derived(Extent(0, 9), 9)
    assert refused.value.reason == sources.UNSERVED
