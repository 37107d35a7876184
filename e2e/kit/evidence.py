"""What a failed test leaves behind: logs, events, descriptions and resources of its namespaces.

No secret gets there: values of Secrets are cut out of every file, as they are and in base64.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from e2e.kit.cluster import Cluster, KubectlError, Resource
from tests.unheard import LINES

LOG_BYTES = 4 << 20
SHORTEST = 6
"""Characters: shorter values are found in too many places to be cut out of texts."""
REDACTED = "<redacted>"
DIGEST_EVENTS = 20
DIGEST_LOG = 2
DIGEST_LINE = 300
"""Characters."""
UNHEARD_LINE = 2000
"""Characters."""
WORSE_THAN_INFO = re.compile(r'"level": "(?!info|debug)|Traceback|^panic')


def collect(cluster: Cluster, folder: Path, namespaces: Iterable[str]) -> None:
    """Fill the folder, as far as the cluster still answers."""
    folder.mkdir(parents=True, exist_ok=True)
    for namespace in namespaces:
        secrets = _secret_values(cluster, namespace)
        for name, text in _pieces(cluster, namespace):
            for secret in secrets:
                text = text.replace(secret, REDACTED)  # noqa: PLW2901 - step by step
            file = folder / namespace / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def digest(folder: Path) -> str:
    """What `collect` has written, in few lines: the last events, and the last warnings or the last line of each log."""
    lines = []
    for events in sorted(folder.glob("*/events.txt")):
        lines += [f"{events.parent.name}:", *events.read_text().splitlines()[-DIGEST_EVENTS:]]
    for log in sorted(folder.glob("*/logs/*.log")):
        said = log.read_text().splitlines()
        last = [line for line in said if WORSE_THAN_INFO.search(line)] or said[-1:]
        lines += [f"{log.stem}: {line}" for line in last[-DIGEST_LOG:]]
    return "\n".join(line[:DIGEST_LINE] for line in lines)


def _pieces(cluster: Cluster, namespace: str) -> Iterator[tuple[str, str]]:
    """Name of a file and its text."""

    def ask(*arguments: str) -> str:
        try:
            return cluster.kubectl("-n", namespace, *arguments, timeout=30)
        except KubectlError as error:
            return f"{error}\n"

    yield "objects.txt", ask("get", "all,configmaps,pvc,pdb,networkpolicies,leases", "-o", "wide")
    yield "events.txt", ask("get", "events", "--sort-by=.lastTimestamp")
    yield "pods.txt", ask("describe", "pods")
    yield "rocketmq.yaml", ask("get", "rocketmq", "-o", "yaml")  # the category of all our kinds
    yield "configmaps.yaml", ask("get", "configmaps", "-o", "yaml")
    try:
        pods = cluster.json("-n", namespace, "get", "pods")["items"]
    except KubectlError:
        return
    yield from _logs(pods, ask)


def _logs(pods: Iterable[Resource], ask: Callable[..., str]) -> Iterator[tuple[str, str]]:
    """Name of a file and its text for every container, and for the one before its last restart."""
    for pod in pods:
        name = pod["metadata"]["name"]
        status = pod.get("status", {})
        for container in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
            log = ("logs", name, "-c", container["name"], f"--limit-bytes={LOG_BYTES}", "--timestamps")
            yield f"logs/{name}.{container['name']}.log", ask(*log)
            if container.get("restartCount"):
                yield f"logs/{name}.{container['name']}.previous.log", ask(*log, "--previous")


def unheard(cluster: Cluster, namespaces: Iterable[str]) -> list[str]:
    """Lines of the logs there that no log of ours may have (tests/unheard.py), with their pods. What is gone, or does
    not answer, is left out."""
    found = []
    for namespace in namespaces:

        def ask(*arguments: str, namespace: str = namespace) -> str:
            try:
                return cluster.kubectl("-n", namespace, *arguments, timeout=30)
            except KubectlError:
                return ""

        try:
            pods = cluster.json("-n", namespace, "get", "pods")["items"]
        except KubectlError:
            continue
        for name, text in _logs(pods, ask):
            found += [f"{namespace}/{name}: {line}" for line in unheard_lines(text)]
    return found


def unheard_lines(log: str) -> list[str]:
    """Those that only asyncio, Python's warnings or our background tasks write, when an error reached no one."""
    return [line[:UNHEARD_LINE] for line in log.splitlines() if LINES.search(line.encode())]


def _secret_values(cluster: Cluster, namespace: str) -> list[str]:
    """Longest first, so that none is cut in halves by another."""
    found = set()
    try:
        secrets = cluster.json("-n", namespace, "get", "secrets")["items"]
    except KubectlError:
        return []
    for secret in secrets:
        for value in (secret.get("data") or {}).values():
            found.add(value)
            found.add(base64.b64decode(value).decode(errors="replace").strip())
            found.add(json.dumps(base64.b64decode(value).decode(errors="replace"))[1:-1])
    return sorted((value for value in found if len(value) >= SHORTEST), key=len, reverse=True)
