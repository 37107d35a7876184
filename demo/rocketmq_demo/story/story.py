"""The main job: start a group, inject one fault after the other, and measure the cost of each.

The same story for every engine. It checks only promises: ids stay, one master per epoch, the group is whole and
writable after every fault, no acknowledged message is lost, no committed offset goes back."""

import asyncio
import subprocess
import time
from collections.abc import Sequence

from rocketmq_client.errors import ClientError
from rocketmq_demo.engines.engine import BROKER_GROUP, LoadResult, ReadResult
from rocketmq_demo.processes import ProcessDiedError
from rocketmq_demo.story.faults import PromiseBrokenError, Stage, fault_named
from rocketmq_demo.story.observer import longest_gap
from rocketmq_demo.story.outcome import FaultReport, Outcome
from rocketmq_demo.story.timeline import Kind
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingError

_BROKEN = (
    PromiseBrokenError,
    TimeoutError,
    LookupError,
    OSError,
    ProcessDiedError,
    subprocess.SubprocessError,
    ClientError,
    RemotingError,
)
"""Errors of a group that does not recover; anything else is a bug of the demo."""


class Story:
    """One run on a stage that the caller sets up and clears away."""

    def __init__(self, stage: Stage, *, faults: Sequence[str], quiet: float) -> None:
        """`faults` are names of `FAULTS`; `quiet` is the seconds of undisturbed load before each and after the last."""
        self._stage = stage
        self._faults = faults
        self._quiet = quiet
        self._ids: dict[str, int] = {}
        self._problems: list[str] = []

    async def run(self, folder: str) -> Outcome:
        """Run it. All failures of the group end up in the outcome's problems."""
        stage = self._stage
        began = time.monotonic()
        reports: list[FaultReport] = []
        load_result = LoadResult(acknowledged=0, failed=0)
        reads: ReadResult | None = None
        observing = background.start(stage.observer.run(), "observer of the group")
        try:
            try:
                await self._start_group()
                for name in self._faults:
                    await self._wait_quiet()
                    reports.append(await self._fault(name))
                await self._wait_quiet()
                await self._check_writable()
            except _BROKEN as error:
                self._add_problem(str(error) or repr(error))
            if stage.engine.reader is not None:
                reads = await stage.engine.reader.finish()
            try:
                load_result = await stage.engine.load.finish()
            except _BROKEN as error:
                self._add_problem(f"the load could not be stopped: {error}")
            if observing.done():
                self._add_problem(f"the observer ended: {observing.exception()!r}")
        finally:
            observing.cancel()
        for problem in (*load_result.problems, *(reads.problems if reads else ())):
            self._add_problem(problem)
        if load_result.lost:
            self._add_problem(f"{load_result.lost} acknowledged messages are lost")
        if load_result.duplicated:
            self._add_problem(f"{load_result.duplicated} messages are stored more than once")
        if reads is not None and reads.rolled_back:
            self._add_problem(f"{reads.rolled_back} committed offsets have gone back")
        times = self._times()
        return Outcome(
            engine=stage.engine.name,
            remark=stage.engine.remark,
            replicas=len(stage.engine.brokers),
            controllers=len(stage.controllers.ports),
            seconds=round(time.monotonic() - began, 3),
            load=load_result,
            reads=reads,
            longest_gap=round(longest_gap(times, times[0], times[-1]), 3) if times else 0.0,
            broker_ids=self._ids,
            faults=tuple(reports),
            problems=tuple(self._problems),
            timeline=tuple(stage.timeline.entries),
            folder=folder,
        )

    async def _start_group(self) -> None:
        stage = self._stage
        stage.step(f"{len(stage.controllers.ports)} controllers start")
        await asyncio.to_thread(stage.controllers.start)
        leader = await asyncio.to_thread(stage.controllers.wait_ready, stage.engine.patience)
        stage.step(f"controllers are ready, {leader} leads; {len(stage.engine.brokers)} brokers start")
        await asyncio.to_thread(stage.engine.start)
        await self._whole()
        self._ids = self._broker_ids()
        stage.step("all replicas are in sync; sends begin")
        await stage.engine.load.start()
        await stage.writes()
        if stage.engine.reader is not None:
            await stage.engine.reader.start()

    async def _fault(self, name: str) -> FaultReport:
        stage = self._stage
        before, failed_before = stage.group, stage.engine.load.failures()
        strike = fault_named(name)
        assert strike is not None, name
        target, heal = await strike(stage)
        struck_at, resumed_at = stage.struck_at, time.monotonic()
        await self._wait_quiet()
        await heal()
        await self._whole()
        await stage.writes()
        whole_at = time.monotonic()
        after = stage.group
        ids_kept = self._broker_ids() == self._ids
        if not ids_kept:
            self._add_problem(f"{name}: broker ids were {self._ids} and are {self._broker_ids()}")
        if after.master_epoch < before.master_epoch:
            self._add_problem(f"{name}: masterEpoch fell from {before.master_epoch} to {after.master_epoch}")
        return FaultReport(
            fault=name,
            target=target,
            longest_gap=round(longest_gap(self._times(), struck_at, whole_at), 3),
            longest_reading_gap=self._reading_gap(struck_at, whole_at),
            failed=stage.engine.load.failures() - failed_before,
            resumed_after=round(resumed_at - struck_at, 3),
            whole_after=round(whole_at - struck_at, 3),
            master_epoch_before=before.master_epoch,
            master_epoch_after=after.master_epoch,
            master_before=before.master_id,
            master_after=after.master_id,
            ids_kept=ids_kept,
        )

    async def _whole(self) -> None:
        """Wait until every broker is registered at the address it has now, alive, and in the SyncStateSet."""
        stage = self._stage
        since = time.monotonic()

        def whole() -> bool:
            group = stage.observer.group
            if group is None or group.master_id is None or stage.observer.group_seen_at < since:
                return False
            views = [group.by_address(broker.address) for broker in stage.engine.brokers]
            return all(view is not None and view.alive and view.in_sync for view in views)

        await stage.observer.wait(f"all replicas of {BROKER_GROUP} in sync", whole, 2 * stage.engine.patience)
        stage.whole_at = time.monotonic()

    async def _wait_quiet(self) -> None:
        await asyncio.sleep(self._quiet)

    def _broker_ids(self) -> dict[str, int]:
        views = {broker.label: self._stage.group.by_address(broker.address) for broker in self._stage.engine.brokers}
        return {label: view.broker_id for label, view in views.items() if view is not None}

    def _times(self) -> list[float]:
        return [sent.at for sent in self._stage.engine.load.acknowledgements()]

    def _reading_gap(self, since: float, until: float) -> float | None:
        reader = self._stage.engine.reader
        return None if reader is None else round(longest_gap(list(reader.times()), since, until), 3)

    async def _check_writable(self) -> None:
        try:
            await self._stage.writes()
        except TimeoutError as error:
            self._add_problem(f"the group does not acknowledge sends at the end: {error}")

    def _add_problem(self, text: str) -> None:
        self._problems.append(text)
        self._stage.timeline.add(Kind.TROUBLE, text)
