"""The event loops of these tests."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every test of this folder runs on both loops: processes run on uvloop, tools and simulations on asyncio's."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
