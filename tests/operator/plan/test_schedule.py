"""Schedules of CronJobs: when the next time is."""

from datetime import UTC, datetime

import pytest

from rocketmq_operator.domain.schedule import ScheduleError, parse_schedule


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T12:00:00", "2026-01-01T12:01:00"),
        ("* * * * *", "2026-01-01T12:00:59", "2026-01-01T12:01:00"),
        ("10 * * * *", "2026-01-01T12:10:00", "2026-01-01T13:10:00"),
        ("*/20 * * * *", "2026-01-01T12:41:00", "2026-01-01T13:00:00"),
        ("5/20 * * * *", "2026-01-01T12:26:00", "2026-01-01T12:45:00"),
        ("0 3 * * *", "2026-12-31T03:00:00", "2027-01-01T03:00:00"),
        ("0 3 * * 0", "2026-01-01T00:00:00", "2026-01-04T03:00:00"),
        ("0 3 * * 7", "2026-01-01T00:00:00", "2026-01-04T03:00:00"),
        ("0 3 ? * MON-FRI", "2026-01-02T03:00:00", "2026-01-05T03:00:00"),
        ("0 0 13 * 5", "2026-01-03T00:00:00", "2026-01-09T00:00:00"),
        ("0 0 29 feb *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
        ("15,45 8-10 1 */3 *", "2026-02-01T00:00:00", "2026-04-01T08:15:00"),
        ("@hourly", "2026-01-01T12:00:00", "2026-01-01T13:00:00"),
        ("@weekly", "2026-01-01T12:00:00", "2026-01-04T00:00:00"),
        ("@annually", "2026-01-01T12:00:00", "2027-01-01T00:00:00"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert parse_schedule(schedule).next_after(at(after)) == at(expected)


def test_a_day_that_never_comes() -> None:
    assert parse_schedule("0 0 30 2 *").next_after(at("2026-01-01T00:00:00")) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "@often",
    ],
)
def test_no_schedule(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(text)
