"""One request at a time of each kind, and when to repeat it. Pure; part of `session`."""

from collections.abc import Iterator

from rocketmq_sidecar.domain.actions import Request, Stored
from rocketmq_sidecar.domain.options import Timing

_WRITE_PATIENCE = 2.5
"""Factor on the patience: requests that have to be committed may take longer than a read."""


class RequestSlot:
    """Holds one request (or file write) under way; after refusals it pauses, each time longer."""

    def __init__(self, *, patience: float, retry: float, retry_most: float) -> None:
        """Seconds: how long an answer may take, the first and the longest pause."""
        self.pending: Request | Stored | None = None
        self.not_before = float("-inf")
        self._patience = patience
        self._retry, self._retry_most = retry, retry_most
        self._pause = retry

    @property
    def deadline(self) -> float | None:
        """When the request under way counts as unanswered."""
        return self.pending.sent_at + self._patience if isinstance(self.pending, Request) else None

    def free(self, now: float) -> bool:
        """Whether a request can be sent."""
        return self.pending is None and now >= self.not_before

    def take(self, done: Request | Stored) -> bool:
        """Whether `done` is what was under way; then the slot is free."""
        if self.pending is not done:
            return False
        self.pending = None
        return True

    def overdue(self, now: float) -> Request | None:
        """The request that has waited for too long, once; a later answer is ignored."""
        pending, deadline = self.pending, self.deadline
        if not isinstance(pending, Request) or deadline is None or now < deadline:
            return None
        self.pending = None
        return pending

    def refused(self, now: float) -> None:
        """The request was refused: pause, each time longer."""
        self.not_before = now + self._pause
        self._pause = min(2 * self._pause, self._retry_most)

    def succeeded(self) -> None:
        """The request was accepted: the next pause is the first one again."""
        self._pause = self._retry

    def reset(self) -> None:
        """Nothing is under way."""
        self.pending, self.not_before, self._pause = None, float("-inf"), self._retry


class RequestSlots:
    """The slots of a session, one of each kind."""

    def __init__(self, timing: Timing) -> None:
        self.main = _slot(timing, _WRITE_PATIENCE)
        """This replica's id, files and registration; an election if there is no master."""
        self.poll = _slot(timing, 1)
        """Who is master."""
        self.alter = _slot(timing, _WRITE_PATIENCE)
        """Who is in sync."""
        self.elect = _slot(timing, _WRITE_PATIENCE)
        """Another master in place of this one."""
        self.others = _slot(timing, 1)
        """Who else is in the group."""
        self._all = self.main, self.poll, self.alter, self.elect, self.others

    def take(self, request: Request) -> RequestSlot | None:
        """The slot of `request`, which is free now; None if the answer came too late."""
        return next((slot for slot in self._all if slot.take(request)), None)

    def overdue(self, now: float) -> Iterator[Request]:
        """The requests that have waited for too long, each once."""
        for slot in self._all:
            late = slot.overdue(now)
            if late is not None:
                yield late

    def drop_requests(self) -> None:
        """Answers can no longer come; a file write under way still ends."""
        for slot in self._all:
            if slot.pending is None or isinstance(slot.pending, Request):
                slot.reset()

    def wake_times(self) -> list[float | None]:
        """When a request is overdue or may be repeated."""
        return [time for slot in self._all for time in (slot.deadline, slot.not_before)]


def _slot(timing: Timing, times: float) -> RequestSlot:
    return RequestSlot(patience=times * timing.patience, retry=timing.retry, retry_most=timing.retry_most)
