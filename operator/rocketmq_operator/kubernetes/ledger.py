"""Remembers what was applied, so that an object is not applied again while neither its desired nor its actual state has
changed.

In memory only: after a restart everything is applied once, which changes nothing where nothing differs. Used by
`execute`.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rocketmq_operator.kubernetes.cache import Cache, Key
from rocketmq_operator.kubernetes.parse import digest
from rocketmq_resources.decoding import Json

REFUSAL_SECONDS: Final = 600.0
"""How long a refusal by the API server is remembered."""


class _Applied(msgspec.Struct):
    made: Json
    """The object that was applied; most often the next plan has the very same one, so no digest is needed."""
    desired: bytes
    uid: str
    essence: bytes


class Ledger:
    """What one operator has applied and checked, and what the API server refused."""

    def __init__(self, cache: Cache, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache = cache
        self._clock = clock
        self._applied: dict[Key, _Applied] = {}
        self._checked: set[str] = set()
        self._refused: dict[str, tuple[float, str]] = {}

    def needs(self, key: Key, made: Json) -> bool:
        """Whether the object or its desired state has changed since it was applied."""
        known, entry = self._applied.get(key), self._cache.get(key)
        if known is None or entry is None or (known.uid, known.essence) != (entry.uid, entry.essence):
            return True
        if known.made is not made:
            if known.desired != _desired(made):
                return True
            known.made = made
        return False

    def applied(self, key: Key, made: Json) -> None:
        """Remember an apply; its answer is in the cache."""
        entry = self._cache.get(key)
        if entry is not None:
            self._applied[key] = _Applied(made, _desired(made), entry.uid, entry.essence)

    def forget(self, key: Key) -> None:
        """Have the object applied again."""
        self._applied.pop(key, None)

    def mark_checked(self, what: str) -> None:
        """Something was checked, once in this process's life."""
        self._checked.add(what)

    def is_checked(self, what: str) -> bool:
        return what in self._checked

    def refuse(self, memory_key: str, why: str) -> None:
        """Remember that the API server refused an action."""
        self._refused[memory_key] = (self._clock(), why)

    def refusals(self) -> Mapping[str, str]:
        """Recently refused actions with the reasons."""
        now = self._clock()
        old = [key for key, (since, _) in self._refused.items() if now - since > REFUSAL_SECONDS]
        for key in old:
            del self._refused[key]
        return {key: why for key, (_, why) in self._refused.items()}

    def retain(self, owners: set[Key]) -> None:
        """Forget objects of deleted resources that are no longer in the cache."""
        for key in [key for key in self._applied if self._cache.get(key) is None and key not in owners]:
            del self._applied[key]


def _desired(made: Json) -> bytes:
    """Digest of what an apply can change, so without a StatefulSet's claim templates."""
    spec = made.get("spec")
    if made.get("kind") == "StatefulSet" and isinstance(spec, Mapping):
        made = {**made, "spec": {key: value for key, value in spec.items() if key != "volumeClaimTemplates"}}
    return digest(made)
