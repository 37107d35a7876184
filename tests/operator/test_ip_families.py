"""Addresses of pods and controllers in both IP families."""

import pytest

from rocketmq_broker.settings import BrokerSettings
from rocketmq_operator.controllers.quorum_registry import GRPC_ABOVE_REMOTING, grpc_addresses
from rocketmq_operator.domain.observed import Pod
from rocketmq_operator.domain.plan.groups.state import broker_address, is_address_of, sidecar_address
from rocketmq_operator.kubernetes.parse import pod_of
from rocketmq_resources import names
from rocketmq_runtime.config.settings import build_settings
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


@pytest.mark.parametrize(
    ("ips", "family", "ip"),
    [
        (("10.0.0.7",), None, "10.0.0.7"),
        (("fd00::7",), None, "fd00::7"),
        (("10.0.0.7", "fd00::7"), None, "10.0.0.7"),
        (("10.0.0.7", "fd00::7"), "IPv4", "10.0.0.7"),
        (("10.0.0.7", "fd00::7"), "IPv6", "fd00::7"),
        (("fd00::7", "10.0.0.7"), "IPv4", "10.0.0.7"),
        (("10.0.0.7",), "IPv6", "10.0.0.7"),
        ((), "IPv6", ""),
    ],
)
def test_a_pod_is_known_by_the_address_that_it_announces(ips: tuple[str, ...], family: str | None, ip: str) -> None:
    """As the Service says whose family the pod was made for. The broker finds the same one in the same list."""
    annotations = {} if family is None else {names.ANNOTATION_IP_FAMILY: family}
    status = {"podIP": ips[0], "podIPs": [{"ip": each} for each in ips]} if ips else {}
    pod = pod_of({"metadata": {"name": "g-0", "annotations": annotations}, "status": status})
    assert pod is not None
    assert pod.ip == ip
    if ips:
        given = {"brokerName": "g", "brokerIP1": ",".join(ips), "brokerIPFamily": family or ""}
        assert build_settings(BrokerSettings, given).settings.broker_ip1 == ip
