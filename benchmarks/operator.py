"""What is measured of the operator: 300 BrokerGroups at once on an API server without kubelets, then a quiet minute.

The groups name controllers that run outside of Kubernetes, so the operator has everything it needs but pods. Calls are
counted by the API server (its audit log).
"""

import asyncio
import os
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from benchmarks.brokers import BenchError
from benchmarks.controller import Figures
from benchmarks.engines import Quorum
from benchmarks.kube_api import KubeApi, kube_api
from rocketmq_demo.ports import PortPool

GROUPS = 300
SECONDS_ALLOWED = 180.0
QUIET_SECONDS = 60.0
SETTLE_SECONDS = 15.0
"""What the last group's objects still cause."""
GROUP_PATH = "/apis/rocketmq-ha.io/v1alpha1/namespaces/default/brokergroups"
CRDS = Path(__file__).parent.parent / "crds"


async def reconcile(quorum: Quorum) -> Figures:
    """From the first of 300 groups made until every one has its status; then a quiet minute."""
    return await asyncio.to_thread(_reconcile, quorum)


def _reconcile(quorum: Quorum) -> Figures:
    folder = quorum.folder
    with PortPool() as ports, kube_api(folder / "kubernetes", ports) as api:
        for path in sorted(CRDS.glob("*.yaml")):
            api.request(
                "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(path.read_text())
            )
        _wait(lambda: _answers(api, GROUP_PATH), 30.0, "the API server to serve BrokerGroups")
        health, metrics = ports.block(), ports.block()
        environment = os.environ | {
            "KUBECONFIG": str(api.kubeconfig("operator")),
            "OPERATOR_NAMESPACES": "default",
            "OPERATOR_NAMESPACE": "default",
            "OPERATOR_POD_NAME": "bench",
            "OPERATOR_HEALTH_PORT": str(health),
            "OPERATOR_METRICS_PORT": str(metrics),
        }
        command = [str(Path(sys.executable).with_name("rocketmq-operator")), "run"]
        with (folder / "operator.log").open("wb") as output:
            operator = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            _wait(lambda: _leads(api), 30.0, "the operator to lead")
            return _measure(api, quorum, operator.pid)
        finally:
            operator.terminate()
            operator.wait(30)


def _measure(api: KubeApi, quorum: Quorum, pid: int) -> Figures:
    groups = [_group(number, quorum.addresses) for number in range(GROUPS)]
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda group: api.request("POST", GROUP_PATH, group), groups))
    _wait(lambda: _reconciled(api) == GROUPS, SECONDS_ALLOWED, f"{GROUPS} groups to be reconciled")
    taken = time.monotonic() - began
    time.sleep(SETTLE_SECONDS)
    calls, seconds, memory = len(api.asked()), _cpu_seconds(pid), _resident_mib(pid)
    time.sleep(QUIET_SECONDS)
    return {
        "operator_reconciled": taken,
        "operator_idle_core": 100 * (_cpu_seconds(pid) - seconds) / QUIET_SECONDS,
        "operator_idle_calls": (len(api.asked()) - calls) / GROUPS / (QUIET_SECONDS / 60),
        "operator_memory": memory,
        "operator_idle_growth": _resident_mib(pid) - memory,
    }


def _group(number: int, controllers: tuple[str, ...]) -> object:
    # A controller's gRPC port is two above its remoting port unless it is set.
    grpc = [f"{host}:{int(port) + 2}" for host, _, port in (address.rpartition(":") for address in controllers)]
    return {
        "apiVersion": "rocketmq-ha.io/v1alpha1",
        "kind": "BrokerGroup",
        "metadata": {"name": f"group-{number:03}", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "controllerAddr": ";".join(controllers),
            "controllerGrpcAddr": ";".join(grpc),
            "namesrvAddr": "namesrv.example:9876",
        },
    }


def _reconciled(api: KubeApi) -> int:
    items = api.request("GET", GROUP_PATH)["items"]
    assert isinstance(items, list)
    return sum(
        1 for item in items if item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
    )


def _answers(api: KubeApi, path: str) -> bool:
    try:
        api.request("GET", path)
    except urllib.error.HTTPError:
        return False
    return True


def _leads(api: KubeApi) -> bool:
    items = api.request("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases")["items"]
    assert isinstance(items, list)
    return any(item["spec"].get("holderIdentity") for item in items)


def _wait(done: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise BenchError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
