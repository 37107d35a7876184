"""What a sidecar's port for probes and metrics shows, over a real socket."""

import asyncio
import http.client
import socket

import pytest

from rocketmq_runtime.config.settings import build_settings
from rocketmq_sidecar.ports.metrics import Snapshot
from rocketmq_sidecar.ports.probe_port import ProbePort
from rocketmq_sidecar.settings import SidecarSettings
from tests.ports import free_ports

HOST = "127.0.0.1"
NOW = Snapshot(
    cluster="C",
    broker_set="broker-a",
    broker_id=1,
    role="slave",
    master_epoch=7,
    in_sync=2,
    lease_seconds=0.0,
    max_offset=2000,
    confirm_offset=1000,
    broker_connected=True,
    controller_known=True,
)


def probe_port(port: int, *, unready: str | None = None, hung: str | None = None) -> ProbePort:
    values = {
        "controllerAddr": "127.0.0.1:1",
        "bindAddress": "192.0.2.1",  # not ours: the probes' own host is the one that counts
        "metricsPromExporterHost": HOST,
        "metricsPromExporterPort": str(port),
    }
    settings = build_settings(SidecarSettings, values).settings
    return ProbePort(settings, unready=lambda: unready, hung=lambda: hung, snapshot=lambda: NOW)


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("unready", "hung", "blamed"),
    [(None, None, None), ("becoming slave", None, "/readyz"), (None, "the broker hangs", "/livez/broker")],
)
async def test_each_probe_has_its_own_answer(unready: str | None, hung: str | None, blamed: str | None) -> None:
    (port,) = free_ports(1)
    probes = probe_port(port, unready=unready, hung=hung)
    probes.start()
    try:
        for path in ("/healthz", "/livez", "/readyz", "/livez/broker"):
            expected = (503, f"{unready or hung}\n") if path == blamed else (200, "ok\n")
            assert await asyncio.to_thread(get, port, path) == expected, path
        status, text = await asyncio.to_thread(get, port, "/metrics")
    finally:
        probes.stop()
    assert status == 200
    assert 'rocketmq_sidecar_master_epoch{broker_id="1",broker_set="broker-a",cluster="C"} 7.0' in text


async def test_closed_when_it_has_stopped() -> None:
    (port,) = free_ports(1)
    probes = probe_port(port)
    probes.start()
    probes.stop()
    socket.create_server((HOST, port)).close()


async def test_no_port_is_opened_where_none_is_wanted() -> None:
    probes = probe_port(0)
    probes.start()
    probes.stop()


async def test_a_port_that_is_taken_ends_the_start_and_nothing_else() -> None:
    with socket.create_server((HOST, 0)) as taken:
        probes = probe_port(taken.getsockname()[1])
        with pytest.raises(OSError, match="probes cannot listen on"):
            probes.start()
        probes.stop()
