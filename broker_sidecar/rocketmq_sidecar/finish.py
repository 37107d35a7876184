"""Work that must not be left half done when its caller is cancelled. Used by replication."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def finish(work: Awaitable[T]) -> T:
    """The result of `work`, which runs to its end even if the caller is cancelled, however often; the cancellation is
    raised then."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if not task.cancelled():
            task.exception()  # looked at: the cancellation comes first
        raise asyncio.CancelledError
    return task.result()
