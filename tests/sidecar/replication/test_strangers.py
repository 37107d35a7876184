"""A peer without the group's secret reads nothing at the HA port, acknowledges nothing, and is not followed."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog.testing

from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_formats.replication import audit
from rocketmq_formats.replication.challenge import Hello, Kind, encode_hello, encode_message, group_digest
from rocketmq_formats.replication.frames import (
    SlaveHandshake,
    encode_ack,
    encode_master_handshake,
    encode_slave_handshake,
    encode_transfer_header,
)
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_runtime.remoting.server import Peer, RemotingServer
from rocketmq_sidecar.replication import ha_server
from tests.records import make_record
from tests.sidecar.replication.replica_kit import Replica, acknowledged, in_sync, replicas

SECRET = b"a secret of the group"


async def exchange(port: int, *words: bytes) -> bytes:
    """What a master answers a stranger until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard = b""
    with contextlib.suppress(ConnectionError):
        for word in words:
            writer.write(word)
            await writer.drain()
        async with asyncio.timeout(10):
            while data := await reader.read(4096):
                heard += data
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return heard


def hello(broker_id: int, group: bytes = group_digest("C", "b")) -> bytes:
    return encode_message(Kind.HELLO, encode_hello(Hello(group, broker_id, 1, 1, b"n" * 32)))


async def test_a_strangers_acknowledgement_does_not_count(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3, own_secret=SECRET) as (one, two, three):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        await two.replication.stop()  # it stays a member: a strict set is never less than two
        await one.until(lambda: not one.replication.slaves)
        acked = one.progress.acked_offset
        for number in range(100):
            one.append(b"message %d" % number)
            forged = encode_slave_handshake(SlaveHandshake(2)) + encode_ack(one.end)
            proof = encode_message(Kind.PROOF, b"?" * 32)
            assert await exchange(one.replication.ha_port, forged) == b"", "nor does it read a byte"
            heard = await exchange(one.replication.ha_port, hello(2) + proof + forged)
            assert len(heard) <= 34 + 3, "a nonce and a refusal"
        assert one.progress.acked_offset == acked
        await three.follow(one, 1)
        await acknowledged(one)


@pytest.mark.parametrize("word", [b"", b"\1", hello(2)[:50], hello(2), encode_slave_handshake(SlaveHandshake(2))[:7]])
async def test_silent_connections_are_closed_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: bytes) -> None:
    monkeypatch.setattr(ha_server, "HANDSHAKE_TIMEOUT", 0.05)
    for secret in (b"", SECRET):
        async with replicas(tmp_path / str(bool(secret)), 1, own_secret=secret) as (one,):
            await one.lead(1, 1)
            assert len(await exchange(one.replication.ha_port, word)) <= 34
            server = one.replication._server
            assert server is not None
            assert not server.connections


async def test_silent_connections_keep_no_slave_out(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3, own_secret=SECRET) as (one, two, three):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        server = one.replication._server
        assert server is not None
        writers = []
        for _ in range(2 * ha_server.MAX_UNIDENTIFIED):
            _, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
            writers.append(writer)
        await in_sync(one, two, three)
        assert len(server.connections) <= ha_server.MAX_UNIDENTIFIED + 2
        one.append(b"second")
        await acknowledged(one)
        for writer in writers:
            writer.close()


async def test_strangers_do_not_fill_the_log(tmp_path: Path) -> None:
    """Without a secret they may connect, acknowledge, ask and leave as often as they like."""
    async with replicas(tmp_path, 1) as (one,):
        await one.lead(1, 1)
        port = one.replication.ha_port
        with structlog.testing.capture_logs() as lines:
            for _ in range(3 * ha_server.LOG_LINES):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(encode_slave_handshake(SlaveHandshake(2)) + encode_ack(0) + encode_ack(1 << 40))
                assert await reader.read()
                writer.close()
                await exchange(port, audit.encode_request(audit.AuditRequest(audit.Kind.DIGEST, 0, 1 << 40)))
    events = collections.Counter(line["event"] for line in lines if line["log_level"] != "debug")
    assert events["slave connected"] == ha_server.LOG_LINES
    assert events["slave disconnected"] == ha_server.LOG_LINES
    assert events["slave refused"] == 1
    assert events["a request about the log was refused"] == 1


class FakeMaster:
    """Has a broker port that answers 906, and an HA port that says `words` to who connects."""

    def __init__(self, words: Callable[[bytes], bytes]) -> None:
        self._words = words
        self._broker = RemotingServer(self, host="127.0.0.1", port=0)
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def start(self) -> None:
        await self._broker.start()
        self._ha = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        self._ha.close()
        await self._broker.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._broker.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                self.heard.put_nowait(data)
                writer.write(self._words(data))
                await writer.drain()
        self.heard.put_nowait(b"")
        writer.close()

    def on_request(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        port = self._ha.sockets[0].getsockname()[1]
        return response(request, 0, header=ExchangeHAInfoHeader(master_ha_address=f"127.0.0.1:{port}"))

    def on_close(self, peer: Peer) -> None:
        pass


def evil() -> bytes:
    record = make_record(0, b"of an attacker")
    batch = encode_transfer_header(len(record), 0, 1, 0, len(record)) + record
    return encode_master_handshake(len(record), EpochList.of([(1, 0)])) + batch


@pytest.mark.parametrize(
    "words",
    [
        lambda _: evil(),
        lambda _: encode_message(Kind.NONCE, b"m" * 32) + encode_message(Kind.PROOF, b"?" * 32) + evil(),
        lambda data: encode_message(Kind.NONCE, b"m" * 32) if len(data) > 40 else data + evil(),
        lambda _: encode_message(Kind.REFUSED, b"\4"),
    ],
    ids=["plain", "guess", "echo", "refusal"],
)
async def test_a_master_that_proves_nothing_is_not_followed(tmp_path: Path, words: Callable[[bytes], bytes]) -> None:
    fake = FakeMaster(words)
    await fake.start()
    async with replicas(tmp_path, 1, own_secret=SECRET) as (one,):
        await one.replication.follow(1, 7, fake.address)
        ended = 0
        while ended < 3:
            ended += await fake.heard.get() == b""
        assert one.replication.max_offset == one.end == 0
        assert not one.log()
    await fake.stop()


@asynccontextmanager
async def on_the_way(port: int, up: Callable[[bytes], bytes], down: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    """A proxy before `port` that changes what goes through; yields its port."""

    async def carry(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(change(data))
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, away = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, away, up), carry(there, writer, down))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def more(ack: bytes) -> bytes:
    """The acknowledgement (28 bytes with its seal) of 4096 bytes more than it says."""
    return encode_ack(int.from_bytes(ack[4:12], "big") + 4096) + ack[12:] if len(ack) == 28 else ack


def further(header: bytes) -> bytes:
    """The heartbeat (52 bytes with its seal) with a confirm offset that the master has not said."""
    return header[:28] + (2**40).to_bytes(8, "big") + header[36:] if len(header) == 52 else header


@pytest.mark.parametrize("changed", ["up", "down"])
async def test_who_is_on_the_way_changes_no_packet(
    tmp_path: Path, changed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    same: Callable[[bytes], bytes] = lambda data: data  # noqa: E731 - beside the other two
    up, down = (more, same) if changed == "up" else (same, further)
    async with replicas(tmp_path, 2, own_secret=SECRET, ha_send_heartbeat_interval=100) as (one, two):
        await one.lead(1, 1)
        async with on_the_way(one.replication.ha_port, up, down) as port:
            proxied = one.replication._ha_port
            one.replication._ha_port = port
            await two.follow(one, 1)
            one.append(b"first")
            out = ""
            while "seal is wrong" not in out:
                await asyncio.sleep(0.01)
                out += capsys.readouterr().out
            assert one.progress.in_sync == 1 or changed == "down"
            assert two.confirm <= one.end
            one.replication._ha_port = proxied
            await two.replication.unfollow()
    assert one.progress.acked_offset <= one.end


async def test_a_running_group_is_given_its_secret(tmp_path: Path) -> None:
    """Restarts one by one, at first with haReplicationSecretRequired=false; in sync after each."""

    @asynccontextmanager
    async def run(one: dict[str, object], two: dict[str, object], epoch: int) -> AsyncIterator[list[Replica]]:
        pair = [Replica(tmp_path / f"{epoch}-{number}", number, **keys) for number, keys in ((1, one), (2, two))]
        for replica in pair:
            await replica.start()
        await pair[0].lead(1, 1)
        pair[0].append(b"first")
        await in_sync(*pair)
        yield pair
        for replica in pair:
            await replica.stop()

    without: dict[str, object] = {}
    asked: dict[str, object] = {"own_secret": SECRET, "ha_replication_secret_required": False}
    required: dict[str, object] = {"own_secret": SECRET}
    for number, (master, slave, proven) in enumerate(
        [
            (without, asked, False),
            (asked, without, False),
            (asked, asked, True),
            (asked, required, True),
            (required, asked, True),
            (required, required, True),
        ]
    ):
        async with run(master, slave, number) as (one, _):
            server = one.replication._server
            assert server is not None
            (connection,) = server.connections
            assert (connection.challenge.slave_id == 2) is proven
