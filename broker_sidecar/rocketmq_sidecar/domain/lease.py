"""The write lease: until when this replica may believe that it is still the master. Pure.

A master is replaced when its connection to the leading controller closes or after brokerSuspectTimeoutMs of silence.
So, counted from when it was sent, a heartbeat that the leading controller acknowledged is good for a bit less than
that. An acknowledgement alone does not prove that who gave it still leads, nor that we are still master there: a
getReplicaInfo (or another answer that only the leader gives) must have said so, asked for just as recently. A process
that was stopped for a while therefore has to be told again before its lease goes on.

Times are monotonic seconds, shared with the broker of the same machine.
"""

NEVER = float("-inf")


class Lease:
    """One replica's lease."""

    def __init__(self, duration: float) -> None:
        self._duration = duration
        self._heard_at = NEVER
        self._confirmed_at = NEVER
        self._epoch = -1
        self._until = NEVER

    def on_acknowledged(self, sent_at: float) -> None:
        """The leading controller took the heartbeat that was sent then."""
        self._heard_at = max(self._heard_at, sent_at)
        self._extend()

    def on_confirmed(self, epoch: int, sent_at: float) -> None:
        """The leading controller named us as the master of `epoch` in answer to what was asked then."""
        if epoch > self._epoch:
            self._epoch, self._confirmed_at, self._until = epoch, sent_at, NEVER
        elif epoch == self._epoch:
            self._confirmed_at = max(self._confirmed_at, sent_at)
        self._extend()

    def on_denied(self) -> None:
        """The controllers say that we are not master: what was confirmed is void."""
        self._confirmed_at = self._until = NEVER

    def on_leader_changed(self) -> None:
        """Another controller leads: what was promised stays, but only the new one can promise more."""
        self._heard_at = self._confirmed_at = NEVER

    def reset(self) -> None:
        """The connections are closed: nothing that was said over them counts."""
        self._heard_at = self._confirmed_at = self._until = NEVER

    def until(self, epoch: int) -> float:
        """When the lease of `epoch` ends; may lie in the past."""
        return self._until if epoch == self._epoch else NEVER

    def _extend(self) -> None:
        self._until = max(self._until, min(self._heard_at, self._confirmed_at) + self._duration)
