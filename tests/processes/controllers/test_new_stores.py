"""Members that come back with an empty or an older folder: they must not help an old log to win an election
(NewStoresWait)."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool
from tests.processes.kit import address_of, fill, logged, make_group, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

WAITS = (
    "store is new or was set back: it neither votes nor counts until a leader has caught it up, "
    "or all members are here, new, and have the same members configured"
)
COPY = "this store is a copy: it neither votes nor counts until a leader has caught it up"
LEADERLESS_SECONDS = 3.0
"""Several election timeouts."""


@pytest.fixture
def cluster(tmp_path: Path, ports: PortPool) -> Iterator[ControllerCluster]:
    with ControllerCluster(tmp_path, ports=ports) as cluster:
        cluster.start()
        cluster.wait_ready(60.0)
        make_group(cluster, "g")
        yield cluster


def nobody_leads(cluster: ControllerCluster) -> bool:
    end = time.monotonic() + LEADERLESS_SECONDS
    while time.monotonic() < end:
        if cluster.leader() is not None:
            return False
        time.sleep(0.05)
    return True


def n2_waits_for_n1(cluster: ControllerCluster, event: str, newest: str) -> None:
    """n0 was away, n2 has another store, and says `event`: only n1 knows the newest address of broker 2."""
    cluster.start_member("n0")
    cluster.start_member("n2")
    wait_until(lambda: logged(cluster["n2"], event), f"n2 says: {event}")
    assert nobody_leads(cluster)
    cluster.start_member("n1")
    wait_until(lambda: logged(cluster["n2"], "caught up: this member votes and counts from here on"), "n2 is caught up")
    cluster.wait_ready(60.0)
    assert address_of(cluster, "g", 2) == newest


def test_a_wiped_member_does_not_bring_an_old_log_to_power(cluster: ControllerCluster) -> None:
    """n0 was down while n1 and n2 acknowledged; n2 is wiped, n1 is down."""
    cluster["n0"].kill9()
    newest = fill(cluster, "g", 20) if cluster.wait_leader() else ""
    cluster["n1"].kill9()
    cluster["n2"].kill9()
    shutil.rmtree(cluster.folder / "n2" / "store")
    n2_waits_for_n1(cluster, WAITS, newest)


def test_a_copied_folder_makes_no_majority_with_a_member_that_was_away(
    cluster: ControllerCluster, tmp_path: Path
) -> None:
    """The member that remembers what it had acknowledged is down: the copy knows by itself that it is one. ext4, XFS,
    Btrfs and F2FS can tell."""
    cluster.wait_leader()
    assert cluster["n2"].stop() == 0
    shutil.copytree(cluster.folder / "n2" / "store", tmp_path / "copy")
    cluster.start_member("n2").wait_ready(60.0)
    cluster["n0"].kill9()
    newest = fill(cluster, "g", 20) if cluster.wait_leader() else ""
    cluster["n1"].kill9()
    cluster["n2"].kill9()
    shutil.rmtree(cluster.folder / "n2" / "store")
    (tmp_path / "copy").rename(cluster.folder / "n2" / "store")
    n2_waits_for_n1(cluster, COPY, newest)
