"""Addresses of pods and controllers in both IP families."""

import pytest

from rocketmq_operator.controllers.quorum_registry import GRPC_ABOVE_REMOTING, grpc_addresses
from rocketmq_operator.domain.observed import Pod
from rocketmq_operator.domain.plan.groups.state import broker_address, is_address_of, sidecar_address
from rocketmq_resources import names
from tests.operator.resources.test_spec import group


@pytest.mark.parametrize(("ip", "host"), [("10.0.0.7", "10.0.0.7"), ("fd00::7", "[fd00::7]")])
def test_a_broker_is_known_by_its_pod(ip: str, host: str) -> None:
    pod = Pod(name="g-0", ordinal=0, uid="u", ip=ip)
    assert broker_address(pod) == f"{host}:{names.PORT_BROKER}"
    assert sidecar_address(pod) == f"{host}:{names.PORT_SIDECAR_GRPC}"
    assert is_address_of(pod, broker_address(pod))
    assert is_address_of(pod, f"{ip}:{names.PORT_BROKER}"), "official brokers write no brackets"
    assert not is_address_of(pod, sidecar_address(pod))


def test_controllers_outside_are_asked_at_the_port_above() -> None:
    outside = group({"controllerRef": None, "controllerAddr": "c0:9878;[fd00::8]:9878", "namesrvAddr": "n:9876"})
    port = 9878 + GRPC_ABOVE_REMOTING
    assert grpc_addresses(outside) == (f"c0:{port}", f"[fd00::8]:{port}")
