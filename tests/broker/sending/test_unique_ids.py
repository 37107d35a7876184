"""Unique ids made by the broker."""

import pytest

from rocketmq_broker.sending import unique_ids
from rocketmq_broker.sending.unique_ids import UniqueIds

DECEMBER = 1_798_000_000.0
"""In the middle of a December (2026), wherever this runs."""


def test_ids_differ_and_have_javas_form() -> None:
    ids = UniqueIds(b"\x7f\x00\x00\x01")
    made = {ids.next() for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(one) == 32 and one.startswith("7F000001") and one == one.upper() for one in made)
    assert len(UniqueIds(bytes(16)).next()) == 56


def test_the_clock_starts_again_with_each_month(monkeypatch: pytest.MonkeyPatch) -> None:
    now = DECEMBER
    monkeypatch.setattr(unique_ids.time, "time", lambda: now)
    ids = UniqueIds(b"\x7f\x00\x00\x01")

    def milliseconds() -> int:
        return int(ids.next()[20:28], 16)

    before = milliseconds()
    now += 1.5
    assert milliseconds() == before + 1500
    now += 32 * 86400
    assert milliseconds() < 32 * 86_400_000
