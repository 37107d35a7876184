"""`kubectl rocketmq` as a user runs it."""

import subprocess
import sys
from pathlib import Path

from e2e.stories.conftest import Installation
from tests.gate.patience import patient

PLUGIN = Path(sys.executable).with_name("kubectl-rocketmq")


def plugin(installation: Installation, *arguments: str, codes: tuple[int, ...] = (0,), seconds: float = 120) -> str:
    """What it prints; an AssertionError with what it complains of if it ends with another exit code than these."""
    done = subprocess.run(
        [PLUGIN, *arguments, "-n", installation.namespace, "--kubeconfig", str(installation.cluster.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=patient(seconds),
        check=False,
    )
    assert done.returncode in codes, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout
