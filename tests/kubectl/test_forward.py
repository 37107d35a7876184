"""Port-forwards: bytes both ways, several connections, clear ends, nothing left behind."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from rocketmq_kubectl.cluster import forward
from rocketmq_kubectl.cluster.forward import Forwards
from rocketmq_kubectl.cluster.kube import Kube, connect
from rocketmq_kubectl.cluster.kube_options import KubeOptions
from rocketmq_kubectl.errors import ForbiddenError, NotFoundError, UnreachableError
from tests.kubectl.fake_cluster import NAMESPACE, FakeCluster

PORT = 7777


@pytest.fixture
def kube(cluster: FakeCluster) -> Kube:
    return connect(KubeOptions(request_timeout=5))


@pytest.fixture
async def echo(cluster: FakeCluster) -> AsyncIterator[None]:
    """A process in orders-0 that sends back what it gets, and hangs up at a line with `bye`."""

    connections: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        try:
            while (data := await reader.read(65536)) and data != b"bye\n":
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    cluster.api.ports[NAMESPACE, "orders-0", PORT] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield
    server.close()
    await asyncio.gather(*(task for task in connections if task is not None), return_exceptions=True)


@pytest.fixture(autouse=True)
def _no_threads_stay() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("forward "):
            thread.join(5)
            assert not thread.is_alive(), f"{thread.name} is left"


async def opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def read_one(address: str) -> bytes:
    """OSError or IncompleteReadError when the port accepts no connection: a closing port may still queue one."""
    reader, writer = await opened(address)
    try:
        return await reader.readexactly(1)
    finally:
        writer.close()


async def test_bytes_go_both_ways_and_connections_do_not_mix(kube: Kube, echo: None) -> None:
    async with Forwards(kube) as forwards:
        address = await forwards.address(NAMESPACE, "orders-0", PORT)
        assert await forwards.address(NAMESPACE, "orders-0", PORT) == address
        assert forwards.name(address) == "pod shop/orders-0"
        one, two = await opened(address), await opened(address)
        big = bytes(range(256)) * 4000  # more than one chunk, and every byte
        one[1].write(big)
        two[1].write(b"hello\n")
        assert await two[0].readexactly(6) == b"hello\n"
        assert await one[0].readexactly(len(big)) == big
        for _, writer in (one, two):
            writer.close()


async def test_the_pod_hangs_up(kube: Kube, echo: None) -> None:
    async with Forwards(kube) as forwards:
        reader, writer = await opened(await forwards.address(NAMESPACE, "orders-0", PORT))
        writer.write(b"bye\n")
        assert await reader.read() == b""
        writer.close()


async def test_closing_ends_connections(kube: Kube, echo: None) -> None:
    forwards = Forwards(kube)
    address = await forwards.address(NAMESPACE, "orders-0", PORT)
    reader, writer = await opened(address)
    writer.write(b"hello\n")
    await reader.readexactly(6)
    forwards.close()
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(OSError):
        await opened(address)


async def test_no_process_listens_in_the_pod(kube: Kube) -> None:
    async with Forwards(kube) as forwards:
        address = await forwards.address(NAMESPACE, "orders-0", 9999)
        reader, writer = await opened(address)
        assert await reader.read() == b""
        writer.close()
        assert "connection refused" in (forwards.problem(address) or "")


async def test_refusals_are_known_before_anything_is_sent(kube: Kube, cluster: FakeCluster) -> None:
    async with Forwards(kube) as forwards:
        with pytest.raises(NotFoundError, match='pods "orders-9" not found'):
            await forwards.address(NAMESPACE, "orders-9", PORT)
        cluster.api.refused["get pods/portforward"] = 403, 'cannot get resource "pods/portforward"'
        with pytest.raises(ForbiddenError, match="pod orders-0: cannot get"):
            await forwards.address(NAMESPACE, "orders-0", PORT)


async def test_connections_are_bounded(kube: Kube, echo: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(forward, "MAX_PORTS", 1)
    async with Forwards(kube) as forwards:
        address = await forwards.address(NAMESPACE, "orders-0", PORT)
        reader, writer = await opened(address)
        writer.write(b"hello\n")
        assert await reader.readexactly(6) == b"hello\n"
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await read_one(address)
        with pytest.raises(UnreachableError, match="more than 1 ports"):
            await forwards.address(NAMESPACE, "orders-1", PORT)
        writer.close()
