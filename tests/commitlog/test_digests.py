"""Digests of ranges, in bites of any size; and how they are paced."""

from pathlib import Path

import pytest
import xxhash

from rocketmq_commitlog.digests import PIECE, SIZE, DigestJob
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.token_bucket import BURST, TokenBucket
from rocketmq_formats.store.segment_names import segment_name
from tests.commitlog.kit import SEGMENT, Log

LARGE = 1 << 20


def all_of(job: DigestJob, bite: int) -> list[bytes | None]:
    digests: list[bytes | None] = []
    while not job.done:
        digests += job.work(bite)
    assert job.work(bite) == []
    return digests


@pytest.mark.parametrize("bite", [1, PIECE, 1 << 30])
def test_digests_are_those_of_the_bytes(tmp_path: Path, bite: int) -> None:
    written = Log(segment=LARGE).fill(3)
    folder = LogFolder(written.save(tmp_path) / "commitlog")
    whole = bytes(written.data).ljust(3 * LARGE, b"\0")
    ranges = [(0, LARGE), (5, 7), (LARGE - 3, 9), (100, 0), (LARGE // 2, 2 * LARGE), (0, PIECE), (0, PIECE + 1)]
    job = DigestJob(folder, ranges)
    digests = all_of(job, bite)
    assert digests == [xxhash.xxh3_128_digest(whole[offset : offset + length]) for offset, length in ranges]
    assert all(digest is not None and len(digest) == SIZE for digest in digests)
    assert job.read == sum(length for _, length in ranges)


def test_what_is_not_there_stands_in_its_place(tmp_path: Path) -> None:
    path = Log(SEGMENT).fill(3).save(tmp_path) / "commitlog"
    with (path / segment_name(2 * SEGMENT)).open("r+b") as file:
        file.truncate(10)
    job = DigestJob(LogFolder(path), [(0, 10), (SEGMENT, 10), (2 * SEGMENT + 5, 10), (3 * SEGMENT, 10), (9 << 40, 1)])
    assert [digest is None for digest in all_of(job, 1 << 20)] == [True, False, True, False, True]


def test_a_file_that_expires_in_between(tmp_path: Path) -> None:
    path = Log(segment=LARGE).fill(2).save(tmp_path) / "commitlog"
    job = DigestJob(LogFolder(path), [(LARGE // 2, LARGE), (LARGE, 10)])
    assert job.work(1) == []
    (path / segment_name(LARGE)).unlink()
    assert all_of(job, 1 << 30) == [None, None]


def test_a_bucket_pays_its_debt() -> None:
    bucket = TokenBucket(1000.0)
    assert bucket.take(int(1000 * BURST), 10.0) == pytest.approx(0.0, abs=1e-9), "a burst after a rest"
    assert bucket.take(1000, 10.0) == pytest.approx(1.0)
    assert bucket.take(0, 10.5) == pytest.approx(0.5)
    assert bucket.take(0, 11.0) == pytest.approx(0.0, abs=1e-9)
    assert bucket.take(100, 1000.0) == pytest.approx(0.1 - BURST), "rest is not saved up"


def test_a_bucket_keeps_the_rate_over_time() -> None:
    bucket, now, taken = TokenBucket(200e6), 0.0, 0
    while now < 10.0:
        taken += 4 << 20
        now += bucket.take(4 << 20, now)
    assert taken / now == pytest.approx(200e6, rel=0.02)


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_no_rate(rate: float) -> None:
    with pytest.raises(ValueError, match="bytes per second"):
        TokenBucket(rate)
