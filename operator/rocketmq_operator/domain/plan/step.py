"""What each part of a plan says, and how the parts make one plan.

A part looks at the whole world and returns a `Step`. The parts come in order of urgency; once one of them is `busy`,
no later one may disrupt anything, so that a group has one thing done to it at a time.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from rocketmq_operator.domain.actions import Action, Notice
from rocketmq_operator.domain.spec.common import Json

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
    """Something is under way."""

    phase: Phase
    reason: str
    """Of the condition Progressing."""
    message: str


class Blocked(msgspec.Struct, frozen=True):
    """Something is wanted and must not be done now."""

    reason: str
    """Of the conditions Progressing (False) and Degraded (True)."""
    message: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One part's answer."""

    actions: tuple[Action, ...] = ()
    progress: Progress | None = None
    blocked: Blocked | None = None
    busy: bool = False
    """Nothing else may disrupt the group now."""
    requeue: float | None = None
    """Seconds after which to look again even if nothing is heard; None: events tell."""


NOTHING = Step()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. `objects` are levels: applied only where they differ from what is there."""

    first: tuple[Action, ...] = ()
    """Done before the objects are applied."""
    objects: tuple[Json, ...] = ()
    removals: tuple[tuple[str, str], ...] = ()
    """Kind and name of objects that must not be there."""
    actions: tuple[Action, ...] = ()
    """In order; the first that fails ends this round."""
    status: Json | None = None
    """All of it; None: leave it alone."""
    notices: tuple[Notice, ...] = ()
    requeue: float | None = None
    announce: bool = False
    """Write the status before the actions: one of them takes long enough to be watched."""


def combine(steps: Iterable[Step]) -> Step:
    """One step of all: disruptive actions only of those up to the first busy one."""
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


Conditions = Mapping[str, tuple[str, str, str]]
