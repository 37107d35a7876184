"""`rocketmq-operator release-finalizers`: run by Helm before an uninstall, since a finalizer without its operator
keeps a resource for ever. Stops the operator first, which would put them back, waits until nobody holds the Lease,
and takes it.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Final

import structlog

from rocketmq_operator.domain import names
from rocketmq_operator.kube import ConflictError, Kube, NotFoundError
from rocketmq_operator.lease import Leadership, LeaseSettings
from rocketmq_operator.settings import OperatorSettings

LEASE_SECONDS: Final = 60.0
"""How long the operator's end is waited for."""

log = structlog.get_logger(__name__)


class ReleaseError(Exception):
    """Something stands in the way; the text says what to do."""


async def release_finalizers(kube: Kube, settings: OperatorSettings) -> None:
    """All of our finalizers in the watched namespaces.

    Raises:
        KubeError: the API server refused or did not answer.
        ReleaseError: the operator goes on running.
    """
    if settings.deployment:
        await _stop(kube, settings)
    await _take_lease(kube, settings)
    for namespace in settings.watched or (None,):
        for kind in names.PLURALS:
            await _release(kube, kind, namespace)
    with contextlib.suppress(NotFoundError):
        await kube.delete("Lease", settings.namespace, names.LEASE, None)


async def _stop(kube: Kube, settings: OperatorSettings) -> None:
    try:
        await kube.patch("Deployment", settings.namespace, settings.deployment, {"spec": {"replicas": 0}}, sub="scale")
    except NotFoundError:
        return
    log.info("operator stopped", deployment=settings.deployment)


async def _take_lease(kube: Kube, settings: OperatorSettings) -> None:
    lease = LeaseSettings(
        namespace=settings.namespace, name=names.LEASE, holder=f"release-{settings.holder}", seconds=LEASE_SECONDS
    )
    candidate = Leadership(kube, lease, clock=time.monotonic, wall=time.time)
    try:
        async with asyncio.timeout(LEASE_SECONDS):
            await candidate.acquire(retry=1.0)
    except TimeoutError as error:
        raise ReleaseError(
            f"an operator still holds Lease {names.LEASE} in {settings.namespace}: stop it, then try again"
        ) from error


async def _release(kube: Kube, kind: str, namespace: str | None) -> None:
    try:
        answer = await kube.list(kind, namespace)
    except NotFoundError:
        return  # the kind is not installed any more
    items = answer.get("items")
    for item in items if isinstance(items, list) else ():
        metadata = item.get("metadata") if isinstance(item, Mapping) else None
        if isinstance(metadata, Mapping) and names.FINALIZER in (metadata.get("finalizers") or ()):
            await _release_one(kube, kind, str(metadata["namespace"]), str(metadata["name"]))


async def _release_one(kube: Kube, kind: str, namespace: str, name: str) -> None:
    """Repeated when somebody else changes the resource at the same time."""
    while True:
        try:
            body = await kube.get(kind, namespace, name)
        except NotFoundError:
            return
        metadata = body["metadata"]
        assert isinstance(metadata, Mapping), "the API server sends metadata"
        kept = [one for one in metadata.get("finalizers") or () if one != names.FINALIZER]
        change = {"metadata": {"finalizers": kept, "resourceVersion": metadata.get("resourceVersion")}}
        try:
            await kube.patch(kind, namespace, name, change)
        except ConflictError:
            continue
        except NotFoundError:
            return
        log.info("finalizer released", kind=kind, namespace=namespace, name=name)
        return
