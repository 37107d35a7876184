"""What `helm test` runs in the operator's image: are the resources known, is the operator ready, does one of them act?

Asks the API server with nothing but the standard library; prints a line for each question, ends with 1 if one failed.
"""

import datetime as dt
import http.client
import json
import os
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KINDS = {"brokergroups", "controllerclusters", "nameservers"}
PATIENCE = 40.0
"""Seconds: `helm test` may come right after `helm install`, or after a crash whose Lease is valid for 30 s."""

Judge = Callable[[Any], str | None]
"""Takes what the API server answered; None if all is well, else what is not."""


def main() -> int:
    namespace, deployment, lease = (os.environ[name] for name in ("NAMESPACE", "DEPLOYMENT", "LEASE"))
    questions: tuple[tuple[str, str, Judge], ...] = (
        ("the CRDs are there", "/apis/rocketmq-ha.io/v1alpha1", missing_kinds),
        ("the operator's pods are ready", f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}", unready),
        (
            "one of them acts",
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}",
            lease_without_holder,
        ),
    )
    deadline = time.monotonic() + PATIENCE
    failed = 0
    for title, path, judge in questions:
        trouble = answer(path, judge)
        while trouble is not None and time.monotonic() < deadline:
            time.sleep(1.0)
            trouble = answer(path, judge)
        print(f"ok     {title}" if trouble is None else f"FAILED {title}: {trouble}", flush=True)
        failed += trouble is not None
    return 1 if failed else 0


def answer(path: str, judge: Judge) -> str | None:
    """None, or what is wrong."""
    try:
        status, body = ask(path)
    except OSError as error:
        return f"GET {path}: {error}"
    return judge(json.loads(body)) if status == http.HTTPStatus.OK else f"GET {path}: {status}"


def ask(path: str) -> tuple[int, bytes]:
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, timeout=10, context=trust)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def missing_kinds(resources: Any) -> str | None:
    missing = KINDS - {resource["name"] for resource in resources["resources"]}
    return f"unknown: {', '.join(sorted(missing))}; kubectl apply --server-side -f crds/" if missing else None


def unready(deployment: Any) -> str | None:
    wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
    ready = status.get("readyReplicas", 0)
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return "its newest version was not looked at yet"
    return None if ready == wanted else f"{ready} of {wanted} are"


def lease_without_holder(lease: Any) -> str | None:
    spec = lease["spec"]
    if not spec.get("holderIdentity"):
        return "the Lease has no holder"
    age = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(spec["renewTime"])).total_seconds()
    if age > spec["leaseDurationSeconds"]:
        return f"{spec['holderIdentity']} holds the Lease, but has not renewed it for {age:.0f} s"
    return None


if __name__ == "__main__":
    sys.exit(main())
