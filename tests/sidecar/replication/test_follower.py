"""The follower's own life, without a master."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from rocketmq_runtime.client import ConnectError, RemotingClient
from rocketmq_sidecar.follower import Follower
from rocketmq_store.writer_lock import WriterLock


class NobodyThere:
    async def call(self, address: str, *_: object, **__: object) -> None:
        raise ConnectError(f"cannot connect to {address}")


@pytest.mark.timeout(20)
async def test_a_follower_that_is_stopped_in_the_turn_it_was_woken_stops(tmp_path: Path) -> None:
    # Found by the simulation: it went on for ever, with the writer lock, and no broker could start beside it.
    lock = WriterLock(tmp_path / "writer.lock")
    follower = Follower(
        cast("RemotingClient", NobodyThere()),
        lock,
        connect=lambda sock, epoch: pytest.fail("connected"),
        prepare=lambda: None,
        on_trouble=lambda _: None,
        on_change=lambda: None,
        on_lost=lambda: None,
    )
    follower.aim(1, 1, "10.0.0.1:10911")
    while not lock.held:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)  # it waits for its next try
    follower.aim(2, 1, "10.0.0.1:10911")
    await follower.stop()
    assert not lock.held
