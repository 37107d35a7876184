"""The demo's command, as a user runs it: real processes of every kind, real signals."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rocketmq_demo.story.outcome import Outcome
from tests.gate.patience import patient


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rocketmq_demo", *arguments],
        capture_output=True,
        text=True,
        timeout=patient(110),
        check=False,
        env={**os.environ, **(environment or {})},
    )


@pytest.mark.processes
def test_story_holds(tmp_path: Path) -> None:
    faults = "kill-slave,kill-master,hang-master,kill-broker,kill-sidecar,kill-controller,kill-controllers"
    result = run("--faults", faults, "--seconds", "0.2", "-o", "json", "--folder", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    outcome = msgspec.json.decode(result.stdout, type=Outcome)
    assert outcome.problems == ()
    assert sorted(outcome.broker_ids.values()) == [1, 2, 3]
    assert [report.fault for report in outcome.faults] == faults.split(",")
    assert all(report.ids_kept for report in outcome.faults)
    for report in outcome.faults:
        elected = report.master_epoch_after - report.master_epoch_before
        deposed = report.fault.endswith(("-master", "-broker", "-sidecar"))
        assert elected >= (1 if deposed else 0), report
    load = outcome.load
    assert load.acknowledged > 0
    assert load.read_back is not None
    assert load.read_back >= load.acknowledged
    assert (load.lost, load.duplicated) == (0, 0)
    secret = tmp_path / "controllers" / "raft.secret"
    assert secret.stat().st_mode & 0o777 == 0o600


@pytest.mark.processes
def test_story_without_controllers_holds(tmp_path: Path) -> None:
    """Sends continue without controllers for longer than a lease lasts; without a master they stop, and return, while
    consumers read on and delayed messages that are due are delivered."""
    faults = "kill-controllers-for-6s,lose-quorum-and-master"
    result = run("--faults", faults, "--seconds", "0.2", "-o", "json", "--folder", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    outcome = msgspec.json.decode(result.stdout, type=Outcome)
    away, lost = outcome.faults
    assert away.master_epoch_before == away.master_epoch_after
    assert lost.master_epoch_before < lost.master_epoch_after
    assert (outcome.load.lost, outcome.load.duplicated) == (0, 0)
    assert "20 of 20 delayed messages were delivered without a master" in [entry.text for entry in outcome.timeline]
    assert outcome.reads is not None
    assert outcome.reads.messages > 0
    assert outcome.reads.rolled_back == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", "kill-everything"], "kill-everything"),
        (["--controllers", "4"], "an even number"),
        (["--replicas", "1"], "--replicas"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert said in result.stderr


def test_apache_engine_without_java_names_what_to_install(tmp_path: Path) -> None:
    result = run("--engine", "apache", environment={"JAVA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})
    assert result.returncode == 2
    assert "install a Java runtime" in " ".join(result.stderr.split())
