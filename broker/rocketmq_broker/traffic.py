"""Counts of what went in and out, kept by the send and pull paths; statistics read them, and the sidecar's metrics."""

from bisect import bisect_left

from rocketmq_formats.replica_link import ANSWER_SECONDS, N_ANSWERS, Counts


class Traffic:
    """Totals since the start; see `Counts`."""

    __slots__ = (
        "answer_seconds",
        "answers",
        "got_bytes",
        "got_messages",
        "pulls_found",
        "pulls_missed",
        "put_bytes",
        "put_messages",
        "sends_refused",
        "sends_timed_out",
    )

    def __init__(self) -> None:
        self.put_messages = 0
        self.put_bytes = 0
        self.got_messages = 0
        self.got_bytes = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.sends_refused = 0
        self.sends_timed_out = 0
        self.answers = [0] * N_ANSWERS
        self.answer_seconds = 0.0

    def answered(self, seconds: float) -> None:
        """A send was answered PUT_OK so long after it was appended."""
        self.answers[bisect_left(ANSWER_SECONDS, seconds)] += 1
        self.answer_seconds += seconds

    def counts(self) -> Counts:
        """As they are now."""
        return Counts(
            put_messages=self.put_messages,
            put_bytes=self.put_bytes,
            got_messages=self.got_messages,
            got_bytes=self.got_bytes,
            pulls_found=self.pulls_found,
            pulls_missed=self.pulls_missed,
            sends_refused=self.sends_refused,
            sends_timed_out=self.sends_timed_out,
            answers=tuple(self.answers),
            answer_seconds=self.answer_seconds,
        )
