"""What reads and compares in a run: Spark (`scan`), or this process alone (`local`). Both give the same results."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from rocketmq_formats.soundness.indexes import IndexFault
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.chunks import merged
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.sources.queues import IndexResult, QueueResult
from rocketmq_verify.sources.work import Place, Work

Errors = dict[ReplicaName, str]
"""Replicas that could not be read to the end, and why."""

MOST_FAULTY_QUEUES: Final = 1000
"""Results of queues with faults that are kept; the others are counted."""


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """The result for all consume queues and index files."""

    units: int = 0
    """Compared with their records."""
    lag: int = 0
    superseded: int = 0
    faults: int = 0
    faulty: tuple[QueueResult, ...] = ()
    index_entries: int = 0
    index_faults: int = 0
    faulty_indexes: tuple[IndexResult, ...] = ()
    bad_files: frozenset[tuple[ReplicaName, IndexFault]] = frozenset()
    """Of index files."""
    suspects: tuple[Extent, ...] = ()
    """Ranges of the log with faults: the checks of a later run find them again if they begin and end there."""

    def plus(self, *, units: int, lag: int, superseded: int, faults: int) -> "Queues":
        """With the counts of more queues."""
        return msgspec.structs.replace(
            self,
            units=self.units + units,
            lag=self.lag + lag,
            superseded=self.superseded + superseded,
            faults=self.faults + faults,
        )

    def with_faulty_index(self, index: IndexResult) -> "Queues":
        """With an index that has faults; a file that could not be checked counts once."""
        files = self.bad_files | {(index.replica, fault) for fault in index.check.files}
        more = index.check.fault_count + len(files) - len(self.bad_files)
        kept = (*self.faulty_indexes, index) if more else self.faulty_indexes
        return msgspec.structs.replace(
            self,
            index_faults=self.index_faults + more,
            faulty_indexes=kept[:MOST_FAULTY_QUEUES],
            bad_files=files,
        )

    def with_faulty(self, queue: QueueResult) -> "Queues":
        """With a queue that has faults, which are counted already."""
        faulty = self.faulty if len(self.faulty) >= MOST_FAULTY_QUEUES else (*self.faulty, queue)
        return msgspec.structs.replace(self, faulty=faulty, suspects=merged([*self.suspects, queue.extent]))


class Scanner(Protocol):
    def compare_digests(self, places: Sequence[Place], work: Work, lineage: Lineage) -> tuple[Tally, Errors]:
        """Read and compare everything in the plan. What a replica with an error did not give counts as missing."""

    def structures(self, place: Place, work: Work) -> tuple[list[Structure], Errors]:
        """The structural check of the work's plan in one replica; ascending, one per piece of a task."""

    def queues(self, place: Place, work: Work) -> tuple[Queues, Errors]:
        """Consume queues and index files of the work's `queues_of` against the log of one replica."""
