"""Consume queues and index files of all replicas against an extent of the log. Called by `task_rows`, on the
executors."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rocketmq_commitlog import index_files, queue_files
from rocketmq_commitlog.index_files import RecordsSeen
from rocketmq_formats.soundness import rows
from rocketmq_formats.soundness.indexes import IndexCheck
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


class IndexResult(msgspec.Struct, frozen=True):
    """The index files of one replica, as far as they lead into the extent."""

    replica: ReplicaName
    extent: Extent
    check: IndexCheck


class Derived(NamedTuple):
    """What a replica, checked where it is, says about what brokers derive from its log."""

    queues: Sequence[QueueState]
    indexes: IndexCheck | None
    """None: it has no index files."""


def check_derived(
    batches: Iterable[rows.Batch],
    extent: Extent,
    places: Sequence[Place],
    others: Mapping[str, Derived] | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[QueueResult | IndexResult]:
    """The queues and index files of replicas whose files are here, see `queue_files` and `index_files`, and those of
    `others`, which were checked where they are."""
    roots = {str(place.name): directory_of(place.spec) for place in places}
    states: dict[str, Sequence[QueueState]] = {}
    indexes: dict[str, IndexCheck] = {}
    if roots:
        seen = RecordsSeen(batches, roots.values())
        states |= queue_files.check_queues(seen, extent, roots, sleep=sleep)
        indexes |= index_files.check_indexes(seen, extent, roots, sleep=sleep)
    for name, derived in (others or {}).items():
        states[name] = derived.queues
        if derived.indexes is not None:
            indexes[name] = derived.indexes
    found: list[QueueResult | IndexResult] = [
        QueueResult(ReplicaName(name), state.topic, state.queue_id, extent, check)
        for name, state, check in settled(states)
    ]
    found += [IndexResult(ReplicaName(name), extent, check) for name, check in indexes.items()]
    return found
