"""What one replica says about its consume queues in an extent of the log, and what replicas say together.

A replica cannot tell a queue that lost all its units from one whose topic was just created again, whose records are
those of the deleted topic. Another replica can: it has the units of these records, or has lost them too.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rocketmq_formats.soundness.queues import QueueCheck


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of one replica."""

    topic: str
    queue_id: int
    check: QueueCheck | None
    """None: the queue does not exist, or has no units."""
    dispatched: int
    """The physical offset of the extent's last record that has its unit; -1: none has."""
    emptied: QueueCheck | None = None
    """The result if another replica has the units of these records."""


def settled(
    states: Mapping[str, Sequence[QueueState]],
) -> Iterator[tuple[str, QueueState, QueueCheck]]:
    """(replica, queue, result) for each queue that has a result."""
    reach: dict[tuple[str, int], int] = {}
    for own in states.values():
        for state in own:
            key = state.topic, state.queue_id
            reach[key] = max(reach.get(key, -1), state.dispatched)
    for replica, own in states.items():
        for state in own:
            check = state.check
            if state.emptied is not None and reach[state.topic, state.queue_id] >= _first_lost(state.emptied):
                check = state.emptied
            if check is not None:
                yield replica, state, check


def _first_lost(emptied: QueueCheck) -> int:
    return (emptied.faults[0].physical_offset or 0) if emptied.faults else 0  # a sidecar may say anything
