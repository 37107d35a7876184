"""A member with a full disk: what is not durable is not acknowledged, the others continue, and it recovers."""

import contextlib
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_demo.calls import call
from rocketmq_demo.controllers import ControllerCluster, ControllerProcess
from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import RegisterBrokerToControllerRequestHeader
from tests.needed import needs
from tests.processes.kit import address_of, call_leader, fill, log_lines, logged, make_group, metric, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

KILOBYTE = 1024
LONG = "x" * 200
"""Makes entries of 300 bytes: 1000 of them are more than the 256 KiB that the journal keeps written ahead."""


def registration(address: str) -> RegisterBrokerToControllerRequestHeader:
    return RegisterBrokerToControllerRequestHeader(
        cluster_name="C", broker_name="g", broker_id=2, broker_address=address
    )


def write(cluster: ControllerCluster, address: str) -> None:
    """Register until it is acknowledged."""
    while (
        call_leader(cluster, RequestCode.CONTROLLER_REGISTER_BROKER, registration(address)).code != ResponseCode.SUCCESS
    ):
        time.sleep(0.02)


def applied(process: ControllerProcess) -> float:
    status, page = process.http("/metrics")
    return metric(page, "rocketmq_controller_raft_applied_index") if status == 200 else -1.0


def caught_up(cluster: ControllerCluster) -> bool:
    return len({applied(process) for process in cluster}) == 1


@pytest.fixture
def cluster(tmp_path: Path, ports: PortPool) -> Iterator[ControllerCluster]:
    with ControllerCluster(tmp_path, ports=ports) as cluster:
        yield cluster


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_failed_write_ends_the_member_and_nothing_acknowledged_is_lost(
    cluster: ControllerCluster, victim: str
) -> None:
    cluster.start()
    cluster.wait_ready(60.0)
    make_group(cluster, "g")
    fill(cluster, "g", 1000, suffix=LONG)
    leader = cluster.wait_leader()
    member = leader if victim == "leader" else next(member for member in cluster.ports if member != leader)
    process = cluster[member]
    assert process.log_path.stat().st_size < 100 * KILOBYTE  # the process still logs, the journal does not grow
    limit = 200 * KILOBYTE
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    for number in range(5):
        write(cluster, f"after.{number}:1")
    assert process.wait(60.0) == 1
    assert logged(process, "controller cannot continue", reason=str(cluster.folder / member / "store"))
    assert "File too large" in process.output()
    assert not [line for line in log_lines(process) if line["event"] == "request failed"]
    assert address_of(cluster, "g", 2) == "after.4:1"
    cluster.start_member(member).wait_ready(60.0)
    wait_until(lambda: caught_up(cluster), f"{member} catches up")


@pytest.fixture
def small_disk(cluster: ControllerCluster) -> Iterator[Path]:
    """n2's store on a file system of 1 MiB."""
    store = cluster.folder / "n2" / "store"
    store.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(store)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    yield store
    cluster.close()
    subprocess.run(["umount", str(store)], check=True)


@needs("mount")
@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_full_disk_acknowledges_nothing_and_recovers(
    cluster: ControllerCluster, small_disk: Path, victim: str
) -> None:
    cluster.start()
    cluster.wait_ready(60.0)
    make_group(cluster, "g")
    while (cluster.wait_leader() == "n2") != (victim == "leader"):
        leader = cluster.wait_leader()
        assert cluster[leader].stop() == 0
        cluster.wait_leader()
        cluster.start_member(leader).wait_ready(60.0)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    number = 0
    while not said_full(cluster["n2"]):
        write(cluster, f"{LONG}.{number}:1")
        number += 1
        assert number < 4000
    write(cluster, "others.go.on:1")
    assert cluster.wait_leader() != "n2"

    # With n0 or n1 gone, the full member would be needed for a majority.
    gone = cluster.wait_leader()
    cluster[gone].kill9()
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        for process in cluster:
            with contextlib.suppress(OSError):
                answer = call(
                    process.address,
                    request(RequestCode.CONTROLLER_REGISTER_BROKER, registration("must.not:1")),
                    timeout=0.5,
                )
                assert answer.code != ResponseCode.SUCCESS
        time.sleep(0.02)

    assert cluster["n2"].alive, cluster["n2"].tail()  # term and vote need no space
    ballast.unlink()
    write(cluster, "space.again:1")
    cluster.start_member(gone).wait_ready(60.0)
    wait_until(lambda: caught_up(cluster), "everybody catches up")
    assert address_of(cluster, "g", 2) == "space.again:1"


def said_full(process: ControllerProcess) -> bool:
    return logged(process, "disk full: this member neither leads nor acknowledges until there is space")
