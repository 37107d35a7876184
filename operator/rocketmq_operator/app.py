"""Everything that acts, built and wired: what `main` runs while it holds the Lease."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from kubernetes.aio import client

from rocketmq_operator import handlers
from rocketmq_operator.cache import Cache, Key, kind_of
from rocketmq_operator.domain import names
from rocketmq_operator.domain.conditions import find
from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_operator.domain.manifests.objects import Images
from rocketmq_operator.domain.observed import CronJob
from rocketmq_operator.domain.plan.settings import PlanSettings
from rocketmq_operator.domain.plan.verification import known_difference, last_verification, verification_due
from rocketmq_operator.domain.spec.broker_group import BrokerGroup, parse_broker_group
from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.domain.spec.decoding import SpecError, mapping
from rocketmq_operator.execute import Executor
from rocketmq_operator.kube import Kube, KubeError
from rocketmq_operator.ledger import Ledger
from rocketmq_operator.metrics import Group, OperatorMetrics, Resource, Verification
from rocketmq_operator.observe import Observer
from rocketmq_operator.quorum_book import QuorumBook
from rocketmq_operator.reconciler import Reconciler
from rocketmq_operator.recorder import Recorder
from rocketmq_operator.settings import OperatorSettings
from rocketmq_operator.sidecars import Sidecars
from rocketmq_operator.sweep import Sweep
from rocketmq_operator.tls_files import TlsFiles
from rocketmq_operator.work_queue import WorkQueue

EVENT_DELAY: Final = 0.02
"""Seconds between an event and the look it causes: most events come in company."""

LOOK_FOR_KINDS: Final = 2.0
"""Seconds between two looks for CRDs that are not installed."""

log = structlog.get_logger(__name__)


class Operator:
    """One process's. Made once; `run` it while leading."""

    def __init__(
        self,
        settings: OperatorSettings,
        kube: Kube,
        configuration: client.Configuration,
        *,
        leading: Callable[[], bool],
        signals: Callable[[], None],
    ) -> None:
        """`signals`: take the process's signals back, which kopf wants for itself when it starts."""
        self._signals = signals
        self._settings = settings
        self._kube = kube
        self._configuration = configuration
        self.watching = False
        self._queue: WorkQueue[Key] = WorkQueue()
        self._cache = Cache(self._poke)
        self.metrics = OperatorMetrics(
            leading=leading, waiting=lambda: self._queue.depth, resources=lambda: _resources(self._cache)
        )
        self._ledger = Ledger(self._cache)
        self._tls = TlsFiles(kube)
        self._quorums = QuorumBook(self._cache, self._poke, self._tls)
        self._sidecars = Sidecars()
        self._recorder = Recorder(kube, settings.holder, wall=time.time, told=self.metrics.decided)
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
            observer=Observer(self._cache, self._ledger, self._quorums, self._sidecars),
            executor=executor,
            recorder=self._recorder,
            quorums=self._quorums,
            metrics=self.metrics,
            settings=PlanSettings(
                images=Images(settings.image_repository, settings.image_tag, settings.image_apache_broker),
                access=Access(enabled=settings.network_policies, operator_namespace=settings.namespace),
            ),
            wall=time.time,
        )

    async def run(self) -> None:
        """Act until cancelled, or until kopf ends."""
        await self._kinds()
        self._recorder.start()
        timers = asyncio.create_task(self._timers(), name="resync")
        try:
            await handlers.watch(
                self._cache,
                self._configuration,
                self._settings.watched,
                ready=self._began,
                listed=self._listed,
                relisted=self._sweep.soon,
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

    async def _kinds(self) -> None:
        """Wait until the CRDs are there: kopf looks for kinds once, when it starts."""
        namespace = self._settings.watched[0] if self._settings.watched else None
        told = False
        for kind in names.PLURALS:
            while True:
                try:
                    await self._kube.list(kind, namespace, metadata_only=True)
                    break
                except KubeError as error:
                    if not told:
                        log.warning("cannot list resources: is the CRD installed?", kind=kind, error=str(error))
                    told = True
                await asyncio.sleep(LOOK_FOR_KINDS)

    def _began(self) -> None:
        self.watching = True
        self._signals()

    def _listed(self) -> None:
        """The first lists are in the cache: nobody decides on half of what there is."""
        log.info("watching", objects=len(self._cache), namespaces=self._settings.watched or "all")
        self._reconciler.start(self._settings.workers)

    def _poke(self, key: Key) -> None:
        if key.kind not in names.PLURALS:
            return
        self._queue.add(key, EVENT_DELAY)
        if key.kind != "BrokerGroup":
            for group in self._cache.keys("BrokerGroup"):
                if refers(self._cache.body(group), key):
                    self._queue.add(group, EVENT_DELAY)

    async def _timers(self) -> None:
        """Look at everything now and then, spread over the time between; forget what is gone."""
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            await self._quorums.tidy()
            await self._quorums.refresh()
            await self._sweep.turn()
            keys = [key for kind in names.PLURALS for key in self._cache.keys(kind)]
            for number, key in enumerate(keys):
                self._reconciler.resync(key, 0.5 * self._settings.resync_seconds * number / len(keys))
            self._reconciler.tidy(set(keys))
            self._ledger.forget_all_but(set(keys))
            pods = {entry.uid for key in self._cache.keys("Pod") if (entry := self._cache.get(key)) is not None}
            self._sidecars.forget_all_but(pods)


def refers(body: Json | None, key: Key) -> bool:
    """Whether a BrokerGroup names that ControllerCluster or NameServer."""
    if body is None:
        return False
    spec, namespace = mapping(body, "spec"), mapping(body, "metadata").get("namespace")
    reference = spec.get("controllerRef" if key.kind == "ControllerCluster" else "nameServerRef")
    if not isinstance(reference, dict):
        return False
    return (reference.get("namespace") or namespace, reference.get("name")) == (key.namespace, key.name)


def _resources(cache: Cache) -> Iterable[Resource]:
    """As the statuses have it. Called by the thread that is scraped: reads only."""
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
                    ready=find(status.get("conditions"), "Ready").get("status") == "True",
                    group=_group(cache, body) if kind == "BrokerGroup" else None,
                )


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
    return Verification(result, last.ended, due, last.aligned_up_to)
