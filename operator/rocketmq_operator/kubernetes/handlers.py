"""kopf's registrations: every event of a resource or a child goes into the cache, which queues the resource.

Nothing is decided here. kopf watches, reconnects and lists again. Its change handlers, annotations and finalizers are
not used because they are edge-triggered: they follow what has changed instead of the current state.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf
from kubernetes.aio import client

from rocketmq_operator.kubernetes.cache import Cache, key_of, number
from rocketmq_resources import names
from rocketmq_resources.decoding import Json
from rocketmq_runtime import background

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
"""Kinds watched beside our own resources, by the label app.kubernetes.io/managed-by. Secrets are not watched."""
SELECTOR: Final = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


def register(cache: Cache, listed: Callable[[], None], relisted: Callable[[str], None]) -> kopf.OperatorRegistry:
    """A registry with all handlers. `listed` is called once, when all first lists are in the cache, `relisted(kind)`
    for each object of a list.

    kopf delays events until every index has its first list. So the index functions fill the cache, although the
    indices are not used, and the first event shows that the cache is complete.
    """
    registry = kopf.OperatorRegistry()
    first = True

    async def index(body: Mapping[str, Any], **_: Any) -> None:  # kopf passes what the API server sent
        cache.put(dict(body))

    async def on_event(event: Mapping[str, Any], **_: Any) -> None:
        nonlocal first
        if first:
            first = False
            listed()
        if event.get("type") is None:
            relisted(str(event["object"].get("kind")))
        apply_event(cache, event.get("type"), event["object"])

    ours = tuple((names.GROUP, names.VERSION, plural) for plural in names.PLURALS.values())
    for group, version, plural in (*ours, *CHILDREN):
        kopf.index(group, version, plural, registry=registry, id=f"known_{plural}")(index)
        kopf.on.event(group, version, plural, registry=registry, id=f"seen_{plural}")(on_event)
    return registry


def apply_event(cache: Cache, kind: str | None, body: Json) -> None:
    """Put one event into the cache; `kind` is None for an object of a list."""
    if kind == "DELETED":
        key, metadata = key_of(body)
        cache.end(key, str(metadata.get("uid", "")), number(metadata.get("resourceVersion")))
    else:
        cache.put(body)


def settings() -> kopf.OperatorSettings:
    """How kopf watches."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True  # so the operator needs no right to read CRDs and namespaces
    chosen.persistence.diffbase_storage = _NoDiffs()
    chosen.persistence.progress_storage = kopf.StatusProgressStorage(field="status.unused")
    chosen.execution.max_workers = 1
    chosen.queueing.idle_timeout = 0.5
    chosen.queueing.exit_timeout = 0.5  # handlers are short
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
    """Keep the cache up to date until cancelled or stopped by a signal. `ready` is called when watching has begun,
    `listed` when the cache is complete, `relisted(kind)` when a kind was listed (again)."""
    registry = register(cache, listed, relisted)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await credentials(configuration)

    flag = asyncio.Event()
    task = background.awaited(
        kopf.operator(
            registry=registry,
            settings=settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=flag,
        ),
        "kopf",
    )
    try:
        waiting = background.awaited(flag.wait(), "ready")
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
    """The credentials of the rest of the operator; kopf asks again whenever the API server refuses them."""
    # This reads the service account's token again when it has expired.
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
    """Stores nothing: kopf would copy every object at every event to compute a diff that is not used here."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass
