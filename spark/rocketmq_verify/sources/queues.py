"""Consume queues of all replicas against an extent of the log. Called by `batches` on the executors."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from rocketmq_commitlog import queue_files
from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queue_states import QueueState, settled
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.sources.source import directory_of
from rocketmq_verify.sources.work import Place


class QueueResult(msgspec.Struct, frozen=True):
    """One queue of one replica, as far as the extent's records are in it."""

    replica: ReplicaName
    topic: str
    queue_id: int
    extent: Extent
    """Of the log, whose records were looked for."""
    check: QueueCheck


def check_queues(
    batches: Iterable[rows.Batch],
    extent: Extent,
    places: Sequence[Place],
    others: Mapping[str, Sequence[QueueState]] | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[QueueResult]:
    """The queues of replicas whose files are here, see `queue_files.check_queues`, and those of `others`, which were
    checked where they are."""
    roots = {str(place.name): directory_of(place.spec) for place in places}
    states: dict[str, Sequence[QueueState]] = {}
    if roots:
        states |= queue_files.check_queues(batches, extent, roots, sleep=sleep)
    states |= others or {}
    return [
        QueueResult(ReplicaName(name), state.topic, state.queue_id, extent, check)
        for name, state, check in settled(states)
    ]
