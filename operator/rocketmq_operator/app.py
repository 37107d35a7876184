"""Builds and connects the parts of the operator; `main` runs it while it holds the Lease."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from kubernetes.aio import client

from rocketmq_operator.controllers.quorum_registry import QuorumRegistry
from rocketmq_operator.controllers.sidecars import Sidecars
from rocketmq_operator.controllers.tls_files import TlsFiles
from rocketmq_operator.domain.conditions import find
from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_operator.domain.manifests.objects import Images
from rocketmq_operator.domain.observed import CronJob
from rocketmq_operator.domain.plan.groups.verification import known_difference, last_verification, verification_due
from rocketmq_operator.domain.plan.step import PlanSettings
from rocketmq_operator.execute import Executor
from rocketmq_operator.kubernetes import handlers
from rocketmq_operator.kubernetes.cache import Cache, Key, kind_of
from rocketmq_operator.kubernetes.kube import Kube, KubeError
from rocketmq_operator.kubernetes.ledger import Ledger
from rocketmq_operator.kubernetes.pod_refusals import PodRefusals
from rocketmq_operator.kubernetes.recorder import EventRecorder
from rocketmq_operator.kubernetes.secrets import Secrets
from rocketmq_operator.kubernetes.sweep import Sweep
from rocketmq_operator.kubernetes.work_queue import WorkQueue
from rocketmq_operator.metrics import Group, OperatorMetrics, Resource, Verification
from rocketmq_operator.observe import Observer
from rocketmq_operator.reconciler import Reconciler
from rocketmq_operator.settings import OperatorSettings
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from rocketmq_resources.decoding import Json, SpecError, mapping
from rocketmq_runtime import background

EVENT_DELAY: Final = 0.02
"""Seconds between an event and the reconcile it causes, because most events come in bursts."""

CRD_POLL_SECONDS: Final = 2.0
"""Seconds between two checks for CRDs that are not installed."""

log = structlog.get_logger(__name__)


class Operator:
    """Created once per process; `run` it while leading."""

    def __init__(
        self,
        settings: OperatorSettings,
        kube: Kube,
        configuration: client.Configuration,
        *,
        leading: Callable[[], bool],
        signals: Callable[[], None],
    ) -> None:
        """`signals` installs the process's signal handlers again: kopf replaces them when it starts."""
        self._signals = signals
        self._settings = settings
        self._kube = kube
        self._configuration = configuration
        self.watching = False
        self._queue: WorkQueue[Key] = WorkQueue()
        self._cache = Cache(self._enqueue)
        self.metrics = OperatorMetrics(
            leading=leading, waiting=lambda: self._queue.depth, resources=lambda: _resources(self._cache)
        )
        self._ledger = Ledger(self._cache)
        self._tls = TlsFiles(kube)
        self._quorums = QuorumRegistry(self._cache, self._enqueue, self._tls)
        self._sidecars = Sidecars()
        self._recorder = EventRecorder(kube, settings.holder, wall=time.time, counted=self.metrics.decided)
        self._sweep = Sweep(kube, self._cache, settings.watched)
        executor = Executor(
            kube=kube,
            cache=self._cache,
            ledger=self._ledger,
            recorder=self._recorder,
            quorums=self._quorums,
            sidecars=self._sidecars,
            metrics=self.metrics,
            hand_over_seconds=settings.hand_over_seconds,
        )
        self._reconciler = Reconciler(
            cache=self._cache,
            queue=self._queue,
            observer=Observer(
                cache=self._cache,
                ledger=self._ledger,
                quorums=self._quorums,
                sidecars=self._sidecars,
                tls=self._tls,
                secrets=Secrets(kube),
                refusals=PodRefusals(kube),
                namespaces=settings.watched,
            ),
            executor=executor,
            recorder=self._recorder,
            quorums=self._quorums,
            metrics=self.metrics,
            settings=PlanSettings(
                images=Images(
                    settings.image_repository,
                    settings.tag,
                    settings.image_apache_broker,
                    fixed_ids=settings.fixed_ids,
                ),
                access=Access(
                    enabled=settings.network_policies,
                    operator_namespace=settings.namespace,
                    namespaces=settings.watched,
                ),
            ),
            wall=time.time,
        )

    async def run(self) -> None:
        """Reconcile until cancelled, or until kopf ends."""
        await self._wait_for_crds()
        self._recorder.start()
        timers = background.start(self._resync_periodically(), "resync")
        try:
            await handlers.watch(
                self._cache,
                self._configuration,
                self._settings.watched,
                ready=self._on_watching,
                listed=self._on_listed,
                relisted=self._sweep.compare_soon,
            )
        finally:
            self.watching = False
            timers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await timers
            self._sweep.stop()
            await self._reconciler.stop()
            await self._quorums.stop()
            await self._recorder.stop()
            self._tls.close()

    async def _wait_for_crds(self) -> None:
        """Wait until the CRDs are installed: kopf discovers kinds only when it starts."""
        namespace = self._settings.watched[0] if self._settings.watched else None
        warned = False
        for kind in names.PLURALS:
            while True:
                try:
                    await self._kube.list(kind, namespace, metadata_only=True)
                    break
                except KubeError as error:
                    if not warned:
                        log.warning("cannot list resources: is the CRD installed?", kind=kind, error=str(error))
                    warned = True
                await asyncio.sleep(CRD_POLL_SECONDS)

    def _on_watching(self) -> None:
        self.watching = True
        self._signals()

    def _on_listed(self) -> None:
        """Start the workers once the first lists are in the cache, so that no plan works on a part of the objects."""
        log.info("watching", objects=len(self._cache), namespaces=self._settings.watched or "all")
        self._reconciler.start(self._settings.workers)

    def _enqueue(self, key: Key) -> None:
        if key.kind not in names.PLURALS:
            return
        self._queue.add(key, EVENT_DELAY)
        if key.kind != "BrokerGroup":
            for group in self._cache.keys("BrokerGroup"):
                if refers(self._cache.body(group), key):
                    self._queue.add(group, EVENT_DELAY)

    async def _resync_periodically(self) -> None:
        """Reconcile every resource periodically, spread over the interval; forget deleted ones."""
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            await self._quorums.tidy()
            await self._quorums.refresh()
            await self._sweep.compare_next()
            keys = [key for kind in names.PLURALS for key in self._cache.keys(kind)]
            for number, key in enumerate(keys):
                self._reconciler.resync(key, 0.5 * self._settings.resync_seconds * number / len(keys))
            self._reconciler.tidy(set(keys))
            self._ledger.retain(set(keys))
            pods = {entry.uid for key in self._cache.keys("Pod") if (entry := self._cache.get(key)) is not None}
            self._sidecars.retain(pods)


def refers(body: Json | None, key: Key) -> bool:
    """Whether a BrokerGroup refers to that ControllerCluster or NameServer."""
    if body is None:
        return False
    spec, namespace = mapping(body, "spec"), mapping(body, "metadata").get("namespace")
    reference = spec.get("controllerRef" if key.kind == "ControllerCluster" else "nameServerRef")
    if not isinstance(reference, dict):
        return False
    return (reference.get("namespace") or namespace, reference.get("name")) == (key.namespace, key.name)


def _resources(cache: Cache) -> Iterable[Resource]:
    """Metrics from the statuses. Called by the thread that serves scrapes: reads only."""
    for kind in names.PLURALS:
        for key in cache.keys(kind):
            body = cache.body(key)
            if body is not None:
                status = mapping(body, "status")
                yield Resource(
                    kind=kind_of(key),
                    namespace=key.namespace,
                    name=key.name,
                    phase=str(status.get("phase", "")),
                    ready=_ready(status),
                    group=_group(cache, body) if kind == "BrokerGroup" else None,
                )


def _ready(status: Json) -> bool:
    """A resource that only its user's pause keeps from being Ready has no problem."""
    ready = find(status.get("conditions"), "Ready")
    return ready.get("status") == "True" or ready.get("reason") == "Paused"


def _group(cache: Cache, body: Json) -> Group | None:
    try:
        group = parse_broker_group(body)
    except SpecError:
        return None
    in_sync = group.status.get("inSyncReplicas")
    return Group(
        group.cluster_name,
        group.broker_name,
        group.pods_wanted,
        in_sync if isinstance(in_sync, int) else 0,
        _verification(cache, group),
    )


def _verification(cache: Cache, group: BrokerGroup) -> Verification | None:
    entry = cache.get(Key("CronJob", group.namespace, names.verification(group.name)))
    since = entry.value.created if entry is not None and isinstance(entry.value, CronJob) else None
    last, due = last_verification(group), verification_due(group, since)
    if not last.result and due is None:
        return None
    result = last.result if known_difference(group) is None else "Different"
    return Verification(result, last.ended, due, last.aligned_up_to, last.oldest_read)
