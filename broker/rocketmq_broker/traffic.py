"""Counters of the send and pull paths; read by statistics and by the sidecar's metrics."""

from bisect import bisect_left

from rocketmq_broker.domain.flow_stats import FlowStats
from rocketmq_formats.replica_link import ANSWER_SECONDS, Counts


class Traffic:
    """Totals since the start, and `flows`, by topic and group."""

    __slots__ = ("counts", "flows")

    def __init__(self) -> None:
        self.counts = Counts()
        self.flows = FlowStats()

    def answered(self, seconds: float) -> None:
        """Count a send that was answered PUT_OK `seconds` after it was appended."""
        self.counts.answers[bisect_left(ANSWER_SECONDS, seconds)] += 1
        self.counts.answer_seconds += seconds

    def put(self, topic: str, messages: int, size: int) -> None:
        """Count messages stored in a topic; `size` in bytes as stored."""
        self.counts.put_messages += messages
        self.counts.put_bytes += size
        self.flows.put(topic, messages, size)

    def got(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count messages that a group pulled from a topic."""
        self.counts.pulls_found += 1
        self.counts.got_messages += messages
        self.counts.got_bytes += size
        self.flows.got(topic, group, messages, size)
