"""A whole verification without Spark, of stores that are read as files or through sidecars (gRPC in this process)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from rocketmq_api.log_view import LogView, runs_of
from rocketmq_commitlog.state import LogPaths, read_state
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_formats.soundness.structure import Structure
from rocketmq_sidecar.ports.served_log import LogCounts
from rocketmq_verify.checks import witness
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.inquiry.compare import Tally, compare
from rocketmq_verify.domain.inquiry.inquiry import inquire, still_true
from rocketmq_verify.domain.inquiry.narrow import drive
from rocketmq_verify.domain.inquiry.unsettled import reported_places
from rocketmq_verify.domain.inquiry.watermarks import Watermarks, fresh
from rocketmq_verify.domain.model import ChunkDigest, ReplicaName
from rocketmq_verify.domain.planning.chunks import chunks, plan
from rocketmq_verify.domain.planning.lineage import Lineage, lineage
from rocketmq_verify.domain.planning.table_findings import unreachable
from rocketmq_verify.domain.shapes import bad_queues, bad_structure, joined
from rocketmq_verify.domain.verdict import Verdict, in_order, verdict
from rocketmq_verify.engine.batches import read
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.replicas import Replicas
from rocketmq_verify.sources.source import SourceOptions
from rocketmq_verify.sources.work import Content, Place, Work, tasks
from tests.sidecar.ports.test_log_service import opened
from tests.verify.planted.faults import CHUNK

MOST = 5
T = TypeVar("T")


class StoreServed:
    """A store in files, described as the sidecar beside an Apache broker describes it."""

    def __init__(self) -> None:
        self.root = Path()
        self.counts = LogCounts()

    @property
    def path(self) -> Path:
        return self.root / "commitlog"

    @property
    def queues_in(self) -> Path:
        return self.root

    async def view(self) -> LogView:
        state = await asyncio.to_thread(read_state, LogPaths.of(self.root))
        cluster, _, broker = state.group.partition("/")
        return LogView(
            cluster_name=cluster,
            broker_name=broker,
            broker_id=state.broker_id,
            min_offset=state.min_offset,
            confirm_offset=state.confirm_offset,
            max_offset=state.max_offset,
            segment_size=state.segment_size,
            segments=runs_of(state.segments, state.segment_size),
            epochs=tuple(state.epochs.starts()),
            short=state.short,
        )


class Sidecars(NamedTuple):
    served: tuple[StoreServed, ...]
    addresses: tuple[str, ...]

    def of(self, places: Sequence[Place]) -> tuple[Place, ...]:
        """The same replicas, each through one of these sidecars."""
        for served, place in zip(self.served, places, strict=False):
            served.root = Path(place.spec.removeprefix("files:"))
        return tuple(
            Place(place.name, f"sidecar:{address}") for place, address in zip(places, self.addresses, strict=False)
        )


@contextmanager
def sidecars(count: int = MOST) -> Iterator[Sidecars]:
    """In a thread of their own, because a verification waits for their answers."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()

    def call(work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    served = tuple(StoreServed() for _ in range(count))
    try:
        rate = {"verifyMaxBytesPerSecond": str(1 << 30)}
        addresses = tuple(call(stack.enter_async_context(opened(one, **rate))) for one in served)  # type: ignore[arg-type]
        yield Sidecars(served, addresses)
        call(stack.aclose())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Outcome(NamedTuple):
    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def told(self) -> list[object]:
        """What both ways must agree in: each finding's kind, replicas, place and message."""
        return [(one.kind, one.replicas, one.extent, one.record) for one in self.findings]


def verify(places: Sequence[Place]) -> Outcome:
    """What `job` does, with `engine.batches` in place of Spark."""
    options = SourceOptions(patience=10.0)
    replicas = Replicas(places, options)
    try:
        before = replicas.describe()
        first = lineage(before)
        what = plan(first, fresh(Watermarks(), before, first), chunk_size=CHUNK)
        tally = Tally()
        sources = {place.name: open_source(place.name, place.spec, options) for place in places}
        for chunk in chunks(what, what.pieces, first):
            holders = [zone.replica for zone in first.zones if zone.extent.meet(chunk.extent) == chunk.extent]
            digests: list[ChunkDigest] = []
            for name in holders:
                digests += sources[name].digests([chunk])
            tally.add(compare(chunk, digests, first))
        for source in sources.values():
            source.close()
        second = lineage(before, replicas.describe())
        found = drive(inquire(second, tally), replicas.answer)
        place = witness(places, second, found)
        if place is not None:
            known = reported_places(tally, found)
            work = Work.of(what, second, options)
            found = (*found, *_checked(place, places, work, second, known))
        last = lineage(before, replicas.describe())
        standing = still_true(found, second, last)
        lost = [unreachable(name, why) for name, why in sorted(replicas.failed.items())]
        findings = in_order((*last.findings, *standing, *lost))
        return Outcome(verdict(before, last, what, tally, findings, group="a"), findings)
    finally:
        replicas.close()


def _checked(place: Place, places: Sequence[Place], work: Work, of: Lineage, known: Sequence[Extent]) -> list[Finding]:
    names = {zone.replica for zone in work.zones}
    queued = msgspec.structs.replace(work, queues_of=tuple(one for one in places if one.name in names))
    parts = [msgspec.json.decode(row["structure"], type=Structure) for row in _rows(place, Content.STRUCTURE, work)]
    results = [
        (
            ReplicaName(row["replica"]),
            row["topic"],
            row["queueId"],
            Extent(row["start"], row["end"]),
            msgspec.json.decode(row["check"], type=QueueCheck),
        )
        for row in _rows(place, Content.QUEUES, queued)
    ]
    whole = joined(parts)
    return [*(bad_structure(whole, of, known) if whole is not None else ()), *bad_queues(results, of, known)]


def _rows(place: Place, content: Content, work: Work) -> Iterator[dict[str, Any]]:
    for task in tasks([place], content, work):
        for batch in read(task):
            for row in batch.to_pylist():
                assert row["error"] is None, row
                yield row
