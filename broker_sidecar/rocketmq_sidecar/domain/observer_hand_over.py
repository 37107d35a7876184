"""Whom a Java master hands over to, and when that replica has all it needs. Pure.

The order of a hand-over (`observer.hand_over`): sends are refused, the target has everything, the controllers elect it.
"""

from collections.abc import Mapping

from rocketmq_formats.remoting.controller import MAX_ELECTION_PRIORITY as LAST_PRIORITY
from rocketmq_sidecar.domain.observer_looks import GroupLook

STILL_ROUNDS = 2
"""Rounds in a row in which nothing may be missing and the log may not grow: a send that had passed the gate may still
be on its way into it."""
GROWING_ROUNDS = 10
"""Rounds in a row after which it may grow: what brokers write for themselves (delayed messages, retries) never ends."""


class NoTargetError(Exception):
    """Nobody can be handed over to; the text says why."""


def candidates(group: GroupLook, broker_id: int, wanted: int | None) -> tuple[int, ...]:
    """Who may be elected in place of `broker_id`, in the order of ids; `wanted` alone if it is given.

    Raises:
        NoTargetError: nobody, or not `wanted`.
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


class Level:
    """Watches the logs after sends are refused."""

    def __init__(self) -> None:
        self.behind = "nothing was seen yet"
        """What was missing in the last round."""
        self._still = self._level = 0
        self._end: int | None = None

    def on_round(
        self, end: int, sends_waiting: int, ends: Mapping[int, int], priorities: Mapping[int, int]
    ) -> int | None:
        """Who is to be elected now, or None.

        Args:
            end: of the master's log, asked before the others.
            sends_waiting: sends that the master has not looked at yet.
            ends: of the candidates that answered, by brokerId.
            priorities: their brokerElectionPriority where it is known; the lowest goes first.
        """
        able = [broker_id for broker_id, other in ends.items() if other >= end]
        if not able or sends_waiting:
            furthest = f"the furthest lacks {end - max(ends.values())} bytes" if ends else "no candidate answers"
            self.behind = f"{sends_waiting} sends wait in the master" if able else furthest
            self._still = self._level = 0
        else:
            # A slave that is further than the master was has got something in between.
            still = end == self._end and max(ends.values()) == end
            self._still = self._still + 1 if still else 1
            self._level += 1
        self._end = max((end, *ends.values()))
        if self._still < STILL_ROUNDS and self._level < GROWING_ROUNDS:
            return None
        # Whoever has more than the one elected has to cut it off, for which 5.3.3 takes up to 90 s.
        return min(able, key=lambda one: (-ends[one], priorities.get(one, LAST_PRIORITY), one))
