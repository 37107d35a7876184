"""When a replica asks who is master (1004): now and then below the controllers' notices, at once when something has
happened, often for a while when the master is gone. Pure; part of `steward`.
"""

from rocketmq_sidecar.domain.actions import Ask
from rocketmq_sidecar.domain.lanes import Lane
from rocketmq_sidecar.domain.lease import NEVER
from rocketmq_sidecar.domain.options import Timing
from rocketmq_sidecar.domain.questions import Questions


class Polls:
    """Of one replica."""

    def __init__(self, timing: Timing, lane: Lane, questions: Questions) -> None:
        self._timing = timing
        self._lane = lane
        self._questions = questions
        self._due_at = self._looking_until = NEVER

    @property
    def due_at(self) -> float:
        """When the next one is to be made."""
        return self._due_at

    def at_once(self) -> None:
        """What is known may not be so any more."""
        self._due_at = NEVER

    def look(self, now: float) -> None:
        """The master is gone, it seems: ask often until another is found or some time has passed."""
        self._due_at, self._looking_until = NEVER, now + self._timing.look

    def found(self) -> None:
        """There is news of the master: no need to ask often."""
        self._looking_until = NEVER

    def told(self, now: float) -> None:
        """Another answer has just said it."""
        self._due_at = now + self._timing.poll

    def question(self, leader: str, now: float) -> Ask | None:
        """What to ask of `leader`, if it is time."""
        if now < self._due_at or not self._lane.free(now):
            return None
        self._due_at = now + (self._timing.look_every if now < self._looking_until else self._timing.poll)
        return self._questions.replica_info(leader, now)
