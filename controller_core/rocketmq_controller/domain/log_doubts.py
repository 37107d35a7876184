"""Whether the logs of official brokers may lack data, as their sidecars report it. Used by `HeartbeatTable`.

An official broker cannot report that its log may lack what it acknowledged; its sidecar does that, over a connection of
its own and perhaps before the broker's first heartbeat. Such a report is no sign of life. It applies to the broker if
the broker's heartbeats come from the same host.
"""

from rocketmq_controller.domain.broker_entry import BrokerEntry
from rocketmq_controller.domain.rivals import MAX_RIVALS, Place


class LogDoubts:
    """All doubts that were reported and not taken back."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, int, str], float] = {}
        """(brokerName, brokerId, host) -> time of the last report."""

    def __len__(self) -> int:
        return len(self._reported)

    def report(self, place: Place, host: str, now: float, *, unproven: bool) -> bool:
        """A sidecar on `host` doubts the log, or no longer. True: it did before, and no longer does."""
        name, broker_id = place
        doubted = self._reported.pop((name, broker_id, host), None) is not None
        if not unproven:
            return doubted
        others = [other for other in self._reported if other[:2] == place]  # oldest report first
        if len(others) >= MAX_RIVALS:
            del self._reported[others[0]]
        self._reported[name, broker_id, host] = now
        return False

    def concern(self, entry: BrokerEntry) -> bool:
        """Whether the log of this broker is doubted."""
        return (entry.key.broker_name, entry.key.broker_id, entry.host) in self._reported

    def forget(self, *, before: float) -> None:
        """Drop those that were not repeated since."""
        self._reported = {doubt: said for doubt, said in self._reported.items() if said >= before}
