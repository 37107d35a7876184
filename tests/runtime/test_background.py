"""Work beside its caller: its failure is logged, also if the caller leaves first."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from rocketmq_runtime import background

Lines = list[MutableMapping[str, Any]]
HEARD = ("work in the background has failed", "work whose caller had left has failed")


class _Work:
    """A coroutine that ends when the test says so."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = False

    async def run(self, error: Exception | None = None) -> int:
        self.begun.set()
        await self.go.wait()
        self.ended = True
        if error is not None:
            raise error
        return 7


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _heard(lines: Lines) -> list[tuple[str, str]]:
    return [(line["work"], repr(line["exc_info"])) for line in lines if line["event"].startswith(HEARD)]


async def test_a_failure_is_logged_when_it_happens_by_the_name_of_the_work() -> None:
    work = _Work()
    with capture_logs() as lines:
        task = background.start(work.run(ValueError("no")), "reader of n0")
        await work.begun.wait()
        assert lines == []
        work.go.set()
        await _turns()
    assert task.done()
    assert task.get_name() == "reader of n0"
    assert _heard(lines) == [("reader of n0", "ValueError('no')")]
    assert "restart the process" in lines[0]["event"]


async def test_neither_a_result_nor_a_cancellation_is_a_failure() -> None:
    works = [_Work(), _Work()]
    with capture_logs() as lines:
        tasks = [background.start(work.run(), "x") for work in works]
        await _turns()
        works[0].go.set()
        tasks[1].cancel()
        await _turns()
    assert tasks[0].result() == 7
    assert tasks[1].cancelled()
    assert lines == []


@pytest.mark.parametrize("begin", [background.start, background.awaited])
async def test_work_is_not_collected_while_nobody_refers_to_it(begin: Callable[..., "asyncio.Task[object]"]) -> None:
    class Self:
        pass

    async def waits_for_what_only_it_refers_to(token: Self) -> None:
        await asyncio.get_running_loop().create_future()
        del token

    token = Self()
    alive = weakref.ref(token)
    task = weakref.ref(begin(waits_for_what_only_it_refers_to(token), "x"))
    del token
    await _turns()
    gc.collect()
    assert alive() is not None
    running = task()
    assert running is not None
    running.cancel()
    await asyncio.wait([running])
    del running
    gc.collect()
    assert task() is None


async def test_a_failure_that_is_awaited_is_not_logged() -> None:
    work = _Work()
    work.go.set()
    with capture_logs() as lines:
        with pytest.raises(ValueError, match="no"):
            await background.awaited(work.run(ValueError("no")), "x")
        await _turns()
    assert lines == []


WAITS = pytest.mark.parametrize("wait", [background.shielded, background.completed])
Wait = Callable[[Any, str], Awaitable[int]]


@WAITS
@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_who_waits_gets_the_result_or_the_failure_and_nothing_is_logged(
    wait: Wait, error: Exception | None
) -> None:
    work = _Work()
    work.go.set()
    with capture_logs() as lines:
        if error is None:
            assert await wait(work.run(), "x") == 7
        else:
            with pytest.raises(ValueError, match="no"):
                await wait(work.run(error), "x")
        await _turns()
    assert lines == []


@WAITS
@pytest.mark.parametrize("error", [None, ValueError("no")])
@pytest.mark.parametrize("as_future", [False, True])
async def test_work_ends_although_its_waiter_is_cancelled_and_a_failure_is_logged(
    wait: Wait, error: Exception | None, *, as_future: bool
) -> None:
    work = _Work()
    with capture_logs() as lines:
        run = work.run(error)
        waiter = asyncio.create_task(wait(asyncio.ensure_future(run) if as_future else run, "epochs"))  # type: ignore[arg-type, var-annotated]
        await work.begun.wait()
        waiter.cancel()
        await _turns()
        assert not work.ended
        assert waiter.done() is (wait is background.shielded)
        work.go.set()
        await _turns()
    assert work.ended
    assert waiter.cancelled()
    assert _heard(lines) == ([] if error is None else [("epochs", "ValueError('no')")])


async def test_completed_waits_however_often_it_is_cancelled() -> None:
    work = _Work()
    waiter = asyncio.create_task(background.completed(work.run(), "x"))
    await work.begun.wait()
    for _ in range(3):
        waiter.cancel()
        await _turns()
        assert not waiter.done()
    work.go.set()
    await _turns()
    assert waiter.cancelled()


@WAITS
async def test_cancelled_work_cancels_who_waits_and_nothing_is_logged(wait: Wait) -> None:
    work = asyncio.get_running_loop().create_future()
    with capture_logs() as lines:
        waiter = asyncio.create_task(wait(work, "x"))  # type: ignore[arg-type, var-annotated]
        await _turns()
        work.cancel()
        await _turns()
    assert waiter.cancelled()
    assert lines == []
