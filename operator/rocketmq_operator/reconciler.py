"""Reconciles one resource: observe, plan, apply, act, write the status. Every event, timer and retry ends here.

Workers take keys from the queue; `stop` ends them. A failed reconcile is retried with a growing delay. So is a resource
whose spec is refused, in case the reason disappears.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from rocketmq_operator.controllers.quorum_registry import QuorumRegistry
from rocketmq_operator.domain.actions import Event
from rocketmq_operator.domain.plan.controller_cluster import plan_controller_cluster
from rocketmq_operator.domain.plan.groups.objects import ObjectMemory
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.groups.status import refused, without_offsets
from rocketmq_operator.domain.plan.name_server import plan_name_server
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_operator.execute import Executor, StepFailedError
from rocketmq_operator.kubernetes.cache import Cache, Key, kind_of
from rocketmq_operator.kubernetes.kube import ConflictError, KubeError, NotFoundError, RefusedByServerError
from rocketmq_operator.kubernetes.recorder import EventRecorder
from rocketmq_operator.kubernetes.work_queue import WorkQueue
from rocketmq_operator.metrics import OperatorMetrics
from rocketmq_operator.observe import Observer
from rocketmq_resources.broker_group import parse_broker_group
from rocketmq_resources.controller_cluster import parse_controller_cluster
from rocketmq_resources.decoding import Json, SpecError, mapping
from rocketmq_resources.name_server import parse_name_server
from rocketmq_runtime import background

OFFSETS_EVERY: Final = 30.0
"""Seconds between two writes of a status where only offsets have changed."""
FIRST_REPEAT: Final = 0.02
LAST_REPEAT: Final = 30.0
"""Seconds until the next reconcile after one that has applied something."""

log = structlog.get_logger(__name__)


class Reconciler:
    """Reconciles all resources of one operator."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: WorkQueue[Key],
        observer: Observer,
        executor: Executor,
        recorder: EventRecorder,
        quorums: QuorumRegistry,
        metrics: OperatorMetrics,
        settings: PlanSettings,
        wall: Callable[[], float],
    ) -> None:
        """`wall`: seconds since 1970."""
        self._cache = cache
        self._queue = queue
        self._observer = observer
        self._executor = executor
        self._recorder = recorder
        self._quorums = quorums
        self._metrics = metrics
        self._settings = settings
        self._wall = wall
        self._workers: list[asyncio.Task[None]] = []
        self._memory = ObjectMemory()
        self._written: dict[Key, float] = {}
        self._idle: dict[Key, tuple[int, object]] = {}
        """What was observed when a reconcile last found nothing to do."""
        self._changes: dict[Key, int] = {}
        """Consecutive reconciles that had something to apply."""

    def start(self, workers: int) -> None:
        """Reconcile that many resources at a time."""
        self._workers = [background.start(self._run_worker(), f"worker {number}") for number in range(workers)]

    async def stop(self) -> None:
        """Cancel running reconciles: every step is safe to interrupt."""
        for worker in self._workers:
            worker.cancel()
        for worker in self._workers:
            with contextlib.suppress(asyncio.CancelledError):
                await worker

    def resync(self, key: Key, after: float) -> None:
        """Reconcile after that many seconds, unless nothing has changed since a reconcile found nothing to do."""
        if self._idle.get(key) != self._revision(key):
            self._queue.add(key, after)

    def tidy(self, keys: set[Key]) -> None:
        """Forget resources that are not among `keys`."""
        for key in self._idle.keys() - keys:
            del self._idle[key]
        entries = (self._cache.get(key) for key in keys)
        self._memory.retain({entry.uid for entry in entries if entry is not None})

    def _revision(self, key: Key) -> tuple[int, object]:
        return self._cache.revision(key), self._quorums.view(key)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one resource; returns the seconds after which to reconcile again without an event.

        Raises:
            KubeError: a call to the API server failed.
            StepFailedError: an action failed.
            SpecError: the spec is refused; the status has the reason.
        """
        body = self._cache.body(key)
        if body is None:
            self._forget(key)
            return None
        try:
            plan = await self._plan(key, body)
        except SpecError as error:
            await self._report_refusal(body, "InvalidSpec", str(error))
            raise
        if plan.status_first:
            await self._write_status(key, body, plan)
        revision = self._revision(key)
        await self._executor.perform(body, plan.first, disruptive=False)
        try:
            changed = await self._executor.apply(plan)
        except RefusedByServerError as error:
            await self._report_refusal(body, "ApplyRefused", str(error))
            raise
        try:
            content = await self._executor.perform(body, plan.actions, disruptive=not changed)
        except StepFailedError:
            # A step that always fails must not keep the status from being updated. One that was planned before an
            # object was changed says what held before.
            if not changed:
                with contextlib.suppress(KubeError):
                    await self._write_status(key, body, plan)
            raise
        if not content:
            return FIRST_REPEAT
        if changed:
            # The status is written by a later reconcile, which sees the result. The growing delay avoids a race with
            # another client that keeps undoing our changes.
            self._changes[key] = self._changes.get(key, 0) + 1
            return min(LAST_REPEAT, FIRST_REPEAT * 4.0 ** (self._changes[key] - 1))
        self._changes.pop(key, None)
        if not plan.status_first:
            await self._write_status(key, body, plan)
        if key.kind == "BrokerGroup" and not (plan.actions or plan.requeue):
            self._idle[key] = revision
        else:
            self._idle.pop(key, None)
        return plan.requeue

    async def _plan(self, key: Key, body: Json) -> Plan:
        now = self._wall()
        match key.kind:
            case "BrokerGroup":
                group = await self._observer.group(parse_broker_group(body))
                return plan_group(group, self._settings, now, self._memory)
            case "ControllerCluster":
                cluster = await self._observer.cluster(parse_controller_cluster(body))
                return plan_controller_cluster(cluster, self._settings, now)
            case _:
                return plan_name_server(await self._observer.name_server(parse_name_server(body)), self._settings, now)

    async def _write_status(self, key: Key, body: Json, plan: Plan) -> None:
        """Write the status if it differs from the stored one, and record Events for what has changed. A resource that
        has changed since it was read is reconciled again when its watch reports that."""
        if plan.status is None:
            return
        before, now = mapping(body, "status"), self._wall()
        if key.kind == "BrokerGroup":
            if plan.status == _without_verification(before):
                return
            same = without_offsets(plan.status) == without_offsets(before)
            if same and now - self._written.get(key, 0.0) < OFFSETS_EVERY:
                return
        elif plan.status == before:
            return
        try:
            await self._executor.write_status(body, plan.status)
        except (NotFoundError, ConflictError):
            return
        self._written[key] = now
        for event in plan.events:
            if event.reason == "MasterChanged":
                self._metrics.master_changed(key.namespace, key.name)
            self._recorder.record_event(body, event)

    async def _report_refusal(self, body: Json, reason: str, message: str) -> None:
        """Write into the status why the resource is refused."""
        metadata, before = mapping(body, "metadata"), mapping(body, "status")
        generation = metadata.get("generation")
        status = refused(
            before,
            generation=generation if isinstance(generation, int) else 0,
            reason=reason,
            message=message,
            now=self._wall(),
        )
        if status == _without_verification(before):
            return
        with contextlib.suppress(NotFoundError, ConflictError):
            await self._executor.write_status(body, status)
            self._recorder.record_event(body, Event(reason, message, warning=True))

    async def _run_worker(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._process(key)
            finally:
                self._queue.done(key)

    async def _process(self, key: Key) -> None:
        failed, began = True, time.monotonic()
        try:
            after = await self.reconcile(key)
        except SpecError:
            self._queue.failed(key)
        except StepFailedError as error:
            delay = self._queue.failed(key)
            log.warning("step failed", key=str(key), error=str(error), again_in=round(delay, 1))
        except KubeError as error:
            delay = self._queue.failed(key)
            log.warning("API call failed", key=str(key), error=str(error), again_in=round(delay, 1))
        except Exception:
            # A bug that one resource triggers must not stop the reconciles of the others.
            delay = self._queue.failed(key)
            log.exception("reconcile failed", key=str(key), again_in=round(delay, 1))
        else:
            failed = False
            self._queue.succeeded(key)
            if after is not None:
                self._queue.add(key, after)
        self._metrics.reconciled(kind_of(key), seconds=time.monotonic() - began, failed=failed)

    def _forget(self, key: Key) -> None:
        self._queue.forget(key)
        self._quorums.forget_group(key)
        self._written.pop(key, None)
        self._idle.pop(key, None)
        self._changes.pop(key, None)


def _without_verification(status: Mapping[str, object]) -> Json:
    return {key: value for key, value in status.items() if key != "verification"}
