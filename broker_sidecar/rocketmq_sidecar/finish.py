"""Completes work even if its caller is cancelled. Used by `replication` and `audit`."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def finish(work: Awaitable[T]) -> T:
    """The result of `work`. If the caller is cancelled, even repeatedly, `work` still runs to its end; then the
    cancellation is raised."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if not task.cancelled():
            task.exception()  # marked as retrieved; the cancellation takes precedence
        raise asyncio.CancelledError
    return task.result()
