"""The write lease: until when this replica may act as master. Pure.

A master is replaced when its connection to the leading controller closes or after brokerSuspectTimeoutMs of silence.
So a heartbeat that the leading controller acknowledged is good for slightly less than that, counted from when it was
sent. An acknowledgement alone proves neither that the controller still leads nor that this replica is still master
there: the answer to a getReplicaInfo (or another answer that only the leader gives) must have confirmed it, asked for
with the heartbeat or after it. Between an answer and a later heartbeat another replica may have been elected. So a
process that was stopped for a while needs a new confirmation before its lease continues.

Times are monotonic seconds, shared with the broker of the same machine.
"""

from bisect import bisect_right, insort

NEVER = float("-inf")
MAX_HEARD = 32
"""Heartbeats that wait for a confirmation; more are sent only if a controller answers no requests."""


class Lease:
    def __init__(self, duration: float) -> None:
        self._duration = duration
        self._heard: list[float] = []
        """When acknowledged heartbeats were sent, in order: the newest that is confirmed, and those after it."""
        self._confirmed_at = NEVER
        self._epoch = -1
        self._until = NEVER

    def on_acknowledged(self, sent_at: float) -> None:
        """The leading controller accepted the heartbeat that was sent then."""
        insort(self._heard, sent_at)
        del self._heard[:-MAX_HEARD]
        self._extend()

    def on_confirmed(self, epoch: int, sent_at: float) -> None:
        """The leading controller named this replica as the master of `epoch`, in answer to a request sent then."""
        if epoch > self._epoch:
            self._epoch, self._confirmed_at, self._until = epoch, sent_at, NEVER
        elif epoch == self._epoch:
            self._confirmed_at = max(self._confirmed_at, sent_at)
        self._extend()

    def on_denied(self) -> None:
        """The controllers answered that this replica is not master: earlier confirmations are void."""
        self._confirmed_at = self._until = NEVER

    def on_leader_changed(self) -> None:
        """Another controller leads: the lease stays, but only the new leader can extend it."""
        self._heard.clear()
        self._confirmed_at = NEVER

    def reset(self) -> None:
        """The connections are closed: answers over them no longer count."""
        self.on_leader_changed()
        self._until = NEVER

    def until(self, epoch: int) -> float:
        """When the lease of `epoch` ends; may lie in the past."""
        return self._until if epoch == self._epoch else NEVER

    def _extend(self) -> None:
        confirmed = bisect_right(self._heard, self._confirmed_at)
        if confirmed:
            del self._heard[: confirmed - 1]
            self._until = max(self._until, self._heard[0] + self._duration)
