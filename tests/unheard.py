"""A test fails if an error during it reached no one: a plugin of pytest for all suites.

asyncio writes such errors to its log, most of them when what failed is collected as garbage: `Task exception was never
retrieved`, `Future exception was never retrieved`, `Task was destroyed but it is pending`, `Exception in callback`.
Python warns of a coroutine that was never awaited. Tasks are looked at after each test. What only the garbage collector
finds fails the last test of its file. The logs of processes that the tests start are searched for the same lines, and
for those of `rocketmq_runtime.background`.
"""

import asyncio
import gc
import logging
import re
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_demo.processes import OwnedProcess


class _Ear(logging.Handler):
    """Keeps the errors that asyncio logs: its handlers of last resort."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if not text.startswith(OF_OTHERS):
            self.heard.append(text)

    def take(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard


OF_OTHERS = (
    "an error occurred during closing of asynchronous generator <async_generator object infinite_watch",
    "Exception in callback PollerCompletionQueue._handle_events",
)
"""kopf leaves the generator of a stream to the loop, which closes it when it ends.

gRPC has one thread for all loops of a process, and its last event for a loop can come when that is closed. Our programs
have one loop as long as they run.
"""
EAR = _Ear()
NEVER_AWAITED = r"coroutine .* was never awaited"
LINES = re.compile(
    rb"exception was never retrieved|was never awaited|Exception in callback|unhandled exception during"
    rb"|work in the background has failed"
)
LOGS: dict[Path, int] = {}
"""Logs of processes, and how far each was searched."""


def pytest_configure() -> None:
    logging.getLogger("asyncio").addHandler(EAR)
    begin = OwnedProcess.__init__

    def begun(self: OwnedProcess, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        LOGS.setdefault(self.log_path, 0)

    OwnedProcess.__init__ = begun  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    logging.getLogger("asyncio").removeHandler(EAR)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and tests live to the end. Without this each file's collection of garbage goes through all of them, which
    takes a quarter of a second of a processor when all tests were collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def unheard() -> Iterator[list[str]]:
    """For tests of errors that reach no one: takes what was heard, so that the test does not fail."""
    yield EAR.heard
    EAR.heard.clear()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    try:
        yield
        _find_failed_tasks()
        _search_logs()
        if nextitem is None or nextitem.path != item.path:
            _collect_garbage()
    finally:
        heard = EAR.take()
    if heard:
        pytest.fail("errors that reached no one:\n" + "\n".join(heard), pytrace=False)


def _find_failed_tasks() -> None:
    """Tasks that failed in a loop that has ended: no one can await them any longer."""
    for task in list(asyncio.tasks._all_tasks):  # type: ignore[attr-defined]
        if task.done() and task.get_loop().is_closed() and task._log_traceback:
            EAR.heard.append(f"Task exception was never retrieved: {task!r}")
            task.exception()  # not again when it is collected


def _search_logs() -> None:
    """What the processes have written since the test before."""
    for path, searched in list(LOGS.items()):
        try:
            with path.open("rb") as log:
                log.seek(searched)
                text = log.read()
        except FileNotFoundError:
            del LOGS[path]
            continue
        whole = text.rfind(b"\n") + 1
        LOGS[path] = searched + whole
        found = [line for line in text[:whole].splitlines() if LINES.search(line)]
        EAR.heard += [f"{path}: {line[:2000].decode(errors='replace')}" for line in found]


def _collect_garbage() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.filterwarnings("always", NEVER_AWAITED, RuntimeWarning)  # others as the test wants them
        gc.collect()
    EAR.heard += [str(one.message) for one in warned if one.category is RuntimeWarning]


def register(config: Any) -> None:
    """For a conftest.py that is not at the root, which may not name plugins."""
    module = __import__(__name__, fromlist=["register"])
    if not config.pluginmanager.is_registered(module):
        config.pluginmanager.register(module, "unheard")
