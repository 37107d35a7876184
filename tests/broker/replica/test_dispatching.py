"""When a place where dispatching stops is reported, and when it counts as passed."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.replica.dispatching import Dispatching
from rocketmq_formats.store.message import BLANK_SIZE, encode_blank
from rocketmq_store.errors import LogDamagedError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Stop
from rocketmq_store.queues import dispatch
from tests.store.kit import bodies, draft, found_end, opened


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


@pytest.mark.parametrize("damage", [encode_blank(2000)[:BLANK_SIZE], b"\x7f\xff\xff\xff", b"\x00\x00\x0f\xff"])
async def test_a_size_that_is_wrong_is_not_taken_for_a_record_that_still_arrives(tmp_path: Path, damage: bytes) -> None:
    """Whole records follow, so the sidecar has written behind it."""
    origin, _ = opened(tmp_path / "origin")
    ends = [origin.append(draft(b"%d" % n * 100), 1).end for n in range(6)]
    store, _ = opened(tmp_path / "slave")
    store.files.write(0, origin.files.read(0, ends[-1]))
    store.files.write(ends[3], damage)
    found = found_end(store)
    assert found.offset == ends[-1]
    assert found.damage is not None
    assert found.damage.offset == ends[3]
    changes: list[Stop | None] = []
    slave = a_slave(store, changes)
    slave.stop_at(found.damage)
    for _ in range(3):
        slave.replicated(ends[-1], ends[-1])
        await asyncio.sleep(0.01)
    assert changes == [found.damage]
    with pytest.raises(LogDamagedError):
        store.cut_tail()
    store.files.write(ends[3], origin.files.read(ends[3], ends[4] - ends[3]))  # from a master
    slave.soon()
    await asyncio.sleep(0.01)
    assert changes == [found.damage, None]
    assert len(bodies(store)) == 6
    origin.close()
    store.close()
