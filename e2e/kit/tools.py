"""The commands that the suite runs."""

import os
import shutil
from pathlib import Path

from tests.needed import unavailable


def command(name: str, chosen: str | None, advice: str) -> str:
    """Path of a command: the one chosen, or what PATH has."""
    found = shutil.which(chosen or name)
    if found is None:
        unavailable(f"{chosen or name} was not found: {advice}")
    return found


def helm() -> str:
    """The helm command: HELM names another, and a local build of Kubernetes has one."""
    built = Path(os.environ.get("K8S_LOCAL_CACHE", Path.home() / ".cache" / "k8s-local")) / "bin" / "helm"
    chosen = os.environ.get("HELM") or (str(built) if built.exists() else None)
    return command("helm", chosen, "install Helm 3, or name its command in HELM")


def docker() -> str:
    """The docker command; DOCKER names another."""
    return command("docker", os.environ.get("DOCKER"), "install Docker, or name its command in DOCKER")
