""".ci/run with targets that only say that they ran: what runs, how, and what makes it red."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.gate.patience import patient
from tests.paths import ROOT

pytestmark = pytest.mark.processes

MAKE = """#!/usr/bin/env bash
echo "$1" >> build/ran
echo "$1 at $(nice), $(cat /proc/self/autogroup 2> /dev/null), patience ${GATE_PATIENCE:-measured}" >> build/how
[ "$1" != "$WAITS" ] || { echo $BASHPID > build/waiting; exec sleep 1000; }
# What runs beside it begins first: a test of what happens then is not a race.
[ "$1" != "$AFTER" ] || until [ -s build/waiting ]; do sleep 0.01; done
[ "$1" != units-long ] || until grep -q together build/ran; do sleep 0.01; done
echo "the end of $1"
[ "$1" != "$RED" ]
"""
TARGETS = ["campaign", "check", "e2e", "setup", "sim", "together", "units-long", "units-short", "unstable"]


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
        """Its exit code and output. The target `red` fails, `waits` does not end, and `after` ends when that runs."""
        names = {name: value for name, value in os.environ.items() if name != "GATE_PATIENCE"}
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            [self.folder / ".ci" / "run"],
            env={**names, "PATH": path, "RED": red, "WAITS": waits, "AFTER": after},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def lines(self, name: str) -> list[str]:
        return (self.folder / "build" / name).read_text().splitlines()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_all_of_it(gate: Gate) -> None:
    code, output = gate.run()
    assert code == 0, output
    assert sorted(gate.lines("ran")) == TARGETS
    assert "the end of units-long" in output
    assert [line.partition(" ")[2] for line in gate.lines("phases.txt")] == [
        *("setup", "check", "rest of the images", "units", "processes and interop"),
        *("rest of simulation and long units", "campaign", "e2e", "unstable"),
    ]


def test_what_only_computes_leaves_the_processors_to_others(gate: Gate) -> None:
    gate.run()
    how = dict(line.split(" at ", 1) for line in gate.lines("how"))
    for target in ("sim", "units-long"):
        assert how[target].startswith("19, ")
        assert "autogroup" not in how[target] or "nice 19" in how[target]
        assert how[target].endswith("patience 8")
    for target in ("units-short", "together", "campaign"):
        assert how[target].startswith(f"{os.nice(0)}, ")
        assert "nice 19" not in how[target] or os.nice(0) == 19
        assert how[target].endswith("patience measured")


@pytest.mark.parametrize("red", ["sim", "units-long"])
def test_a_failure_beside_the_others_counts(gate: Gate, red: str) -> None:
    code, output = gate.run(red=red)
    assert code != 0
    assert f"the end of {red}" in output
    assert "together" in gate.lines("ran")
    assert "campaign" not in gate.lines("ran")


def test_what_runs_beside_a_failure_is_told_too(gate: Gate) -> None:
    code, output = gate.run(red="together")
    assert code != 0
    assert "the end of units-long" in output
    assert "campaign" not in gate.lines("ran")


def test_nothing_goes_on_after_the_end(gate: Gate) -> None:
    code, _ = gate.run(red="check", waits="sim", after="check")
    assert code != 0
    (process,) = gate.lines("waiting")
    deadline = time.monotonic() + patient(10)
    while runs(process):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(process: str) -> bool:
    """It has not ended, even if nobody has taken its exit code."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
