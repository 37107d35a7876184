"""Connections of a gRPC port are closed for others, and nothing ends that."""

import asyncio
import errno
import socket

import pytest
from structlog.testing import capture_logs

from rocketmq_runtime.grpc import connection_shares
from rocketmq_runtime.grpc.connection_shares import PERIOD, ConnectionShares

pytestmark = pytest.mark.looptime


class Port:
    """One host's connections, whose peers end just before they are closed here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections = 0
        self.looks = 0
        self.opened = 0
        self.broken = False
        self.closed = 0
        monkeypatch.setattr(connection_shares, "_descriptors", self._descriptors)
        monkeypatch.setattr(connection_shares, "_socket_of", self._socket_of)
        monkeypatch.setattr(connection_shares, "_silent", lambda _opened: 0)
        monkeypatch.setattr(connection_shares, "_peer", lambda _opened: "10.0.0.1:80")

    def _socket_of(self, _descriptor: int, _port: int) -> socket.socket:
        self.opened += 1
        return Opened(self)

    def _descriptors(self) -> list[int]:
        self.looks += 1
        if self.broken:
            raise OSError(errno.EMFILE, "Too many open files")
        return list(range(self.connections))


class Opened(socket.socket):
    def __init__(self, port: Port) -> None:
        super().__init__()
        self._of = port

    def shutdown(self, _how: int) -> None:
        self._of.closed += 1
        raise OSError(errno.ENOTCONN, "not connected")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    return Port(monkeypatch)


async def test_a_host_gives_way_only_when_the_port_is_nearly_full(port: Port) -> None:
    shares = ConnectionShares(max_connections=20, limit=5)
    port.connections = 14
    await shares.sweep()
    assert (port.closed, port.opened) == (0, 0), "with so few descriptors it cannot be, whatever they are"
    port.connections = 15
    await shares.sweep()
    assert port.closed == 10, "all, although the first one could not be"


async def test_a_look_that_fails_is_not_the_last(port: Port) -> None:
    shares = ConnectionShares(max_connections=4, limit=2)
    port.connections, port.broken = 4, True
    with capture_logs() as lines:
        shares.start(80)
        await asyncio.sleep(3.5 * PERIOD)
        assert (port.looks, port.closed) == (3, 0)
        assert [line["event"] for line in lines] == ["cannot look at the connections of a gRPC port"]
        port.broken = False
        await asyncio.sleep(PERIOD)
        shares.stop()
    assert port.closed == 2
