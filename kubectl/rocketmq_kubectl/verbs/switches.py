"""`fence`, `pause`, `resume`, `hibernate` and `wake`: one field of spec each, and the status after it took effect."""

from collections.abc import Callable

import msgspec

from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.verbs import change
from rocketmq_kubectl.verbs.change import Snapshot


class Switch(msgspec.Struct, frozen=True):
    """A boolean of spec, set to `value`."""

    field: str
    value: bool
    took_effect: Callable[[Snapshot], bool]
    text: str
    """The result; {} is the group's name."""


def _condition(kind: str, status: str) -> Callable[[Snapshot], bool]:
    def holds(now: Snapshot) -> bool:
        found = now.status.condition(kind)
        return now.observed and found is not None and found.status == status

    return holds


def _all_fenced(now: Snapshot) -> bool:
    return now.observed and all(replica.fenced for replica in now.status.replica_statuses if replica.alive)


def _none_fenced(now: Snapshot) -> bool:
    return now.observed and not any(replica.fenced for replica in now.status.replica_statuses)


def _phase(*phases: str) -> Callable[[Snapshot], bool]:
    return lambda now: now.observed and now.status.phase in phases


FENCE = Switch("fenced", True, _all_fenced, "{} is fenced: it refuses writes; reads continue")
UNFENCE = Switch("fenced", False, _none_fenced, "{} is not fenced: it accepts writes")
PAUSE = Switch("paused", True, _condition("Paused", "True"), "{} is paused: the operator does not change it")
RESUME = Switch("paused", False, _condition("Paused", "False"), "{} is not paused: the operator manages it again")
HIBERNATE = Switch("hibernated", True, _phase("Hibernated"), "{} is hibernated: no pods run, volumes and ids are kept")
WAKE = Switch("hibernated", False, _phase("Running"), "{} is awake")


async def set_switch(session: Session, name: str, switch: Switch, *, seconds: float) -> Report:
    """Set the field; with `seconds`, wait for its effect. Safe to repeat."""
    now = change.snapshot(await session.group_body(name))
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
        text = f"spec.{switch.field} of {name} is {str(switch.value).lower()}; not waiting for the effect"
    return change.done(now, text, **{switch.field: switch.value}, changed=was != switch.value, effective=effective)
