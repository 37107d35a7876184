"""A cluster can be made where another one was: a second run of the gate's stories makes one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

KIND = """#!/bin/sh
cd "$(dirname "$0")"
case "$1 $2" in
  "get clusters") cat cluster 2> /dev/null || true;;
  "create cluster") for one in cluster ending address; do [ ! -e $one ] || exit 1; done
    touch address; echo pytest-kind > cluster;;
  "delete cluster") rm cluster;;
esac
"""
"""As the real one, but `create` never finds the address that is there."""
IP = """#!/bin/sh
[ "$*" = "address del 10.0.0.1/32 dev lo" ] && rm "$(dirname "$0")/address"
"""
PGREP = """#!/bin/sh
cd "$(dirname "$0")"
[ -e ending ] || exit 1
seen=$(cat ending); echo "$seen." > ending; [ "$seen" != ... ] || rm ending
"""
"""Processes of the last cluster, which end after a while."""


@pytest.fixture
def kind(tmp_path: Path) -> list[str]:
    place = tmp_path / "shared" / "k8s-local"
    place.mkdir(parents=True)
    (place / "env.sh").write_text("NODE_IP=10.0.0.1\n")
    for name, text in (("kind", KIND), ("ip", IP), ("pgrep", PGREP)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    (tmp_path / "project" / "hack").mkdir(parents=True)
    copy = shutil.copy(ROOT / "hack" / "local_kind.sh", tmp_path / "project" / "hack")
    return ["env", f"PATH={place}:{os.environ['PATH']}", copy]


def place(kind: list[str]) -> Path:
    return Path(kind[-1]).parents[2] / "shared" / "k8s-local"


def code(kind: list[str], what: str) -> int:
    return subprocess.run([*kind, what, "cluster", "--name=pytest-kind"], check=False, timeout=60).returncode


def test_a_cluster_after_another_one(kind: list[str]) -> None:
    assert [code(kind, what) for what in ("create", "delete", "create", "delete", "create")] == [0, 0, 0, 0, 0]


def test_the_processes_of_the_last_cluster_end_first(kind: list[str]) -> None:
    (place(kind) / "ending").touch()
    assert code(kind, "create") == 0


def test_the_address_of_a_cluster_that_runs_stays(kind: list[str]) -> None:
    assert [code(kind, "create"), code(kind, "create")] == [0, 1]
    assert (place(kind) / "address").exists()
