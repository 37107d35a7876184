"""Kubernetes conditions: one entry per type, with the time of its last transition.

Used by the status of every kind. Reasons are stable because users and alerts compare them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from rocketmq_operator.domain.observed import Pod, StatefulSet

ConditionStatus = Literal["True", "False", "Unknown"]
SCHEDULING_SECONDS = 30.0
"""How long a new pod may be unscheduled before it is reported."""
STOPPING_SECONDS = 60.0
"""How long a pod may be there beyond its time to stop before it is reported."""
MAX_MESSAGE = 1024
"""Characters, to keep the status readable."""


class Condition(msgspec.Struct, frozen=True):
    """One condition without its times."""

    type: str
    status: ConditionStatus
    reason: str
    """One CamelCase word."""
    message: str = ""


def condition(kind: str, *, holds: bool | None, reason: str, message: str = "") -> Condition:
    """`holds` None: unknown."""
    truth: ConditionStatus = "Unknown" if holds is None else "True" if holds else "False"
    return Condition(kind, truth, reason, message)


def merge(previous: object, present: Sequence[Condition], *, generation: int, now: float) -> list[dict[str, object]]:
    """The list for status.conditions: as `present`, with the times of `previous` (a status's list, or anything) kept
    where the status has not changed."""
    before = _by_type(previous)
    merged = []
    for new in present:
        old = before.get(new.type, {})
        since = old.get("lastTransitionTime") if old.get("status") == new.status else None
        merged.append(
            {
                "type": new.type,
                "status": new.status,
                "reason": new.reason,
                "message": new.message[:MAX_MESSAGE],
                "lastTransitionTime": since if isinstance(since, str) else rfc3339(now),
                "observedGeneration": generation,
            }
        )
    return merged


def find(conditions: object, kind: str) -> Mapping[str, object]:
    """The condition of that type in a status's list; empty if it is absent."""
    return _by_type(conditions).get(kind, {})


def rfc3339(now: float) -> str:
    """Seconds since 1970 in the API server's format."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp(text: object, otherwise: float = 0.0) -> float:
    """Seconds since 1970 of an RFC 3339 time; `otherwise` for anything else."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else otherwise
    except ValueError:
        return otherwise


def pod_problems(pods: Iterable[Pod], stateful_set: StatefulSet | None, now: float) -> str:
    """The problems of pods in a sentence; empty: none. A new pod may wait some time for its volume or a node."""
    problems = {pod.name: _pod_problem(pod, now) for pod in pods}
    refused = {} if stateful_set is None else stateful_set.refused_pods
    return "; ".join(f"{name}: {problem}" for name, problem in {**problems, **refused}.items() if problem)


def _pod_problem(pod: Pod, now: float) -> str:
    if pod.deleting and pod.ends and now - pod.ends > STOPPING_SECONDS:
        return f"it should have stopped by {rfc3339(pod.ends)}: if its node is lost, delete the pod by force"
    return pod.problem if pod.scheduled or now - pod.created > SCHEDULING_SECONDS else ""


def _by_type(conditions: object) -> dict[str, Mapping[str, object]]:
    if not isinstance(conditions, list | tuple):
        return {}
    return {str(entry.get("type")): entry for entry in conditions if isinstance(entry, Mapping)}
