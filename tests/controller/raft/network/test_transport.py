"""The network of a member over real sockets on loopback."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.network import messages, transport
from rocketmq_controller.raft.network.transport import Connection, Events, TcpTransport
from tests.ports import free_ports

SECRET = b"0123456789abcdef"
HELLO = messages.TimeoutNow(1, 1.0)


class Seen:
    """What a transport told its owner, as a queue to wait on."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()
        self.refuse = False
        self.events = Events(
            self._message,
            lambda peer: self.queue.put_nowait(("connected", peer)),
            lambda peer: self.queue.put_nowait(("disconnected", peer)),
        )

    def _message(self, peer: str, message: messages.AnyMessage) -> None:
        if self.refuse:
            raise WireError("no")
        self.queue.put_nowait((peer, message))

    async def next(self) -> tuple[object, ...]:
        return await asyncio.wait_for(self.queue.get(), 20)


class Members:
    """Transports of a made-up quorum."""

    def __init__(self) -> None:
        self.peers = dict(zip("abc", (("127.0.0.1", port) for port in free_ports(3)), strict=True))
        self.started: list[TcpTransport] = []

    async def start(self, name: str, *, secret: bytes = SECRET) -> tuple[TcpTransport, Seen]:
        seen = Seen()
        member = TcpTransport(name, secret, seen.events)
        member.set_members({other: [place] for other, place in self.peers.items() if other != name})
        await member.start(*self.peers[name])
        self.started.append(member)
        return member, seen

    async def stop(self, member: TcpTransport) -> None:
        self.started.remove(member)
        await member.stop()


@pytest.fixture
async def members() -> AsyncIterator[Members]:
    quorum = Members()
    yield quorum
    for member in quorum.started:
        await member.stop()


def send(sender: TcpTransport, receiver: str, message: messages.AnyMessage = HELLO) -> bool:
    return sender.send(sender._nodes[receiver], message)


async def test_members_find_each_other_and_talk_both_ways(members: Members) -> None:
    a, at_a = await members.start("a")
    b, at_b = await members.start("b")
    assert await at_a.next() == ("connected", "b")
    assert await at_b.next() == ("connected", "a")
    assert send(a, "b")
    assert send(b, "a")
    assert await at_b.next() == ("a", HELLO)
    assert await at_a.next() == ("b", HELLO)


async def test_a_member_that_stops_is_seen_to_go_and_to_come_back(members: Members) -> None:
    _, at_a = await members.start("a")
    b, _ = await members.start("b")
    assert await at_a.next() == ("connected", "b")
    await members.stop(b)
    assert await at_a.next() == ("disconnected", "b")
    await members.start("b")
    assert await at_a.next() == ("connected", "b")


async def test_the_dialer_comes_back_to_a_listener_that_restarted(members: Members) -> None:
    a, _ = await members.start("a")
    _, at_b = await members.start("b")
    assert await at_b.next() == ("connected", "a")
    await members.stop(a)
    assert await at_b.next() == ("disconnected", "a")
    await members.start("a")
    assert await at_b.next() == ("connected", "a")


async def test_names_are_resolved_again_at_each_attempt(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that restarts has another address: first the name leads nowhere, later to the member."""
    loop = asyncio.get_running_loop()
    real, asked = loop.getaddrinfo, []

    async def resolve(host, port, **options):
        if host != "controller-0":
            return await real(host, port, **options)
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return await real("127.0.0.1", port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    await members.start("a")
    members.peers["a"] = ("controller-0", members.peers["a"][1])
    _, at_b = await members.start("b")
    assert await at_b.next() == ("connected", "a")
    assert len(asked) == 3


async def test_a_wrong_secret_never_connects_and_is_logged_once(
    members: Members, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    a, at_a = await members.start("a")
    refusals = asyncio.Event()
    refused = a.refused

    def count(connection: transport.Connection, dial: str | None, reason: str) -> None:
        refused(connection, dial, reason)
        assert "controllerRaftSecretFile" in reason
        refusals.set()

    a.refused = count  # type: ignore[method-assign]
    await members.start("b", secret=b"another secret!!")
    await asyncio.wait_for(refusals.wait(), 20)
    refusals.clear()
    await asyncio.wait_for(refusals.wait(), 20)  # it keeps trying
    assert at_a.queue.empty()
    assert a.connected() == frozenset()


async def test_what_breaks_the_protocol_loses_its_connection(members: Members) -> None:
    _, at_a = await members.start("a")
    b, at_b = await members.start("b")
    assert await at_b.next() == ("connected", "a")
    assert await at_a.next() == ("connected", "b")
    at_a.refuse = True
    send(b, "a")
    assert await at_a.next() == ("disconnected", "b")
    assert await at_b.next() == ("disconnected", "a")
    assert await at_a.next() == ("connected", "b")


async def test_a_peer_that_does_not_read_loses_its_connection(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_UNSENT", 1_000_000)
    a, at_a = await members.start("a")
    await members.start("b")
    assert await at_a.next() == ("connected", "b")
    big = messages.SnapshotChunk(1, 1.0, 1, 1, 1, 0, b"", bytes(1_000_000))
    while send(a, "b", big):  # not read meanwhile: the loop does not run
        pass
    assert await at_a.next() == ("disconnected", "b")
    assert await at_a.next() == ("connected", "b")


async def test_strangers_are_bounded_in_number_and_time(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_UNPROVEN", 3)
    monkeypatch.setattr(transport, "HANDSHAKE_SECONDS", 0.2)
    await members.start("a")
    host, port = members.peers["a"]
    connections = [await asyncio.open_connection(host, port) for _ in range(6)]
    for reader, writer in connections:
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
    _, at_b = await members.start("b")
    assert await at_b.next() == ("connected", "a")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x00", bytes(1000), b"\xff" * 300])
async def test_garbage_is_answered_by_the_door(members: Members, data: bytes) -> None:
    _, at_a = await members.start("a")
    reader, writer = await asyncio.open_connection(*members.peers["a"])
    writer.write(data)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()
    assert at_a.queue.empty()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_dial_that_is_cancelled_when_it_connects_leaves_nothing(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """uvloop never reports the end of such a connection: a removed member could not be stopped."""

    async def cancel_and_stop() -> None:
        accepted_ends = asyncio.get_running_loop().create_future()

        async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            accepted_ends.set_result(None)

        listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        connected = asyncio.get_running_loop().create_future()

        class RemovedWhileConnecting(TcpTransport):
            def opened(self, connection: Connection, *, dialled: bool) -> None:
                super().opened(connection, dialled=dialled)
                self.set_members({})
                connected.set_result(None)

        member = RemovedWhileConnecting("b", SECRET, Seen().events)
        member.set_members({"a": [("127.0.0.1", port)]})
        await member.start("127.0.0.1", 0)
        await connected
        async with asyncio.timeout(10):
            await member.stop()
        await accepted_ends
        listener.close()
        await listener.wait_closed()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(cancel_and_stop())
