"""Official 5.3.3 brokers under our controllers, observed by our sidecar: the core of what the native engine stands."""

import json

import pytest
import yaml

from e2e.stories.conftest import EXAMPLES, Installation
from e2e.stories.plugin import plugin
from e2e.stories.test_faults import after, delete_pod, kill
from e2e.story.group import Group

SMALL = {"requests": {"cpu": "50m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
"""What the test machine has for each broker."""
GAP_ORDERLY = 10.0
GAP_KILLED = 30.0


@pytest.fixture(scope="module")
def java(installation: Installation, group: Group, apache_image: str) -> Group:
    """examples/brokergroup-apache.yaml, smaller, under the controllers and name servers of the other group."""
    resource = yaml.safe_load((EXAMPLES / "brokergroup-apache.yaml").read_text())
    resource["spec"]["resources"] = {"broker": SMALL}
    resource["spec"]["image"]["broker"] = apache_image
    installation.cluster.kubectl("-n", installation.namespace, "apply", "-f", "-", input=json.dumps(resource))
    return installation.loaded(resource["metadata"]["name"])


def test_master_pod_deleted(java: Group) -> None:
    """The sidecar hands mastership over before the broker ends."""
    master, addresses = java.master(), java.addresses()
    after(java, lambda: delete_pod(java, master), gap=GAP_ORDERLY)
    assert java.master() != master
    assert java.addresses()[master] != addresses[master]


def test_master_process_killed(java: Group) -> None:
    after(java, lambda: kill(java, java.master(), "broker"), gap=GAP_KILLED)


def test_switchover(installation: Installation, java: Group) -> None:
    target = java.slaves()[0]
    after(java, lambda: plugin(installation, "switchover", java.name, target), gap=GAP_ORDERLY)
    assert java.master() == target


def test_rolling_update(installation: Installation, java: Group) -> None:
    uids = java.pod_uids()
    after(java, lambda: java.patch(config={"fileReservedTime": "50"}), gap=GAP_ORDERLY)
    assert not set(java.pod_uids().values()) & set(uids.values())
