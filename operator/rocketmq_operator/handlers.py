"""kopf's registrations: every event of a resource or a child goes into the cache, which wakes who is concerned.

Nothing is decided here. kopf watches, reconnects and lists again; its handlers for changes, its annotations and its
finalizers are not used, since they follow what has changed instead of what is (its own critiques say so).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf
from kubernetes.aio import client

from rocketmq_operator.cache import Cache, key_of
from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.common import Json

CHILDREN: Final = (
    ("apps", "v1", "statefulsets"),
    ("", "v1", "pods"),
    ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("", "v1", "serviceaccounts"),
    ("rbac.authorization.k8s.io", "v1", "roles"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    ("batch", "v1", "cronjobs"),
)
"""What is watched beside our own resources, by the label app.kubernetes.io/managed-by. Secrets are not."""
SELECTOR: Final = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


def register(cache: Cache, listed: Callable[[], None], relisted: Callable[[str], None]) -> kopf.OperatorRegistry:
    """All handlers, in a registry of their own. `listed` is called once, when all first lists are in the cache,
    `relisted(kind)` for each object that a list brings.

    kopf holds events back until every index has its first list: so the indices fill the cache, though nobody reads
    them, and the first event shows that nothing is missing from it.
    """
    registry = kopf.OperatorRegistry()
    first = True

    async def known(body: Mapping[str, Any], **_: Any) -> None:  # kopf hands over whatever the API server sent
        cache.put(dict(body))

    async def seen(event: Mapping[str, Any], **_: Any) -> None:
        nonlocal first
        if first:
            first = False
            listed()
        if event.get("type") is None:
            relisted(str(event["object"].get("kind")))
        take(cache, event.get("type"), event["object"])

    ours = tuple((names.GROUP, names.VERSION, plural) for plural in names.PLURALS.values())
    for group, version, plural in (*ours, *CHILDREN):
        kopf.index(group, version, plural, registry=registry, id=f"known_{plural}")(known)
        kopf.on.event(group, version, plural, registry=registry, id=f"seen_{plural}")(seen)
    return registry


def take(cache: Cache, kind: str | None, body: Json) -> None:
    """One event; `kind` is None for what a list holds."""
    if kind == "DELETED":
        key, metadata = key_of(body)
        cache.remove(key, str(metadata.get("uid", "")))
    else:
        cache.put(body)


def settings() -> kopf.OperatorSettings:
    """How kopf shall watch."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True  # neither CRDs nor namespaces have to be readable
    chosen.persistence.diffbase_storage = _NoDiffs()
    chosen.persistence.progress_storage = kopf.StatusProgressStorage(field="status.unused")
    chosen.execution.max_workers = 1
    chosen.queueing.idle_timeout = 0.5
    chosen.queueing.exit_timeout = 0.5  # a handler takes no time
    for group, version, plural in CHILDREN:
        chosen.watching.label_selectors[group, version, plural] = SELECTOR
    logging.getLogger("kopf").setLevel(logging.WARNING)
    return chosen


async def watch(
    cache: Cache,
    configuration: client.Configuration,
    namespaces: tuple[str, ...],
    *,
    ready: Callable[[], None],
    listed: Callable[[], None],
    relisted: Callable[[str], None],
) -> None:
    """Keep the cache as the cluster is, until cancelled or told to end by a signal. `ready` is called when watching has
    begun, `listed` when all that there is is known, `relisted(kind)` when a kind was listed (again)."""
    registry = register(cache, listed, relisted)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await credentials(configuration)

    flag = asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=flag,
        ),
        name="kopf",
    )
    try:
        waiting = asyncio.create_task(flag.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if flag.is_set():
            ready()
        await task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def credentials(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """The ones that the rest of the operator uses; asked for anew whenever the API server refuses them."""
    # This reads a service account's token again when it is due.
    bearer = str((await configuration.auth_settings()).get("BearerToken", {}).get("value") or "")
    scheme, _, token = bearer.partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        token=(token if scheme.lower() == "bearer" else bearer) or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


class _NoDiffs(kopf.DiffBaseStorage):
    """kopf takes a copy of every object at every event to find out what has changed in it; nobody here asks."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass
