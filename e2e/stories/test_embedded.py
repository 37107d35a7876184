"""Name servers and controllers in three processes (RIP-44): the fewest pods, and the same promise."""

from collections.abc import Iterator

import pytest

from e2e.kit.group import Group
from e2e.stories.conftest import Installation, example
from e2e.stories.test_faults import GAP_POD_DELETED, after

CONTROLLERS, BROKERS = "embedded", "broker-e"


@pytest.fixture(scope="module")
def embedded(installation: Installation) -> Iterator[Group]:
    """examples/controller-embedded.yaml under names of its own, loaded; deleted in the end."""
    cluster, group = example("controller-embedded.yaml")
    cluster["metadata"]["name"] = CONTROLLERS
    group["metadata"]["name"] = BROKERS
    group["spec"]["controllerRef"]["name"] = CONTROLLERS
    there = Group(installation.cluster, installation.namespace, BROKERS)
    installation.apply([cluster, group])
    there.whole()
    status = installation.cluster.json("-n", installation.namespace, "get", "controllercluster", CONTROLLERS)["status"]
    there.start_load(status["namesrvAddr"], installation.tester)
    yield there
    there.kubectl("delete", f"brokergroup/{BROKERS}", f"pod/load-{BROKERS}")
    there.kubectl("delete", f"controllercluster/{CONTROLLERS}")
    for label in (f"rocketmq-ha.io/group={BROKERS}", f"rocketmq-ha.io/controller-cluster={CONTROLLERS}"):
        there.kubectl("wait", "--for=delete", "pods", "-l", label, "--timeout=90s")


def test_leader_and_name_server_deleted_at_once(embedded: Group) -> None:
    """They are one pod."""
    leader = embedded.kubectl("get", "controllercluster", CONTROLLERS, "-o", "jsonpath={.status.leader}")
    after(embedded, lambda: embedded.delete_pods(leader))


def test_master_pod_deleted(embedded: Group) -> None:
    master = embedded.master()
    after(embedded, lambda: embedded.delete_pods(master), gap=GAP_POD_DELETED)
    assert embedded.master() != master
