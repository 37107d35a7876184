"""What the engine without Spark does alone; that it gives Spark's verdicts is in `ways`."""

from collections.abc import Iterator

import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan
from rocketmq_verify.domain.planning.lineage import Zone
from rocketmq_verify.engine import local
from rocketmq_verify.engine.scanner import Queues
from rocketmq_verify.engine.task_rows import Row
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.sources.work import Place, Task, Work

A = ReplicaName("a")
GIB = 1 << 30
QUEUES = 100_000


def test_memory_does_not_grow_with_the_number_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for a sidecar is half of what is read: a hundred thousand queues in 8 MiB are as many rows."""
    made = counted = ahead = 0

    def checked(_: Task) -> Iterator[Row]:
        nonlocal made
        before = made
        while made % QUEUES or made == before:
            made += 1
            yield {"units": 1, "lag": 0, "superseded": 0, "faults": 0, "indexEntries": 0, "indexFaults": 0}

    def plus(queues: Queues, row: Row) -> Queues:
        nonlocal counted, ahead
        counted, ahead = counted + row["units"], max(ahead, made - counted)
        return queues

    monkeypatch.setattr(local, "checked", checked)
    monkeypatch.setattr(local, "counted", plus)
    zone = Zone(replica=A, extent=Extent(0, GIB), sure=GIB, end=GIB)
    plan = Plan(
        pieces=(zone.extent,), borders=(), chunk_size=1 << 20, segment_size=GIB, full=True, new_bytes=GIB, old_bytes=0
    )
    place = Place(A, "sidecar:a:10920")
    work = Work(plan=plan, zones=(zone,), epochs=EpochList(), queues_of=(place,))
    local.LocalScanner(NoProgress()).queues(place, work)
    assert counted == 2 * QUEUES
    assert ahead <= local.ROWS
