"""One question at a time of each kind, and when to ask again. Pure; the lanes are those of `steward`."""

from collections.abc import Iterator

from rocketmq_sidecar.domain.actions import Ask, Stored
from rocketmq_sidecar.domain.options import Timing

_WRITE_PATIENCE = 2.5
"""Times the patience: what has to be committed may take longer than a read."""


class Lane:
    """A place for one question (or file) under way, with a pause after refusals that grows."""

    def __init__(self, *, patience: float, retry: float, retry_most: float) -> None:
        """Seconds: how long an answer may take, the first and the longest pause."""
        self.pending: Ask | Stored | None = None
        self.not_before = float("-inf")
        self._patience = patience
        self._retry, self._retry_most = retry, retry_most
        self._pause = retry

    @property
    def deadline(self) -> float | None:
        """When the question under way counts as unanswered."""
        return self.pending.sent_at + self._patience if isinstance(self.pending, Ask) else None

    def free(self, now: float) -> bool:
        """Whether something can be asked."""
        return self.pending is None and now >= self.not_before

    def take(self, done: Ask | Stored) -> bool:
        """Whether `done` is what was under way; the lane is free then."""
        if self.pending is not done:
            return False
        self.pending = None
        return True

    def overdue(self, now: float) -> Ask | None:
        """The question that has waited for too long, once; its answer will not be taken any more."""
        pending, deadline = self.pending, self.deadline
        if not isinstance(pending, Ask) or deadline is None or now < deadline:
            return None
        self.pending = None
        return pending

    def refused(self, now: float) -> None:
        """Not as hoped: wait, each time longer."""
        self.not_before = now + self._pause
        self._pause = min(2 * self._pause, self._retry_most)

    def succeeded(self) -> None:
        """As hoped."""
        self._pause = self._retry

    def reset(self) -> None:
        """Nothing is under way any more."""
        self.pending, self.not_before, self._pause = None, float("-inf"), self._retry


class Lanes:
    """The steward's, one of each kind. Their patience and pauses are those of `timing`."""

    def __init__(self, timing: Timing) -> None:
        self.main = _lane(timing, _WRITE_PATIENCE)
        """Who this replica is: id, files, registration; an election where there is no master."""
        self.poll = _lane(timing, 1)
        """Who is master."""
        self.alter = _lane(timing, _WRITE_PATIENCE)
        """Who is in sync."""
        self.elect = _lane(timing, _WRITE_PATIENCE)
        """Another master instead of this one."""
        self._all = self.main, self.poll, self.alter, self.elect

    def take(self, ask: Ask) -> Lane | None:
        """The lane that `ask` was under way in, free now; None if it came too late and has been asked again."""
        return next((lane for lane in self._all if lane.take(ask)), None)

    def overdue(self, now: float) -> Iterator[Ask]:
        """The questions that have waited for too long, each once."""
        for lane in self._all:
            late = lane.overdue(now)
            if late is not None:
                yield late

    def drop_questions(self) -> None:
        """No answers come any more; a file that is being written still ends."""
        for lane in self._all:
            if lane.pending is None or isinstance(lane.pending, Ask):
                lane.reset()

    def wake_times(self) -> list[float | None]:
        """When something is overdue or may be asked again."""
        return [time for lane in self._all for time in (lane.deadline, lane.not_before)]


def _lane(timing: Timing, times: float) -> Lane:
    return Lane(patience=times * timing.patience, retry=timing.retry, retry_most=timing.retry_most)
