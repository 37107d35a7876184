"""Replicas with real stores and sockets: what is cut from logs and epoch files, what never is, interrupted cuts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.replication.replication import StaleEpochError
from tests.sidecar.replication.replica_kit import FILE_SIZE, Replica, acknowledged, epochs, in_sync, replicas

pytestmark = pytest.mark.usefixtures("with_and_without_secret")


async def test_masters_take_turns_and_the_old_one_gives_up_what_only_it_has(tmp_path: Path) -> None:
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
        save = client._log.epoch_store.save

        async def fail(list_of_epochs: EpochList) -> None:
            if crash == "epochs":
                await save(list_of_epochs)
            reached.set()
            raise StorageError(client._log.epoch_store.path, "the disk is gone")

        if crash == "broker":
            monkeypatch.setattr(client._connector, "_truncate_broker", stuck)
        else:
            monkeypatch.setattr(client._log.epoch_store, "save", fail)
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


async def test_what_was_received_counts_before_the_broker_knows_it(tmp_path: Path) -> None:
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
