"""Decides when a master hands over because its store refuses messages (its disk is full) or its log is damaged: another
replica may have room, or a whole log. Pure; `agent.py` calls it for each report of the broker.

If all disks are full a hand-over does not help: after a successful one a replica waits long before the next.
"""

from typing import Final

PATIENCE: Final = 3.0
"""Seconds that a store may refuse messages: deleting expired files may make room."""
AFTER_FAILURE: Final = 30.0
"""Seconds until the next attempt, if no other replica could take over."""
AFTER_SUCCESS: Final = 600.0
"""Seconds until a replica hands over for this again."""


class UnfitStore:
    """Of one replica; times are seconds of the steady clock."""

    def __init__(self, patience: float = PATIENCE) -> None:
        """`patience`: seconds to wait, because the problem may pass by itself."""
        self._patience = patience
        self._since: float | None = None
        self._not_before = float("-inf")

    def on_report(self, refuses: str | None, now: float, *, leads: bool) -> bool:
        """The broker reported what is wrong with its store (None: nothing). Returns whether to hand over now."""
        if refuses is None or not leads:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self._patience or now < self._not_before:
            return False
        self._not_before = now + AFTER_FAILURE
        return True

    def handed_over(self, now: float) -> None:
        """Another replica is master."""
        self._since, self._not_before = None, now + AFTER_SUCCESS
