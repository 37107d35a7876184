"""The gate's pytest plugin: records each test, keeps the evidence of failures, and selects tests for the second run."""

import os
import time
from collections.abc import Generator, Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gate import evidence, lanes
from tests.gate.patience import patient
from tests.gate.records import Outcome, Record, failures, read, record_file

REPEATABLE = frozenset(("processes", "interop", "java"))
"""Marks of tests that share the machine with processes of their own."""
END_TO_END = "e2e"
"""Folder of tests that are repeatable without a mark."""
IN_ORDER = "in_order"
"""Mark of tests that build on those before them in their file."""
UNSTABLE = "unstable"
"""Mark of tests that have left the gate, with the reason."""
MOST_UNSTABLE = 5
PHASES = ("setup", "call", "teardown")
ATTRIBUTE = "gate_repeatable"
UNTIL = "GATE_UNTIL"
"""Environment: UNIX time after which no test begins, so that the gate can still report before its caller ends it."""
PRINTED = 4000
"""Characters of a failure's message that are printed at once."""
RECORDED = 1500
"""Characters of its first line that are recorded."""
STARTED = pytest.StashKey[float]()
"""UNIX time of a test's set-up."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gate")
    group.addoption("--gate-folder", help="where the run's records go")  # a string: xdist sends options to its workers
    group.addoption("--gate-run", choices=["first", "second"], default="first")
    group.addoption("--gate-lanes", action="store_true", help="files with Java in one worker, see tests/gate/lanes.py")
    group.addoption("--gate-unstable", action="store_true", help="only the tests that have left the gate")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.gate_folder and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config), "gate-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that have left the gate run by themselves. The second run has only the failures of the first.

    Raises:
        pytest.UsageError: too many tests have left, or one without a reason.
    """
    left = {item.nodeid: item.get_closest_marker(UNSTABLE) for item in items if item.get_closest_marker(UNSTABLE)}
    silent = [test for test, mark in left.items() if mark is not None and not (mark.args and mark.args[0])]
    if silent:
        raise pytest.UsageError(f"{silent[0]}: mark.{UNSTABLE} needs a reason")
    if len(left) > MOST_UNSTABLE:
        raise pytest.UsageError(f"{len(left)} tests have left the gate, at most {MOST_UNSTABLE} may")
    wanted = {item.nodeid for item in items if (item.nodeid in left) is config.option.gate_unstable}
    if config.option.gate_run == "second":
        first = record_file(Path(config.option.gate_folder), "first")
        wanted &= _with_those_before(items, {record.test for record in failures(read(first))})
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]
    if patient(1) > 1:
        for item in items:
            _more_time(item)


def _with_those_before(items: Iterable[pytest.Item], failed: AbstractSet[str]) -> set[str]:
    """The failed tests, and what those that are in order build on."""
    wanted = set(failed)
    before: dict[Path, set[str]] = {}
    for item in items:
        if item.get_closest_marker(IN_ORDER):
            of_file = before.setdefault(item.path, set())
            of_file.add(item.nodeid)
            if item.nodeid in failed:
                wanted |= of_file
    return wanted


def _more_time(item: pytest.Item) -> None:
    """A test that waits longer may take longer."""
    mark = item.get_closest_marker("timeout") or pytest.mark.timeout(float(item.config.getini("timeout"))).mark
    item.add_marker(pytest.mark.timeout(patient(mark.args[0]), **mark.kwargs), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """First, because xdist's own sends the collection, and then the tests are dealt out."""
    if session.config.option.gate_lanes and hasattr(session.config, "workerinput"):
        lanes.save(_heavy(session.config), session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> lanes.Lanes | None:
    return lanes.Lanes(config, log, _heavy(config)) if config.option.gate_lanes else None


def _heavy(config: pytest.Config) -> Path:
    return lanes.heavy_file(Path(config.option.gate_folder))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """In the process that runs the tests: a worker of xdist has more of them waiting."""
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        item.session.shouldstop = f"the time of the gate is over ({UNTIL})"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """First among the wrappers: sections that other plugins add are part of the evidence."""
    report = yield
    if call.when == "setup":
        item.stash[STARTED] = call.start
    end_to_end = item.path.is_relative_to(item.config.rootpath / END_TO_END)
    marked = any(mark.name in REPEATABLE for mark in item.iter_markers())
    setattr(report, ATTRIBUTE, end_to_end or marked)
    if (left := item.get_closest_marker(UNSTABLE)) is not None:
        report.sections.append(("left the gate because", str(left.args[0])))
    if report.failed:
        folder = evidence.keep(item, report, item.stash.get(STARTED, call.start))
        report.sections.append(("evidence", str(folder.relative_to(item.config.rootpath))))
    return report


class Recorder:
    """Writes a line for each test, in the process that sees all reports."""

    def __init__(self, config: pytest.Config) -> None:
        file = record_file(Path(config.option.gate_folder), config.option.gate_run)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("wb", buffering=0)
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._print(report)
        self._reports.setdefault(report.nodeid, []).append(report)
        # A report that xdist makes for a worker that crashed belongs to no phase and is the last one of its test.
        if report.when not in PHASES or report.when == PHASES[-1]:
            self._write(report.nodeid)

    def _print(self, report: pytest.TestReport) -> None:
        """pytest itself prints failures at the end, which a run that hangs or is ended does not reach."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            where = f"{report.nodeid} ({report.when}, {report.duration:.0f} s, load {os.getloadavg()[0]:.1f})"
            terminal.ensure_newline()
            terminal.write_line(f"gate: failed: {where}: {_message(report.longrepr)[:PRINTED]}")

    def pytest_sessionfinish(self) -> None:
        for test in list(self._reports):
            self._write(test)
        self._file.close()

    def _write(self, test: str) -> None:
        reports = self._reports.pop(test)
        failed = next((report for report in reports if report.failed), None)
        outcome: Outcome = "passed"
        if failed is not None:
            outcome = "failed"
        elif any(report.skipped for report in reports):
            outcome = "skipped"
        record = Record(
            test=test,
            outcome=outcome,
            seconds=round(sum(report.duration for report in reports), 3),
            repeatable=all(getattr(report, ATTRIBUTE, False) for report in reports),
            load=round(os.getloadavg()[0], 1),
            why="" if failed is None else _why(failed.longrepr),
        )
        self._file.write(msgspec.json.encode(record) + b"\n")


def _why(longrepr: Any) -> str:
    """The first line of the message."""
    return _message(longrepr).partition("\n")[0][:RECORDED]


def _message(longrepr: Any) -> str:
    """The exception's where the traceback has one, else the last line of the text."""
    crash = getattr(longrepr, "reprcrash", None)
    return crash.message if crash is not None else (str(longrepr).splitlines() or [""])[-1]
