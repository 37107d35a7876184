"""When the next comparison of a group's logs is overdue: nobody else would notice a CronJob's silence."""

from typing import Final

import msgspec

from rocketmq_operator.domain.conditions import find, timestamp
from rocketmq_operator.domain.plan.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Step
from rocketmq_operator.domain.schedule import ScheduleError, parse_schedule
from rocketmq_operator.domain.spec.broker_group import BrokerGroup

PATIENCE: Final = 600.0
"""Seconds, beside its time-out, that a comparison may take to start and to be told of."""

_SINCE: Final = "; what was to look again since then failed: "


class LastVerification(msgspec.Struct, frozen=True):
    """As its job has written it."""

    result: str = ""
    """Aligned, Different or Failed; empty: there was none."""
    message: str = ""
    text: str = ""
    """When it ended, RFC 3339."""
    ended: float | None = None
    """The same in seconds since 1970."""
    aligned_up_to: int | None = None


def last_verification(group: BrokerGroup) -> LastVerification:
    """Of its status."""
    verification = group.status.get("verification")
    if not isinstance(verification, dict) or not verification.get("result"):
        return LastVerification()
    text, up_to = verification.get("lastTime"), verification.get("alignedUpTo")
    ended = timestamp(text, -1.0)
    return LastVerification(
        result=str(verification["result"]),
        message=str(verification.get("message") or ""),
        text=str(text or ""),
        ended=None if ended < 0 else ended,
        aligned_up_to=up_to if isinstance(up_to, int) else None,
    )


def known_difference(group: BrokerGroup) -> str | None:
    """What the last comparison that came to a result found different; None: it found nothing, or there was none. One
    that failed since then (a replica was not heard, its job was ended) has mended nothing."""
    last = last_verification(group)
    if last.result == "Different":
        return last.message
    before = find(group.status.get("conditions"), "LogsAligned")
    if last.result != "Failed" or before.get("reason") != "Different":
        return None
    found = str(before.get("message") or "").partition(_SINCE)[0]
    return f"{found}{_SINCE}{last.message}"


def verification_due(group: BrokerGroup, since: float | None) -> float | None:
    """By when, in seconds since 1970, the next comparison should have ended; None: none is expected.

    `since`: when its CronJob was made, in the same seconds.
    """
    wanted = group.spec.verification
    if wanted is None or wanted.suspend or group.spec.hibernated:
        return None
    last = last_verification(group).ended
    began = max((moment for moment in (last, since) if moment is not None), default=None)
    if began is None:
        return None
    try:
        after = parse_schedule(wanted.schedule).next_after(began)
    except ScheduleError:
        return None  # the API server has refused its CronJob, which is told elsewhere
    return None if after is None else after + wanted.timeout_seconds + PATIENCE


def watch_verification(state: GroupState, now: float) -> Step:
    """Look again when it becomes overdue: no event tells of what does not happen."""
    due = verification_due(state.group, state.world.verified_since)
    return NOTHING if due is None or now > due else Step(requeue=due - now + 1)
