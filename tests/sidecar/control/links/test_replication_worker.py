"""Replication's calls in the machine's order, and what goes wrong with them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import PROTOCOL, Hello
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.control.replication_worker import ReplicationWorker
from rocketmq_sidecar.domain.actions import (
    AcceptLoss,
    AdoptSyncSet,
    BeginEpoch,
    Follow,
    OpenLog,
    ProposalRefused,
    SetBrokerId,
    StopReplication,
)
from rocketmq_sidecar.replication.replication import StaleEpochError

HELLO = Hello(PROTOCOL, "C", "broker-a", "10.0.0.1:10911", 0, 0, 0, 65_536)
SET = SyncStateSet(sync_state_set=frozenset({1}), sync_state_set_epoch=1)


class Recorder:
    """A `ReplicationPort` that writes down its calls and fails as told."""

    max_offset = confirm_offset = noted_offset = 0
    last_epoch = -1

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, list[Exception]] = {}

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fails.get(name):
            raise self.fails[name].pop(0)

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def appended(self, max_offset: int, flushed_offset: int) -> None: ...
    def retained(self, min_offset: int) -> None: ...

    def set_broker_id(self, broker_id: int) -> None:
        self._call("identified")

    def open_log(self, hello: Hello) -> str | None:
        self._call("opened")
        return "files are missing"

    def accept_loss(self) -> None:
        self._call("forgiven")

    def mark_proven(self) -> None:
        self._call("proven")

    async def become_master(self, epoch: int, max_offset: int, sync_state_set: SyncStateSet) -> None:
        await asyncio.sleep(0)
        self._call("become_master")

    async def resign(self) -> None:
        self._call("resign")

    async def follow(self, epoch: int, master_broker_id: int, master_address: str) -> None:
        self._call("follow")

    async def unfollow(self) -> None:
        await asyncio.sleep(0)
        self._call("unfollow")

    def set_sync_state_set(self, agreed: SyncStateSet) -> None:
        self._call("set_sync_state_set")

    def proposal_refused(self, proposal: SyncStateSet, dead: int | None) -> None:
        assert proposal is SET
        assert dead == 2
        self._call("sync_set_refused")


class Bench:
    def __init__(self) -> None:
        self.replication = Recorder()
        self.open_log: list[str | None] = []
        self.ended: asyncio.Queue[object] = asyncio.Queue()
        self.replicator = ReplicationWorker(
            self.replication,
            on_opened=lambda _hello, lost: self.open_log.append(lost),
            on_begun=lambda epoch, error: self.ended.put_nowait((epoch, error)),
            on_stopped=lambda: self.ended.put_nowait("stopped"),
            on_failed=self.ended.put_nowait,
        )


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.replicator.start()
    yield bench
    await bench.replicator.stop()


async def test_order_is_kept(bench: Bench) -> None:
    for action in (
        SetBrokerId(1),
        OpenLog(HELLO),
        Follow(1, 2, "x:1"),
        StopReplication(),
        BeginEpoch(2, 0, SET),
        AdoptSyncSet(SET),
    ):
        bench.replicator.put(action)
    bench.replicator.put(ProposalRefused(SET, 2))
    bench.replicator.put(StopReplication())
    assert [await bench.ended.get() for _ in range(3)] == ["stopped", (2, None), "stopped"]
    assert bench.replication.calls == [
        "identified",
        "opened",
        "follow",
        "unfollow",
        "resign",
        "become_master",
        "set_sync_state_set",
        "sync_set_refused",
        "unfollow",
        "resign",
    ]


@pytest.mark.parametrize("error", [StaleEpochError("older"), StorageError(Path("epochs"), "no space")])
async def test_epoch_that_cannot_begin_is_reported(bench: Bench, error: Exception) -> None:
    bench.replication.fails["become_master"] = [error]
    bench.replicator.put(BeginEpoch(2, 0, SET))
    assert await bench.ended.get() == (2, str(error))


async def test_bug_ends_it(bench: Bench) -> None:
    bug = RuntimeError("bug")
    bench.replication.fails["follow"] = [bug]
    bench.replicator.put(Follow(1, 2, "x:1"))
    assert await bench.ended.get() is bug


@pytest.mark.looptime
async def test_log_that_cannot_be_taken_up_is_tried_again(bench: Bench) -> None:
    bench.replication.fails["opened"] = [StorageError(Path("epochs"), "no space")] * 3
    bench.replicator.put(OpenLog(HELLO))
    bench.replicator.put(BeginEpoch(2, 0, SET))
    assert await bench.ended.get() == (2, None)
    assert bench.replication.calls == ["opened"] * 4 + ["become_master"]
    assert bench.open_log == ["files are missing"]


@pytest.mark.looptime
async def test_log_that_cannot_be_forgiven_is_tried_again_before_anything_is_followed(bench: Bench) -> None:
    bench.replication.fails["forgiven"] = [StorageError(Path("mark"), "no space")] * 3
    bench.replicator.put(AcceptLoss())
    bench.replicator.put(Follow(1, 2, "x:1"))
    bench.replicator.put(BeginEpoch(2, 0, SET))
    assert await bench.ended.get() == (2, None)
    assert bench.replication.calls == ["forgiven"] * 4 + ["follow", "become_master"]


@pytest.mark.looptime
async def test_newer_broker_ends_the_tries(bench: Bench) -> None:
    bench.replication.fails["opened"] = [StorageError(Path("epochs"), "no space")]
    bench.replicator.put(OpenLog(HELLO))
    bench.replicator.put(OpenLog(HELLO))
    bench.replicator.put(StopReplication())
    assert await bench.ended.get() == "stopped"
    assert bench.open_log == ["files are missing"]


@pytest.mark.looptime
async def test_broker_that_goes_meanwhile_ends_the_tries(bench: Bench) -> None:
    bench.replication.fails["opened"] = [StorageError(Path("epochs"), "no space")] * 100
    bench.replicator.put(OpenLog(HELLO))
    bench.replicator.put(Follow(1, 2, "x:1"))
    bench.replicator.put(StopReplication())
    assert await bench.ended.get() == "stopped"
    assert "follow" not in bench.replication.calls
