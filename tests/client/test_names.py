"""Unique ids: as long as Java's, never the same, and the month they count from."""

import ipaddress
from datetime import UTC, datetime

import pytest

from rocketmq_client import names
from rocketmq_client.names import UniqueIds, new_client_id
from rocketmq_formats.store.message_id import encode_unique_id


def ms(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


def test_ids_differ_and_are_java_s() -> None:
    ids = UniqueIds()
    now = ms(2025, 12, 31) + 86_399_999
    made = [ids.next(now) for _ in range(3)] + [UniqueIds().next(now)]
    assert len(set(made)) == 4
    prefix = bytes.fromhex(made[0])
    again = encode_unique_id(
        ip=prefix[:4],
        pid=int.from_bytes(prefix[4:6], "big"),
        loader=int.from_bytes(prefix[6:10], "big"),
        since_month_ms=now - ms(2025, 12, 1),
        counter=1,
    )
    assert made[0] == again


def test_a_new_month_begins_at_nothing() -> None:
    ids = UniqueIds()
    ids.next(ms(2025, 12, 31))
    assert ids.next(ms(2026, 1, 1))[20:28] == "00000000"
    assert ids.next(ms(2026, 1, 1) + 255)[20:28] == "000000FF"


def test_client_ids_differ() -> None:
    assert new_client_id() != new_client_id()


def test_with_an_ipv6_address_ids_are_as_long_as_java_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "own_address", lambda: "fd00::7")
    now = ms(2025, 12, 1) + 7
    made = UniqueIds().next(now)
    assert len(made) == 56
    assert bytes.fromhex(made[:32]) == ipaddress.ip_address("fd00::7").packed
    assert made[44:] == f"{7:08X}{1:04X}"
    assert new_client_id().startswith("fd00::7@")
