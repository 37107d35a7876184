"""Counters of the send and pull paths; read by statistics and by the sidecar's metrics."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from rocketmq_broker.domain.flow_stats import FlowStats
from rocketmq_formats.replica_link import ANSWER_SECONDS, Counts

SEND_BOUNDS: Final = tuple(sorted({*ANSWER_SECONDS, 0.2, 2.0, 4.0, 5.0, 10.0}))
"""Seconds: those of our metrics and those of Java's statistics."""
_METRIC: Final = (*(bisect_left(ANSWER_SECONDS, bound) for bound in SEND_BOUNDS), len(ANSWER_SECONDS))


class Traffic:
    """Totals since the start, and `flows`, by topic and group.

    `sends` counts those that were answered PUT_OK by `SEND_BOUNDS` and longer. `slowest_send` and `slowest_read` are in
    seconds.
    """

    __slots__ = ("counts", "flows", "sends", "slowest_read", "slowest_send")

    def __init__(self) -> None:
        self.counts = Counts()
        self.flows = FlowStats()
        self.sends = [0] * (len(SEND_BOUNDS) + 1)
        self.slowest_send = self.slowest_read = 0.0

    def answered(self, waits: Sequence[float]) -> None:
        """Count sends by the seconds between their append and their answer PUT_OK; at least one, in the order of
        the log, so that the first has waited for longest."""
        sends, answers = self.sends, self.counts.answers
        for seconds in waits:
            place = bisect_left(SEND_BOUNDS, seconds)
            sends[place] += 1
            answers[_METRIC[place]] += 1
        self.counts.answer_seconds += sum(waits)
        self.slowest_send = max(self.slowest_send, waits[0])

    def answered_at_once(self) -> None:
        """Count a send that did not wait."""
        self.sends[0] += 1
        self.counts.answers[0] += 1

    def put(self, topic: str, messages: int, size: int) -> None:
        """Count messages stored in a topic; `size` in bytes as stored."""
        counts = self.counts
        counts.put_messages += messages
        counts.put_bytes += size
        counter = self.flows.puts.get(topic)
        if counter is None:
            self.flows.put(topic, messages, size)
        else:  # without two calls: every send comes here
            counter.messages += messages
            counter.bytes += size
            counter.operations += 1

    def got(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count messages that a group pulled from a topic."""
        self.counts.pulls_found += 1
        self.counts.got_messages += messages
        self.counts.got_bytes += size
        self.flows.got(topic, group, messages, size)
