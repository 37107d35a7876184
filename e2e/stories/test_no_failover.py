"""A group without controllers: no message is taken until its master is back, and the slave serves consumers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.kit.group import Group, wait
from e2e.stories.conftest import Installation, example

NAME, REPLICAS = "broker-fixed", 2
MASTER, SLAVE = f"{NAME}-0", f"{NAME}-1"
MOST_UNREAD = 100
"""A slave that acts serves what the master had confirmed to it: not quite the last of what was acknowledged."""


@pytest.fixture(scope="module")
def fixed(installation: Installation) -> Iterator[Group]:
    """examples/brokergroup-without-controllers.yaml, loaded; deleted in the end."""
    there = Group(installation.cluster, installation.namespace, NAME)
    installation.apply(example("brokergroup-without-controllers.yaml"))
    there.whole(replicas=REPLICAS)
    server = installation.cluster.json("-n", installation.namespace, "get", "nameserver", "main")
    there.start_load(server["status"]["namesrvAddr"], installation.tester)
    yield there
    there.kubectl("delete", f"brokergroup/{NAME}", f"pod/load-{NAME}")
    there.kubectl("wait", "--for=delete", "pods", "-l", f"rocketmq-ha.io/group={NAME}", "--timeout=90s")


def whole(group: Group, since: str) -> None:
    """Nothing acknowledged is lost, and pod 0 is master."""
    group.whole(replicas=REPLICAS)
    group.judge(since)
    assert group.ids() == {MASTER: 0, SLAVE: 1}
    assert group.master() == MASTER


def test_the_master_pod_deleted(fixed: Group) -> None:
    since, address = fixed.mark(), fixed.addresses()[MASTER]
    fixed.delete_pods(MASTER)
    whole(fixed, since)
    assert fixed.addresses()[MASTER] != address, "name servers have forgotten the old one"


def test_the_slave_serves_consumers_while_the_master_is_away(fixed: Group) -> None:
    since = fixed.mark()
    with _without_master(fixed):
        wait(lambda: fixed.status().get("actingMaster") == SLAVE, "an acting master", 60.0, lambda: str(fixed.status()))
        assert fixed.condition("Available")["reason"] == "NoMaster"
        report = fixed.report(since)
        assert report.acknowledged > MOST_UNREAD > len(report.lost)
    whole(fixed, since)


def test_an_update_restarts_the_master_too(fixed: Group) -> None:
    since, uids = fixed.mark(), fixed.pod_uids()
    fixed.patch(config={"fileReservedTime": "50"})
    whole(fixed, since)
    assert not set(fixed.pod_uids().values()) & set(uids.values()), "every pod is new"


@contextmanager
def _without_master(group: Group) -> Iterator[None]:
    """The StatefulSet begins with pod 1 for that long, and the operator only looks on."""
    group.patch(paused=True)
    try:
        _pods(group, ordinals={"start": 1}, replicas=1)
        group.kubectl("wait", "--for=delete", f"pod/{MASTER}", "--timeout=90s")
        yield
    finally:
        _pods(group, ordinals=None, replicas=REPLICAS)
        group.patch(paused=False)


def _pods(group: Group, **spec: object) -> None:
    group.kubectl("patch", f"statefulset/{NAME}", "--type=merge", "-p", json.dumps({"spec": spec}))
