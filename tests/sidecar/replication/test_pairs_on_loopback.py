"""Replicas with real stores and sockets: copying, acknowledging, joining, refusing, and reports."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from pathlib import Path

import pytest

from rocketmq_formats.replication.frames import SlaveHandshake, encode_ack, encode_slave_handshake
from rocketmq_sidecar.replication.replication import Replication, ReplicationError
from rocketmq_store.errors import NotWriterError
from tests.sidecar.replication.replica_kit import FILE_SIZE, Replica, acknowledged, epochs, in_sync, replicas

pytestmark = pytest.mark.usefixtures("with_and_without_secret")


async def test_copies_and_acknowledges(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"before", b"anybody", b"follows")
        await two.follow(one, 1)
        await one.until(lambda: one.progress.in_sync == 2)
        for number in range(2000):
            one.append(b"%d" % number * 10)
        await acknowledged(one)
        assert two.end == one.end
        assert two.log() == one.log()
        assert one.wishes == [{1, 2}]
        assert epochs(two) == ["1-0"]
        await two.until(lambda: two.confirm == one.end)  # without another message


async def test_large_messages_cross_files_of_several_replicas(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3, flush_disk_type="SYNC_FLUSH") as (one, two, three):
        await one.lead(1, 1)
        for number in range(40):
            one.append(bytes([number]) * 50_000)
        await in_sync(one, two, three)
        one.append(b"and one more")
        await acknowledged(one)
        assert one.log() == two.log() == three.log()
        assert one.end > 20 * FILE_SIZE


async def test_large_batches_leave_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    def sendfile(to: int, of: int, offset: int, count: int) -> int:
        nonlocal sent
        size = os_sendfile(to, of, offset, count)
        sent += size
        return size

    os_sendfile = os.sendfile
    monkeypatch.setattr(os, "sendfile", sendfile)
    async with replicas(tmp_path, 2, file_size=1 << 20) as (one, two):
        await one.lead(1, 1)
        for number in range(20):
            one.append(bytes([number]) * 50_000)
        await in_sync(one, two)
        assert sent > one.end / 2


async def test_the_epoch_file_is_where_the_key_says(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "epochs"
    path.parent.mkdir()
    async with replicas(tmp_path / "store", 1, store_path_epoch_file=str(path)) as (one,):
        await one.lead(7, 1)
        assert path.read_text().splitlines()[2:] == ["7-0"]
        assert not (one.folder / "epochFileCheckpoint").exists()


async def test_a_slave_notified_too_early_follows_when_the_master_is_ready(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await two.follow(one, 1)
        await two.follow(one, 1)
        await asyncio.sleep(0)
        await one.lead(1, 1)
        one.append(b"first")
        await one.until(lambda: one.progress.in_sync == 2)
        await acknowledged(one)


async def test_caught_up_replicas_are_reported_while_they_are_watched(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as (one, two, three):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        one.replication.watch_catch_up(1, None)
        assert one.levels == [(1, frozenset({2}), True)], "at once"
        one.replication.watch_catch_up(2, one.end + 1)
        assert one.levels[-1] == (2, frozenset(), False)
        await three.follow(one, 1)
        one.append(b"second")
        await one.until(lambda: one.levels[-1] == (2, frozenset({2, 3}), True))
        await two.replication.unfollow()
        await one.until(lambda: one.levels[-1][1] == frozenset({3}))
        told = len(one.levels)
        one.replication.watch_catch_up(0, None)
        await three.replication.unfollow()
        await one.until(lambda: one.progress.in_sync == 1)
        assert len(one.levels) == told


async def test_nothing_is_reported_after_a_mastership(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        one.replication.watch_catch_up(1, None)
        await one.lead(1, 1)
        one.replication.watch_catch_up(2, 10)
        await one.replication.resign()
        one.append(b"x" * 20)
        one.replication.watch_catch_up(3, None)
        assert one.levels == [(2, frozenset(), False)]


async def test_elected_again_slaves_keep_their_connections(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        end = one.end
        await one.lead(2, 1, 2)
        one.append(b"second")  # arrives before the slave knows epoch 2
        await two.replication.follow(2, 1, one.address)
        await acknowledged(one)
        assert one.progress.epoch == 2
        assert epochs(two) == ["1-0", f"2-{end}"]
        assert one.wishes == [{1, 2}]


async def test_a_new_slave_may_begin_with_the_last_file(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, sync_from_last_file=True) as (one, two):
        await one.lead(1, 1)
        for _ in range(5):
            one.append(b"x" * 30_000)
        await in_sync(one, two)
        start = one.end - one.end % FILE_SIZE
        assert start > 0
        two.files.refresh()
        assert two.files.min_offset == start
        assert two.log(start) == one.log(start)


@pytest.mark.parametrize(
    "said",
    [
        struct.pack(">iq", 7, 0),
        struct.pack(">ihhi", 1, 0, 0, 15) + b"127.0.0.1:10911".ljust(50, b"\0"),
        encode_ack(5),
        encode_slave_handshake(SlaveHandshake(1)),
        encode_slave_handshake(SlaveHandshake(9)) + encode_ack(10**9),
        encode_slave_handshake(SlaveHandshake(9)) * 2 + encode_ack(0) + encode_slave_handshake(SlaveHandshake(9)),
    ],
    ids=["state", "older form", "ack first", "the master's own id", "beyond the end", "handshake in transfer"],
)
async def test_strangers_are_turned_away_and_others_served(
    tmp_path: Path, said: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
            writer.write(said)
            while await reader.read(1000):
                pass
            writer.close()
            await writer.wait_closed()
        one.append(b"second")
        await acknowledged(one)
        assert [line for line in capsys.readouterr().out.splitlines() if "refused" in line and "warning" in line][
            1:
        ] == []


async def test_a_replica_that_is_not_master_serves_no_slave(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        reader, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
        assert await reader.read(1) == b""
        writer.close()
        await writer.wait_closed()


async def test_status(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)

        def ha(replica: Replica) -> dict[str, object]:
            result: dict[str, object] = json.loads(replica.statuses[-1][1])
            return result

        await one.until(lambda: bool(ha(one)["inSyncSlaveNums"]))
        await two.until(lambda: bool(json.loads(two.statuses[-1][0])["epochList"]))
        assert ha(one)["master"] is True
        assert json.loads(one.statuses[-1][0]) == {
            "brokerId": 0,
            "brokerName": "b",
            "clusterName": "C",
            "epochList": [{"endOffset": 2**63 - 1, "epoch": 1, "startOffset": 0}],
            "maxOffset": one.end,
        }
        assert json.loads(two.statuses[-1][0])["brokerId"] == 2


async def test_roles_need_an_identity_and_a_log(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "1", 1)
    with pytest.raises(ReplicationError):
        await replica.replication.follow(1, 2, "127.0.0.1:1")
    assert isinstance(replica.replication, Replication)
    with pytest.raises(NotWriterError):
        replica.files.view(0, 10)
