"""Removes objects from the cache that were deleted while no watch was open: a list does not contain deleted objects, so
the cache keeps them after a watch was restarted. Periodically the names of one kind are listed and compared. Called by
`app`.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from rocketmq_operator.kubernetes.cache import Cache
from rocketmq_operator.kubernetes.handlers import SELECTOR
from rocketmq_operator.kubernetes.kube import Kube, KubeError
from rocketmq_resources import names
from rocketmq_runtime import background

KINDS: Final = (
    *names.PLURALS,
    "StatefulSet",
    "Pod",
    "PersistentVolumeClaim",
    "Service",
    "ConfigMap",
    "PodDisruptionBudget",
    "NetworkPolicy",
)

log = structlog.get_logger(__name__)


SOON: Final = 5.0
"""Seconds after a list until its kind is compared; by then all of the list is in the cache."""


class Sweep:
    """Compares the cache of one operator with lists."""

    def __init__(self, kube: Kube, cache: Cache, namespaces: tuple[str, ...]) -> None:
        self._kube = kube
        self._cache = cache
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._turn = 0
        self._soon: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def compare_next(self) -> None:
        """Compare the next kind. A failure is ignored: the kind is compared again later."""
        self._turn += 1
        await self.compare(KINDS[self._turn % len(KINDS)])

    def compare_soon(self, kind: str) -> None:
        """Compare a kind soon, because it was listed."""
        if kind in KINDS and kind not in self._soon:
            self._soon[kind] = asyncio.get_running_loop().call_later(SOON, self._due, kind)

    def stop(self) -> None:
        for timer in self._soon.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _due(self, kind: str) -> None:
        del self._soon[kind]
        task = background.start(self.compare(kind), f"sweep of {kind}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def compare(self, kind: str) -> None:
        """Drop objects from the cache that do not exist."""
        # Read before the list: objects that are added to the cache during the list are newer than it.
        known = {key: entry.uid for key in self._cache.keys(kind) if (entry := self._cache.get(key)) is not None}
        there: set[str] = set()
        try:
            for namespace in self._namespaces:
                selector = "" if kind in names.PLURALS else SELECTOR
                answer = await self._kube.list(kind, namespace, selector, metadata_only=True)
                items = answer.get("items")
                for item in items if isinstance(items, list) else ():
                    metadata = item.get("metadata") if isinstance(item, Mapping) else None
                    if isinstance(metadata, Mapping):
                        there.add(str(metadata.get("uid")))
        except KubeError as error:
            log.debug("not swept", kind=kind, error=str(error))
            return
        for key, uid in known.items():
            if uid not in there:
                log.info("missed deletion", kind=kind, namespace=key.namespace, name=key.name)
                self._cache.remove(key, uid)
