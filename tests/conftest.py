"""What holds for all tests, and what many are too expensive to have on their own."""

import asyncio
from collections.abc import Iterator

import pytest

from rocketmq_verify.session import Engine, SessionOptions


def pytest_configure() -> None:
    """Without this, looptime's look at the current event loop makes asyncio create one before each synchronous test,
    which nobody closes; the warning then hits whatever test runs when it is collected."""
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Spark on this machine, warm: one session for all tests that need one. They are marked `processes` or `interop`
    and run alone."""
    started = Engine(SessionOptions(master="local[2]"))
    started.start()
    try:
        started.spark()
        yield started
    finally:
        started.stop()
