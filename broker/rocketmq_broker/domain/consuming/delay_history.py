"""How far the delay levels are delivered, at several places of the log.

Deliveries are records of the log: a cut of the log takes their progress back. So progress is kept together with the
place in the log that it belongs to, and older states beside the newest one: a new master takes the newest state that
its log reaches, and finds later deliveries in the log.

Used by `tables.py` and `delay_service.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

Levels = Mapping[int, int]
"""Delay level -> next offset to deliver of its queue."""
State = tuple[int, Levels]
"""A place of the log, where a record ends, and what was delivered by the records before it."""

GRAIN_BITS: Final = 16
"""States closer than 64 KiB to the newest one count as one."""
MAX_STATES: Final = 64
"""Bound for input from another process; normally there are about twenty."""


class DeliveryHistory:
    """States by rising place. Each distance from the newest one, by powers of 8, has one: a cut of the log costs a
    search of at most eight times what was cut."""

    def __init__(self, states: Iterable[State] = ()) -> None:
        self._states = sorted(states, key=lambda state: state[0])[-MAX_STATES:]

    @property
    def states(self) -> list[State]:
        """Oldest first."""
        return list(self._states)

    @property
    def newest(self) -> State:
        """(0, {}) before there is any."""
        return self._states[-1] if self._states else (0, {})

    def record(self, place: int, levels: Levels) -> None:
        """The records before `place` have delivered this much."""
        while self._states and self._states[-1][0] >= place:
            del self._states[-1]
        self._states.append((place, dict(levels)))
        taken: set[int] = set()
        kept = []
        for state in self._states[:-1]:
            distance = ((place - state[0] >> GRAIN_BITS).bit_length() + 2) // 3
            if distance not in taken:
                taken.add(distance)
                kept.append(state)
        self._states[:-1] = kept

    def at(self, end: int) -> State:
        """The newest state that a log of this end has; the oldest one, put there, if it has none: what it says is
        then checked against the queues alone."""
        for state in reversed(self._states):
            if state[0] <= end:
                return state
        return (end, self._states[0][1]) if self._states else (0, {})

    def cut(self, end: int) -> bool:
        """The log is cut at `end`; whether that changed anything."""
        if not self._states or self._states[-1][0] <= end:
            return False
        self._states = [state for state in self._states if state[0] <= end] or [self.at(end)]
        return True
