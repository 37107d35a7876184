"""`report GROUP`: a support bundle, one zip without secrets.

Everything is collected with the user's own rights; its README.txt lists what could not be read.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

import msgspec

from rocketmq_kubectl.bundle.bundle import Bundle
from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.kube import in_thread
from rocketmq_kubectl.cluster.resources import Pod
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import CommandRefusedError
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.verbs import controller, epochs, status, sync_state_set
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup

CHILDREN: Final = {
    "statefulsets": "/apis/apps/v1/namespaces/{}/statefulsets",
    "pods": "/api/v1/namespaces/{}/pods",
    "services": "/api/v1/namespaces/{}/services",
    "configmaps": "/api/v1/namespaces/{}/configmaps",
    "persistentvolumeclaims": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "networkpolicies": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "secrets": "/api/v1/namespaces/{}/secrets",
    "jobs": "/apis/batch/v1/namespaces/{}/jobs",
}


class Owner(msgspec.Struct, frozen=True):
    """One of our resources that belongs to the bundle."""

    kind: names.Kind
    component: names.Component
    namespace: str
    name: str
    metrics_port: int

    def owns(self, name: str) -> bool:
        """Whether an object of this name is the resource or belongs to it."""
        own = {"broker": self.name, "controller": names.controller(self.name), "namesrv": names.namesrv(self.name)}
        base = own[self.component]
        claims = tuple(f"{volume}-{base}-" for volume in (names.VOLUME_DATA, names.VOLUME_COMMIT_LOG))
        return name in {self.name, base} or name.startswith((f"{base}-", *claims))


async def report(session: Session, name: str, file: Path | None, *, tail_lines: int) -> Report:
    """Collect, and write `file` (None: named after group and time, in the current folder); `tail_lines` 0: no logs."""
    group = resources.broker_group(await session.group_body(name))
    path = file if file is not None else Path(f"{name}-{session.now().strftime('%Y%m%d-%H%M%S')}.zip")
    if path.exists():
        raise CommandRefusedError(f"{path} exists: choose another name with -o")
    bundle, owners = Bundle(session), _owners(group)
    jobs: list[Awaitable[None]] = [
        bundle.view("status.txt", lambda: status.status(session, name)),
        bundle.view("sync-state-set.json", lambda: sync_state_set.get_sync_state_set(session, name)),
        bundle.view("epochs.json", lambda: epochs.epochs(session, name)),
        *(_collect(bundle, owner, tail_lines=tail_lines) for owner in owners),
        *(_events(bundle, namespace, owners) for namespace in sorted({owner.namespace for owner in owners})),
    ]
    if group.controller is not None:
        jobs.append(bundle.view("controllers.json", lambda: _controllers(session, group)))
    await asyncio.gather(*jobs)
    size = await in_thread(lambda: bundle.write(path, f"{group.namespace}/{name}"))
    count, missing = len(bundle.files) + 1, sorted(bundle.missing)
    text = f"{path}: {count} files, {size} bytes"
    if missing:
        text += f"; {len(missing)} things could not be read, its README.txt lists them"
    document = {"file": str(path), "bytes": size, "files": count, "missing": missing}
    return Report(f"{text}. Check it before you send it.\n", document)


def _owners(group: BrokerGroup) -> list[Owner]:
    owners = [Owner("BrokerGroup", "broker", group.namespace, group.name, names.PORT_SIDECAR_METRICS)]
    if group.controller is not None:
        owners.append(Owner("ControllerCluster", "controller", *group.controller, names.PORT_CONTROLLER_METRICS))
    if group.name_server is not None:
        owners.append(Owner("NameServer", "namesrv", *group.name_server, names.PORT_NAMESRV_METRICS))
    return owners


async def _controllers(session: Session, group: BrokerGroup) -> Report:
    assert group.controller is not None
    namespace, name = group.controller
    return await controller.status(session, name, namespace=namespace)


async def _events(bundle: Bundle, namespace: str, owners: list[Owner]) -> None:
    there = [owner for owner in owners if owner.namespace == namespace]
    await bundle.events(namespace, lambda about: any(owner.owns(about) for owner in there))


async def _collect(bundle: Bundle, owner: Owner, *, tail_lines: int) -> None:
    path = resources.resource(owner.kind, owner.namespace, owner.name)
    selector = {"labelSelector": names.selector_text(owner.component, owner.name)}
    await asyncio.gather(
        bundle.resource(f"{owner.kind.lower()}/{owner.name}", path),
        *(bundle.children(kind, template.format(owner.namespace), selector) for kind, template in CHILDREN.items()),
    )
    pods = await bundle.attempt(
        f"pods of {owner.name}", lambda: bundle.session.pods(owner.namespace, owner.component, owner.name)
    )
    await asyncio.gather(*(_pod(bundle, pod, owner.metrics_port, tail_lines=tail_lines) for pod in pods or ()))


async def _pod(bundle: Bundle, pod: Pod, metrics_port: int, *, tail_lines: int) -> None:
    jobs: list[Awaitable[None]] = []
    for container in pod.containers if tail_lines else ():
        jobs.append(bundle.log(pod, container, tail_lines, previous=False))
        if pod.restarts.get(container):
            jobs.append(bundle.log(pod, container, tail_lines, previous=True))
    if pod.reachable:
        jobs.append(bundle.metrics(pod, metrics_port))
    await asyncio.gather(*jobs)
