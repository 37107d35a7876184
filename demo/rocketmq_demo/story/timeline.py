"""The events of a run, for people: all parts add lines, the view shows them, the result keeps them."""

import time
from collections.abc import Callable
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """The origin of an entry."""

    STEP = "step"
    """The story itself."""
    FAULT = "fault"
    """Something broken on purpose."""
    CHANGE = "change"
    """The group reacted."""
    TROUBLE = "trouble"
    """A broken promise."""


class Entry(msgspec.Struct, frozen=True):
    """One line; `seconds` since the beginning."""

    seconds: float
    kind: Kind
    text: str


class Timeline:
    """Entries in the order of time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.entries: list[Entry] = []
        self.on_entry: Callable[[Entry], None] | None = None
        self._now = now
        self._began = now()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._now() - self._began

    def add(self, kind: Kind, text: str) -> None:
        """Add an entry with the current time."""
        entry = Entry(round(self.seconds, 3), kind, text)
        self.entries.append(entry)
        if self.on_entry is not None:
            self.on_entry(entry)
