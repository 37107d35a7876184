"""A controller that calls itself by an address which leads nowhere from here, as behind NAT or a port mapping: every
client of the product works with the address that it was given, and none waits for the one that is said."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from rocketmq_api.controllers import ControllersClient
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import clean_environment
from rocketmq_demo.replica import Replica
from tests.gate.patience import patient
from tests.processes.kit import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

SAID = "controller-0.invalid"
"""RFC 6761: no such name exists."""


class Mapped(ControllerCluster):
    """Its members believe that they are reached at `SAID`."""

    def settings(self, member: str) -> dict[str, str]:
        values = super().settings(member)
        peers = values["controllerDLegerPeers"].replace(HOST, SAID)
        return {**values, "controllerDLegerPeers": peers}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ports: PortPool) -> Iterator[Mapped]:
    with Mapped(tmp_path_factory.mktemp("mapped"), ports=ports, members=1) as cluster:
        cluster.start()
        cluster.wait_ready(patient(30.0))
        yield cluster


def admin(*arguments: str, refused: str = "") -> str:
    """What it prints. `refused`: what the leader may answer instead."""
    ended = subprocess.run(
        [sys.executable, "-m", "rocketmq_admin", *arguments],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
        env=clean_environment(),
    )
    assert ended.returncode == 0 or (refused and refused in ended.stderr), ended.stderr
    return ended.stdout


def test_the_controller_says_the_address_that_nobody_reaches(cluster: Mapped) -> None:
    known = cluster["n0"].metadata(timeout=patient(5.0))
    assert known is not None
    assert (known.is_leader, known.controller_leader_address) == (True, f"{SAID}:{cluster.ports['n0']}")


@pytest.fixture(scope="module")
def replica(cluster: Mapped, tmp_path_factory: pytest.TempPathFactory, ports: PortPool) -> Iterator[Replica]:
    """Its sidecar finds the leader, or it would never be master."""
    one = Replica(
        "r0",
        folder=tmp_path_factory.mktemp("r0"),
        ports=ports,
        controllers=cluster.addresses,
        nameservers=[],
        cluster="C",
        name="broker-h",
        config={"durability": "relaxed"},
    )
    try:
        one.launch()
        yield one
    finally:
        one.close()


def test_a_sidecar_registers_and_its_broker_becomes_master(cluster: Mapped, replica: Replica) -> None:
    def is_master() -> bool:
        asked = ("getSyncStateSet", "-a", cluster.addresses[0], "-b", "broker-h")
        return replica.address in admin(*asked, refused="no broker group broker-h")

    wait_until(is_master, "the replica is master", patient(30.0))


@pytest.mark.parametrize("command", ["getControllerMetaData", "getControllerMembers"])
def test_the_administrator_s_tool(cluster: Mapped, command: str) -> None:
    where = ("-g", cluster["n0"].grpc_address) if command == "getControllerMembers" else ("-a", cluster.addresses[0])
    assert SAID in admin(command, *where)


async def test_the_operator_s_and_the_plugin_s_client(cluster: Mapped) -> None:
    async with ControllersClient([cluster["n0"].grpc_address], timeout=patient(10.0)) as client:
        seen = await client.members()
        assert (seen.leader_id, seen.from_leader) == ("n0", True)
        assert seen.members[0].address.startswith(SAID)
        assert await client.get_group("unknown") is None  # only a leader answers this
