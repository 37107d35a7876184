"""Ports in both IP families: which addresses reach them, one port for both, what a port that is taken says."""

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Self

import pytest
from prometheus_client import CollectorRegistry

from rocketmq_formats.remoting.command import request
from rocketmq_runtime import sockets
from rocketmq_runtime.probes import ProbeServer
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_runtime.remoting.server import RemotingServer
from rocketmq_runtime.sockets import listen, listen_error, open_server, own_address
from tests.ip_families import needs_ipv6
from tests.runtime.remoting.remoting_kit import Recorder

V4, V6 = "127.0.0.1", "::1"
BOUND = [
    ("", {V4, V6}),
    ("0.0.0.0", {V4, V6}),
    ("::", {V4, V6}),
    (V4, {V4}),
    (V6, {V6}),
]


def reached(port: int) -> set[str]:
    """The loopback addresses at which somebody listens."""
    found = set()
    for host in (V4, V6):
        try:
            socket.create_connection((host, port), timeout=30).close()
        except ConnectionRefusedError:
            continue
        found.add(host)
    return found


def shut(opened: Sequence[socket.socket]) -> None:
    for one in opened:
        one.close()


@needs_ipv6
@pytest.mark.parametrize(("host", "expected"), BOUND)
def test_a_port_is_open_in_the_families_that_were_asked_for(host: str, expected: set[str]) -> None:
    opened = listen(host, 0, backlog=4)
    try:
        assert reached(opened[0].getsockname()[1]) == expected
    finally:
        shut(opened)


@needs_ipv6
@pytest.mark.parametrize(("host", "expected"), BOUND)
async def test_a_remoting_port_too_and_its_peers_are_never_mapped(host: str, expected: set[str]) -> None:
    handler = Recorder()
    server, client = RemotingServer(handler, host=host, port=0), RemotingClient()
    await server.start()
    try:
        assert reached(server.port) == expected
        for address in sorted(expected):
            await client.call(
                f"[{address}]:{server.port}" if ":" in address else f"{address}:{server.port}", request(1)
            )
        assert {peer.ip for peer in handler.peers.values()} == expected
        assert not any("ffff" in peer.address for peer in handler.peers.values())
    finally:
        await client.close()
        await server.stop()


@needs_ipv6
@pytest.mark.parametrize(("host", "expected"), BOUND)
def test_probes_too(host: str, expected: set[str]) -> None:
    def well() -> None:
        return None

    probes = ProbeServer(host=host, port=0, registry=CollectorRegistry(), healthy=well, ready=well)
    try:
        assert reached(probes.port) == expected
        for address in expected:
            with socket.create_connection((address, probes.port), timeout=30) as connection:
                connection.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
                assert b"200" in connection.recv(100)
    finally:
        probes.stop()


async def test_a_host_without_ipv6_has_ipv4_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "has_ipv6", lambda: False)
    opened = listen("", 0, backlog=4)
    try:
        assert [one.family for one in opened] == [socket.AF_INET]
    finally:
        shut(opened)
    server = RemotingServer(Recorder(), host="0.0.0.0", port=0)
    await server.start()
    assert reached(server.port) == {V4}
    await server.stop()


@needs_ipv6
@pytest.mark.parametrize("taken", [V4, V6])
async def test_a_port_that_is_taken_in_one_family_is_refused_with_key_and_address(taken: str) -> None:
    (holder,) = listen(taken, 0, backlog=1)
    port = int(holder.getsockname()[1])
    server = RemotingServer(Recorder(), host="0.0.0.0", port=port, key="listenPort")
    try:
        with pytest.raises(OSError, match=rf"listenPort cannot listen on 0\.0\.0\.0:{port}: Address already") as caught:
            await server.start()
        assert caught.value.errno == errno.EADDRINUSE
    finally:
        holder.close()
    await server.start()  # nothing was left open
    await server.stop()


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(OSError, match=r"not known|No address|Temporary failure") as caught:
        listen("nobody.invalid", 1, backlog=1)
    assert "haListenPort cannot listen on nobody.invalid:1: " in str(
        listen_error("haListenPort", "nobody.invalid", 1, caught.value)
    )


@needs_ipv6
@pytest.mark.parametrize("host", [V4, V6])
async def test_small_answers_are_not_delayed(host: str) -> None:
    """asyncio sets TCP_NODELAY only where the listening socket names its protocol."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[socket.socket] = loop.create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport.get_extra_info("socket"))

    server = await open_server(loop, Accepted, "", 0, what="listenPort")
    _, writer = await asyncio.open_connection(host, server.sockets[0].getsockname()[1])
    try:
        assert (await accepted).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()


class Routes:
    """A UDP socket where only `family` has a route."""

    family: int
    own: str

    def __init__(self, family: int, kind: int) -> None:
        assert kind == socket.SOCK_DGRAM
        self._mine = family

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def connect(self, _: object) -> None:
        if self._mine != self.family:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    def getsockname(self) -> tuple[str, int]:
        return self.own, 40000


@pytest.mark.parametrize(
    ("family", "own"), [(socket.AF_INET, "10.1.2.3"), (socket.AF_INET6, "fd00::5"), (-1, "127.0.0.1")]
)
def test_the_own_address_is_of_the_family_that_has_a_route(
    family: int, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Routes, "family", family, raising=False)
    monkeypatch.setattr(Routes, "own", own, raising=False)
    monkeypatch.setattr(sockets.socket, "socket", Routes)
    assert own_address() == own
