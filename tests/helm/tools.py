"""promtool, or a skip; with CI=true a failure."""

import subprocess
from pathlib import Path

from tests.needed import unavailable
from tests.paths import ROOT


def promtool(*arguments: str | Path) -> None:
    """Run it; what it complains about is the failure's text."""
    found = subprocess.run([ROOT / "hack" / "promtool.sh"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        unavailable(f"promtool is not there: {found.stderr}")
    done = subprocess.run([found.stdout.strip(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
