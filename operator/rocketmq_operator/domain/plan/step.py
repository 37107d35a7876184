"""The result of each part of a plan, and how the parts become one plan.

A part reads the whole observed state and returns a `Step`. The parts are in order of urgency. Once a part is `busy`, no
later part may disrupt anything, so a group undergoes one disruptive change at a time.
"""

from collections.abc import Collection, Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from rocketmq_operator.domain.actions import Action, Event
from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_operator.domain.manifests.objects import Images
from rocketmq_operator.domain.observed import Pod, StatefulSet
from rocketmq_resources import names
from rocketmq_resources.decoding import Json

CHANGING_REQUEUE_SECONDS: Final = 2.0
"""While a quorum changes: no event reports that a member is connected or has caught up."""
PODS_REQUEUE_SECONDS: Final = 10.0
"""While a pod is missing or stopping."""

Phase = Literal[
    "Pending",
    "Creating",
    "Running",
    "Degraded",
    "Updating",
    "SwitchingOver",
    "Scaling",
    "Rebuilding",
    "Hibernating",
    "Hibernated",
    "Waking",
    "Deleting",
]


class Progress(msgspec.Struct, frozen=True):
    """A change is under way."""

    phase: Phase
    reason: str
    """The reason of the condition Progressing."""
    message: str


class Blocked(msgspec.Struct, frozen=True):
    """A change is wanted but not allowed now."""

    reason: str
    """The reason of the conditions Progressing (False) and Degraded (True)."""
    message: str


class Unfinished(NamedTuple):
    """What is left of the newest generation of a spec."""

    reason: str
    """The reason of the conditions Ready (False) and Progressing (True)."""
    message: str


UNSETTLED: Final = "which pods are up to date is not known yet"
"""The StatefulSet's controller has not processed the last apply."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one part."""

    actions: tuple[Action, ...] = ()
    progress: Progress | None = None
    blocked: Blocked | None = None
    busy: bool = False
    """Later parts may not disrupt the group now."""
    requeue: float | None = None
    """Seconds after which to reconcile without an event; None: wait for events."""


NOTHING = Step()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. `objects` are the desired objects, applied only where they differ from the actual ones."""

    first: tuple[Action, ...] = ()
    """Performed before the objects are applied."""
    objects: tuple[Json, ...] = ()
    removals: tuple[tuple[str, str], ...] = ()
    """Kind and name of objects to delete."""
    actions: tuple[Action, ...] = ()
    """In order; the first failure ends this reconcile."""
    status: Json | None = None
    """The whole status; None: do not write it."""
    events: tuple[Event, ...] = ()
    requeue: float | None = None
    status_first: bool = False
    """Write the status before the actions, because one of them takes long."""


def combine(steps: Iterable[Step]) -> Step:
    """Combine steps: disruptive actions only of steps up to the first busy one."""
    actions: list[Action] = []
    progress: Progress | None = None
    blocked: Blocked | None = None
    requeue: float | None = None
    busy = False
    for step in steps:
        actions.extend(action for action in step.actions if not (busy and action.disruptive))
        if not busy:
            progress = progress or step.progress
        blocked = blocked or step.blocked
        if step.requeue is not None:
            requeue = step.requeue if requeue is None else min(requeue, step.requeue)
        busy = busy or step.busy
    return Step(actions=tuple(actions), progress=progress, blocked=blocked, busy=busy, requeue=requeue)


def missing_pods(stateful_set: StatefulSet | None, pods: Iterable[Pod]) -> tuple[str, ...]:
    """The names of pods that Kubernetes is to make."""
    if stateful_set is None or stateful_set.deleting or not stateful_set.settled:
        return ()
    present = {pod.ordinal for pod in pods}
    return tuple(
        names.pod_name(stateful_set.name, ordinal) for ordinal in range(stateful_set.replicas) if ordinal not in present
    )


def ask_for_pods(stateful_set: StatefulSet | None, pods: Collection[Pod]) -> Step:
    """No event tells that a pod is not made, or does not stop."""
    waits = missing_pods(stateful_set, pods) or any(pod.deleting for pod in pods)
    return Step(requeue=PODS_REQUEUE_SECONDS) if waits else NOTHING


class PlanSettings(msgspec.Struct, frozen=True):
    """What the operator decides for all resources, from its environment."""

    images: Images = Images()
    access: Access = Access()
