"""Work beside its caller whose failure is heard. Product code makes tasks only here and in `asyncio.TaskGroup`
(hack/background.py).

asyncio reports the error of a task that is not awaited when the task is collected as garbage: late, without a name,
or never, as long as a set of tasks or a traceback refers to it. It also keeps no strong reference to a task.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import structlog

T = TypeVar("T")
log = structlog.get_logger()

_FAILED = "work in the background has failed: report this line, and restart the process if that work is not done"
_FAILED_ALONE = "work whose caller had left has failed: check what it was to do, and repeat it"
_RUNNING: set["asyncio.Future[Any]"] = set()


def start(work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
    """Run `work`, which no one waits for. Its failure is logged when it ends; a cancellation is not one."""
    task = awaited(work, name)
    task.add_done_callback(partial(_report, _FAILED, name))
    return task


def awaited(work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
    """Run `work`, whose result or failure is read from the task in any case: by `await`, in a callback, or because it
    is the answer to a request."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
    return task


async def shielded(work: "Coroutine[Any, Any, T] | asyncio.Future[T]", name: str) -> T:
    """The result of `work`, which continues without the caller if that is cancelled; a later failure is logged then."""
    future = _future(work, name)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(partial(_report, _FAILED_ALONE, name))
        raise


async def completed(work: "Coroutine[Any, Any, T] | asyncio.Future[T]", name: str) -> T:
    """The result of `work`. If the caller is cancelled, even repeatedly, it still waits until `work` has ended, logs
    its failure, and is cancelled then."""
    future = _future(work, name)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        _report(_FAILED_ALONE, name, future)
        raise cancelled
    return future.result()


def _future(work: "Coroutine[Any, Any, T] | asyncio.Future[T]", name: str) -> "asyncio.Future[T]":
    return work if isinstance(work, asyncio.Future) else awaited(work, name)


def _report(event: str, name: str, ended: "asyncio.Future[Any]") -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        log.error(event, work=name, exc_info=error)
