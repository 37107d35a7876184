"""examples/*.yaml are what the operator takes, and show what they say."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from rocketmq_resources.name_server import NameServer, parse_name_server
from tests.paths import ROOT

EXAMPLES = ROOT / "examples"
FILES = sorted(path.name for path in EXAMPLES.glob("*.yaml"))

Resource = BrokerGroup | ControllerCluster | NameServer

PARSE: dict[str, Callable[[dict[str, Any]], Resource]] = {
    "BrokerGroup": parse_broker_group,
    "ControllerCluster": parse_controller_cluster,
    "NameServer": parse_name_server,
}


def documents(file: str) -> Iterator[tuple[dict[str, Any], Resource]]:
    for body in yaml.safe_load_all((EXAMPLES / file).read_text()):
        body["metadata"].setdefault("namespace", "default")
        yield body, PARSE[body["kind"]](body)


@pytest.mark.parametrize("file", FILES)
def test_an_example_is_taken(file: str) -> None:
    for body, _ in documents(file):
        assert body["apiVersion"] == names.API_VERSION


@pytest.mark.parametrize("file", [name for name in FILES if name != "brokergroup-apache.yaml"])
def test_an_example_brings_what_its_group_refers_to(file: str) -> None:
    resources = [resource for _, resource in documents(file)]
    there = {(type(resource), resource.namespace, resource.name) for resource in resources}
    for group in (resource for resource in resources if isinstance(resource, BrokerGroup)):
        assert (group.controller is not None) == group.fails_over
        assert group.controller is None or (ControllerCluster, *group.controller) in there
        if group.name_server is not None:
            assert (NameServer, *group.name_server) in there
        else:
            assert any(isinstance(one, ControllerCluster) and one.namesrv_addr for one in resources)


def test_the_first_example_is_a_strict_group_of_three() -> None:
    cluster, name_server, group = (resource for _, resource in documents("brokergroup.yaml"))
    assert isinstance(cluster, ControllerCluster)
    assert isinstance(name_server, NameServer)
    assert isinstance(group, BrokerGroup)
    assert (cluster.name, name_server.name, group.name) == ("main", "main", "broker-a")
    assert (group.spec.replicas, group.spec.durability, group.spec.engine) == (3, "strict", "native")
