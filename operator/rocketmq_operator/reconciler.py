"""One look at one resource: observe, plan, apply, act, say. Every event, every timer and every retry ends here.

Workers take keys from the queue; `stop` ends them. A look that fails is repeated later and later, and so is one whose
resource cannot be carried out, in case the reason goes away.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from rocketmq_operator.cache import Cache, Key, kind_of
from rocketmq_operator.domain.actions import Notice
from rocketmq_operator.domain.group_status import refused, without_offsets
from rocketmq_operator.domain.plan.controller_cluster import plan_controller_cluster
from rocketmq_operator.domain.plan.group import plan_group
from rocketmq_operator.domain.plan.name_server import plan_name_server
from rocketmq_operator.domain.plan.objects import ObjectMemory
from rocketmq_operator.domain.plan.settings import PlanSettings
from rocketmq_operator.domain.plan.step import Plan
from rocketmq_operator.domain.spec.broker_group import parse_broker_group
from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.domain.spec.controller_cluster import parse_controller_cluster
from rocketmq_operator.domain.spec.decoding import SpecError, mapping
from rocketmq_operator.domain.spec.name_server import parse_name_server
from rocketmq_operator.execute import Executor, StepFailedError
from rocketmq_operator.kube import KubeError, NotFoundError, RefusedByServerError
from rocketmq_operator.metrics import OperatorMetrics
from rocketmq_operator.observe import Observer
from rocketmq_operator.quorum_book import QuorumBook
from rocketmq_operator.recorder import Recorder
from rocketmq_operator.work_queue import WorkQueue

OFFSETS_EVERY: Final = 30.0
"""Seconds between two writes of a status of which only offsets have changed."""
FIRST_REPEAT: Final = 0.02
LAST_REPEAT: Final = 30.0
"""Seconds until the next look after one that has applied something."""

log = structlog.get_logger(__name__)


class Reconciler:
    """Of one process."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: WorkQueue[Key],
        observer: Observer,
        executor: Executor,
        recorder: Recorder,
        quorums: QuorumBook,
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
        """What was known at the last look that found nothing to do."""
        self._changes: dict[Key, int] = {}
        """Looks in a row that had something to apply."""

    def start(self, workers: int) -> None:
        """So many looks at a time."""
        self._workers = [asyncio.create_task(self._work(), name=f"worker {number}") for number in range(workers)]

    async def stop(self) -> None:
        """What is under way is cut off: every step is safe to interrupt."""
        for worker in self._workers:
            worker.cancel()
        for worker in self._workers:
            with contextlib.suppress(asyncio.CancelledError):
                await worker

    def resync(self, key: Key, after: float) -> None:
        """Look again in so many seconds, unless what was there to see at the last look is all there is."""
        if self._idle.get(key) != self._seen(key):
            self._queue.add(key, after)

    def tidy(self, keys: set[Key]) -> None:
        """Forget what is not among `keys`."""
        for key in self._idle.keys() - keys:
            del self._idle[key]
        entries = (self._cache.get(key) for key in keys)
        self._memory.forget_all_but({entry.uid for entry in entries if entry is not None})

    def _seen(self, key: Key) -> tuple[int, object]:
        return self._cache.revision(key), self._quorums.view(key)

    async def look(self, key: Key) -> float | None:
        """One look; in how many seconds to look again even if nothing is heard.

        Raises:
            KubeError: the API server failed us.
            StepFailedError: an action did.
            SpecError: the resource cannot be carried out; its status says so.
        """
        body = self._cache.body(key)
        if body is None:
            self._forget(key)
            return None
        try:
            plan = await self._plan(key, body)
        except SpecError as error:
            await self._refuse(body, "InvalidSpec", str(error))
            raise
        if plan.announce:
            await self._say(key, body, plan)
        seen = self._seen(key)
        await self._executor.perform(body, plan.first, disruptive=False)
        try:
            changed = await self._executor.apply(plan)
        except RefusedByServerError as error:
            await self._refuse(body, "ApplyRefused", str(error))
            raise
        try:
            content = await self._executor.perform(body, plan.actions, disruptive=not changed)
        except StepFailedError:
            # A step that fails for ever must not keep the facts from being seen.
            with contextlib.suppress(KubeError):
                await self._say(key, body, plan)
            raise
        if not content:
            return FIRST_REPEAT
        if changed:
            # What is said is of what is there then. Somebody who writes against us is not raced.
            self._changes[key] = self._changes.get(key, 0) + 1
            return min(LAST_REPEAT, FIRST_REPEAT * 4.0 ** (self._changes[key] - 1))
        self._changes.pop(key, None)
        if not plan.announce:
            await self._say(key, body, plan)
        if key.kind == "BrokerGroup" and not (plan.actions or plan.requeue):
            self._idle[key] = seen
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
                return plan_name_server(self._observer.name_server(parse_name_server(body)), self._settings, now)

    async def _say(self, key: Key, body: Json, plan: Plan) -> None:
        """Write the status where it differs from what is there, and tell what has changed."""
        if plan.status is None:
            return
        before = mapping(body, "status")
        if key.kind == "BrokerGroup":
            if plan.status == _without_verification(before):
                return
            now = self._wall()
            same = without_offsets(plan.status) == without_offsets(before)
            if same and now - self._written.get(key, 0.0) < OFFSETS_EVERY:
                return
            self._written[key] = now
        elif plan.status == before:
            return
        try:
            await self._executor.write_status(body, plan.status)
        except NotFoundError:
            return
        for notice in plan.notices:
            if notice.reason == "MasterChanged":
                self._metrics.master_changed(key.namespace, key.name)
            self._recorder.tell(body, notice)

    async def _refuse(self, body: Json, reason: str, message: str) -> None:
        """Say on the resource why nothing is done for it."""
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
        self._recorder.tell(body, Notice(reason, message, warning=True))
        await self._executor.write_status(body, status)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._turn(key)
            finally:
                self._queue.done(key)

    async def _turn(self, key: Key) -> None:
        failed, began = True, time.monotonic()
        try:
            after = await self.look(key)
        except SpecError:
            self._queue.failed(key)
        except StepFailedError as error:
            delay = self._queue.failed(key)
            log.warning("step failed", key=str(key), error=str(error), again_in=round(delay, 1))
        except KubeError as error:
            delay = self._queue.failed(key)
            log.warning("API call failed", key=str(key), error=str(error), again_in=round(delay, 1))
        except Exception:
            # A bug that one resource brings to light must not end the others' reconciling.
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
