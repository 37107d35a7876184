"""When a replica asks who is master (1004): periodically, in case a controllers' notice was lost; at once after an
event; and often for a while after it lost its master. Pure; part of `session`.
"""

from typing import Final

from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers.lease import NEVER
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot
from rocketmq_sidecar.domain.controllers.requests import Requests
from rocketmq_sidecar.domain.options import Timing

HINTS: Final = 4
"""Requests that notices may cause at once. Any peer can send notices; a few of them must not delay the request after
an election."""


class Polls:
    def __init__(self, timing: Timing, slot: RequestSlot, requests: Requests) -> None:
        self._timing = timing
        self._slot = slot
        self._requests = requests
        self._due_at = self._search_until = self._hints_until = NEVER

    @property
    def due_at(self) -> float:
        """When the next one is due."""
        return self._due_at

    def at_once(self) -> None:
        """What is known may be outdated: ask now."""
        self._due_at = NEVER

    def hint(self, now: float) -> None:
        """A notice says that there is news; any peer can send one. Ask at once; after `HINTS` such requests the next
        ones are `Timing.hint_every` apart, so that a flood of notices does not reach the controllers."""
        every = self._timing.hint_every
        due_at = max(now, self._hints_until - HINTS * every)
        if due_at < self._due_at:
            self._due_at = due_at
            self._hints_until = max(due_at, self._hints_until) + every

    def search(self, now: float) -> None:
        """The connection to the master ended: ask often until another is known or some time has passed. The controllers
        notify slaves late, because Java's slaves need that."""
        self._due_at, self._search_until = NEVER, now + self._timing.search

    def found(self) -> None:
        """The master is known: stop asking often."""
        self._search_until = NEVER

    def answered(self, now: float) -> None:
        """Another answer has just named the master."""
        self._due_at = now + self._timing.poll

    def request(self, leader: str, now: float) -> Request | None:
        """The request to `leader` that is due, or None."""
        if now < self._due_at or not self._slot.free(now):
            return None
        self._due_at = now + (self._timing.search_every if now < self._search_until else self._timing.poll)
        return self._requests.replica_info(leader, now)
