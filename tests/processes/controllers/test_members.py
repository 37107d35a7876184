"""One of three controllers is replaced under another id while brokers keep sending requests; then the old one comes
back."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import clean_environment
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.controller import RegisterBrokerToControllerRequestHeader
from tests.processes.kit import address_of, call_leader, fill, logged, make_group, metric, wait_until

REPEATED = ("cannot read changes", "try again in a moment", "outcome is unknown")
REMOVED = "this member was removed from the quorum: stop it and delete its store"
pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(tmp_path: Path, ports: PortPool) -> Iterator[ControllerCluster]:
    with ControllerCluster(tmp_path, ports=ports) as cluster:
        cluster.start()
        cluster.wait_ready(60.0)
        make_group(cluster, "g")
        yield cluster


def admin(cluster: ControllerCluster, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    asked = ";".join(process.grpc_address for process in cluster)
    return subprocess.run(
        [sys.executable, "-m", "rocketmq_admin", command, "-g", asked, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=clean_environment(),
    )


def change(cluster: ControllerCluster, command: str, *arguments: str) -> str:
    """Repeat the command as an operator would: until the log has the members, no other change is in progress, and the
    outcome is known (a leader that stalls loses its leadership)."""
    done: list[subprocess.CompletedProcess[str]] = []

    def succeeds() -> bool:
        done.append(admin(cluster, command, *arguments))
        errors = done[-1].stderr
        return done[-1].returncode == 0 or not any(reason in errors for reason in REPEATED)

    wait_until(succeeds, command)
    assert done[-1].returncode == 0, done[-1].stderr
    return done[-1].stdout


class Registrations:
    """A broker that registers at a new address each time; has the last acknowledged one."""

    def __init__(self, cluster: ControllerCluster) -> None:
        self._cluster = cluster
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0

    def _run(self) -> None:
        while not self._ends.is_set():
            header = RegisterBrokerToControllerRequestHeader(
                cluster_name="C", broker_name="g", broker_id=2, broker_address=f"h:{self.acknowledged + 1}"
            )
            answer = call_leader(self._cluster, RequestCode.CONTROLLER_REGISTER_BROKER, header)
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failed: object) -> None:
        self.end()

    def end(self) -> str:
        self._ends.set()
        self._thread.join()
        return f"h:{self.acknowledged}"


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_controller_is_replaced_under_another_id(cluster: ControllerCluster, ports: PortPool, which: str) -> None:
    leader = cluster.wait_leader()
    old = leader if which == "leader" else next(member for member in cluster.ports if member != leader)
    first = cluster.settings("n0")["controllerDLegerPeers"]
    with Registrations(cluster) as broker:
        cluster.ports["n3"] = ports.block()
        cluster.start_member("n3", controllerJoin="true")
        wait_until(
            lambda: logged(cluster["n3"], "this member is not in the quorum of another"),
            "n3 is refused until it is added",
        )
        added = change(cluster, "addControllerMember", "-i", "n3", "-m", f"{HOST}:{cluster.ports['n3']}")
        assert "voter" in next(line for line in added.splitlines() if line.startswith("n3 "))
        removed = change(cluster, "removeControllerMember", "-i", old)
        assert not any(line.startswith(f"{old} ") for line in removed.splitlines())
        wait_until(lambda: logged(cluster[old], REMOVED), f"{old} knows")
        wait_until(lambda: cluster[old].http("/readyz")[0] == 503, f"{old} is not ready")
        store = cluster.folder / old / "store"
        assert cluster[old].stop() == 0
        moment = broker.acknowledged
        wait_until(lambda: broker.acknowledged > moment + 20, "brokers are answered without it")
        newest = broker.end()

    # One more loss is survived: the new member counts.
    third = next(member for member in cluster.ports if member not in (old, "n3", cluster.wait_leader()))
    cluster[third].kill9()
    cluster.wait_leader()
    assert address_of(cluster, "g", 2) == newest
    cluster.start_member(third, controllerDLegerPeers=first).wait_ready(60.0)

    # The old one, as it was, with the configuration it had.
    cluster.start_member(old, controllerDLegerPeers=first)
    wait_until(lambda: logged(cluster[old], REMOVED), f"{old} knows again")
    term = metric(cluster[cluster.wait_leader()].http("/metrics")[1], "rocketmq_controller_raft_term")
    newest = fill(cluster, "g", 20)
    assert store.exists()
    wait_until(lambda: cluster[old].http("/readyz")[0] == 503, f"{old} is not ready again")
    assert metric(cluster[cluster.wait_leader()].http("/metrics")[1], "rocketmq_controller_raft_term") == term
    assert address_of(cluster, "g", 2) == newest
    page = cluster[cluster.wait_leader()].http("/metrics")[1]
    assert metric(page, "rocketmq_controller_raft_member_voter", member="n3") == 1
    with pytest.raises(KeyError):
        metric(page, "rocketmq_controller_raft_member_voter", member=old)


def test_a_restart_with_the_old_configuration_keeps_the_members(cluster: ControllerCluster, ports: PortPool) -> None:
    """The file only has the members that began the quorum."""
    first = cluster.settings("n0")["controllerDLegerPeers"]
    cluster.ports["n3"] = ports.block()
    cluster.start_member("n3", controllerJoin="true")
    change(cluster, "addControllerMember", "-i", "n3", "-m", f"{HOST}:{cluster.ports['n3']}")
    change(cluster, "removeControllerMember", "-i", "n0")
    cluster["n0"].kill9()
    newest = fill(cluster, "g", 20)
    for member in ("n1", "n2", "n3"):
        cluster[member].kill9()
    for member in ("n1", "n2"):
        cluster.start_member(member, controllerDLegerPeers=first)
    cluster.start_member("n3")
    cluster.wait_leader()
    assert address_of(cluster, "g", 2) == newest
    shown = admin(cluster, "getControllerMembers").stdout
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("n")] == ["n1", "n2", "n3"]
