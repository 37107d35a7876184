"""Commits of consumer offsets that wait until every member of the SyncStateSet has them (NothingGoesBack).

Offsets travel in the order of their commits, so one deque, oldest first, is enough; connections bound how many wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_runtime.remoting.server import DEFERRED, Answer, Peer

POLL_SECONDS: Final = 0.05
"""The SyncStateSet may change during a wait."""

Problem = Callable[[int], str | None]
"""The members of the SyncStateSet that lack the offsets as of this change number, in words; None: all have them."""


class _Commit(NamedTuple):
    request: RemotingCommand
    peer: Peer
    changes: int
    until: float
    """Loop time."""


class WaitingCommits:
    """One per broker, for each mastership in turn."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Commit] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, request: RemotingCommand, peer: Peer, changes: int, seconds: float) -> Answer:
        """The answer to a commit at the master: at once if all members have it, else when they do, or an error after
        `seconds`."""
        self._waiting.append(_Commit(request, peer, changes, self._loop.time() + seconds))
        if len(self._waiting) == 1 and self._problem(changes) is None:
            self._waiting.clear()
            return response(request, ResponseCode.SUCCESS)
        if self._timer is None:
            self._timer = self._loop.call_later(POLL_SECONDS, self._poll)
        return DEFERRED

    def check(self) -> None:
        """A slave has confirmed what it holds, or the SyncStateSet may have changed."""
        while self._waiting:
            request, peer, changes, until = self._waiting[0]
            problem = self._problem(changes)
            if problem is not None and self._loop.time() < until:
                return
            self._waiting.popleft()
            if problem is None:
                peer.answer_later(request, response(request, ResponseCode.SUCCESS))
            else:
                remark = f"{problem} and a failover could undo it: commit again"
                peer.answer_later(request, response(request, ResponseCode.SYSTEM_BUSY, remark))

    def end(self) -> None:
        """This broker is no longer master, or is in another epoch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for request, peer, _, _ in waiting:
            problem = "this broker ceased to be master: commit again at the next one"
            peer.answer_later(request, response(request, ResponseCode.SYSTEM_BUSY, problem))

    def _poll(self) -> None:
        self._timer = None
        self.check()
        if self._waiting:
            self._timer = self._loop.call_later(POLL_SECONDS, self._poll)
