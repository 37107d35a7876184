"""What holds for all tests, and what many are too expensive to have on their own."""

import asyncio
import logging
import shutil
import weakref
from asyncio import selector_events
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest
import structlog

from rocketmq_verify.engine.session import Engine, SessionOptions
from tests import unheard
from tests.gate import marked
from tests.gate.plugin import REPEATABLE
from tests.needed import unavailable

MEASURED = pytest.StashKey[list[str]]()
"""Lines to show after all tests: what was measured in them."""


def pytest_configure(config: pytest.Config) -> None:
    """Without the second line, looptime's look at the current event loop makes asyncio create one before each
    synchronous test, which no one closes; the warning then hits whatever test runs when it is collected."""
    config.stash[MEASURED] = []
    asyncio.set_event_loop(None)
    unheard.register(config)
    _track_transports()
    hypothesis.settings.register_profile(
        "any speed", hypothesis.settings.default, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("any speed")


TRANSPORTS: weakref.WeakSet[Any] = weakref.WeakSet()


def _track_transports() -> None:
    transport = selector_events._SelectorTransport
    begin = transport.__init__

    def tracked(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        TRANSPORTS.add(self)

    transport.__init__ = tracked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Closes connections whose event loop has ended, and names the test that left them. Without this the warning of
    asyncio comes when they are collected, and fails whatever test runs at that time."""
    yield
    for transport in [one for one in TRANSPORTS if one._sock is not None and one._loop.is_closed()]:
        item.config.stash[MEASURED].append(f"left open: {transport!r} by {item.nodeid}")
        transport._sock.close()
        transport._sock = None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that start Spark and tests that compute for long, before `-m` selects, and puts the long ones first:
    workers that run side by side do not wait for one of them at the end."""
    for item in items:
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.java)
        if marked.is_long(item.path):
            item.add_marker(pytest.mark.long)
        for which, marks in (("together", REPEATABLE), ("long", ("long",))):
            if any(item.get_closest_marker(mark) for mark in marks) and not marked.may_have(item.path, which):
                raise pytest.UsageError(f"{item.nodeid}: {which} does not find this file, see tests/gate/marked.py")
    items.sort(key=_is_short)


def _is_short(item: pytest.Item) -> bool:
    if item.get_closest_marker("processes") is not None:
        return item.path.parent.name != "verify"
    return item.get_closest_marker("long") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """xdist cannot send text that UTF-8 cannot encode, and ends if a test has logged some."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A command that a test runs in this process configures logs for all that follow."""
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**config)


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
    `interop`, and `java`."""
    if shutil.which("java") is None:
        unavailable("needs Java")
    started = Engine(SessionOptions(master="local[2]"))
    started.start()
    try:
        started.spark()
        yield started
    finally:
        started.stop()
