"""Puts the images that `make images` built onto the cluster's node, if they are not there already.

Which images a cluster has is noted in a ConfigMap of its own: with --keep-cluster the next run only loads what changed.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from e2e.kit.cluster import Cluster, KubectlError
from e2e.kit.tools import docker
from tests.needed import unavailable

REPOSITORY = "rocketmq-ha"
TAG = os.environ.get("ROCKETMQ_HA_E2E_TAG", "dev")
OURS = ("controller", "namesrv", "broker", "sidecar", "operator", "spark", "tester")
APACHE = "apache-broker"
APACHE_IMAGE = f"{REPOSITORY}/{APACHE}:5.3.3"
NOTE = ("-n", "kube-system", "configmap", "rocketmq-ha-e2e-images")
LOAD_SECONDS = 300.0


def built() -> dict[str, str]:
    """Name to reference, e.g. broker to rocketmq-ha/broker:dev; apache-broker only if it was built."""
    images = {name: f"{REPOSITORY}/{name}:{TAG}" for name in OURS}
    missing = [reference for reference in images.values() if identity(reference) is None]
    if missing:
        unavailable(f"{docker()} has no {', '.join(missing)}: run `make images`")
    if identity(APACHE_IMAGE) is not None:
        images[APACHE] = APACHE_IMAGE
    return images


def identity(reference: str) -> str | None:
    """Docker's id of an image, None if there is no such image."""
    command = [docker(), "image", "inspect", "--format", "{{.Id}}", reference]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def load(cluster: Cluster, kind: str, images: Mapping[str, str], folder: Path) -> list[str]:
    """Load those whose ids differ from what was loaded before, in one archive; returns their references."""
    wanted = {name: f"{reference} {identity(reference)}" for name, reference in images.items()}
    before = noted(cluster)
    stale = [images[name] for name, value in wanted.items() if before.get(name) != value]
    if stale:
        folder.mkdir(parents=True, exist_ok=True)
        archive = str(folder / "images.tar")
        try:
            subprocess.run([docker(), "save", "-o", archive, *stale], check=True, timeout=LOAD_SECONDS)
            command = [kind, "load", "image-archive", archive, "--name", cluster.name]
            subprocess.run(command, check=True, timeout=LOAD_SECONDS)
        finally:
            Path(archive).unlink(missing_ok=True)
        metadata = {"name": NOTE[-1], "namespace": NOTE[1]}
        note = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**before, **wanted}}
        cluster.kubectl("apply", "-f", "-", input=json.dumps(note))
    return stale


def noted(cluster: Cluster) -> dict[str, str]:
    """What was loaded before."""
    try:
        data: dict[str, str] = cluster.json("get", *NOTE).get("data", {})
    except KubectlError:
        return {}
    return data
