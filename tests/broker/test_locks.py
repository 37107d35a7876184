"""Expired locks of queues are removed, a slice at a time."""

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
    held.lock("G", "c", queues(35), 0.0)
    held.lock("H", "c", queues(5), 0.0)
    steps = held.expire(LOCK_SECONDS + 1)
    next(steps)
    assert len(held) == 30
    held.lock("G", "d", queues(20)[10:], LOCK_SECONDS + 1)  # taken over meanwhile
    held.lock("G", "d", queues(1), LOCK_SECONDS + 1)
    finish(steps)
    assert len(held) == 11
    assert held.any_held("G", LOCK_SECONDS + 2)
    finish(held.expire(2 * LOCK_SECONDS + 2))
    assert len(held) == 0
