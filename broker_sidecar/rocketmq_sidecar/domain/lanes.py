"""One question at a time of each kind, and when to ask again. Pure."""

from rocketmq_sidecar.domain.actions import Ask, Stored


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
