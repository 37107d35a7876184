"""When a place where dispatching stops is reported, and when it counts as passed."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.replica.dispatching import Dispatching
from rocketmq_store.message_store import MessageStore
from rocketmq_store.queues import dispatch
from rocketmq_store.queues.dispatch import Stop
from tests.store.kit import bodies, draft, opened


def a_slave(store: MessageStore, changes: list[Stop | None]) -> Dispatching:
    role = ReplicaRole(Durability(copies_needed=1, strict=False))
    role.follow(1, "127.0.0.1:1")

    def fail(error: Exception) -> None:
        raise error

    slave = Dispatching(
        store, role, on_visible=lambda _: None, on_stop=lambda: changes.append(slave.stopped), on_failed=fail
    )
    return slave


async def test_nothing_is_concluded_between_two_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has not come to the place yet."""
    monkeypatch.setattr(dispatch, "MAX_SCAN", 1)
    origin, _ = opened(tmp_path / "origin")
    ends = [origin.append(draft(b"%d" % n * 100), 1).end for n in range(6)]
    store, _ = opened(tmp_path / "slave")
    store.files.write(0, origin.files.read(0, ends[-1]))
    store.files.write(ends[3] + 4, b"\xff")
    changes: list[Stop | None] = []
    slave = a_slave(store, changes)
    known = Stop(ends[3], "found as the sidecar started")
    slave.stop_at(known)
    slave.replicated(ends[-1], ends[-1])
    while store.dispatched_offset < ends[3]:
        await asyncio.sleep(0)
    assert len(bodies(store)) == 4
    assert changes == [known]
    origin.close()
    store.close()
