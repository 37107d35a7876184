"""Servers start without rich, which structlog would import; whoever wants it still gets it."""

import subprocess
import sys

import pytest

SERVERS = ("rocketmq_broker", "rocketmq_sidecar", "rocketmq_controller", "rocketmq_namesrv")


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_does_without_rich(server: str) -> None:
    code = f"import sys, {server}.__main__; assert 'rich' not in sys.modules, sorted(sys.modules); import rich"
    subprocess.run([sys.executable, "-c", code], check=True)
