"""Has the broker refuse sends (`replica_link.Hold`), for a fence or a hand-over or both. Pure; part of the control
machine.

Level-triggered: `next` compares what is wanted with what was sent over this link. A hand-over sends a hold even during
a fence: it needs to know where the log ends now, and the answer to the fence's hold may be from before a role change.
"""

from rocketmq_formats.replica_link import Hold, HoldKind
from rocketmq_sidecar.domain.control.fence import Fence

HANDING_OVER = "mastership is being handed over, send again"


class Holds:
    def __init__(self, fence: Fence | None) -> None:
        """`fence` is what the file holds."""
        self.fence = fence
        self._serial = 0
        self._sent: tuple[HoldKind | None, str, bool] = (None, "", False)
        self._end: int | None = None
        self._answered = True

    @property
    def end(self) -> int | None:
        """Where the log ends while the hold lasts; None without a hold, or without an answer to it."""
        return self._end

    @property
    def answered(self) -> bool:
        """Whether the broker has answered the last hold; True without a broker."""
        return self._answered

    def on_link(self) -> None:
        """A broker connected or disconnected: it has been sent nothing yet."""
        self._sent, self._end, self._answered = (None, "", False), None, True

    def on_held(self, serial: int, max_offset: int) -> None:
        """The broker has answered a hold."""
        if serial == self._serial:
            self._answered = True
            self._end = None if self._sent[0] is None else max_offset

    def next(self, *, handing_over: bool) -> Hold | None:
        """What to send now."""
        wanted: tuple[HoldKind | None, str, bool] = (None, "", False)
        if self.fence is not None:
            wanted = (HoldKind.FENCED, self.fence.reason, handing_over)
        elif handing_over:
            wanted = (HoldKind.HANDING_OVER, HANDING_OVER, True)
        if wanted == self._sent:
            return None
        self._sent, self._end, self._answered = wanted, None, False
        self._serial += 1
        return Hold(self._serial, wanted[0], wanted[1])
