"""A whole verification without Spark, of stores that are read as files or through sidecars (gRPC in this process)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import astuple

from rocketmq_api.log_view import LogView, runs_of
from rocketmq_commitlog.state import LogPaths, read_state
from rocketmq_sidecar.ports.served_log import LogCounts
from rocketmq_verify import job
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.verdict import Verdict
from rocketmq_verify.engine.session import Engine, SessionOptions
from rocketmq_verify.history.runs import Group as HistoryGroup
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.run import EngineKind, Request
from rocketmq_verify.sources.source import SourceOptions
from rocketmq_verify.sources.work import Place
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
            given_up=tuple(astuple(one) for one in state.given_up),
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
    unchecked: tuple[str, ...]
    entries: int
    """Of index files, compared with their records."""

    @property
    def told(self) -> list[object]:
        """What both ways must agree in: each finding's kind, replicas, place and message."""
        return [(one.kind, one.replicas, one.extent, one.record) for one in self.findings]


def verify(places: Sequence[Place], ledger: Path | None = None) -> Outcome:
    """One run in this process; with a ledger, whose cells are chunks."""
    request = Request(
        group=HistoryGroup("C", "a"),
        places=tuple(places),
        options=SourceOptions(patience=10.0),
        chunk_size=CHUNK,
        cell_size=CHUNK,
        ledger_path="" if ledger is None else str(ledger),
        engine=EngineKind.LOCAL,
    )
    engine = Engine(SessionOptions())
    try:
        done = job.run(request, engine, NoProgress())
    finally:
        engine.stop()
    queues = done.checked.queues
    return Outcome(done.verdict, done.findings, done.checked.unchecked, 0 if queues is None else queues.index_entries)
