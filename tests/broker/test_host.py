"""Hosts as records have them: numbers of either IP family."""

import socket

import pytest

from rocketmq_broker import host
from rocketmq_broker.host import numeric

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 0))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::5", 0, 0, 0))


@pytest.mark.parametrize("address", ["10.1.2.3", "fd00::5"])
def test_an_address_stays(address: str) -> None:
    assert numeric(address) == address


@pytest.mark.parametrize(
    ("found", "expected"), [([V4], "10.1.2.3"), ([V6, V4], "10.1.2.3"), ([V6], "fd00::5")], ids=["4", "both", "6"]
)
def test_a_name_is_the_address_that_it_has(found: list[object], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.socket, "getaddrinfo", lambda *_, **__: found)
    assert numeric("broker-a.local") == expected


def test_a_name_that_is_unknown() -> None:
    with pytest.raises(OSError):
        numeric("nobody.invalid")
