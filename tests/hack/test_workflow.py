"""The workflow of GitHub is well-formed, and each of its steps calls a make target that exists."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.needed import unavailable
from tests.paths import ROOT

ACTIONLINT = ROOT / "hack" / "actionlint.sh"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


@pytest.fixture
def go() -> None:
    if not (shutil.which("actionlint") or shutil.which("go")):
        unavailable("neither actionlint nor Go is there")


def actionlint(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ACTIONLINT, *arguments], capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.interop  # it may have to build actionlint with Go
@pytest.mark.usefixtures("go")
def test_actionlint_finds_nothing_and_would_find_an_unknown_job(tmp_path: Path) -> None:
    sound = actionlint(WORKFLOW)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    broken = tmp_path / "ci.yml"
    broken.write_text(WORKFLOW.read_text().replace("  check:\n", "  check:\n    needs: [missing]\n", 1))
    found = actionlint(broken)
    assert found.returncode == 1
    assert '"missing"' in found.stdout


def test_each_make_target_exists() -> None:
    steps = [step for job in yaml.safe_load(WORKFLOW.read_text())["jobs"].values() for step in job["steps"]]
    called = {target for step in steps for target in re.findall(r"\bmake ([a-z0-9-]+)", step.get("run", ""))}
    assert {"check", "test", "interop", "e2e"} <= called
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert called <= targets
