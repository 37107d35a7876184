"""The gate on small suites: which failures count, and what is left of them. Each test runs pytest two times or more."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from tests.gate.patience import MOST, QUIET, VARIABLE, factor, patient
from tests.gate.plugin import UNTIL
from tests.gate.records import Record, Unstable
from tests.gate.report import MOST_FAILURES, failures_table, lanes_table, phases_table, unstable_table
from tests.paths import ROOT

pytestmark = pytest.mark.processes

ONCE = """
    from pathlib import Path
    if not Path("was-here").exists():
        Path("was-here").touch()
        (tmp_path / "broker").mkdir()
        (tmp_path / "broker" / "out.log").write_text("said before the end")
        raise RuntimeError("the machine was busy")
"""
ALWAYS = '    raise RuntimeError("a defect")\n'
FINE = "    pass\n"
MARKED = "@pytest.mark.processes\n"
PASSED, FAILED = 0, 1
ONLY_XDIST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
"""The other plugins take most of the time that pytest needs to start."""


class Suite:
    """A folder with tests, on which the gate is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  processes\n  in_order\n  interop\n  unstable\n")

    def add(self, name: str, body: str, *, mark: str = MARKED, folder: str = ".") -> None:
        file = self.folder / folder / f"test_{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"import pytest\n{mark}def test_{name}(tmp_path):\n{body}")

    def run(self, *arguments: str, until: float = math.inf) -> tuple[int, str]:
        """The gate's exit code and output. `until`: UNIX time after which no test begins."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "-m", "tests.gate", "suite", *arguments],
            cwd=self.folder,
            env={**environment, **ONLY_XDIST, VARIABLE: "1", UNTIL: str(until), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def unstable(self) -> list[Unstable]:
        file = self.folder / "build" / "unstable.jsonl"
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [msgspec.json.decode(line, type=Unstable) for line in lines]

    def evidence(self, test: str) -> Path:
        (folder,) = (self.folder / "build" / "evidence").glob(f"*-{test}")
        return folder


def names(unstable: Iterable[Unstable]) -> dict[str, bool]:
    """Whether each function passed in its second run."""
    return {one.first.test.rpartition("::")[2]: one.passed for one in unstable}


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_failure_that_does_not_repeat_is_unstable(suite: Suite, workers: str) -> None:
    suite.add("once", ONCE)
    suite.add("fine", FINE)
    code, output = suite.run("-n", workers)
    assert code == PASSED, output
    (unstable,) = suite.unstable()
    assert unstable.passed
    assert names([unstable]) == {"test_once": True}
    assert unstable.first.why == "RuntimeError: the machine was busy"
    assert " unstable " in output
    assert "= 1 passed in" in output, "the second run is not alone"
    evidence = suite.evidence("test_once") / "first"
    assert "the machine was busy" in (evidence / "call.txt").read_text()
    assert [log.read_text() for log in (evidence / "logs").rglob("out.log")] == ["said before the end"]
    assert (evidence / "load.txt").exists()
    assert str(evidence.relative_to(suite.folder)) in output


def test_a_test_in_order_is_repeated_with_those_before_it(suite: Suite) -> None:
    in_order = MARKED + "@pytest.mark.in_order\n"
    suite.add("story", '    pathlib.Path("begun").touch()\n', mark=in_order)
    (file,) = suite.folder.glob("test_story*")
    text = file.read_text() + f"\n{in_order}def test_goes_on(tmp_path):\n"
    text += '    pathlib.Path("begun").unlink()\n' + ONCE + f"\n{in_order}def test_later():\n    pass\n"
    file.write_text(f"import pathlib\n{text}")
    code, output = suite.run()
    assert code == PASSED, output
    assert names(suite.unstable()) == {"test_goes_on": True}
    assert "= 2 passed" in output.rpartition("each runs once more")[2]


def test_a_failure_that_repeats_counts(suite: Suite) -> None:
    suite.add("once", ONCE)
    suite.add("always", ALWAYS)
    code, output = suite.run("-n", "2")
    assert code == FAILED, output
    assert names(suite.unstable()) == {"test_always": False, "test_once": True}
    assert sorted(run.name for run in suite.evidence("test_always").iterdir()) == ["first", "second"]


def test_a_test_without_a_mark_gets_no_second_chance(suite: Suite) -> None:
    suite.add("once", ONCE, mark="")
    code, output = suite.run()
    assert code == FAILED, output
    assert "1 of the failures are deterministic" in output
    assert suite.unstable() == []


def test_one_deterministic_failure_is_enough(suite: Suite) -> None:
    suite.add("once", ONCE)
    suite.add("always", ALWAYS, mark="")
    assert suite.run()[0] == FAILED
    assert suite.unstable() == []


def test_end_to_end_tests_need_no_mark(suite: Suite) -> None:
    suite.add("once", ONCE, mark="", folder="e2e")
    assert suite.run("e2e")[0] == PASSED
    assert [one.passed for one in suite.unstable()] == [True]


def test_a_skip_in_the_second_run_is_not_a_pass(suite: Suite) -> None:
    suite.add("once", ONCE + '    pytest.skip("no tool")\n')
    assert suite.run()[0] == FAILED
    assert [one.passed for one in suite.unstable()] == [False]


def test_what_the_first_run_left_running_is_gone_in_the_second(suite: Suite) -> None:
    """The process has left its session and lost its parent, as a daemon does."""
    start = (
        "    import os, subprocess, time\n"
        "    from pathlib import Path\n"
        '    if not Path("process").exists():\n'
        '        subprocess.run(["setsid", "sh", "-c", "sleep 1000 & echo $! > process"], check=True)\n'
        '        raise RuntimeError("left something")\n'
        '    process = int(Path("process").read_text())\n'
        '    assert not Path(f"/proc/{process}").exists()\n'
    )
    suite.add("leaves", start)
    code, output = suite.run()
    assert code == PASSED, output


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failure_is_printed_when_it_happens(suite: Suite, workers: str) -> None:
    suite.add("a_first", ALWAYS)
    suite.add("b_second", FINE)
    _, output = suite.run("-n", workers)
    said = output.index("gate: failed: test_a_first")
    assert "RuntimeError: a defect" in output[said:].splitlines()[0]
    assert "FAILURES" not in output[:said]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_no_test_begins_when_the_time_is_over(suite: Suite, workers: str) -> None:
    for number in range(6):
        suite.add(f"number_{number}", ALWAYS)
    code, output = suite.run("-n", workers, "--dist", "loadfile", until=time.time() - 1)
    assert code == pytest.ExitCode.INTERRUPTED, output
    assert f"the time of the gate is over ({UNTIL})" in output
    assert "RuntimeError: a defect" in output
    assert f"{max(int(workers), 1)} failed" in output
    assert "each runs once more" not in output


def test_errors_that_are_no_failures_of_tests_count(suite: Suite) -> None:
    suite.add("broken", "    def:\n")
    assert suite.run()[0] == pytest.ExitCode.INTERRUPTED
    assert suite.run("-k", "nothing")[0] != PASSED
    assert Suite(suite.folder).run("--no-such-option")[0] == pytest.ExitCode.USAGE_ERROR


def test_tests_that_have_left_the_gate_run_by_themselves(suite: Suite) -> None:
    suite.add("fine", FINE)
    suite.add("left", ALWAYS, mark='@pytest.mark.unstable("the clock of the machine jumps")\n')
    code, output = suite.run()
    assert code == PASSED, output
    assert "1 passed, 1 deselected" in output
    code, output = suite.run("--gate-unstable")
    assert code == FAILED, output
    assert "the clock of the machine jumps" in output


def test_not_more_than_five_leave_and_each_says_why(suite: Suite) -> None:
    suite.add("silent", FINE, mark="@pytest.mark.unstable\n")
    code, output = suite.run()
    assert code == pytest.ExitCode.USAGE_ERROR, output
    assert "needs a reason" in output
    suite.add("silent", FINE, mark='@pytest.mark.unstable("why")\n@pytest.mark.parametrize("n", range(6))\n')
    (file,) = suite.folder.glob("test_silent*")
    file.write_text(file.read_text().replace("(tmp_path)", "(tmp_path, n)"))
    code, output = suite.run()
    assert code == pytest.ExitCode.USAGE_ERROR, output
    assert "at most 5 may" in output


def test_a_gate_that_nobody_has_left(suite: Suite) -> None:
    suite.add("fine", FINE)
    assert suite.run("--gate-unstable")[0] == PASSED


def test_a_worker_that_crashes_counts(suite: Suite) -> None:
    suite.add("crash", "    import os\n    os._exit(3)\n")
    code, output = suite.run("-n", "1", "--max-worker-restart=0")
    assert code != PASSED, output


def test_files_with_java_run_one_after_the_other(suite: Suite) -> None:
    body = (
        "    import os\n"
        "    from pathlib import Path\n"
        '    with Path("seen").open("a") as file:\n'
        "        print({name!r}, os.environ['PYTEST_XDIST_WORKER'], file=file)\n"
    )
    for number in range(4):
        suite.add(f"heavy_{number}", body.format(name=f"heavy {number}"), mark="@pytest.mark.interop\n")
        suite.add(f"light_{number}", body.format(name=f"light {number}"))
    suite.add("mixed", body.format(name="heavy mixed"))
    (file,) = suite.folder.glob("test_mixed*")
    file.write_text(file.read_text() + "\n@pytest.mark.interop\ndef test_more():\n    pass\n")
    code, output = suite.run("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--gate-lanes")
    assert code == PASSED, output
    assert "10 passed" in output
    seen = [line.split() for line in (suite.folder / "seen").read_text().splitlines()]
    assert len(seen) == 9
    (worker,) = {worker for kind, _, worker in seen if kind == "heavy"}
    assert {other for _, _, other in seen} - {worker}, "the other lane had nothing"


def test_the_table_of_phases_tells_waiting_from_computing() -> None:
    assert phases_table(["9 6 10 2 setup", "946 700 1100 92 processes and interop"])[1:] == [
        "    time      CPU      low     idle",
        "     9 s      6 s     10 s      2 s  setup",
        "   946 s    700 s   1100 s     92 s  processes and interop",
        "   955 s    706 s   1110 s     94 s  in all",
    ]
    assert phases_table([]) == []


def test_the_longer_lane_is_seen() -> None:
    records = [Record("./a/test_j.py::test_a", "passed", 900), Record("./a/test_j.py::test_b", "failed", 46)]
    records.append(Record("./a/test_p.py::test_a[a::b]", "passed", 610.4))
    assert lanes_table("together", records, ["./a/test_j.py"]) == ["lanes of together: 946 s with JVMs, 610 s without"]


def test_the_table_names_both_runs() -> None:
    first = Record("folder::test_a", "failed", 12.0, repeatable=True, load=31.2, why="TimeoutError: no master")
    second = Record("folder::test_a", "passed", 3.0, repeatable=True, load=4.0)
    assert unstable_table([Unstable("2026-11-27T18:00:00Z", "interop", first, second)])[1:] == [
        "interop: folder::test_a",
        "  first   failed in 12 s, load 31.2  TimeoutError: no master",
        "  second  passed in 3 s, load 4.0",
    ]
    assert unstable_table([]) == []


def test_failures_without_a_second_run_come_last() -> None:
    failed = Record("folder::test_a", "failed", 12.0, load=31.2, why="AssertionError: no master")
    passed = Record("folder::test_b", "passed", 3.0)
    assert failures_table([passed, failed], [])[1:] == [
        "folder::test_a",
        "  12 s, load 31.2  AssertionError: no master",
    ]
    assert failures_table([passed, failed], [Unstable("2026-11-27T18:00:00Z", "interop", failed, None)]) == []
    assert failures_table([failed] * (MOST_FAILURES + 2), [])[-1] == "and 2 more"


def test_patience_grows_with_the_slowness_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [factor(QUIET * times) for times in (0.3, 1, 2.5, 1000)] == [1, 1, 2.5, MOST]
    monkeypatch.delenv(VARIABLE, raising=False)
    assert patient(60) == 60
    monkeypatch.setenv(VARIABLE, "2.5")
    assert patient(60) == 150
