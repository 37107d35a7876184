"""promtool, or a skip; with CI=true a failure."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT


def promtool(*arguments: str | Path) -> None:
    """Run it; what it complains about is the failure's text."""
    found = subprocess.run([ROOT / "hack" / "promtool.sh"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        if os.environ.get("CI") == "true":
            pytest.fail(f"promtool is not there: {found.stderr}")
        pytest.skip("promtool is not there")
    done = subprocess.run([found.stdout.strip(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
