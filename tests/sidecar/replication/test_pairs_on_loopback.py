"""Replicas with real stores and sockets: copying, acknowledging, joining, changing roles, refusing."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

import pytest

from rocketmq_formats.replication.frames import SlaveHandshake, encode_ack, encode_slave_handshake
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.replication import Replication, ReplicationError, StaleEpochError
from rocketmq_store.errors import NotWriterError
from tests.sidecar.replication.replica_kit import FILE_SIZE, Replica, replicas


def epochs(replica: Replica) -> list[str]:
    return (replica.folder / "epochFileCheckpoint").read_text().splitlines()[2:]


async def in_sync(master: Replica, *slaves: Replica, epoch: int = 1) -> None:
    for slave in slaves:
        await slave.follow(master, epoch)
    await master.until(lambda: master.progress.in_sync == 1 + len(slaves))
    await acknowledged(master)


async def acknowledged(master: Replica) -> None:
    await master.until(lambda: master.progress.acked_offset == master.end)


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


async def test_a_slave_told_too_early_arrives_when_the_master_is_one(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await two.follow(one, 1)
        await two.follow(one, 1)
        await asyncio.sleep(0)
        await one.lead(1, 1)
        one.append(b"first")
        await one.until(lambda: one.progress.in_sync == 2)
        await acknowledged(one)


async def test_masters_take_turns_and_the_old_one_gives_up_what_nobody_has(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"kept")
        await in_sync(one, two)
        kept = one.end
        one.agree_at_once = False  # the controllers elect the other one
        await two.replication.unfollow()
        one.append(b"only here", b"and this")
        await two.lead(2, 2)
        two.append(b"another history", b"altogether")
        await in_sync(two, one, epoch=2)
        assert one.truncations == [kept]
        assert one.log() == two.log()
        assert epochs(one) == epochs(two) == ["1-0", f"2-{kept}"]
        await one.replication.unfollow()
        one.agree_at_once = True
        await one.lead(3, 1)
        one.append(b"third")
        await in_sync(one, two, epoch=3)
        assert one.log() == two.log()
        assert two.truncations == []


async def test_elected_again_slaves_keep_their_connections(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        end = one.end
        await one.lead(2, 1, 2)
        one.append(b"second")  # arrives before the slave was told of epoch 2
        await two.replication.follow(2, 1, one.address)
        await acknowledged(one)
        assert one.progress.epoch == 2
        assert epochs(two) == ["1-0", f"2-{end}"]
        assert one.wishes == [{1, 2}]


@pytest.mark.parametrize("crash", ["broker", "log", "epochs"])
async def test_a_truncation_that_is_interrupted_is_made_good(
    tmp_path: Path, crash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"kept")
        await in_sync(one, two)
        kept = one.end
        one.agree_at_once = False  # the controllers elect the other one
        await two.replication.unfollow()
        one.append(b"only here", b"and this")
        await one.lead(3, 1, 2)
        one.append(b"a second lost epoch")
        lost = one.end
        await two.lead(4, 2)
        two.append(b"x" * 500)
        reached = asyncio.Event()

        async def stuck(_: int) -> None:
            reached.set()
            await asyncio.Event().wait()

        client = one.replication
        save = client._store.save

        async def fail(list_of_epochs: EpochList) -> None:
            if crash == "epochs":
                await save(list_of_epochs)
            reached.set()
            raise StorageError(client._store.path, "the disk is gone")

        if crash == "broker":
            monkeypatch.setattr(client, "_truncate_broker", stuck)
        else:
            monkeypatch.setattr(client._store, "save", fail)
        await one.follow(two, 4)
        await reached.wait()
        await client.unfollow()  # what is left is what a crash leaves
        assert client.max_offset == (lost if crash == "broker" else kept)
        assert not one.lock.held
        again = Replica(one.folder, 1)
        again.end, again.confirm = client.max_offset, client.confirm_offset
        await again.start()
        try:
            # Of entries that outlived their bytes none is left after a start.
            assert again.replication.last_epoch == (3 if crash == "broker" else 1)
            await in_sync(two, again, epoch=4)
            assert again.log() == two.log()
            assert epochs(again) == epochs(two)
        finally:
            await again.stop()


async def test_confirmed_messages_are_kept_and_an_operator_called(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        first = one.append(b"first")
        one.append(b"second")
        await in_sync(one, two)
        await two.until(lambda: two.confirm == one.end)
        before = two.log()
        one.lock.release()
        await one.replication.resign()
        one.end = first  # its disk lost a confirmed message
        one.hello()
        await one.lead(2, 1)
        one.append(b"instead")
        await two.follow(one, 2)
        await two.until(lambda: bool(two.troubles))
        assert "Elect this replica" in (two.troubles[-1] or "")
        assert two.log() == before
        assert two.truncations == []


async def test_relaxed_groups_give_confirmed_messages_up(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, durability="relaxed", all_ack_in_sync_state_set=False) as (one, two):
        await one.lead(1, 1)
        first = one.append(b"first")
        one.append(b"second")
        await in_sync(one, two)
        await two.until(lambda: two.confirm == one.end)
        one.lock.release()
        await one.replication.resign()
        one.end = first
        one.hello()
        await one.lead(2, 1)
        one.append(b"instead")
        await in_sync(one, two, epoch=2)
        assert two.log() == one.log()


async def test_the_newest_connection_of_an_id_wins(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        reader, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
        writer.write(encode_slave_handshake(SlaveHandshake(2)) + encode_ack(one.end))
        server = one.replication._server
        assert server is not None
        # Both come again and again; there is never more than one, and nobody left the set over it.
        await reader.readexactly(20 + 12)
        assert len([c for c in server.connections if c.session.slave is not None]) == 1
        assert {1, 2} == server.mastership.sync_set.members  # type: ignore[union-attr]  # it is master
        writer.close()
        await writer.wait_closed()


async def test_a_closed_connection_shrinks_the_set_at_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as (one, two, three):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two, three)
        one.agree_at_once = False
        await two.replication.stop()
        await one.until(lambda: one.wishes[-1] == {1, 3})
        one.append(b"second")
        await three.until(lambda: three.end == one.end)
        assert one.progress.acked_offset < one.end  # 2 counts until the controllers agreed
        one.agree(1, 3)
        await acknowledged(one)
        await three.replication.stop()
        await one.until(lambda: one.wishes[-1] == {1})
        one.append(b"third")
        one.agree(1)
        assert one.progress.acked_offset < one.end  # strict: one copy is not enough
        assert one.progress.in_sync == 1


async def test_learners_copy_and_stay_outside(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, async_learner=True) as (one, two):
        await one.lead(1, 1)
        await two.follow(one, 1)
        one.append(b"first")
        await two.until(lambda: two.end == one.end)
        assert one.wishes == []


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


async def test_who_is_no_master_serves_nobody(tmp_path: Path) -> None:
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


async def test_what_the_log_lost_leaves_the_epoch_file(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        await one.lead(1, 1)
        one.append(b"first")
        left = one.end
        one.append(b"more")
        await one.lead(2, 1)
        one.append(b"second")
        await one.replication.resign()
        one.files.truncate(left)  # what recovery does with a torn tail
        one.end = left
        one.hello()
        assert epochs(one) == ["1-0"]
        with pytest.raises(StaleEpochError):
            await one.lead(0, 1)


async def test_what_was_received_counts_though_the_broker_has_not_heard_of_it(tmp_path: Path) -> None:
    # Found by the simulation: only the link between the halves broke, and acknowledged bytes were cut off.
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two, epoch=1)
        await one.lead(2, 1)
        one.append(b"second")
        await in_sync(one, two, epoch=2)
        await two.replication.unfollow()
        two.end = one.end // 2
        two.hello()
        assert two.replication.max_offset == one.end
        assert [line.partition("-")[0] for line in epochs(two)] == ["1", "2"]
        await in_sync(one, two, epoch=2)
        two.end = one.end
        assert two.log() == one.log()


async def test_expired_epochs_are_forgotten(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"x" * 60_000, b"y" * 60_000)
        await one.lead(2, 1)
        one.append(b"z" * 60_000, b"z" * 60_000)
        await in_sync(one, two, epoch=2)
        for each in (one, two):
            each.replication.retained(3 * FILE_SIZE)
        assert one.replication._server.mastership.epochs.last_epoch == 2  # type: ignore[union-attr]  # it is master
        one.append(b"more")
        await acknowledged(one)
    assert [line.partition("-")[0] for line in epochs(one)] == ["2"]
    assert [line.partition("-")[0] for line in epochs(two)] == ["2"]


async def test_roles_need_an_identity_and_a_log(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "1", 1)
    with pytest.raises(ReplicationError):
        await replica.replication.follow(1, 2, "127.0.0.1:1")
    assert isinstance(replica.replication, Replication)
    with pytest.raises(NotWriterError):
        replica.files.view(0, 10)


async def test_an_end_that_the_broker_cut_is_the_end_of_what_a_slave_acknowledges(tmp_path: Path) -> None:
    # Elected and replaced before the epoch began: the broker had cut the torn record that had been received last.
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        kept = one.end
        one.append(b"torn")
        await in_sync(one, two)
        await two.replication.unfollow()
        two.lock.acquire()
        two.files.load()
        two.files.truncate(kept)
        two.replication.appended(kept, 0)  # Released
        assert two.replication.max_offset == kept
        two.end = kept
        two.lock.release()
        await two.follow(one, 1)
        one.append(b"more")
        await acknowledged(one)
        assert two.log() == one.log()


async def test_nothing_is_acknowledged_without_those_who_are_wished_for_anew(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        one.agree_at_once = False
        _, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
        writer.write(encode_slave_handshake(SlaveHandshake(3)) + encode_ack(one.end))
        await one.until(lambda: one.wishes[-1] == {1, 2, 3})
        held = one.progress.acked_offset
        one.append(b"that the third one does not acknowledge")
        await two.until(lambda: two.end == one.end)
        server = one.replication._server
        assert server is not None
        assert server.mastership is not None
        async with asyncio.timeout(20):
            while server.mastership.acks[2] < one.end:
                await asyncio.sleep(0)
        one.agree(1, 2)
        assert one.wishes[-2:] == [{1, 2, 3}, {1, 2, 3}]
        assert one.progress.acked_offset == held
        writer.close()
        await writer.wait_closed()


async def test_slaves_of_a_master_that_is_elected_again_are_wished_for_at_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        one.wishes.clear()
        await one.lead(2, 1)
        assert one.wishes == [{1, 2}]
