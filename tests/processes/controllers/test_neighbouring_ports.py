"""RIP-44's own list: three controllers of one host on neighbouring ports, which are all that the members are told."""

from pathlib import Path

import pytest

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


class Neighbours(ControllerCluster):
    """No port is configured but those of the list."""

    def settings(self, member: str) -> dict[str, str]:
        """As RIP-44 has them, with our secret."""
        values = super().settings(member)
        del values["controllerRaftPort"], values["controllerGrpcPort"], values["metricsPromExporterHost"]
        return {**values, "metricsPromExporterPort": "0"}


def test_three_controllers_on_neighbouring_ports_elect_a_leader(tmp_path: Path, ports: PortPool) -> None:
    first = ports.block(blocks=3)
    with Neighbours(tmp_path, ports=ports) as cluster:
        cluster.ports = {f"n{number}": first + number for number in range(3)}
        cluster.start()
        leader = cluster.wait_ready()
        cluster[leader].kill9()
        assert cluster.wait_leader() != leader
