"""Expired locks of queues are removed, a slice at a time; hosts share their number."""

import pytest

from rocketmq_broker.domain.consuming import locks
from rocketmq_broker.domain.consuming.locks import LOCK_SECONDS, QueueLocks
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.steps import finish


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue(topic="T", broker_name="b", queue_id=number) for number in range(count)]


def test_expired_locks_are_removed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SLICE", 10)
    held = QueueLocks()
    held.lock("G", "c", queues(35), 0.0, host="h")
    held.lock("H", "c", queues(5), 0.0, host="h")
    steps = held.expire(LOCK_SECONDS + 1)
    next(steps)
    assert len(held) == 30
    held.lock("G", "d", queues(20)[10:], LOCK_SECONDS + 1, host="i")  # taken over meanwhile
    held.lock("G", "d", queues(1), LOCK_SECONDS + 1, host="i")
    finish(steps)
    assert len(held) == 11
    assert held.any_held("G", LOCK_SECONDS + 2)
    finish(held.expire(2 * LOCK_SECONDS + 2))
    assert len(held) == 0


def test_one_host_does_not_take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 10)
    held = QueueLocks()
    taken = held.lock("made up", "s", queues(10), 0.0, host="s")
    assert len(taken.held) == 5
    assert held.lock("G", "a", queues(2), 0.0, host="a").held == {*queues(2)}
    held.unlock("made up", "s", queues(3))
    assert len(held.lock("made up", "t", queues(3), 0.0, host="t").held) == 3
    late = held.lock("made up", "a", queues(5), LOCK_SECONDS + 1, host="a")
    assert late.held == {*queues(5)}, "all of them had expired"
    held.give_back("made up", late, queues(5))
    held.unlock("G", "a", queues(2))
    assert len(held) == 0


def other_locks() -> QueueLocks:
    held = QueueLocks()
    for number in range(25):
        held.lock(f"G{number}", "c", queues(2), 0.0, host="h")
    held.lock("G3", "c", [MessageQueue(topic="U", broker_name="b", queue_id=0)], 0.0, host="h")
    return held


def test_locks_of_what_is_deleted_are_free_at_once_and_their_memory_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_broker.domain.pairs.SLICE", 10)
    held = other_locks()
    held.forget_topics({"T"})
    assert not held.any_held("G4", 1.0)
    assert held.any_held("G3", 1.0), "another topic's"
    assert held.lock("G5", "d", queues(1), 1.0, host="i").held == {*queues(1)}
    held.unlock("G6", "c", queues(2))
    held.forget_groups({"G3"})
    assert not held.any_held("G3", 1.0)
    assert len(held) == 52, "nothing is freed yet"
    steps = held.expire(1.0)
    next(steps)
    assert len(held) == 51
    next(steps)
    assert len(held) == 31
    finish(steps)
    assert len(held) == 1
    assert held.lock("G5", "c", queues(1), 1.0, host="h").held == frozenset(), "the new holder's"
