"""What the suite stands on: images, volumes, cluster DNS, and the network between pods and to the API server.

Without this check each story fails by its own time-out, and none says what of the machine is broken.
"""

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.kit.cluster import Cluster, KubectlError, Resource

SECONDS = 30.0
"""For both pods together."""
PORT = 8080
FULL = 0.83
"""Share of the disk with the images, as a kubelet counts. From 0.85 on it deletes images, also its own pause image, and
then no pod starts; the suite needs some space itself."""
SAYS = "ground:"
"""Begins the line in which the caller's log says what failed."""
SERVER = f"""
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
ThreadingHTTPServer(("", {PORT}), SimpleHTTPRequestHandler).serve_forever()
"""
CALLER = f"""
import os, pathlib, socket, sys, time

def attempt(what, act):
    ends = time.monotonic() + {SECONDS - 10}
    while True:
        try:
            return act()
        except OSError as error:
            last = error
        if time.monotonic() > ends:
            print("{SAYS}", what, "fails:", last, flush=True)
            sys.exit(1)
        time.sleep(0.2)

attempt("writing to the volume", lambda: pathlib.Path("/volume/file").write_text("x"))
attempt("the name of a service", lambda: socket.getaddrinfo("server", {PORT}))
attempt("a connection to another pod", lambda: socket.create_connection((os.environ["SERVER"], {PORT}), 3).close())
attempt("a connection through a service", lambda: socket.create_connection(("server", {PORT}), 3).close())
attempt("a connection to the API server", lambda: socket.create_connection(("kubernetes.default.svc", 443), 3).close())
"""


class BrokenGroundError(RuntimeError):
    """One sentence: what of the machine or cluster does not work."""


def check(cluster: Cluster, image: str) -> None:
    """Raises BrokenGroundError."""
    for node in cluster.json("get", "nodes")["items"]:
        name = node["metadata"]["name"]
        stats = json.loads(cluster.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/stats/summary", timeout=10))
        disk = stats.get("node", {}).get("runtime", {}).get("imageFs", {})
        if problem := disk_problem(f"of node {name}", disk.get("capacityBytes", 0), disk.get("availableBytes", 0)):
            raise BrokenGroundError(problem)
    namespace = cluster.namespace()
    ends = time.monotonic() + SECONDS
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    ports = {"selector": {"pod": "server"}, "ports": [{"port": PORT}]}
    _create(cluster, namespace, "PersistentVolumeClaim", "caller", claim)
    _create(cluster, namespace, "Service", "server", ports)
    _create(cluster, namespace, "Pod", "server", _pod(image, SERVER))
    try:
        server = cluster.until(namespace, "pod/server", _running, "an address", timeout=ends - time.monotonic())
        caller = _pod(image, CALLER, claim="caller", environment={"SERVER": server["status"]["podIP"]})
        _create(cluster, namespace, "Pod", "caller", caller)
        cluster.until(namespace, "pod/caller", _ended, "an end", timeout=max(ends - time.monotonic(), 1.0))
    except TimeoutError:
        pass  # judged below
    if problem := verdict(cluster.json("-n", namespace, "get", "pods,pvc")["items"], _log(cluster, namespace)):
        raise BrokenGroundError(problem)
    cluster.delete_namespaces(namespace)


def disk_problem(whose: str, capacity: int, available: int) -> str:
    """What is wrong with the disk that has the images (bytes); empty if nothing is. A capacity of 0 is unknown."""
    if not capacity or available >= (1 - FULL) * capacity:
        return ""
    return (
        f"the disk {whose} has {available >> 30} of {capacity >> 30} GiB left: a kubelet will delete images, "
        "also the one that every pod needs; free some space"
    )


def verdict(resources: Sequence[Resource], log: str) -> str:
    """What is wrong, from the pods, the claim and the caller's log; empty if nothing is."""
    found = {(one["kind"], one["metadata"]["name"]): one.get("status", {}) for one in resources}
    caller = found.get(("Pod", "caller"), {})
    if caller.get("phase") == "Succeeded":
        return ""
    said = [line.removeprefix(SAYS).strip() for line in log.splitlines() if line.startswith(SAYS)]
    if said:
        return f"in a pod of this cluster {said[-1]}"
    for name in ("server", "caller"):
        for container in found.get(("Pod", name), {}).get("containerStatuses", []):
            waiting = container.get("state", {}).get("waiting", {})
            if waiting.get("reason", "ContainerCreating") != "ContainerCreating":
                return f"a pod of this cluster does not start: {waiting['reason']}: {waiting.get('message', '')}"
    claim = found.get(("PersistentVolumeClaim", "caller"), {}).get("phase")
    if claim != "Bound":
        return f"a volume claim of this cluster is not bound after {SECONDS:.0f} s but {claim}"
    phases = ", ".join(
        f"{name} {found.get(('Pod', name), {}).get('phase', 'missing')}" for name in ("server", "caller")
    )
    return f"two pods of this cluster have not done their work after {SECONDS:.0f} s: {phases}; {log.strip()[-300:]}"


def _running(pod: Resource) -> bool:
    return pod["status"].get("phase") == "Running" and "podIP" in pod["status"]


def _ended(pod: Resource) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def _log(cluster: Cluster, namespace: str) -> str:
    try:
        return cluster.kubectl("-n", namespace, "logs", "caller", timeout=10)
    except KubectlError:
        return ""


def _create(cluster: Cluster, namespace: str, kind: str, name: str, spec: Mapping[str, Any]) -> None:
    metadata = {"name": name, "labels": {"pod": name}}
    body = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    cluster.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(body))


def _pod(
    image: str, script: str, *, claim: str | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "python",
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["-c", script],
        "env": [{"name": name, "value": value} for name, value in (environment or {}).items()],
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    if claim is None:
        return spec
    container["volumeMounts"] = [{"name": "volume", "mountPath": "/volume"}]
    return {**spec, "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}]}


def main(folder: str) -> str:
    """The same check of a disk before there is a cluster: the sentence, or nothing."""
    usage = shutil.disk_usage(folder)
    return disk_problem(f"of {folder}", usage.total, usage.free)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) or None)
