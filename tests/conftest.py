"""What holds for all tests, and what many are too expensive to have on their own."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_verify.session import Engine, SessionOptions

MEASURED = pytest.StashKey[list[str]]()
"""Lines to show after all tests: what was measured in them."""


def pytest_configure(config: pytest.Config) -> None:
    """Without the second line, looptime's look at the current event loop makes asyncio create one before each
    synchronous test, which nobody closes; the warning then hits whatever test runs when it is collected."""
    config.stash[MEASURED] = []
    asyncio.set_event_loop(None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's long tests first: when two files are at work at once, neither waits for them in the end."""
    items.sort(key=lambda item: item.path.parent.name != "verify" or item.get_closest_marker("processes") is None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["measured"] = session.config.stash[MEASURED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[MEASURED] += getattr(node, "workeroutput", {}).get("measured", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[MEASURED]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Spark on this machine, warm: one session for all tests that need one. They are marked `processes` or
    `interop`."""
    started = Engine(SessionOptions(master="local[2]"))
    started.start()
    try:
        started.spark()
        yield started
    finally:
        started.stop()
