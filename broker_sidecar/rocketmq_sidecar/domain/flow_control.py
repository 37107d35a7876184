"""maxHaTransferByteInSecond: how many bytes a slave may be sent in a second. Pure; part of `ha_master`."""


class FlowControl:
    """For each slave by itself, as in Java."""

    def __init__(self, bytes_per_second: int | None) -> None:
        """None: without limit."""
        self._limit = bytes_per_second
        self._second = float("-inf")
        self._sent = 0

    def budget(self, now: float) -> int | None:
        """Bytes that may still be sent in this second; None: any number."""
        if self._limit is None:
            return None
        if now - self._second >= 1.0:
            self._second, self._sent = now, 0
        return max(0, self._limit - self._sent)

    def used(self, size: int) -> None:
        """So many bytes were sent."""
        self._sent += size

    def refilled_at(self) -> float:
        """When the next second begins."""
        return self._second + 1.0
