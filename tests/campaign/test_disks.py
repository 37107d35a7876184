"""Nothing outside a round holds its file systems, and what of them cannot be read hides nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.cluster import Cluster, Replica

SHOW = """
import os, pathlib, subprocess, sys
from tests.campaign import disks

disks.hide_mounts()
subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[1]], check=True)
for process in os.getpid(), os.getppid():
    print(sys.argv[1] in pathlib.Path(f"/proc/{process}/mounts").read_text())
"""


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_no_other_process_sees_or_copies_what_a_round_mounts(tmp_path: Path) -> None:
    shown = subprocess.run([sys.executable, "-c", SHOW, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=True)

    assert shown.stdout.split() == ["True", "False"]


def test_a_file_that_cannot_be_read_does_not_stop_the_others_from_being_kept(tmp_path: Path) -> None:
    store, target = tmp_path / "nodes/b1/store", tmp_path / "kept"
    store.mkdir(parents=True)
    target.mkdir()
    (store / "a").symlink_to("nothing")
    (store / "b").write_text("log")
    replica = Replica.__new__(Replica)
    replica.name, replica.folder, replica.official = "b1", store.parent, False
    cluster = Cluster.__new__(Cluster)
    cluster.folder, cluster.replicas = tmp_path / "nodes", [replica]

    cluster.keep(target)

    assert (target / "b1-store/b").read_text() == "log"
