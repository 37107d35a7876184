"""`fence`, `pause`, `resume`, `hibernate` and `wake`: one field of spec each, and what shows that it took effect."""

from collections.abc import Callable

import msgspec

from rocketmq_kubectl import change
from rocketmq_kubectl.change import Seen
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session


class Switch(msgspec.Struct, frozen=True):
    """A boolean of spec, set to `value`."""

    field: str
    value: bool
    took_effect: Callable[[Seen], bool]
    text: str
    """What is true then; {} is the group's name."""


def _condition(kind: str, status: str) -> Callable[[Seen], bool]:
    def holds(now: Seen) -> bool:
        found = now.status.condition(kind)
        return now.observed and found is not None and found.status == status

    return holds


def _all_fenced(now: Seen) -> bool:
    return now.observed and all(one.fenced for one in now.status.replica_statuses if one.alive)


def _none_fenced(now: Seen) -> bool:
    return now.observed and not any(one.fenced for one in now.status.replica_statuses)


def _phase(*phases: str) -> Callable[[Seen], bool]:
    return lambda now: now.observed and now.status.phase in phases


FENCE = Switch("fenced", True, _all_fenced, "{} is fenced: it refuses writes, reads go on")
UNFENCE = Switch("fenced", False, _none_fenced, "{} is not fenced: it takes writes")
PAUSE = Switch("paused", True, _condition("Paused", "True"), "{} is paused: the operator changes nothing about it")
RESUME = Switch("paused", False, _condition("Paused", "False"), "{} is not paused: the operator looks after it again")
HIBERNATE = Switch("hibernated", True, _phase("Hibernated"), "{} is hibernated: no pods run, volumes and ids are kept")
WAKE = Switch("hibernated", False, _phase("Running"), "{} is awake")


async def turn(session: Session, name: str, switch: Switch, *, seconds: float) -> Report:
    """Set the field; with `seconds`, wait so long for its effect. Safe to repeat."""
    now = change.seen(await session.group_body(name))
    if switch.field != "paused":
        change.require_active(now, {True: f"{switch.field}: true", False: f"{switch.field}: false"}[switch.value])
    was = getattr(now.group.spec, switch.field)
    now = await change.patch(session, name, {"spec": {switch.field: switch.value}})
    text, effective = switch.text.format(name), None
    if seconds > 0:
        what = f"spec.{switch.field}: {str(switch.value).lower()}"
        now = await change.until(session, name, switch.took_effect, seconds=seconds, what=what)
        effective = True
    else:
        text = f"spec.{switch.field} of {name} is {str(switch.value).lower()}, not waited for"
    return change.done(now, text, **{switch.field: switch.value}, changed=was != switch.value, effective=effective)
