"""helm for the chart's tests: rendering without a cluster, and releases on one."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.kit.cluster import Cluster
from e2e.kit.images import REPOSITORY, TAG
from e2e.kit.tools import helm

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "rocketmq-ha"
KUBE_VERSION = "1.33.0"
"""What templates are rendered for where no cluster is asked."""
Manifest = dict[str, Any]

EVERYTHING: Sequence[str] = (
    "rbac.aggregateToDefaultRoles=true",
    "networkPolicy.egress.enabled=true",
    "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
    "metrics.podMonitor.enabled=true",
    "metrics.podMonitor.labels.release=prometheus",
    "metrics.prometheusRule.enabled=true",
    "metrics.prometheusRule.alertLabels.team=messaging",
    "metrics.dashboard.enabled=true",
    "controllerCluster.enabled=true",
    "nameServer.enabled=true",
    "brokerGroup.enabled=true",
    "priorityClassName=system-cluster-critical",
    "serviceAccount.annotations.note=on the account",
    "extraEnv[0].name=OPERATOR_LEASE_SECONDS",
    "extraEnv[0].value=20",
    "image.pullSecrets[0]=registry",
    "image.apacheBroker=example.org/apache-broker:5.3.3",
    "commonLabels.team=messaging",
    "commonAnnotations.note=common",
    "podLabels.tier=control",
    "podAnnotations.note=on the pod",
    "nodeSelector.disk=ssd",
    "tolerations[0].key=control",
    "tolerations[0].operator=Exists",
    "topologySpreadConstraints[0].maxSkew=1",
    "topologySpreadConstraints[0].topologyKey=zone",
    "topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
)
"""Everything that can be switched on, at once; --set-string is not needed for any of it but numbers in texts."""


class HelmError(RuntimeError):
    """helm ended with an error; the message is what it said."""


def run(*arguments: str, timeout: float = 180.0) -> str:
    """Standard output of helm. Raises `HelmError`."""
    return both(*arguments, timeout=timeout)[0]


def both(*arguments: str, timeout: float = 180.0) -> tuple[str, str]:
    """Standard output and standard error, where logs of hooks go. Raises `HelmError`."""
    done = subprocess.run([helm(), *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise HelmError(f"{done.stderr.strip()}\n{done.stdout.strip()}".strip())
    return done.stdout, done.stderr


def sets(values: Sequence[str]) -> list[str]:
    """As arguments; values that look like numbers but are texts, and labels, are passed as texts."""
    texts = ("extraEnv[0].value", "commonLabels", "podLabels")
    return [part for one in values for part in ("--set-string" if one.startswith(texts) else "--set", one)]


def rendered(*values: str, release: str = "mq", namespace: str = "messaging") -> list[Manifest]:
    """Every object of the chart, hooks included, as Helm would send it."""
    text = run("template", release, str(CHART), "-n", namespace, "--kube-version", KUBE_VERSION, *sets(values))
    return [one for one in yaml.safe_load_all(text) if one is not None]


class Release:
    """One release on a cluster."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name
        prefix = name if "rocketmq-ha" in name else f"{name}-rocketmq-ha"
        self.prefix, self.operator = prefix, f"{prefix}-operator"

    def helm(self, *arguments: str, timeout: float = 300.0) -> str:
        return run(f"--kubeconfig={self.cluster.kubeconfig}", "-n", self.namespace, *arguments, timeout=timeout)

    def install(self, *values: str) -> str:
        return self.helm("install", self.name, str(CHART), *self._chosen(values), "--wait", "--timeout=180s")

    def upgrade(self, *values: str) -> str:
        return self.helm("upgrade", self.name, str(CHART), *self._chosen(values), "--wait", "--timeout=180s")

    def uninstall(self) -> str:
        return self.helm("uninstall", self.name, "--wait", "--timeout=180s")

    def test(self) -> tuple[str, str]:
        """What `helm test` says, and its pod's log."""
        return both(f"--kubeconfig={self.cluster.kubeconfig}", "-n", self.namespace, "test", self.name)

    def deployment(self) -> Manifest:
        found: Manifest = self.cluster.json("-n", self.namespace, "get", "deployment", self.operator)
        return found

    def operator_metrics(self) -> list[str]:
        """Of its only pod, line by line, through the API server."""
        selector = f"-l=app.kubernetes.io/name=rocketmq-operator,app.kubernetes.io/instance={self.name}"
        (pod,) = self.cluster.json("-n", self.namespace, "get", "pods", selector)["items"]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}:8081/proxy/metrics"
        return self.cluster.kubectl("get", "--raw", path).splitlines()

    def operator_log(self) -> list[Manifest]:
        """Of all its pods, decoded; lines that are not JSON are the interpreter's own and fail."""
        selector = f"-l=app.kubernetes.io/name=rocketmq-operator,app.kubernetes.io/instance={self.name}"
        text = self.cluster.kubectl("-n", self.namespace, "logs", selector, "--tail=-1")
        return [json.loads(line) for line in text.splitlines() if line]

    @staticmethod
    def _chosen(values: Sequence[str]) -> list[str]:
        return sets((f"image.repository={REPOSITORY}", f"image.tag={TAG}", *values))
