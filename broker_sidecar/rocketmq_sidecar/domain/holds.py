"""What the broker is told about refusing sends (`replica_link.Hold`), for a fence or a hand-over or both. Pure; part of
the control machine.

A level: `next` compares what is wanted with what was told over this link. A hand-over is told also where a fence lasts
already, because it has to know where the log ends now, and the answer to an earlier hold may be of a slave's time.
"""

from rocketmq_formats.replica_link import Hold, HoldKind
from rocketmq_sidecar.domain.fence import Fence

HANDING_OVER = "mastership is being handed over, send again"


class Holds:
    """Of one replica."""

    def __init__(self, fence: Fence | None) -> None:
        """`fence` is what the file holds."""
        self.fence = fence
        self._serial = 0
        self._told: tuple[HoldKind | None, str, bool] = (None, "", False)
        self._end: int | None = None
        self._answered = True

    @property
    def end(self) -> int | None:
        """Where the log ends for as long as the hold lasts; None while there is no hold, or no answer to it."""
        return self._end

    @property
    def answered(self) -> bool:
        """Whether the broker has done what it was told last; without a broker there is nothing to do."""
        return self._answered

    def on_link(self) -> None:
        """A broker came or went: nothing has been told it."""
        self._told, self._end, self._answered = (None, "", False), None, True

    def on_held(self, serial: int, max_offset: int) -> None:
        """The broker did what it was told."""
        if serial == self._serial:
            self._answered = True
            self._end = None if self._told[0] is None else max_offset

    def next(self, *, handing_over: bool) -> Hold | None:
        """What to tell it now."""
        wanted: tuple[HoldKind | None, str, bool] = (None, "", False)
        if self.fence is not None:
            wanted = (HoldKind.FENCED, self.fence.reason, handing_over)
        elif handing_over:
            wanted = (HoldKind.HANDING_OVER, HANDING_OVER, True)
        if wanted == self._told:
            return None
        self._told, self._end, self._answered = wanted, None, False
        self._serial += 1
        return Hold(self._serial, wanted[0], wanted[1])
