"""A slave repairs damage that its broker has found from a master that answers nothing but replication, as Java's do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.replica_link import LogState
from rocketmq_formats.replication.frames import encode_master_handshake, encode_transfer_header
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.audit.ha_reader import HaReader
from tests.sidecar.audit.test_log_audit import DAMAGES, IN_BODY, PER_FILE, change, follows, offset_of
from tests.sidecar.replication.replica_kit import FILE_SIZE, Replica, acknowledged, in_sync, replicas


async def like_official(one: Replica, two: Replica) -> None:
    """Both have the same log; the master answers nothing but replication, and the slave has let go."""
    one.native = False
    await one.lead(1, 1)
    one.append(*(bytes([65 + number % 26]) * 1000 for number in range(3 * PER_FILE + 5)))
    await in_sync(one, two)
    await two.replication.unfollow()
    await one.until(lambda: one.progress.in_sync == 1)


@pytest.mark.parametrize("name", DAMAGES)
async def test_damage_that_the_broker_knows_is_repaired_from_an_official_master(tmp_path: Path, name: str) -> None:
    damage, place = DAMAGES[name]
    async with replicas(tmp_path, 2) as (one, two):
        await like_official(one, two)
        damage(two)
        two.hello(LogState(damage=place, reason="changed"))
        await follows(one, two)
        assert two.repaired[0][0] == place
        assert two.log() == one.log()
        assert two.replication._audit_watch._comparing is None
        assert (two.truncations, two.troubles, one.suspected) == ([], [], [])


async def test_reading_from_an_official_master_changes_nothing_for_its_group(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await like_official(one, two)
        await follows(one, two)
        wishes, confirmed = list(one.wishes), one.progress.confirm_offset
        reader = HaReader(f"127.0.0.1:{one.replication.ha_port}")
        log = one.log()
        for offset, length in ((0, 100), (FILE_SIZE - 50, 100), (offset_of(5), 70_000), (one.end - 1, 1)):
            assert await reader.read(offset, length) == log[offset : offset + length]
        assert await reader.read(one.end - 1, 2) is None
        one.append(b"one more")
        await acknowledged(one)
        assert one.wishes == wishes
        assert one.progress.confirm_offset > confirmed
        assert one.progress.members == {1, 2}


async def test_what_an_official_master_has_not_whole_either_stays_as_it_is(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await like_official(one, two)
        change(one, offset_of(7) + IN_BODY, b"!")
        change(two, offset_of(7) + IN_BODY, b"?")
        before = two.log()
        two.hello(LogState(damage=offset_of(7), reason="flipped"))
        with capture_logs() as logs:
            await follows(one, two)
        assert any("cannot be notified" in entry["event"] for entry in logs)
        assert two.log()[: len(before)] == before
        assert (two.repaired, two.suspected) == ([], [offset_of(7)])


async def test_an_official_master_whose_log_begins_later_repairs_nothing(tmp_path: Path) -> None:
    """Where Java does not hold an offset it sends heartbeats, and for 0 what it has."""

    async def master(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(20):
            await serve(reader, writer)
        writer.close()
        served.set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(16)
        answer = encode_master_handshake(5000, EpochList.of([(1, 0)]))
        for part in (answer[:7], answer[7:25], answer[25:]):
            writer.write(part)
            await writer.drain()
        await reader.readexactly(12)
        writer.write(answer + encode_transfer_header(0, 1000, 1, 0, 0) + encode_transfer_header(9, 1000, 1, 0, 0))
        writer.write(bytes(9))
        await reader.read()

    served = asyncio.Event()
    server = await asyncio.start_server(master, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        reader = HaReader(f"{host}:{port}")
        for offset, length, found in ((0, 100, None), (1000, 5, bytes(5))):
            served.clear()
            assert await reader.read(offset, length) == found
            await served.wait()
