"""What the stories in testdata/ are made of: command lines of the plugin, and things that happen to the cluster.

Standard output is shown as `| line`, standard error as `! line`, another exit code than 0 as `exit N`.
"""

import re
import shlex
from typing import Any

import grpc

from rocketmq_api import controller_admin_pb2 as cpb
from rocketmq_api import sidecar_admin_pb2 as spb
from rocketmq_kubectl.cluster import session
from rocketmq_runtime.version import __version__
from tests.command_lines import Tool
from tests.kubectl.fake_cluster import CLUSTER, GROUP, GROUPS, NAMESPACE, PODS, FakeCluster, conditions


class Stage:
    """Runs the lines of one story."""

    def __init__(self, cluster: FakeCluster, plugin: Tool) -> None:
        self._cluster, self._plugin = cluster, plugin

    def run(self, line: str) -> list[str]:
        if line.startswith("kubectl rocketmq "):
            return self._command(shlex.split(line)[2:])
        words = line.split()
        done: list[str] | None = getattr(self, words[0].replace("-", "_"))(*words[1:])
        return done or []

    def _command(self, arguments: list[str]) -> list[str]:
        outcome = self._plugin(*arguments)
        lines = [f"| {line}".rstrip() for line in outcome.out.splitlines()]
        lines += [f"! {line}".rstrip() for line in outcome.err.splitlines()]
        lines = [
            re.sub(r"at most \d\.\d\d s", "at most 0.NN s", line).replace(__version__, "VERSION") for line in lines
        ]
        return lines + ([f"exit {outcome.code}"] if outcome.code else [])

    # What can happen

    def controllers_do_not_answer(self) -> None:
        session.CALL_SECONDS = 1.0  # enough to receive the reason, also on a busy machine
        for pod in range(3):
            self._cluster.api.ports.pop((NAMESPACE, f"{CLUSTER}-controller-{pod}", 9880), None)

    def sidecar_does_not_answer(self, ordinal: str) -> None:
        self._cluster.api.ports.pop((NAMESPACE, f"{GROUP}-{ordinal}", 10920))

    def sidecar_says(self, ordinal: str, field: str, *text: str) -> None:
        """`remark` or `ready_reason` of GetReplica."""
        setattr(self._cluster.replicas[int(ordinal)], field, " ".join(text))

    def leader_is(self, member: str) -> None:
        self._cluster.leader = member

    def replica_dies(self, ordinal: str) -> None:
        replica = self._cluster.group.replicas[int(ordinal)]
        replica.liveness = cpb.LIVENESS_DEAD
        for field in ("max_offset", "epoch"):
            replica.ClearField(field)
        pod: dict[str, Any] = self._cluster.api.objects[f"{PODS}/{GROUP}-{ordinal}"]
        pod["status"]["containerStatuses"][0]["ready"] = False

    def replica_lives(self, ordinal: str) -> None:
        """As master."""
        self._cluster.group.replicas[int(ordinal)].liveness = cpb.LIVENESS_ALIVE
        self._cluster.group.master_broker_id = int(ordinal) + 1

    def pod_is_gone(self, ordinal: str) -> None:
        """Also from the status; its volume is kept."""
        self.replica_dies(ordinal)
        name = f"{GROUP}-{ordinal}"
        pod = self._cluster.api.objects.pop(f"{PODS}/{name}")
        del self._cluster.resource["status"]["replicaStatuses"][int(ordinal)]
        annotations = {"rocketmq-ha.io/broker-id": str(int(ordinal) + 1)}
        metadata = {**pod["metadata"], "name": f"data-{name}", "annotations": annotations}
        claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
        self._cluster.api.put(f"{claims}/data-{name}", {"metadata": metadata})

    def there_are_no_controllers(self) -> None:
        """spec.failover.mode: none."""
        self.controllers_do_not_answer()
        self._cluster.resource["spec"] = {"namesrvAddr": "n:9876", "failover": {"mode": "none"}}

    def master_is_gone(self) -> None:
        self._cluster.group.ClearField("master_broker_id")

    def group_is_not_registered(self) -> None:
        self._cluster.group.broker_name = "another"

    def spec(self, field: str, value: str) -> None:
        self._cluster.resource["spec"][field] = {"true": True, "false": False}.get(value, value)

    def status(self, field: str, value: str) -> None:
        self._cluster.resource["status"][field] = int(value) if value.isdecimal() else value

    def condition(self, kind: str, status: str, reason: str, *message: str) -> None:
        self._cluster.resource["status"]["conditions"] = [
            one | ({"status": status, "reason": reason, "message": " ".join(message)} if one["type"] == kind else {})
            for one in conditions()
        ]

    def refused(self, verb: str, resource: str) -> None:
        self._cluster.api.refused[f"{verb} {resource}"] = (
            403,
            f'{resource} is forbidden: User "ann" cannot {verb} resource "{resource}" in namespace "{NAMESPACE}"',
        )

    def allowed(self) -> None:
        self._cluster.api.refused.clear()

    def logged_out(self) -> None:
        self._cluster.api.token = "another"

    def log_of(self, ordinal: str, *epochs: str) -> None:
        """epoch:start:end of each epoch in a replica's log."""
        parts = [[int(number) for number in one.split(":")] for one in epochs]
        del self._cluster.replicas[int(ordinal)].epochs[:]
        self._cluster.replicas[int(ordinal)].epochs.extend(
            spb.Epoch(epoch=epoch, start_offset=start, end_offset=end) for epoch, start, end in parts
        )

    def hand_over_fails(self, status: str, *reason: str) -> None:
        self._cluster.on_hand_over = lambda context: context.abort(grpc.StatusCode[status], " ".join(reason))

    def operator(self, *changes: str) -> None:
        """From now on every patched group gets these parts of status: field=value, fenced of all replicas, ..."""

        def change(path: str, body: dict[str, Any]) -> None:
            status = body["status"]
            status["observedGeneration"] = body["metadata"]["generation"]
            for one in changes:
                field, _, value = one.partition("=")
                if field == "fenced":
                    for replica in status["replicaStatuses"]:
                        replica["fenced"] = value == "true"
                elif field in {"Paused", "Ready"}:
                    status["conditions"] = conditions(**{field: value})
                elif field == "take-off":
                    body["metadata"]["annotations"].pop(f"rocketmq-ha.io/{value}", None)
                elif field == "refuse-rebuild":
                    status["conditions"][-1] |= {"reason": "RebuildRefused", "message": value.replace("_", " ")}
                else:
                    status[field] = value

        self._cluster.api.on_patch = change

    def show(self, what: str) -> list[str]:
        """A part of the group's resource: spec.fenced, annotations, patches, hand-overs, elections."""
        if what == "annotations":
            return [f"= {self._cluster.api.objects[f'{GROUPS}/{GROUP}']['metadata'].get('annotations', {})}"]
        if what == "elections":
            return ["= " + str(one).replace("\n", " ").strip() for one in self._cluster.elections]
        if what == "hand-overs":
            return ["= " + str(one).replace("\n", " ").strip() for one in self._cluster.hand_overs]
        return [f"= {self._cluster.resource['spec'].get(what)}"]
