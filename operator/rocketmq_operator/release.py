"""`rocketmq-operator release-finalizers`: Helm runs it before an uninstall, because without the operator a finalizer
keeps its resource forever. Stops the operator, which would add the finalizers again, and waits until its pods are gone.
Then it holds the Lease while it removes the finalizers, against an operator that was started by hand.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Final

import structlog

from rocketmq_operator.kubernetes.kube import ConflictError, Kube, NotFoundError
from rocketmq_operator.kubernetes.lease import Leadership, LeaseSettings
from rocketmq_operator.settings import OperatorSettings
from rocketmq_resources import names

STOP_SECONDS: Final = 60.0
"""How long to wait for the operator's pods to end, and then for the Lease."""
POLL_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class ReleaseError(Exception):
    """The finalizers cannot be released; the text says what to do."""


async def release_finalizers(kube: Kube, settings: OperatorSettings) -> None:
    """Remove the operator's finalizers in the watched namespaces.

    Raises:
        KubeError: the API server refused or did not answer.
        ReleaseError: the operator still runs.
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
    """A standby replica that has not heard of its end would take the Lease as soon as it is deleted."""
    try:
        scale = await kube.patch(
            "Deployment", settings.namespace, settings.deployment, {"spec": {"replicas": 0}}, sub="scale"
        )
    except NotFoundError:
        return
    status = scale["status"]
    assert isinstance(status, Mapping), "the API server sends the status of a scale"
    selector = str(status["selector"])
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await _wait_until_gone(kube, settings.namespace, selector)
    except TimeoutError as error:
        raise ReleaseError(
            f"pods of Deployment {settings.deployment} in {settings.namespace} still run: delete them, then try again"
        ) from error
    log.info("operator stopped", deployment=settings.deployment)


async def _wait_until_gone(kube: Kube, namespace: str, selector: str) -> None:
    while True:
        found = await kube.list("Pod", namespace, selector, metadata_only=True)
        if not found["items"]:
            return
        await asyncio.sleep(POLL_SECONDS)


async def _take_lease(kube: Kube, settings: OperatorSettings) -> None:
    lease = LeaseSettings(
        namespace=settings.namespace, name=names.LEASE, holder=f"release-{settings.holder}", seconds=STOP_SECONDS
    )
    candidate = Leadership(kube, lease, clock=time.monotonic, wall=time.time)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await candidate.acquire(retry=POLL_SECONDS)
    except TimeoutError as error:
        raise ReleaseError(
            f"an operator still holds Lease {names.LEASE} in {settings.namespace}: stop it, then try again"
        ) from error


async def _release(kube: Kube, kind: str, namespace: str | None) -> None:
    try:
        answer = await kube.list(kind, namespace)
    except NotFoundError:
        return  # the CRD is not installed
    items = answer.get("items")
    for item in items if isinstance(items, list) else ():
        metadata = item.get("metadata") if isinstance(item, Mapping) else None
        if isinstance(metadata, Mapping) and names.FINALIZER in (metadata.get("finalizers") or ()):
            await _release_one(kube, kind, str(metadata["namespace"]), str(metadata["name"]))


async def _release_one(kube: Kube, kind: str, namespace: str, name: str) -> None:
    """Retries when another client changes the resource at the same time."""
    while True:
        try:
            body = await kube.get(kind, namespace, name)
        except NotFoundError:
            return
        metadata = body["metadata"]
        assert isinstance(metadata, Mapping), "the API server sends metadata"
        kept = [name for name in metadata.get("finalizers") or () if name != names.FINALIZER]
        change = {"metadata": {"finalizers": kept, "resourceVersion": metadata.get("resourceVersion")}}
        try:
            await kube.patch(kind, namespace, name, change)
        except ConflictError:
            continue
        except NotFoundError:
            return
        log.info("finalizer released", kind=kind, namespace=namespace, name=name)
        return
