"""A group and its controllers on ::1 alone, and with the default addresses, which are open in both IP families."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_demo.calls import accepts
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.addresses import format_address, parse_address
from tests.gate.patience import patient
from tests.ip_families import LOOPBACK_6, needs_ipv6
from tests.processes.kit import wait_until
from tests.processes.replica_group import Sender, complete, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300), needs_ipv6]

DEFAULT = "0.0.0.0"


async def test_a_group_on_ipv6_alone_loses_nothing_through_a_failover(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports, host=LOOPBACK_6) as members:
        master = await members.settled()
        async with Sender(members.name_server) as sender:
            await sender.more()
            master.kill()
            await sender.more()
            master.start_again()
            await members.settled()
            await sender.more()
        await complete(sender)


@pytest.mark.parametrize(("bound", "reached"), [(DEFAULT, {HOST, LOOPBACK_6}), (LOOPBACK_6, {LOOPBACK_6})])
async def test_every_port_of_a_group_is_open_where_it_should_be(
    tmp_path: Path, ports: PortPool, bound: str, reached: set[str]
) -> None:
    probes = ports.single()
    where = {"bindAddress": bound}
    config = {**where, "metricsPromExporterPort": probes}
    async with group(
        tmp_path, ports, config=config, name_server_config=where, count=1, durability="relaxed", host=LOOPBACK_6
    ) as members:
        master = await members.settled()
        _, listen = parse_address(master.replica.address)
        _, grpc = parse_address(master.client.address)
        _, name_server = parse_address(members.name_server)
        for port in (listen, listen - 2, listen + 1, grpc, probes, name_server):
            for one in (HOST, LOOPBACK_6):
                accepted = await asyncio.to_thread(accepts, format_address(one, port))
                assert accepted == (one in reached), (one, port)
        async with Sender(format_address(LOOPBACK_6, name_server)) as sender:
            await sender.more()
        await complete(sender)


def test_a_controller_is_open_in_both_families_by_default(tmp_path: Path, ports: PortPool) -> None:
    config = {"controllerListenHost": DEFAULT, "metricsPromExporterHost": ""}
    with ControllerCluster(tmp_path, ports=ports, members=1, config=config) as cluster:
        cluster.start()
        cluster.wait_ready(patient(30.0))
        for above in range(4):
            for host in (HOST, LOOPBACK_6):
                where = format_address(host, cluster.ports["n0"] + above)
                wait_until(lambda where=where: accepts(where), where)  # type: ignore[misc]
