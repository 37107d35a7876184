"""Kubernetes around the operator's three resources: StatefulSet controller, kubelet, controllers, sidecars. `choices`
are what could happen next by itself."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rocketmq_api.group_view import GroupView, Liveness, MemberView, QuorumView, ReplicaStanding
from rocketmq_api.replica_view import NewMaster
from rocketmq_operator.domain.observed import Pod, SidecarState
from rocketmq_operator.kubernetes.parse import digest
from rocketmq_resources import names
from tests.operator.model.api import Body
from tests.operator.model.server import Server

OWNERS = {names.LABEL_GROUP: "BrokerGroup", names.LABEL_CONTROLLER_CLUSTER: "ControllerCluster"}
HELD = ["kubelet"]
"""Keeps a deleted pod until it has stopped."""


def revision(stateful_set: Body) -> str:
    return digest(stateful_set["spec"]["template"]).hex()[:10]


def is_ready(pod: Body) -> bool:
    return any(
        one["type"] == "Ready" and one["status"] == "True" for one in pod.get("status", {}).get("conditions", ())
    )


class Cluster:
    """All of it, in one namespace."""

    def __init__(self, server: Server, dice: random.Random) -> None:
        self.server = server
        self.dice = dice
        self.fenced: set[int] = set()
        """Ordinals of replicas whose fence is on their volume."""
        self.silent: set[str] = set()
        """Uids of pods whose sidecar does not answer."""
        self.quorum = FakeQuorum(self)
        self.sidecars = FakeSidecars(self)
        self._started = 0

    def pods(self, kind: str) -> list[Body]:
        label = {owner: label for label, owner in OWNERS.items()}.get(kind, names.LABEL_NAME_SERVER)
        return [pod for pod in self.server.of("Pod") if label in pod["metadata"]["labels"]]

    def choices(self) -> list[Callable[[], object]]:
        """What could happen next without anybody's fault."""
        found: list[Callable[[], object]] = []
        for stateful_set in self.server.of("StatefulSet"):
            if (step := self._control(stateful_set)) is not None:
                found.append(step)
        for pod in self.server.of("Pod"):
            if (step := self._run(pod)) is not None:
                found.append(step)
        if self.quorum.is_old():
            found.append(self.quorum.look)
        return found

    def _control(self, stateful_set: Body) -> Callable[[], object] | None:
        metadata, spec, status = stateful_set["metadata"], stateful_set["spec"], stateful_set.get("status", {})
        if status.get("observedGeneration") != metadata["generation"]:
            seen = {"observedGeneration": metadata["generation"], "updateRevision": revision(stateful_set)}
            return lambda: self.server.change(stateful_set, status=seen)
        name = metadata["name"]
        mine = {
            names.ordinal_of(pod["metadata"]["name"]): pod
            for pod in self.server.of("Pod")
            if pod["metadata"]["name"].rpartition("-")[0] == name
        }
        missing = [ordinal for ordinal in range(spec["replicas"]) if ordinal not in mine]
        if missing:
            return lambda: self._create(stateful_set, self.dice.choice(missing))
        stopping = [pod for pod in mine.values() if "deletionTimestamp" in pod["metadata"]]
        extra = [pod for ordinal, pod in mine.items() if ordinal >= spec["replicas"] and pod not in stopping]
        rolls = spec["updateStrategy"]["type"] == "RollingUpdate"
        old = [
            pod
            for pod in mine.values()
            if rolls
            and not stopping
            and all(map(is_ready, mine.values()))
            and pod["metadata"]["labels"]["controller-revision-hash"] != revision(stateful_set)
        ]
        if extra or old:
            return lambda: self.stop((extra or old)[-1])
        return None

    def stop(self, pod: Body) -> None:
        self.server.change(pod, metadata={"deletionTimestamp": "2026-11-21T19:00:00Z"})

    def _create(self, stateful_set: Body, ordinal: int) -> None:
        template, metadata = stateful_set["spec"]["template"]["metadata"], stateful_set["metadata"]
        name = names.pod_name(metadata["name"], ordinal)
        labels = {**template["labels"], "controller-revision-hash": revision(stateful_set)}
        self.server.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": metadata["namespace"],
                    "labels": labels,
                    "annotations": template.get("annotations", {}),
                    "finalizers": HELD,
                },
                "spec": {"nodeName": "node"},
            }
        )

    def _run(self, pod: Body) -> Callable[[], object] | None:
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            return lambda: self.server.remove("Pod", metadata["namespace"], metadata["name"])
        if "status" not in pod:
            return lambda: self._start(pod)
        if not is_ready(pod):
            return lambda: self.set_ready(pod, ready=True)
        return None

    def _start(self, pod: Body) -> None:
        self._started += 1
        main = {"broker": names.CONTAINER_BROKER, "controller": names.CONTAINER_CONTROLLER}
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        running = [{"name": main.get(component, names.CONTAINER_NAMESRV), "state": {"running": {}}}]
        address = f"10.0.{self._started // 250}.{self._started % 250 + 1}"
        self.server.change(pod, status={"podIP": address, "containerStatuses": running, "conditions": []})

    def set_ready(self, pod: Body, *, ready: bool) -> None:
        self.server.change(pod, status={"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]})


class FakeQuorum:
    """Stands for the registry, a quorum and its client. `view_now` is a look at the brokers, which grows old."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.synced = True
        self.groups: dict[str, GroupView] = {}
        self.members_now: set[int] = {0, 1, 2}
        self.leader = 0
        self.master = 1
        self.known: set[int] = set()

    # The registry

    def of_group(self, _group: object) -> "FakeQuorum":
        return self

    def of_cluster(self, _cluster: object) -> "FakeQuorum":
        return self

    def view(self, _key: object) -> tuple[bool, object]:
        return self.synced, self.groups.get("g")

    def forget_group(self, _key: object) -> None:
        pass

    # The quorum

    async def wait_for_answer(self) -> None:
        pass

    async def client(self) -> "FakeQuorum":
        return self

    async def members(self) -> QuorumView | None:
        running = set(map(ordinal_of, filter(runs, self._cluster.pods("ControllerCluster"))))
        living = running & self.members_now
        if 2 * len(living) <= len(self.members_now):
            return None
        if self.leader not in living:
            self.leader = min(living)
        leader = names.member_id(self.leader)
        members = tuple(
            MemberView(
                id=names.member_id(one),
                address="a",
                is_leader=one == self.leader,
                connected=one in living,
                match_index=7,
            )
            for one in sorted(self.members_now)
        )
        return QuorumView(group="c", answered_by=leader, leader_id=leader, members=members)

    def is_old(self) -> bool:
        return self.groups.get("g") != self._look()

    def look(self) -> None:
        view = self._look()
        if view is not None:
            self.groups["g"] = view

    def _look(self) -> GroupView | None:
        living = {ordinal_of(pod) + 1: pod for pod in self._cluster.pods("BrokerGroup") if runs(pod)}
        self.known |= living.keys()
        if not self.known:
            return None
        if self.master not in living and living:
            self.master = min(living)
        standings = tuple(
            ReplicaStanding(
                broker_id=one,
                address=f"{living[one]['status']['podIP']}:{names.PORT_BROKER}" if one in living else "gone:1",
                in_sync=one in living,
                liveness=Liveness.ALIVE if one in living else Liveness.DEAD,
                max_offset=1,
            )
            for one in sorted(self.known)
        )
        return GroupView(
            cluster_name="DefaultCluster",
            broker_name="g",
            master_epoch=1,
            sync_state_set_epoch=1,
            master_broker_id=self.master,
            replicas=standings,
            next_broker_id=9,
        )

    # Its client

    async def clean_broker_data(self, _broker: str, ids: Iterable[int] | None) -> None:
        self.known -= self.known if ids is None else set(ids)

    async def transfer_leadership(self, target: str) -> None:
        self.leader = int(target.lstrip("n"))

    async def add_member(self, member: str, _address: str) -> None:
        self.members_now.add(int(member.lstrip("n")))

    async def remove_member(self, member: str) -> None:
        self.members_now.discard(int(member.lstrip("n")))


class FakeSidecars:
    """Stands for `Sidecars`: remembers what a sidecar has answered, by uid of the pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, SidecarState] = {}

    def forget(self) -> None:
        """The operator's process has ended."""
        self._known.clear()

    async def poll(self, pods: Iterable[Pod], _tls: object, *, again: bool) -> Mapping[str, SidecarState]:
        del again
        wanted = [pod for pod in pods if pod.running and pod.ip and not pod.deleting]
        for pod in wanted:
            if pod.uid not in self._known and pod.uid not in self._cluster.silent:
                fenced = pod.ordinal in self._cluster.fenced
                self._known[pod.uid] = SidecarState(broker_id=pod.ordinal + 1, fenced=fenced)
        return {pod.uid: self._known[pod.uid] for pod in wanted if pod.uid in self._known}

    async def set_fenced(self, uid: str, _address: str, *, fenced: bool, reason: str) -> None:
        del reason
        pod = next((pod for pod in self._cluster.pods("BrokerGroup") if pod["metadata"]["uid"] == uid), None)
        if pod is None or uid in self._cluster.silent:
            raise OSError("no answer")
        ordinal = ordinal_of(pod)
        (self._cluster.fenced.add if fenced else self._cluster.fenced.discard)(ordinal)
        self._known[uid] = SidecarState(broker_id=ordinal + 1, fenced=fenced)

    async def hand_over(self, _address: str, broker_id: int, _seconds: float) -> NewMaster:
        if broker_id - 1 not in map(ordinal_of, filter(runs, self._cluster.pods("BrokerGroup"))):
            raise OSError("not in sync")
        self._cluster.quorum.master = broker_id
        return NewMaster(broker_id, 2)


def ordinal_of(pod: Body) -> int:
    return names.ordinal_of(pod["metadata"]["name"])


def runs(pod: Body) -> bool:
    return "status" in pod and "deletionTimestamp" not in pod["metadata"]


class Unheard:
    """Stands for the recorder and the certificates."""

    def record_event(self, *_: Any) -> None:
        pass

    async def of(self, *_: Any) -> None:
        return None
