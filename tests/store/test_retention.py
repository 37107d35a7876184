"""Which files go, when; what that does to queues."""

import os
from pathlib import Path

import pytest

from rocketmq_store.model import GetStatus
from rocketmq_store.retention import LogFile, delete_before, hours
from tests.store.kit import FILE, abandon, bodies, opened, put, retain, settings

HOUR = 3_600_000
DAY = 24 * HOUR


def rule(files: list[tuple[int, int]], *, used: float = 0.1, keep_from: int = 10**9, hour: int = 4) -> int:
    """`files`: (end, age in hours); now is day 100."""
    config = settings(Path("/nowhere"), disk_max_used_ratio=75, disk_clean_ratio=0.85)
    found = [LogFile(end, 100 * DAY - age * HOUR) for end, age in files]
    return delete_before(found, config, used_ratio=used, keep_from=keep_from, now_ms=100 * DAY, hour=hour)


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        (2, {}),
        (0, {"hour": 5}),
        (2, {"hour": 5, "used": 0.76}),
        (0, {"hour": 5, "used": 0.75}),
        (3, {"hour": 5, "used": 0.85}),  # also what is not expired, but never the last
        (1, {"keep_from": 1}),
        (1, {"keep_from": 1, "used": 0.99}),
    ],
)
def test_expired_files(expected: int, arguments: dict[str, float]) -> None:
    assert rule([(1, 80), (2, 73), (3, 71), (4, 90)], **arguments) == expected  # type: ignore[arg-type]  # a table


def test_a_few_at_a_time() -> None:
    assert rule([(n, 80) for n in range(1, 30)]) == 10
    assert rule([(1, 80)]) == 0
    assert rule([]) == 0


def test_hours() -> None:
    assert hours("04") == {4}
    assert hours("04;16") == {4, 16}
    for wrong in ("", "24", "x"):
        with pytest.raises(ValueError, match=r"deleteWhen|invalid"):
            hours(wrong)


def test_queues_begin_where_the_log_does(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    put(store, *(b"%02d" % n + b"x" * 300 for n in range(60)))
    assert retain(store, 0, 4) == 0
    store.durability.flush()
    for start in (0, FILE):
        os.utime(tmp_path / "commitlog" / f"{start:020d}", (0, 0))
    now = int((tmp_path / "commitlog" / f"{2 * FILE:020d}").stat().st_mtime * 1000)
    assert retain(store, now, 5) == 0
    assert retain(store, now, 4) == store.min_offset == 2 * FILE
    low, high = store.queue_bounds("T", 0)
    assert 0 < low < high == 60
    assert [body[:2] for body in bodies(store)] == [b"%02d" % n for n in range(low, high)]
    for gone in (0, low - 1):  # a consumer that was away for longer continues with the oldest message, at once
        result = store.get("T", 0, gone)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
    assert len(list((tmp_path / "consumequeue" / "T" / "0").iterdir())) < 6
    abandon(store)
    store, found = opened(tmp_path)
    assert (found.min_offset, store.queue_bounds("T", 0)) == (2 * FILE, (low, high))
    put(store, b"next")
    assert bodies(store)[-1] == b"next"
