"""The count of votes for queues in strict mode: a client holds a queue if most replicas of the group say so.

Used by `lock_api.py`. Any two majorities have a replica in common, and that one gives a queue to one client only, so
two clients never hold a queue at a time, whichever replicas they asked.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java (lockBatchMQ).
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from rocketmq_formats.remoting.client import MessageQueue


def quorum(replicas: int) -> int:
    """Votes that a lock needs in a group of this number of replicas (totalReplicas)."""
    return replicas // 2 + 1


class Ballot:
    """The votes on one request."""

    def __init__(
        self, queues: AbstractSet[MessageQueue], own: Iterable[MessageQueue], *, needed: int, voters: int
    ) -> None:
        """`queues`: voted on. `own`: those of them that this broker gives. `voters`: others that are asked."""
        self._queues = queues
        self._needed = needed
        self._outstanding = voters
        self._votes = Counter(self._queues & frozenset(own))

    def count(self, given: AbstractSet[MessageQueue]) -> None:
        """One of the others has answered, or will not: `given` are the queues that it gives."""
        self._outstanding -= 1
        self._votes.update(self._queues & given)

    @property
    def won(self) -> frozenset[MessageQueue]:
        """Queues with enough votes."""
        return frozenset(queue for queue, votes in self._votes.items() if votes >= self._needed)

    @property
    def decided(self) -> bool:
        """No answer that is still awaited can change `won`."""
        possible = self._needed - self._outstanding
        return not any(possible <= self._votes[queue] < self._needed for queue in self._queues)
