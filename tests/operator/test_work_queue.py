"""The queue in virtual time: once per key, one worker per key, later and later after failures."""

import asyncio
import random

import pytest

from rocketmq_operator.kubernetes.work_queue import FIRST_RETRY, LAST_RETRY, WorkQueue

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_many_events_are_one_reconcile() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
        queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert queue.depth == 0


async def test_an_event_during_a_reconcile_is_served_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await queue.get()
    queue.done("a")
    assert await queue.get() == "a"


async def test_the_earliest_request_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 30)
    queue.add("a", 10)
    queue.add("a", 20)
    began = now()
    assert await queue.get() == "a"
    assert now() - began == 10
    queue.done("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await queue.get()


async def test_what_is_wanted_now_does_not_wait_for_what_was_wanted_later() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 30)
    queue.add("a")
    began = now()
    assert await queue.get() == "a"
    assert now() == began


async def test_failures_wait_longer_and_longer_up_to_a_bound() -> None:
    queue: WorkQueue[str] = WorkQueue(jitter=random.Random(1))
    delays = []
    for _ in range(12):
        queue.add("a")
        key = await queue.get()
        delays.append(queue.failed(key))
        queue.done(key)
        assert await queue.get() == "a"
        queue.done("a")
    assert 0.75 * FIRST_RETRY <= delays[0] <= 1.25 * FIRST_RETRY
    assert delays[4] > delays[0]
    assert max(delays) <= 1.25 * LAST_RETRY
    queue.succeeded("a")
    assert queue.failed("a") <= 1.25 * FIRST_RETRY


async def test_who_waits_for_work_is_woken() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(1)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*waiting)) == ["a", "b"]


async def test_what_is_forgotten_does_not_come_back() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 5)
    queue.forget("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await queue.get()
