"""Chooses the replica that a Java master hands over to, and when that replica has all messages. Pure.

The order of a hand-over (`observer.hand_over`): sends are refused, the target catches up, the controllers elect it.
"""

from collections.abc import Mapping

from rocketmq_formats.remoting.controller import MAX_ELECTION_PRIORITY as LAST_PRIORITY
from rocketmq_sidecar.domain.observing.status import GroupStatus

STILL_ROUNDS = 2
"""Rounds in a row in which nothing is missing and the log does not grow: a send that was accepted earlier may still be
on its way into the log."""
GROWING_ROUNDS = 10
"""Rounds in a row after which it may grow: brokers' own writes (delayed messages, retries) never end."""


class NoTargetError(Exception):
    """No replica can take over; the text says why."""


def candidates(group: GroupStatus, broker_id: int, wanted: int | None) -> tuple[int, ...]:
    """The replicas that may be elected in place of `broker_id`, in the order of ids; only `wanted` if it is given.

    Raises:
        NoTargetError: none, or not `wanted`.
    """
    able = tuple(sorted((group.in_sync & group.alive) - {broker_id}))
    if wanted is None:
        if not able:
            others = sorted(group.addresses.keys() - {broker_id})
            raise NoTargetError(f"no other replica is alive and in the SyncStateSet (others: {others or 'none'})")
        return able
    if wanted == broker_id:
        raise NoTargetError(f"brokerId {wanted} is master already")
    if wanted not in group.addresses:
        raise NoTargetError(f"no brokerId {wanted} in this group, which has {sorted(group.addresses)}")
    if wanted not in able:
        why = "alive" if wanted in group.in_sync else "in the SyncStateSet"
        raise NoTargetError(f"brokerId {wanted} is not {why}: wait for it, or hand over to another ({list(able)})")
    return (wanted,)


class CatchUpWatch:
    """Watches the logs after sends are refused."""

    def __init__(self) -> None:
        self.behind = "the logs have not been read yet"
        """What was missing in the last round."""
        self._still = self._wait_for_catch_up = 0
        self._end: int | None = None

    def on_round(
        self, end: int, sends_waiting: int, ends: Mapping[int, int], priorities: Mapping[int, int]
    ) -> int | None:
        """The replica to elect now, or None.

        Args:
            end: of the master's log, read before the others.
            sends_waiting: sends that the master has not processed yet.
            ends: ends of the logs of the candidates that answered, by brokerId.
            priorities: their brokerElectionPriority where it is known; the lowest goes first.
        """
        able = [broker_id for broker_id, other in ends.items() if other >= end]
        if not able or sends_waiting:
            furthest = f"the furthest lacks {end - max(ends.values())} bytes" if ends else "no candidate answers"
            self.behind = f"{sends_waiting} sends wait in the master" if able else furthest
            self._still = self._wait_for_catch_up = 0
        else:
            # A slave that is further than the master was has received something in between.
            still = end == self._end and max(ends.values()) == end
            self._still = self._still + 1 if still else 1
            self._wait_for_catch_up += 1
        self._end = max((end, *ends.values()))
        if self._still < STILL_ROUNDS and self._wait_for_catch_up < GROWING_ROUNDS:
            return None
        # A replica that has more than the elected one must cut it off, which takes 5.3.3 up to 90 s.
        return min(able, key=lambda broker_id: (-ends[broker_id], priorities.get(broker_id, LAST_PRIORITY), broker_id))
