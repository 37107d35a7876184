"""Why a StatefulSet's pods are not made: a quota, a LimitRange, a webhook, a ServiceAccount that does not exist.
Used by `observe`.

Only Events of the StatefulSet tell. They are not watched: while a pod is missing they are listed, now and then.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from rocketmq_operator.domain.conditions import timestamp
from rocketmq_operator.domain.observed import Pod, StatefulSet
from rocketmq_operator.domain.plan.step import PODS_REQUEUE_SECONDS, missing_pods
from rocketmq_operator.kubernetes.kube import Kube, KubeError
from rocketmq_resources.decoding import Json, mapping

MAX_REASON: Final = 300
"""Characters."""
_FAILED: Final = re.compile(r"create Pod (\S+) in StatefulSet \S+ failed error: (.*)", re.DOTALL)


class _Known(msgspec.Struct):
    """Of one StatefulSet."""

    uid: str
    made: dict[str, float] = {}
    """By name of a pod that exists or did: when it was created. An older Event is about one before it."""
    asked: float = float("-inf")
    refused: dict[str, str] = {}


class PodRefusals:
    """The missing pods of one operator's StatefulSets."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}

    async def of(self, namespace: str, stateful_set: StatefulSet, pods: Sequence[Pod]) -> Mapping[str, str]:
        """By the name of each pod that is refused: why."""
        place = (namespace, stateful_set.name)
        known = self._known.get(place)
        if known is None or known.uid != stateful_set.uid:
            known = self._known[place] = _Known(stateful_set.uid)
        known.made |= {pod.name: pod.created for pod in pods}
        missing = missing_pods(stateful_set, pods)
        if not missing:
            known.asked, known.refused = float("-inf"), {}
        elif self._clock() - known.asked >= PODS_REQUEUE_SECONDS:
            known.asked = self._clock()
            known.refused = await self._list(namespace, known)
        return {name: known.refused[name] for name in missing if name in known.refused}

    async def _list(self, namespace: str, known: _Known) -> dict[str, str]:
        fields = f"involvedObject.uid={known.uid},reason=FailedCreate"
        try:
            events = (await self._kube.list("Event", namespace, fields=fields)).get("items")
        except KubeError:
            return known.refused  # a status without a reason is better than none
        newest: dict[str, tuple[float, str]] = {}
        for event in events if isinstance(events, list) else ():
            found = _FAILED.fullmatch(str(event.get("message", "")))
            at = _time(event)
            if found is not None and at > known.made.get(found[1], 0.0):
                newest[found[1]] = max(newest.get(found[1], (0.0, "")), (at, found[2][:MAX_REASON]))
        return {name: why for name, (_, why) in newest.items()}


def _time(event: Json) -> float:
    """When it happened last."""
    series = mapping(event, "series").get("lastObservedTime")
    return max(timestamp(at) for at in (series, event.get("lastTimestamp"), event.get("eventTime")))
