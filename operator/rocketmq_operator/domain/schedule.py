"""When a CronJob's schedule is due next, so that an overdue verification is reported.

The five fields of cron with lists, ranges, steps and names, and macros such as `@daily`, in UTC. The API server refuses
schedules that this cannot parse.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FAR: Final = 366 * 9
"""Days to look ahead: 29 February may be eight years away."""


class ScheduleError(ValueError):
    """Not a schedule."""


class Schedule(NamedTuple):
    """What each field allows."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0: Sunday."""
    any_day: bool
    """The field of days is `*`."""
    any_weekday: bool

    def next_after(self, moment: float) -> float | None:
        """The first time later than `moment`, both in seconds since 1970; None: it does not exist (30 February)."""
        start = datetime.fromtimestamp(moment, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        for ahead in range(_FAR):
            day = start.date() + timedelta(days=ahead)
            if day.month not in self.months or not self._on(day.day, day.isoweekday() % 7):
                continue
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    found = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                    if found >= start:
                        return found.timestamp()
        return None

    def _on(self, day: int, weekday: int) -> bool:
        """cron's own rule: if both fields restrict the day, a match of one is enough."""
        if self.any_day or self.any_weekday:
            return day in self.days and weekday in self.weekdays
        return day in self.days or weekday in self.weekdays


def parse_schedule(text: str) -> Schedule:
    """As CronJobs write it.

    Raises:
        ScheduleError: not a schedule.
    """
    fields = _MACROS.get(text.strip().lower(), text).split()
    if len(fields) != 5:
        raise ScheduleError(f"{text!r} has {len(fields)} fields, not 5")
    minutes, hours, days, months, weekdays = fields
    return Schedule(
        minutes=_values(minutes, 0, 59),
        hours=_values(hours, 0, 23),
        days=_values(days, 1, 31),
        months=_values(months, 1, 12, _MONTHS),
        weekdays=frozenset(value % 7 for value in _values(weekdays, 0, 7, _DAYS)),
        any_day=days[0] in "*?",
        any_weekday=weekdays[0] in "*?",
    )


def _values(field: str, low: int, high: int, words: tuple[str, ...] = ()) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        if span in {"*", "?"}:
            first, last = low, high
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, low, high, words)
            last = _number(end, low, high, words) if dash else high if slash else first
        stride = _number(step, 1, high, ()) if slash else 1
        if last < first:
            raise ScheduleError(f"{part!r} ends before it begins")
        found.update(range(first, last + 1, stride))
    return frozenset(found)


def _number(text: str, low: int, high: int, words: tuple[str, ...]) -> int:
    if text.lower() in words:
        return words.index(text.lower()) + (1 if words is _MONTHS else 0)
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and low <= int(text) <= high):
        raise ScheduleError(f"{text!r} is not between {low} and {high}")
    return int(text)
