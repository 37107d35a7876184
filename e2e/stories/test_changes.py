"""What people change: versions, sizes, configuration, mastership, nodes. No change loses a message or an id."""

import json
from functools import partial

import pytest

from e2e.kit.group import Group, wait
from e2e.stories.conftest import Installation
from e2e.stories.plugin import plugin

pytestmark = pytest.mark.usefixtures("whole")

SWITCHOVERS = 10
GAP = 5.0


def test_rolling_update_of_the_configuration(installation: Installation, group: Group) -> None:
    """Slaves first, the old master last and not as master; the broker has the new value in the end."""
    ids, since, master, uids = group.ids(), group.mark(), group.master(), group.pod_uids()
    group.patch(config={"fileReservedTime": "48"})
    group.whole()
    assert not set(group.pod_uids().values()) & set(uids.values()), "every pod is new"
    assert group.master() != master
    group.judge(since, gap=GAP)
    assert group.ids() == ids
    created = pods_by_age(group)
    assert created[-1] == master, "the old master is the last one"


def test_restart(installation: Installation, group: Group) -> None:
    ids, since, uids = group.ids(), group.mark(), group.pod_uids()
    plugin(installation, "restart", group.name)
    wait(lambda: not set(group.pod_uids().values()) & set(uids.values()), "new pods", 120.0)
    group.whole()
    group.judge(since, gap=GAP)
    assert group.ids() == ids


def test_supervised_update_waits_for_the_switchover(installation: Installation, group: Group) -> None:
    master, since = group.master(), group.mark()
    group.patch(updateStrategy="supervised", config={"fileReservedTime": "50"})
    try:
        wait(lambda: len(up_to_date(group) - {master}) == 2, "both slaves to be rolled", 120.0)
        wait(lambda: group.condition("Progressing").get("reason") == "WaitingForSwitchover", "the condition", 60.0)
        assert group.master() == master
        plugin(installation, "switchover", group.name)
        group.whole()
        assert group.master() != master
    finally:
        group.patch(updateStrategy="unsupervised", config=None)
    group.whole()
    group.judge(since, gap=GAP)


def test_controllers_grow_and_shrink(group: Group) -> None:
    """Members join and leave one at a time; the group is rolled because its controllerAddr changes."""
    since, ids = group.mark(), group.ids()
    try:
        for members in (5, 3):
            set_members(group, members)
            group.whole()
            group.judge(since, gap=GAP)
    finally:
        set_members(group, 3)
    assert group.ids() == ids
    claims = group.kubectl("get", "pvc", "-l", "rocketmq-ha.io/controller-cluster=main", "-o", "name").split()
    assert len(claims) == 3, claims


def set_members(group: Group, members: int) -> None:
    """Change the size of the quorum, and wait until all of it votes."""
    group.kubectl("patch", "controllercluster/main", "--type=merge", "-p", json.dumps({"spec": {"members": members}}))

    def done() -> bool:
        cluster = group.resource("controllerclusters", "main")
        status = cluster["status"]
        pods = group.pods("rocketmq-ha.io/controller-cluster=main")
        return (
            status["observedGeneration"] == cluster["metadata"]["generation"]
            and status["phase"] == "Running"
            and status["members"] == f"{members}/{members}"
            and len(pods) == members
        )

    wait(done, f"{members} controllers", 240.0, lambda: group.kubectl("get", "controllercluster/main", "-o", "yaml"))


def is_master(group: Group, pod: str) -> bool:
    return group.status()["master"] == pod


def test_ten_switchovers(installation: Installation, group: Group) -> None:
    ids, since = group.ids(), group.mark()
    for _ in range(SWITCHOVERS):
        before = group.master()
        target = group.slaves()[0]
        plugin(installation, "switchover", group.name, target)
        wait(partial(is_master, group, target), f"{target} to be master", 30.0)
        assert before != target
        group.whole()
    group.judge(since, gap=GAP)
    assert group.ids() == ids


def test_scale_to_five_and_back(group: Group) -> None:
    ids, since = group.ids(), group.mark()
    group.kubectl("scale", "brokergroup", group.name, "--replicas=5")
    group.whole(replicas=5)
    assert {pod: number for pod, number in group.ids().items() if pod in ids} == ids
    group.kubectl("scale", "brokergroup", group.name, "--replicas=3")
    group.whole()
    group.judge(since, gap=GAP)
    assert group.ids() == ids
    kept = [f"pvc/data-{group.name}-{ordinal}" for ordinal in (3, 4)]
    group.kubectl("get", *kept)  # reclaimPolicy Retain


def test_a_volume_kept_from_before_is_not_taken_for_a_new_replica(group: Group) -> None:
    """The controllers have forgotten its id; to use the ordinal again a user has to delete the volume."""
    uids = group.pod_uids()
    group.kubectl("scale", "brokergroup", group.name, "--replicas=5")
    wait(lambda: group.condition("Degraded").get("reason") == "RetiredVolume", "the condition", 60.0)
    assert group.pod_uids() == uids
    group.kubectl("scale", "brokergroup", group.name, "--replicas=3")
    group.kubectl("delete", *(f"pvc/data-{group.name}-{ordinal}" for ordinal in (3, 4)))
    group.whole()


def test_the_master_is_handed_over_before_its_pod_is_scaled_away(installation: Installation, group: Group) -> None:
    since = group.mark()
    group.kubectl("scale", "brokergroup", group.name, "--replicas=4")
    group.whole(replicas=4)
    plugin(installation, "switchover", group.name, f"{group.name}-3")
    group.whole(replicas=4)
    group.kubectl("scale", "brokergroup", group.name, "--replicas=3")
    group.whole()
    assert group.master() != f"{group.name}-3"
    group.judge(since, gap=GAP)


def test_rebuild_of_one_replica(installation: Installation, group: Group) -> None:
    slave, ids, since = group.slaves()[0], group.ids(), group.mark()
    plugin(installation, "rebuild", group.name, slave, "--yes")
    wait(lambda: group.ids().get(slave) not in {None, *ids.values()}, "a new id", 90.0, lambda: str(group.status()))
    group.whole()
    group.judge(since, gap=GAP)


def test_pause(installation: Installation, group: Group) -> None:
    uids = group.pod_uids()
    plugin(installation, "pause", group.name)
    wait(lambda: group.condition("Paused").get("status") == "True", "the condition", 30.0)
    group.patch(config={"fileReservedTime": "60"})
    wait(lambda: group.status()["observedGeneration"] == generation(group), "the operator to have seen it", 30.0)
    assert group.pod_uids() == uids
    group.patch(config=None)
    plugin(installation, "resume", group.name)
    group.whole()
    assert group.pod_uids() == uids


def test_fence(installation: Installation, group: Group) -> None:
    """Sends are refused, no other replica becomes master, and the fence survives a restart of the master's pod."""
    master, since = group.master(), group.mark()
    plugin(installation, "fence", group.name)
    wait(lambda: group.report(since).silence > 3.0, "sends to be refused", 60.0)
    assert group.master() == master
    group.delete_pods(master)
    wait(lambda: group.master() != master, "another master", 60.0)
    assert group.report(since).silence > 3.0
    plugin(installation, "fence", group.name, "--off")
    group.whole()
    group.judge(since)


def test_hibernate_and_wake(installation: Installation, group: Group) -> None:
    ids, since = group.ids(), group.mark()
    plugin(installation, "hibernate", group.name)
    wait(lambda: group.status()["phase"] == "Hibernated" and not group.pod_uids(), "no pods", 90.0)
    plugin(installation, "wake", group.name)
    group.whole()
    group.judge(since)
    assert group.ids() == ids


def test_eviction_by_a_drain_keeps_to_the_budget(group: Group) -> None:
    """One at a time: the second eviction at once is refused by the PodDisruptionBudget."""
    ids, since, (first, second) = group.ids(), group.mark(), group.slaves()[:2]
    evict(group, first)
    with pytest.raises(RuntimeError, match="disruption budget"):
        evict(group, second)
    group.whole()
    group.judge(since, gap=GAP)
    assert group.ids() == ids


def test_volumes_grow_where_their_class_lets_them(group: Group) -> None:
    """No pod is touched for it. The class does not expand at first; a host path is as large as its disk."""
    uids = group.pod_uids()
    group.patch(storage={"size": "11Gi"})
    wait(lambda: group.condition("Degraded").get("reason") == "StorageNotExpandable", "the condition", 60.0)
    group.kubectl("patch", "storageclass", "standard", "-p", '{"allowVolumeExpansion": true}')
    group.patch(storage={"size": "12Gi"})
    wait(lambda: requested(group) == ["12Gi"] * 3, "the claims to grow", 60.0, lambda: str(group.status()))
    group.whole()
    assert group.condition("Degraded").get("status") == "False"
    assert group.pod_uids() == uids


def evict(group: Group, pod: str) -> None:
    """What `kubectl drain` asks for each pod."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": group.namespace}}
    path = f"/api/v1/namespaces/{group.namespace}/pods/{pod}/eviction"
    group.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))


def requested(group: Group) -> list[str]:
    """What the replicas' claims ask for."""
    sizes = group.kubectl(
        *("get", "pvc", *(f"data-{group.name}-{ordinal}" for ordinal in range(3))),
        *("-o", "jsonpath={.items[*].spec.resources.requests.storage}"),
    )
    return sizes.split()


def generation(group: Group) -> int:
    """Of the resource's spec."""
    return int(group.read()["metadata"]["generation"])


def up_to_date(group: Group) -> set[str]:
    """Pods that have the newest revision."""
    members = group.status()["replicaStatuses"]
    assert isinstance(members, list)
    return {one["pod"] for one in members if one.get("upToDate")}


def pods_by_age(group: Group) -> list[str]:
    """Oldest first."""
    names = group.kubectl(
        *("get", "pods", "-l", f"rocketmq-ha.io/group={group.name}", "--sort-by=.metadata.creationTimestamp"),
        *("-o", "jsonpath={.items[*].metadata.name}"),
    )
    return names.split()
