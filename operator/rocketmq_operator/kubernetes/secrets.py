"""Whether the Secrets that a spec names exist and have their keys. Used by `observe`.

Secrets are neither listed nor watched, so each is read by its name: a good one rarely, a missing one at each
reconcile.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from rocketmq_operator.domain.observed import Reference
from rocketmq_operator.kubernetes.kube import Kube, KubeError, NotFoundError

READ_AGAIN: Final = 60.0
"""Seconds until a Secret that had everything is read again."""


class Secrets:
    """The Secrets of one operator's resources."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._good: dict[tuple[str, str, frozenset[str]], float] = {}

    async def problems(self, namespace: str, wanted: Mapping[str, Collection[str]]) -> dict[Reference, str]:
        """By Secret: what is wrong with it; empty text: it does not exist. `wanted`: keys by name."""
        found = {}
        for name, keys in wanted.items():
            problem = await self._problem(namespace, name, frozenset(keys))
            if problem is not None:
                found[Reference("Secret", namespace, name)] = problem
        return found

    async def _problem(self, namespace: str, name: str, keys: frozenset[str]) -> str | None:
        place = (namespace, name, keys)
        if self._clock() - self._good.get(place, -READ_AGAIN) < READ_AGAIN:
            return None
        try:
            data = (await self._kube.get("Secret", namespace, name)).get("data")
        except NotFoundError:
            self._good.pop(place, None)
            return ""
        except KubeError:
            return None  # not known, and an unreachable API server is reported otherwise
        missing = sorted(keys - (data.keys() if isinstance(data, Mapping) else set()))
        if missing:
            self._good.pop(place, None)
            return f"has no {', '.join(missing)}"
        self._good[place] = self._clock()
        return None
