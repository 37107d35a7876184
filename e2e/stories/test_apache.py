"""Official 5.3.3 brokers under our controllers, observed by our sidecar: the core of what the native engine stands.

No gaps are bounded: how long a Java broker takes is not ours.
"""

from collections.abc import Iterator

import pytest

from e2e.kit.group import Group, wait
from e2e.stories.conftest import RESERVED, Installation, example
from e2e.stories.plugin import plugin
from e2e.stories.test_faults import after, kill
from e2e.stories.verifying import SELDOM, aligned, flip, told_apart, verify_now

pytestmark = pytest.mark.interop

SMALL = {"requests": {"cpu": "20m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
"""What the test machine has for each broker."""
QUICK = ["-XX:TieredStopAtLevel=1"]
"""A JVM that compiles less, since several start on two cores."""
CONFIG = {"timerWheelEnable": "false", "haSendHeartbeatInterval": "100"}
"""Three of these brokers kept two cores busy: with the timer wheel (tests/interop/lab.py), and with slaves that spin.

ReputMessageService of 5.3.3 does so from a message that arrives before the confirm offset of the one before it, until
the confirm offset reaches the end of the log. Heartbeats carry it, and are here more frequent than messages.
"""
LANES, PACE = 1, 0.5
PATIENCE = 300.0


@pytest.fixture(scope="module")
def java(installation: Installation, group: Group, apache_image: str) -> Iterator[Group]:
    """examples/brokergroup-apache.yaml, smaller, under the controllers and name servers of the other group.

    Deleted in the end: three JVMs leave the other stories little of a small machine.
    """
    (resource,) = example("brokergroup-apache.yaml")
    resource["spec"] |= {"resources": {"broker": SMALL, "sidecar": RESERVED}, "jvm": {"options": QUICK}}
    resource["spec"]["image"]["broker"] = apache_image
    resource["spec"]["config"] |= CONFIG
    installation.apply([resource])
    java = installation.loaded(resource["metadata"]["name"], patience=PATIENCE, lanes=LANES, pace=PACE)
    yield java
    java.kubectl("delete", f"brokergroup/{java.name}", f"pod/load-{java.name}")
    java.kubectl("delete", "pods", "-l", f"rocketmq-ha.io/group={java.name}", "--grace-period=0", "--force")


def test_switchover(installation: Installation, java: Group) -> None:
    target = java.slaves()[0]
    after(java, lambda: plugin(installation, "switchover", java.name, target))
    assert java.master() == target


def test_master_pod_deleted(java: Group) -> None:
    """The sidecar hands mastership over before the broker ends."""
    master, addresses = java.master(), java.addresses()
    after(java, lambda: java.delete_pods(master))
    assert java.master() != master
    assert java.addresses()[master] != addresses[master]


def test_master_process_killed(java: Group) -> None:
    after(java, lambda: kill(java, java.master(), "broker"))


def test_rolling_update(java: Group) -> None:
    """Slaves first, the old master last, as it is with native brokers."""
    uids = java.pod_uids()
    after(java, lambda: java.patch(config={"fileReservedTime": "50"}))
    assert not set(java.pod_uids().values()) & set(uids.values()), "every pod is new"


def test_logs_compared(installation: Installation, java: Group) -> None:
    """After all faults: their logs are equal, as read by the sidecars; a bad byte is reported with its message."""
    since = java.mark()
    java.patch(verification=SELDOM)
    java.kubectl("wait", "--for=create", f"cronjob/{java.name}-verify", "--timeout=60s")
    found = verify_now(installation, java)
    assert (found["result"], found["findings"], found["full"]) == ("Aligned", 0, True), found
    java.judge(since)
    slave = java.slaves()[0]
    offset = flip(java, slave, found)
    told_apart(java, slave, offset, verify_now(installation, java))
    wait(lambda: aligned(java) == "False Different", "the condition", 30.0, lambda: aligned(java))
