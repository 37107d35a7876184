"""The sidecar's end of the Unix socket: one broker, its own user, bounded, coalesced."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_formats.replica_link import (
    MAX_FRAME,
    PROTOCOL,
    Appended,
    FromBroker,
    FromSidecar,
    Hello,
    Lease,
    LinkReader,
    NoRole,
    Prepare,
    Replicated,
    Welcome,
    decode_from_sidecar,
    encode,
)
from rocketmq_sidecar.control import broker_link
from rocketmq_sidecar.control.broker_link import BrokerLink

HELLO = Hello(PROTOCOL, "C", "broker-a", "10.0.0.1:10911", 0, 0, 0, 65_536)


class Handler:
    """Remembers; refuses if told to."""

    def __init__(self) -> None:
        self.refuses: str | None = None
        self.events: list[object] = []
        self.changed = asyncio.Event()

    def on_hello(self, hello: Hello) -> str | None:
        if self.refuses is None:
            self._record(hello)
        return self.refuses

    def on_message(self, message: FromBroker) -> None:
        self._record(message)

    def on_disconnect(self, reason: str) -> None:
        self._record(reason)

    def _record(self, event: object) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, count: int) -> None:
        while len(self.events) < count:
            self.changed.clear()
            await self.changed.wait()


class Peer:
    """A client of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._link = LinkReader()
        self._heard: list[FromSidecar] = []

    @classmethod
    async def connect(cls, path: Path) -> "Peer":
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            return cls(*await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}"))
        finally:
            os.close(folder)

    def send(self, *messages: FromBroker) -> None:
        self.writer.write(b"".join(map(encode, messages)))

    async def receive(self, count: int) -> list[FromSidecar]:
        while len(self._heard) < count:
            data = await self.reader.read(65_536)
            assert data, "closed"
            self._heard += map(decode_from_sidecar, self._link.receive(data))
        return self._heard

    async def closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
async def link(tmp_path: Path, handler: Handler):
    link = BrokerLink(tmp_path / "sidecar.sock", handler)
    await link.start()
    yield link
    await link.stop()
    await asyncio.sleep(0)


async def test_talk(link: BrokerLink, handler: Handler) -> None:
    peer = await Peer.connect(link._path)
    peer.send(HELLO, Appended(10, 5))
    await handler.until(2)
    assert handler.events == [HELLO, Appended(10, 5)]
    link.send(Welcome(1))
    assert await peer.receive(1) == [Welcome(1)]
    await peer.close()
    await handler.until(3)
    assert not link.connected


async def test_levels_of_one_turn_are_one_message_and_overtake_nothing(link: BrokerLink, handler: Handler) -> None:
    peer = await Peer.connect(link._path)
    peer.send(HELLO)
    await handler.until(1)
    for offset in range(100):
        link.send(Replicated(offset, offset))
    link.send(Lease(1, 1.0))
    link.send(Prepare(2))
    link.send(Replicated(200, 200))
    link.send(Lease(2, 2.0))
    assert await peer.receive(5) == [
        Replicated(99, 99),
        Lease(1, 1.0),
        Prepare(2),
        Replicated(200, 200),
        Lease(2, 2.0),
    ]
    await peer.close()


async def test_what_is_sent_now_waits_for_no_turn_and_overtakes_nothing(link: BrokerLink, handler: Handler) -> None:
    peer = await Peer.connect(link._path)
    peer.send(HELLO)
    await handler.until(1)
    link.send(Prepare(2))
    link.send(Lease(1, 1.0))
    link.send_now(Replicated(100, 100))
    received = os.read(peer.writer.get_extra_info("socket").fileno(), 65_536)
    expected = [Prepare(2), Lease(1, 1.0), Replicated(100, 100)]
    assert list(map(decode_from_sidecar, LinkReader().receive(received))) == expected
    link.send(Lease(2, 2.0))
    assert await peer.receive(1) == [Lease(2, 2.0)]
    await peer.close()


async def test_second_broker_is_refused_while_the_first_lives(link: BrokerLink, handler: Handler) -> None:
    first = await Peer.connect(link._path)
    first.send(HELLO)
    await handler.until(1)
    second = await Peer.connect(link._path)
    second.send(HELLO)
    assert await second.closed()
    assert link.connected
    await first.close()
    await handler.until(2)
    third = await Peer.connect(link._path)
    third.send(HELLO)
    await handler.until(3)
    for peer in (second, third):
        await peer.close()


@pytest.mark.parametrize(
    "data",
    [
        encode(Appended(1, 1)),
        encode(Hello(PROTOCOL + 1, "C", "broker-a", "10.0.0.1:10911", 0, 0, 0, 65_536)),
        (MAX_FRAME + 1).to_bytes(4, "big"),
        b"\0\0\0\3abc",
        encode(NoRole("not a broker's word")),
    ],
)
async def test_nonsense_is_refused(link: BrokerLink, handler: Handler, data: bytes) -> None:
    peer = await Peer.connect(link._path)
    peer.writer.write(data)
    assert await peer.closed()
    assert handler.events == []
    await peer.close()


async def test_refused_by_the_handler(link: BrokerLink, handler: Handler) -> None:
    handler.refuses = "another group's"
    peer = await Peer.connect(link._path)
    peer.send(HELLO)
    assert await peer.closed()
    assert not link.connected
    await peer.close()


async def test_another_users_connection_is_refused(
    link: BrokerLink, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_link._Connection, "peer_uid", lambda _: os.geteuid() + 1)
    peer = await Peer.connect(link._path)
    assert await peer.closed()
    await peer.close()


async def test_strangers_are_few(link: BrokerLink) -> None:
    peers = [await Peer.connect(link._path) for _ in range(broker_link.MAX_UNIDENTIFIED + 1)]
    assert await peers[-1].closed()
    for peer in peers:
        await peer.close()


async def test_long_path_and_a_socket_left_by_an_earlier_process(tmp_path: Path, handler: Handler) -> None:
    path = tmp_path / ("d" * 120) / "sidecar.sock"
    for _ in range(2):
        link = BrokerLink(path, handler)
        await link.start()
        assert path.stat().st_mode & 0o777 == 0o600
        peer = await Peer.connect(path)
        peer.send(HELLO)
        handler.events.clear()
        await handler.until(1)
        kept = path.parent / "kept"
        path.rename(kept)
        await link.stop()
        kept.rename(path)  # as after a kill -9
        await peer.close()
        await asyncio.sleep(0)


async def test_a_broker_that_sends_messages_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from when a broker could connect; a refused broker counts as there, and after a cut the time starts
    again."""
    now = 0.0
    handler = Handler()
    link = BrokerLink(tmp_path / "sidecar.sock", handler)
    monkeypatch.setattr(link, "_loop", Clock(asyncio.get_running_loop(), lambda: now))
    now = 1000.0
    assert link.hung() is None  # no broker could connect
    await link.start()
    try:
        now += broker_link.ABSENT_SECONDS
        assert link.hung() is None
        now += 1
        assert link.hung() == "no broker has connected for 11 s"
        handler.refuses = "another file size"
        peer = await Peer.connect(tmp_path / "sidecar.sock")
        peer.send(HELLO)
        assert await peer.closed()
        await peer.close()
        assert link.hung() is None
        handler.refuses = None
        peer = await Peer.connect(tmp_path / "sidecar.sock")
        peer.send(HELLO)
        await handler.until(1)
        now += 1000
        assert link.hung() is None  # connected: the watch asks it
        link.drop("it hangs")
        await handler.until(2)
        await peer.close()
        assert link.hung() is None
        now += broker_link.ABSENT_SECONDS + 1
        assert link.hung() == "no broker has connected for 11 s"
    finally:
        await link.stop()
    assert link.hung() is None


class Clock:
    """A loop whose time is ours."""

    def __init__(self, loop: asyncio.AbstractEventLoop, time: Callable[[], float]) -> None:
        self._loop, self.time = loop, time

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)
