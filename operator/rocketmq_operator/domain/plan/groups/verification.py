"""When the next comparison of a group's logs is overdue, since a CronJob that does not run causes no event."""

from typing import Final

import msgspec

from rocketmq_operator.domain.conditions import find, timestamp
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Step
from rocketmq_operator.domain.schedule import ScheduleError, parse_schedule
from rocketmq_resources.broker_group import BrokerGroup

PATIENCE: Final = 600.0
"""Seconds, beside its time-out, that a comparison may take to start and to be reported."""

_SINCE: Final = "; a later comparison failed: "


class LastVerification(msgspec.Struct, frozen=True):
    """The result that the job has written into the status."""

    result: str = ""
    """Aligned, Different or Failed; empty: never compared."""
    message: str = ""
    text: str = ""
    """When it ended, RFC 3339."""
    ended: float | None = None
    """The same in seconds since 1970."""
    aligned_up_to: int | None = None
    oldest_read: float | None = None
    """Every byte that can be compared was read at this time or later; seconds since 1970."""


def last_verification(group: BrokerGroup) -> LastVerification:
    """From the group's status."""
    verification = group.status.get("verification")
    if not isinstance(verification, dict) or not verification.get("result"):
        return LastVerification()
    text, up_to = verification.get("lastTime"), verification.get("alignedUpTo")
    ended, oldest = timestamp(text, -1.0), timestamp(verification.get("oldestReadTime"), -1.0)
    return LastVerification(
        result=str(verification["result"]),
        message=str(verification.get("message") or ""),
        text=str(text or ""),
        ended=None if ended < 0 else ended,
        aligned_up_to=up_to if isinstance(up_to, int) else None,
        oldest_read=None if oldest < 0 else oldest,
    )


def known_difference(group: BrokerGroup) -> str | None:
    """The differences that the last successful comparison found; None: no difference, or never compared. A later failed
    comparison (replica unreachable, job stopped) does not clear them."""
    last = last_verification(group)
    if last.result == "Different":
        return last.message
    before = find(group.status.get("conditions"), "LogsAligned")
    if last.result != "Failed" or before.get("reason") != "Different":
        return None
    found = str(before.get("message") or "").partition(_SINCE)[0]
    return f"{found}{_SINCE}{last.message}"


def verification_due(group: BrokerGroup, since: float | None) -> float | None:
    """When the next comparison should have ended, in seconds since 1970; None: no comparison is expected.

    `since`: when its CronJob was created, in the same seconds.
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
        return None  # the API server refuses its CronJob, which is reported by the apply
    return None if after is None else after + wanted.timeout_seconds + PATIENCE


def check_verification(state: GroupState, now: float) -> Step:
    """Reconcile again when it becomes overdue, which causes no event."""
    due = verification_due(state.group, state.observed.verified_since)
    return NOTHING if due is None or now > due else Step(requeue=due - now + 1)
