"""What has been applied, so that it is not applied again while neither the wish nor the object has changed.

In memory only: after a restart everything is applied once, which writes nothing where nothing differs. Used by
`execute`.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rocketmq_operator.cache import Cache, Key
from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.seen import digest

REFUSAL_SECONDS: Final = 600.0
"""How long a refusal by the API server is remembered."""


class _Applied(msgspec.Struct):
    made: Json
    """The very object, most often, that is wished for again."""
    wish: bytes
    uid: str
    essence: bytes


class Ledger:
    """One process's."""

    def __init__(self, cache: Cache, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache = cache
        self._clock = clock
        self._applied: dict[Key, _Applied] = {}
        self._notes: set[str] = set()
        self._refused: dict[str, tuple[float, str]] = {}

    def needs(self, key: Key, made: Json) -> bool:
        """Whether the object differs from what was made of it, or another one is wished for."""
        known, entry = self._applied.get(key), self._cache.get(key)
        if known is None or entry is None or (known.uid, known.essence) != (entry.uid, entry.essence):
            return True
        if known.made is not made:
            if known.wish != _wish(made):
                return True
            known.made = made
        return False

    def applied(self, key: Key, made: Json) -> None:
        """The answer to an apply is in the cache."""
        entry = self._cache.get(key)
        if entry is not None:
            self._applied[key] = _Applied(made, _wish(made), entry.uid, entry.essence)

    def forget(self, key: Key) -> None:
        """It is to be applied again, or gone."""
        self._applied.pop(key, None)

    def note(self, what: str) -> None:
        """Something has been made sure of, once in this process's life."""
        self._notes.add(what)

    def noted(self, what: str) -> bool:
        return what in self._notes

    def refuse(self, memory_key: str, why: str) -> None:
        """The API server will not do that."""
        self._refused[memory_key] = (self._clock(), why)

    def refusals(self) -> Mapping[str, str]:
        """What was refused of late, with the reasons."""
        now = self._clock()
        old = [key for key, (since, _) in self._refused.items() if now - since > REFUSAL_SECONDS]
        for key in old:
            del self._refused[key]
        return {key: why for key, (_, why) in self._refused.items()}

    def forget_all_but(self, owners: set[Key]) -> None:
        """Objects that the cache does not know any more, of resources that are gone."""
        for key in [key for key in self._applied if self._cache.get(key) is None and key not in owners]:
            del self._applied[key]


def _wish(made: Json) -> bytes:
    """Digest of what an apply can change: a StatefulSet's claim templates are never among that."""
    spec = made.get("spec")
    if made.get("kind") == "StatefulSet" and isinstance(spec, Mapping):
        made = {**made, "spec": {key: value for key, value in spec.items() if key != "volumeClaimTemplates"}}
    return digest(made)
