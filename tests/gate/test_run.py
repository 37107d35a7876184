""".ci/run with targets that only say that they ran: what runs, how, and what makes it red."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gate.patience import patient
from tests.paths import ROOT

pytestmark = pytest.mark.processes

MAKE = """#!/usr/bin/env bash
echo "$1" >> build/ran
echo "$*" >> build/commands
echo "$1 ${PYTHONPATH:-nothing}" >> build/imports
echo "$1 at $(nice), $(cat /proc/self/autogroup 2> /dev/null), patience ${GATE_PATIENCE:-measured}" >> build/how
cut -d " " -f 6 /proc/self/stat > "build/session-of-$1"
[ "$1" != "$WAITS" ] || { echo $BASHPID > build/waiting; exec sleep 1000; }
# What runs beside it begins first: a test of what happens then is not a race.
for pair in units-short:session-of-campaign campaign:session-of-e2e-chart e2e-chart:session-of-units-short \
  units-long:session-of-together $AFTER; do
  [ "$1" != "${pair%%:*}" ] || until [ -e "build/${pair#*:}" ]; do sleep 0.01; done
done
echo "the end of $1"
[ "$1" != "$RED" ]
"""
TARGETS = [
    *("campaign", "check", "e2e-chart", "e2e-stories", "setup", "sim", "together", "units-long", "units-short"),
    "unstable",
]
BESIDE = ["units-short", "campaign", "e2e-chart"]


class Gate:
    """A folder with the script and its surroundings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("hack/e2e.sh", "#!/bin/sh\n"), ("bin/make", MAKE)):
            file = folder / name
            file.parent.mkdir()
            file.write_text(text)
            file.chmod(0o755)
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")

    def run(self, *, red: str = "", waits: str = "", after: str = "") -> tuple[int, str]:
        """Its exit code and output. The target `red` fails, and `waits` does not end. `after` is TARGET:FILE: that
        target ends when the file is in build/."""
        return ended(self.start(red=red, waits=waits, after=after))

    def start(self, *, red: str = "", waits: str = "", after: str = "") -> subprocess.Popen[str]:
        """The same without waiting for the end."""
        names = {name: value for name, value in os.environ.items() if name != "GATE_PATIENCE"}
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["timeout", "100", self.folder / ".ci" / "run"],
            env={**names, "PATH": path, "RED": red, "WAITS": waits, "AFTER": after},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lines(self, name: str) -> list[str]:
        return (self.folder / "build" / name).read_text().splitlines()


def ended(run: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and output of .ci/run."""
    output, _ = run.communicate(timeout=120)
    return run.returncode, output


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_all_of_it(gate: Gate) -> None:
    code, output = gate.run()
    assert code == 0, output
    assert sorted(gate.lines("ran")) == TARGETS
    assert "the end of units-long" in output
    lines = [line.split(maxsplit=4) for line in gate.lines("phases.txt")]
    assert [name for *_, name in lines] == [
        *("setup", "check", "rest of the images", "units, campaign, API and chart", "processes and interop", "stories"),
        *("rest of simulation and long units", "unstable"),
    ]
    assert all(number.isdigit() for *numbers, _ in lines for number in numbers)


def test_what_only_computes_leaves_the_processors_to_others(gate: Gate) -> None:
    gate.run()
    how = dict(line.split(" at ", 1) for line in gate.lines("how"))
    for target in ("sim", "units-long"):
        assert how[target].startswith("19, ")
        assert "autogroup" not in how[target] or "nice 19" in how[target]
        assert how[target].endswith("patience 8")
    for target in (*BESIDE, "together"):
        assert how[target].startswith(f"{os.nice(0)}, ")
        assert "nice 19" not in how[target] or os.nice(0) == 19
        assert how[target].endswith("patience measured")


def test_a_second_run_of_a_day_does_the_same(gate: Gate) -> None:
    gate.run()
    seeds = {
        target: word for target, *words in map(str.split, gate.lines("commands")) for word in words if "SEED" in word
    }
    assert set(seeds) == {"campaign", "sim", "units-long", "units-short"}
    assert len(set(seeds.values())) == 1
    assert re.fullmatch(r"SEED=20\d{6}", seeds["sim"])


def test_it_tests_its_own_checkout(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/another/checkout")
    gate.run()
    assert sorted(gate.lines("imports")) == [f"{target} nothing" for target in TARGETS]


@pytest.mark.parametrize("red", ["sim", "units-long"])
def test_a_failure_beside_the_others_counts(gate: Gate, red: str) -> None:
    code, output = gate.run(red=red)
    assert code != 0
    assert output.count(f"the end of {red}") == 1
    assert "together" in gate.lines("ran")
    assert "unstable" not in gate.lines("ran")


def test_a_failure_beside_the_others_spares_the_cluster(gate: Gate) -> None:
    run = gate.start(red="sim", after="together:seen")
    file = gate.folder / "build" / "session-of-sim"
    until(lambda: file.exists() and bool(file.read_text()))
    session = file.read_text().strip()
    until(lambda: not Path(f"/proc/{session}").exists())
    (gate.folder / "build" / "seen").touch()
    code, output = ended(run)
    assert code != 0
    assert output.count("the end of sim") == 1
    assert "e2e-stories" not in gate.lines("ran")


@pytest.mark.parametrize("red", BESIDE)
def test_what_runs_beside_the_units_ends_with_them(gate: Gate, red: str) -> None:
    code, output = gate.run(red=red)
    assert code != 0
    assert [output.count(f"the end of {target}") for target in BESIDE] == [1, 1, 1]
    assert "together" not in gate.lines("ran")


@pytest.mark.parametrize(("red", "not_run"), [("together", "e2e-stories"), ("e2e-stories", "unstable")])
def test_what_runs_beside_a_failure_is_told_too(gate: Gate, red: str, not_run: str) -> None:
    code, output = gate.run(red=red)
    assert code != 0
    assert "the end of units-long" in output
    assert not_run not in gate.lines("ran")


@pytest.mark.parametrize(("waits", "red"), [("sim", "check"), ("sim", "units-short")])
def test_nothing_goes_on_after_the_end(gate: Gate, waits: str, red: str) -> None:
    code, _ = gate.run(red=red, waits=waits, after=f"{red}:waiting")
    assert code != 0
    (process,) = gate.lines("waiting")
    until(lambda: not runs(process))


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patient(10)
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(process: str) -> bool:
    """It has not ended, even if no one has taken its exit code."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
