"""The remoting client: what callers get when peers answer, are late, hang up, lie or are down."""

import asyncio
import gc
import socket

import pytest

from rocketmq_formats.codes import SerializeType
from rocketmq_formats.remoting.command import MAX_FRAME, RemotingCommand, request, response
from rocketmq_runtime.remoting import client as client_module
from rocketmq_runtime.remoting.client import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    RemotingClient,
)
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer
from tests.runtime.remoting.remoting_kit import Recorder, calling, serving, until

LONG = 60.0


def address(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


def never(asked: RemotingCommand, peer: Peer) -> Answer:
    return None


def nobody() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return f"127.0.0.1:{unused.getsockname()[1]}"


def idle(client: RemotingClient) -> bool:
    """Nothing remembered of any call."""
    return all(not channel._waiting for channel in client._open.values())


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_round_trip_in_both_header_forms(serialize_type: SerializeType) -> None:
    async with serving(Recorder()) as server, calling() as client:
        asked = RemotingCommand(code=1005, ext_fields={"a": "b"}, body=b"x", serialize_type=serialize_type)
        answer = await client.call(address(server), asked)
        assert (answer.code, answer.body, answer.serialize_type) == (0, b"x", serialize_type)


async def test_concurrent_calls_share_a_connection_and_get_their_own_answers() -> None:
    async with serving(Recorder()) as server, calling() as client:
        calls = [client.call(address(server), request(1005, body=b"%d" % n)) for n in range(500)]
        answers = await asyncio.gather(*calls)
        assert [answer.body for answer in answers] == [b"%d" % n for n in range(500)]
        assert server.connections == 1
        assert idle(client)


async def test_the_owner_is_notified_of_lost_connections_but_not_of_those_it_closes() -> None:
    lost: asyncio.Queue[str] = asyncio.Queue()
    async with calling() as client:
        client.on_lost = lost.put_nowait
        async with serving(Recorder()) as server:
            there = address(server)
            await client.call(there, request(1005))
            assert lost.empty()
        assert await lost.get() == there
        with pytest.raises(ConnectError):
            await client.call(there, request(1005))
        async with serving(Recorder()) as server:
            await client.call(address(server), request(1005))
            await client.close()
    assert lost.empty()


async def test_one_command_can_go_to_many_addresses_at_once() -> None:
    async with serving(Recorder()) as one, serving(Recorder()) as two, calling() as client:
        asked = request(1005, body=b"x")
        answers = await asyncio.gather(*(client.call(address(server), asked) for server in (one, two, one)))
        assert [answer.body for answer in answers] == [b"x", b"x", b"x"]
        assert idle(client)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("nowhere", "not an address"),
        ("host:0", "not an address"),
        ("host:٣", "not an address"),
        ("x" * 70 + ".invalid:1", "cannot connect"),
    ],
)
async def test_addresses_that_are_none(bad: str, said: str) -> None:
    async with calling() as client:
        with pytest.raises(ConnectError, match=said):
            await client.call(bad, request(1005))
        assert not client._connecting


async def test_connection_refused() -> None:
    async with calling() as client:
        target = nobody()
        with pytest.raises(ConnectError, match=f"cannot connect to {target}: Connection refused"):
            await client.call(target, request(1005))
        with pytest.raises(ConnectError):
            await client.send_oneway(target, request(904))


async def test_a_late_answer_fails_the_call_and_what_shares_its_connection_then_reconnects() -> None:
    handler = Recorder(lambda asked, peer: response(asked, 0))
    async with serving(handler) as server, calling() as client:
        await client.call(address(server), request(1005), timeout=LONG)  # the time-out below is for an answer alone
        handler.respond = never
        other = asyncio.ensure_future(client.call(address(server), request(1005), timeout=LONG))
        with pytest.raises(CallTimeoutError, match=r"no answer from .* within 0\.01 s"):
            await client.call(address(server), request(1005), timeout=0.01)  # any speed
        with pytest.raises(ConnectionLostError, match="another call"):
            await other
        await until(lambda: len(handler.closed) == 1)
        handler.respond = lambda asked, peer: response(asked, 0)
        assert (await client.call(address(server), request(1005))).code == 0


async def test_the_peer_hangs_up() -> None:
    def hang_up(asked: RemotingCommand, peer: Peer) -> Answer:
        peer.close()
        return None

    async with serving(Recorder(hang_up)) as server, calling() as client:
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            await client.call(address(server), request(1005), timeout=LONG)


async def test_a_connection_that_ended_while_unused_is_opened_again() -> None:
    handler = Recorder()
    async with serving(handler) as server, calling() as client:
        for count in (1, 2, 3):
            assert (await client.call(address(server), request(1005), timeout=LONG)).code == 0
            assert len(handler.peers) == count
            for peer in handler.peers.values():
                peer.close()
            await until(lambda: not client._open)


async def test_a_lying_peer_is_left() -> None:
    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"\xff\xff\xff\xff")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(lie, "127.0.0.1", 0)
    async with server, calling() as client:
        with pytest.raises(ConnectionLostError, match="bad frame"):
            await client.call(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", request(1005), timeout=LONG)


async def test_answers_without_a_waiting_caller_are_dropped() -> None:
    def twice(asked: RemotingCommand, peer: Peer) -> Answer:
        peer.send(response(request(1005, opaque=asked.opaque + 1000), 1))
        peer.send(response(asked, 0))
        return response(asked, 1)

    async with serving(Recorder(twice)) as server, calling() as client:
        assert (await client.call(address(server), request(1005))).code == 0
        assert (await client.call(address(server), request(1005))).code == 0


async def test_a_cancelled_call_leaves_the_connection_to_the_others() -> None:
    handler = Recorder(never)
    async with serving(handler) as server, calling() as client:
        cancelled = asyncio.ensure_future(client.call(address(server), request(1005), timeout=LONG))
        await until(lambda: len(handler.requests) == 1)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert idle(client)
        handler.respond = lambda asked, peer: response(asked, 0)
        await client.call(address(server), request(1005))
        assert server.connections == 1


async def test_a_caller_that_gives_up_while_connecting_does_not_take_the_others_along() -> None:
    async with serving(Recorder()) as server, calling() as client:
        first = asyncio.ensure_future(client.call(address(server), request(1005)))
        second = asyncio.ensure_future(client.call(address(server), request(1005)))
        await until(lambda: bool(client._connecting))
        first.cancel()
        assert (await second).code == 0
        assert first.cancelled()


async def test_the_time_out_covers_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling() as client:
        stuck_connecting(client, monkeypatch)
        with pytest.raises(ConnectError, match=r"within 0\.01 s"):
            await client.call("10.0.0.1:1", request(1005), timeout=0.01)  # any speed
        client._connect_timeout = 0.02
        with pytest.raises(ConnectError, match=r"10\.0\.0\.2:1"):
            await client.send_oneway("10.0.0.2:1", request(904))


async def test_closing_ends_calls_in_every_state(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Recorder(never)
    async with serving(handler) as server:
        client = RemotingClient()
        waiting = asyncio.ensure_future(client.call(address(server), request(1005), timeout=LONG))
        await until(lambda: len(handler.requests) == 1)
        stuck_connecting(client, monkeypatch)
        connecting = asyncio.ensure_future(client.call("10.0.0.1:1", request(1005), timeout=LONG))
        await until(lambda: bool(client._connecting))
        await client.close()
        with pytest.raises(ConnectionLostError, match="closed here"):
            await waiting
        with pytest.raises(ConnectError, match="client is closed"):
            await connecting
        with pytest.raises(ConnectError, match="client is closed"):
            await client.call(address(server), request(1005))
        await until(lambda: len(handler.closed) == 1)


def stuck_connecting(client: RemotingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no connection comes about, as with a host that drops packets."""

    class StuckLoop:
        def __getattr__(self, name: str) -> object:
            return getattr(loop, name)

        async def create_connection(self, *_: object) -> None:
            await loop.create_future()

    loop = client.loop
    monkeypatch.setattr(client, "loop", StuckLoop())


async def test_a_connect_that_fails_after_its_caller_gave_up_is_no_unseen_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unseen: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    async with calling() as client:
        refused = loop.create_future()

        class LateLoop:
            def __getattr__(self, name: str) -> object:
                return getattr(loop, name)

            async def create_connection(self, *_: object) -> None:
                await refused

        monkeypatch.setattr(client, "loop", LateLoop())
        with pytest.raises(ConnectError, match=r"within 0\.001 s"):
            await client.call("127.0.0.1:1", request(1005), timeout=0.001)  # any speed
        refused.set_exception(ConnectionRefusedError())
        await until(lambda: not client._connecting)
        gc.collect()
        await asyncio.sleep(0)
    assert unseen == []


async def test_oneways_arrive_marked_and_before_close() -> None:
    handler = Recorder()
    async with serving(handler) as server:
        async with calling() as client:
            for _ in range(100):
                await client.send_oneway(address(server), request(904, body=bytes(100_000)))
        await until(lambda: len(handler.requests) == 100)
        assert all(asked.is_oneway for asked in handler.requests)


async def test_what_fits_no_frame_is_refused_and_forgotten() -> None:
    async with serving(Recorder()) as server, calling() as client:
        with pytest.raises(ValueError, match="larger than peers accept"):
            await client.call(address(server), request(1005, body=bytes(MAX_FRAME)))
        assert idle(client)


async def test_a_peer_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_UNSENT_BYTES", 100_000)
    accepted: list[asyncio.StreamWriter] = []
    ignoring = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0, limit=1)
    async with ignoring, calling() as client:
        target = f"127.0.0.1:{ignoring.sockets[0].getsockname()[1]}"
        call = asyncio.ensure_future(client.call(target, request(1005), timeout=LONG))
        await until(lambda: bool(accepted))
        with pytest.raises(ConnectError, match="does not read"):
            await send_forever(client, target)
        with pytest.raises(ConnectionLostError, match="does not read"):
            await call
        for writer in accepted:
            writer.transport.abort()


async def send_forever(client: RemotingClient, target: str) -> None:
    while True:
        await client.send_oneway(target, request(904, body=bytes(1_000_000)))


async def test_requests_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_REQUESTS_IN_FLIGHT", 1)
    handler = Recorder(never)
    async with serving(handler) as server:
        async with calling() as client:
            first = asyncio.ensure_future(client.call(address(server), request(1005), timeout=LONG))
            await until(lambda: len(handler.requests) == 1)
            with pytest.raises(ConnectError, match="in flight"):
                await client.call(address(server), request(1005))
        with pytest.raises(ConnectionLostError):
            await first


async def test_pushes_reach_their_taker_whose_bugs_stay_its_own() -> None:
    def push(asked: RemotingCommand, peer: Peer) -> Answer:
        peer.send(request(40, body=b"pushed", oneway=True))
        return response(asked, 0)

    async with serving(Recorder(push)) as server, calling() as client:
        assert (await client.call(address(server), request(1005))).code == 0
        pushed: list[tuple[bytes, str]] = []

        def take(command: RemotingCommand, sender: str) -> None:
            pushed.append((command.body, sender))
            raise RuntimeError("a bug")

        client.on_push = take
        assert (await client.call(address(server), request(1005))).code == 0
        assert pushed == [(b"pushed", address(server))]


async def test_a_name_has_one_lookup_at_a_time_however_often_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup cannot be cancelled, and few run at once: a name server whose name no resolver answers must not keep
    the others from being found."""
    looked_up: list[str] = []
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()

    async def look_up(host: str, *_: object, **__: object) -> list[object]:
        looked_up.append(host)
        await asyncio.shield(answer)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    client = RemotingClient(connect_timeout=0)
    for _ in range(3):
        with pytest.raises(ConnectError):
            await client.call("silent.example:9876", request(1005))
    assert looked_up == ["silent.example"]
    answer.set_result(None)
    await client.close()

    async with serving(Recorder()) as server, calling() as again:
        assert (await again.call(f"silent.example:{server.port}", request(1005))).code == 0
        assert looked_up == ["silent.example"] * 2, "nothing is kept: an address may change"


async def test_the_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(*_: object, **__: object) -> list[object]:
        return [(family, socket.SOCK_STREAM, 6, "", (host, 0)) for family, host in places]

    places = [(socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.1")]
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    async with serving(Recorder()) as server, calling() as client:
        assert (await client.call(f"two.example:{server.port}", request(1005))).code == 0
        await client.close()
    async with calling() as client:
        with pytest.raises(ConnectError, match="refused"):
            await client.call("two.example:1", request(1005))
