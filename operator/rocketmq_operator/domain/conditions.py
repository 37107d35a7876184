"""Conditions as Kubernetes means them: one entry per type, with the time of its last flip.

Used by the status of every kind. Reasons are stable: people and alerts compare them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from rocketmq_operator.domain.observed import Pod

Truth = Literal["True", "False", "Unknown"]
SCHEDULING_SECONDS = 30.0
"""How long a new pod may wait for a place without anybody being told."""
MAX_MESSAGE = 1024
"""Characters; a status is read by people."""


class Condition(msgspec.Struct, frozen=True):
    """What holds now."""

    type: str
    status: Truth
    reason: str
    """One CamelCase word."""
    message: str = ""


def condition(kind: str, *, holds: bool | None, reason: str, message: str = "") -> Condition:
    """None: not known."""
    truth: Truth = "Unknown" if holds is None else "True" if holds else "False"
    return Condition(kind, truth, reason, message)


def merge(previous: object, present: Sequence[Condition], *, generation: int, now: float) -> list[dict[str, object]]:
    """The list for status.conditions: as `present`, with the times of `previous` (a status's list, or anything) kept
    where the status has not changed. Equal input gives equal output but for flips."""
    before = _by_type(previous)
    merged = []
    for one in present:
        old = before.get(one.type, {})
        since = old.get("lastTransitionTime") if old.get("status") == one.status else None
        merged.append(
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                "message": one.message[:MAX_MESSAGE],
                "lastTransitionTime": since if isinstance(since, str) else rfc3339(now),
                "observedGeneration": generation,
            }
        )
    return merged


def find(conditions: object, kind: str) -> Mapping[str, object]:
    """The condition of that type in a status's list; empty if there is none."""
    return _by_type(conditions).get(kind, {})


def rfc3339(now: float) -> str:
    """Seconds since 1970 as the API server writes times."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp(text: object, otherwise: float = 0.0) -> float:
    """Seconds since 1970 of an RFC 3339 time; `otherwise` if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else otherwise
    except ValueError:
        return otherwise


def troubles(pods: Iterable[Pod], now: float) -> str:
    """What is wrong with pods, for people; empty: nothing is. A pod that has just been made may well wait for its
    volume or a place."""
    return "; ".join(
        f"{pod.name}: {pod.trouble}"
        for pod in pods
        if pod.trouble and (pod.scheduled or now - pod.created > SCHEDULING_SECONDS)
    )


def _by_type(conditions: object) -> dict[str, Mapping[str, object]]:
    if not isinstance(conditions, list | tuple):
        return {}
    return {str(one.get("type")): one for one in conditions if isinstance(one, Mapping)}
