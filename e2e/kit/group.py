"""A BrokerGroup on the cluster, the load on it, and the checks after every fault.

`whole` and `judge` check the guarantees: one master, every replica in the SyncStateSet, no acknowledged message lost or
stored twice.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from rocketmq_resources.names import API_VERSION
from tests.gate.patience import patient

POD_SCRIPTS = Path(__file__).resolve().parent.parent / "pod_scripts"
CHAOS = "chaos"
BROKERS = "app.kubernetes.io/component=broker"
"""Pods of a verification have the group's label too."""
PATIENCE = 120.0
"""Seconds."""
POLL = 0.25
LANES = 4
PACE = 0.1
"""Seconds: 40 messages a second, which see a gap of 25 ms.

A report reads all of them, and at 200 a second the last ones of a session took most of a minute.
"""
ANSWER_ATTEMPTS = 3


class Kubectl(Protocol):
    """What a story needs of a cluster."""

    def kubectl(self, *arguments: str, input: str | None = None) -> str: ...  # noqa: A002 - as subprocess has it

    def read(self, path: str, **query: str) -> Any: ...


class Replica(msgspec.Struct, frozen=True, rename="camel"):
    """One of status.replicaStatuses."""

    pod: str
    broker_id: int | None = None
    role: str = "none"
    address: str = ""
    in_sync: bool = False
    alive: bool = False
    ready: bool = False


class Clock(msgspec.Struct, frozen=True):
    """What `load.py now` prints."""

    now: float


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What `load.py report` prints; times in seconds."""

    acknowledged: int
    lost: list[int]
    duplicated: list[int]
    failed: int
    longest_gap: float
    silence: float


Answer = TypeVar("Answer", Clock, Report)


class Group:
    """One BrokerGroup in a namespace, with a pod that sends to it."""

    def __init__(self, cluster: Kubectl, namespace: str, name: str, *, patience: float = PATIENCE) -> None:
        """`patience`: seconds until it has to be whole again, whatever was done to it."""
        self._cluster = cluster
        self._patience = patience
        self.namespace, self.name = namespace, name
        self._load = f"load-{name}"
        self._timeouts = 0
        self._chaos_namespace = namespace

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as subprocess has it
        """In this group's namespace."""
        return self._cluster.kubectl("-n", self.namespace, *arguments, input=input)

    def read(self) -> dict[str, Any]:
        """The resource."""
        return self.resource("brokergroups", self.name)

    def resource(self, plural: str, name: str) -> dict[str, Any]:
        """One of our resources in this group's namespace."""
        found: dict[str, Any] = self._cluster.read(f"/apis/{API_VERSION}/namespaces/{self.namespace}/{plural}/{name}")
        return found

    def status(self) -> dict[str, object]:
        """Its status, empty until there is one."""
        status = self.read().get("status", {})
        assert isinstance(status, dict)
        return status

    def replicas(self) -> list[Replica]:
        """By pod."""
        return msgspec.convert(self.status().get("replicaStatuses", []), list[Replica])

    def condition(self, kind: str) -> dict[str, str]:
        """One condition of the status; empty if it is not there."""
        return _condition(self.status(), kind)

    def master(self) -> str:
        """Name of the master's pod."""
        return str(self.status()["master"])

    def slaves(self) -> list[str]:
        """Names of the others' pods."""
        return [replica.pod for replica in self.replicas() if replica.role == "slave"]

    def ids(self) -> dict[str, int | None]:
        """brokerId by pod."""
        return {replica.pod: replica.broker_id for replica in self.replicas()}

    def addresses(self) -> dict[str, str]:
        """Address by pod."""
        return {replica.pod: replica.address for replica in self.replicas()}

    def pod_uids(self) -> dict[str, str]:
        """Which pods there are now, by name."""
        pods = self.pods(f"{BROKERS},rocketmq-ha.io/group={self.name}")
        return {name: pod["metadata"]["uid"] for name, pod in pods.items()}

    def pods(self, selector: str = "") -> dict[str, dict[str, Any]]:
        """All pods of the namespace, or those that the labels select, by name."""
        items = self._cluster.read(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def restore(self, before: dict[str, object]) -> None:
        """Give it back the spec of a resource that `read` has returned."""
        change = [{"op": "replace", "path": "/spec", "value": before["spec"]}]
        self.kubectl("patch", "brokergroup", self.name, "--type=json", "-p", json.dumps(change))

    def patch(self, **spec: object) -> None:
        """Change fields of the spec."""
        self.kubectl("patch", "brokergroup", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete_pods(self, *which: str) -> None:
        """As `kubectl delete pod WHICH`: the pods may end in order. Returns when they are gone; others with their
        names may be there, which kubectl can take for the same pods, and wait without end."""

        def uids() -> set[str]:
            return {pod["metadata"]["uid"] for name, pod in self.pods().items() if name in which}

        before = uids()
        self.kubectl("delete", "pod", *which, "--wait=false")
        wait(lambda: before.isdisjoint(uids()), f"the end of {len(before)} pods", 120.0)

    def whole(self, *, replicas: int = 3) -> float:
        """Wait until the operator has seen the newest spec and every replica is alive and in sync, under one master;
        returns the seconds it took.

        Raises:
            AssertionError: it is not whole in time. The next time it gets half as long, so that a group that cannot
            heal does not use up the time of all tests that follow.
        """

        def done() -> bool:
            resource = self.read()
            status, metadata = resource.get("status", {}), resource["metadata"]
            assert isinstance(status, dict)
            assert isinstance(metadata, dict)
            members = msgspec.convert(status.get("replicaStatuses", []), list[Replica])
            return (
                status.get("observedGeneration") == metadata["generation"]
                and status.get("phase") == "Running"
                and len(members) == replicas
                and all(one.alive and one.in_sync and one.ready for one in members)
                and [one.role for one in members].count("master") == 1
                and _condition(status, "Ready").get("status") == "True"
                and len(self.pod_uids()) == replicas
            )

        what = f"{self.name} to be whole with {replicas} replicas"
        try:
            seconds = wait(done, what, self._patience / 2**self._timeouts, lambda: json.dumps(self.status()))
        except AssertionError:
            self._timeouts += 1
            raise
        self._timeouts = 0
        return seconds

    # The load

    def start_load(self, namesrv_addr: str, image: str, *, lanes: int = LANES, pace: float = PACE, **more: str) -> None:
        """Begin to send, from a pod beside the group; each lane rests `pace` seconds after a send. `more`: other
        variables of load.py."""
        env = {
            **more,
            "LANES": str(lanes),
            "PACE": str(pace),
            "NAMESRV_ADDR": namesrv_addr,
            "BROKER_NAME": self.name,
            "REPLICAS": str(len(self.replicas())),
        }
        self._script_pod(self._load, "load", image, ["run"], env=env)
        began = "until [ -s /tmp/ledger ]; do sleep 0.2; done"
        self.kubectl("exec", self._load, "--", "timeout", str(PATIENCE), "sh", "-c", began)

    def fill(self, namesrv_addr: str, image: str, *, messages: int, body: int) -> None:
        """Send so many messages of `body` bytes from such a pod, and delete it when all are acknowledged."""
        self.start_load(namesrv_addr, image, pace=0.0, MOST=str(messages), BODY=str(body))
        done = f"until [ $(wc -l < /tmp/ledger) -ge {messages} ]; do sleep 0.2; done"
        self.kubectl("exec", self._load, "--", "timeout", str(PATIENCE), "sh", "-c", done)
        self.kubectl("delete", "pod", self._load)

    def mark(self) -> str:
        """Now, by the load's clock."""
        return str(self._ask_load(Clock, "now").now)

    def report(self, since: str) -> Report:
        """What became of all messages acknowledged so far, and the gaps since `since`."""
        return self._ask_load(Report, "report", since)

    def _ask_load(self, answer: type[Answer], *question: str) -> Answer:
        """Asks again if not all of the answer arrives: `kubectl exec` has returned 0 with a part of the output."""
        for _ in range(ANSWER_ATTEMPTS):
            text = self.kubectl("exec", self._load, "--", "python3", "/scripts/load.py", *question)
            try:
                return msgspec.json.decode(text, type=answer)
            except msgspec.DecodeError as error:
                incomplete = f"load.py {' '.join(question)}: {error}: {text!r}"
                print(f"e2e: {incomplete}", file=sys.stderr)
        raise RuntimeError(incomplete)

    def judge(self, since: str, *, gap: float | None = None) -> Report:
        """Nothing lost, nothing twice, sends accepted now; with `gap`, also no longer time without (seconds)."""
        deadline = time.monotonic() + self._patience
        while (report := self.report(since)).silence > 1.0 and time.monotonic() < deadline:
            time.sleep(POLL)
        assert report.acknowledged > 0
        assert report.lost == []
        assert report.duplicated == []
        assert report.silence <= 1.0, "the group does not take messages"
        if gap is not None:
            assert report.longest_gap <= gap, "sends were not accepted for longer than expected"
        return report

    # Faults

    def start_chaos(self, namespace: str, image: str) -> None:
        """A pod that may signal any process of the node, in a namespace that allows it."""
        self._chaos_namespace = namespace
        Group(self._cluster, namespace, self.name)._script_pod(CHAOS, "chaos", image, None, privileged=True)

    def signal(self, pod: str, container: str, number: str, *seconds: str) -> None:
        """Signal the processes of a container from outside, as the node would."""
        self.chaos("container", self.container_id(pod, container), number, *seconds)

    def outage(self, seconds: float, pod: str, container: str) -> None:
        """Stop the API server for that time, and kill a container during the outage."""
        outage = f"python3 /scripts/chaos.py outage {seconds} {self.container_id(pod, container)}"
        # Detached: the call itself goes through the API server.
        self._exec_chaos("sh", "-c", f"rm -f /tmp/outage; ({outage}; echo $? > /tmp/outage) > /tmp/outage.log 2>&1 &")
        time.sleep(seconds)

        def over() -> bool:
            try:
                return self._exec_chaos("cat", "/tmp/outage").strip() != ""
            except RuntimeError:  # the server is not back yet, or the script has not ended
                return False

        wait(over, "the API server to be back", PATIENCE)
        assert self._exec_chaos("cat", "/tmp/outage").strip() == "0", self._exec_chaos("cat", "/tmp/outage.log")

    def container_id(self, pod: str, container: str) -> str:
        """Its id on the node."""
        wanted = f'{{.status.containerStatuses[?(@.name=="{container}")].containerID}}'
        return self.kubectl("get", "pod", pod, "-o", f"jsonpath={wanted}").rpartition("/")[2]

    def chaos(self, *arguments: str) -> str:
        """Run chaos.py, which blocks while the fault lasts."""
        return self._exec_chaos("python3", "/scripts/chaos.py", *arguments)

    def _exec_chaos(self, *command: str) -> str:
        return self._cluster.kubectl("-n", self._chaos_namespace, "exec", CHAOS, "--", *command)

    def _script_pod(
        self,
        name: str,
        script: str,
        image: str,
        arguments: Sequence[str] | None,
        *,
        env: dict[str, str] | None = None,
        privileged: bool = False,
    ) -> None:
        """A pod with pod_scripts at /scripts: runs `<script>.py arguments`, or waits for `exec`."""
        scripts = {f"{script}.py": (POD_SCRIPTS / f"{script}.py").read_text()}
        restricted = {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        command = ["sleep", "infinity"] if arguments is None else ["python3", f"/scripts/{script}.py", *arguments]
        container = {
            "name": name,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": command,
            "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
            "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}, {"name": "tmp", "mountPath": "/tmp"}],
            "securityContext": {"privileged": True, "runAsUser": 0} if privileged else restricted,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "hostPID": privileged,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                "volumes": [
                    {"name": "scripts", "configMap": {"name": f"scripts-{name}"}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        }
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"scripts-{name}"}, "data": scripts}
        items = {"apiVersion": "v1", "kind": "List", "items": [config, pod]}
        self.kubectl("apply", "-f", "-", input=json.dumps(items))
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def _condition(status: Mapping[str, object], kind: str) -> dict[str, str]:
    conditions = msgspec.convert(status.get("conditions", []), list[dict[str, object]])
    found = next((one for one in conditions if one["type"] == kind), {})
    return {key: str(value) for key, value in found.items()}


def wait(done: Callable[[], bool], what: str, patience: float, state: Callable[[], str] = str) -> float:
    """Ask until it is so; returns the seconds it took. AssertionError with `state()` when patience is at its end."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > patient(patience):
            raise AssertionError(f"waited {patient(patience):g} s for {what}: {state()}")
        time.sleep(POLL)
    return time.monotonic() - began
