"""Images are built one after the other: when it built seven at once, BuildKit panicked ("failed to get edge"), and the
Docker engine with it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
while [ "$1" != --target ]; do shift; done
mkdir building || { echo "$2 is built beside another one" >> built; exit 1; }
sleep 0.1
echo "$2" >> built
rmdir building
[ "$2" != "$(cat broken 2> /dev/null)" ]
"""
"""Builds nothing, and fails for the image that `broken` names."""
NAMES = ["controller", "namesrv", "broker", "sidecar", "operator", "spark", "tester"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack" / "images.sh", tmp_path / "hack")
    version = Path("libs/rocketmq_runtime/version.py")
    (tmp_path / version.parent).mkdir(parents=True)
    shutil.copy(ROOT / version, tmp_path / version)
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    return tmp_path


def build(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = ["env", f"DOCKER={checkout / 'docker'}", "REPOSITORY=here", checkout / "hack" / "images.sh", "mine"]
    return subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)


def built(checkout: Path) -> list[str]:
    return (checkout / "built").read_text().splitlines()


def test_one_image_after_the_other(checkout: Path) -> None:
    done = build(checkout)
    assert built(checkout) == NAMES
    assert (done.returncode, done.stdout.split()) == (0, [f"here/{name}:mine" for name in NAMES])


def test_an_image_that_cannot_be_built_ends_it(checkout: Path) -> None:
    (checkout / "broken").write_text("broker\n")
    done = build(checkout)
    assert (built(checkout), done.stdout) == (["controller", "namesrv", "broker"], "")
    assert done.returncode == 1
    assert "image broker was not built" in done.stderr
