"""The whole reconciler against a model of the cluster, in any order of events, and what every status must keep to.

Everything between the watch and the API server is the operator's own: cache, ledger, observer, plans, executor. A
resource's `marker`, an annotation of its pods, tells its generations apart.
"""

import random
from collections.abc import Mapping
from typing import Any, cast

from rocketmq_operator.app import refers
from rocketmq_operator.controllers.quorum_registry import QuorumRegistry
from rocketmq_operator.controllers.sidecars import Sidecars
from rocketmq_operator.controllers.tls_files import TlsFiles
from rocketmq_operator.domain.conditions import find
from rocketmq_operator.domain.plan.step import PlanSettings
from rocketmq_operator.execute import Executor, StepFailedError
from rocketmq_operator.kubernetes.cache import Cache, Key
from rocketmq_operator.kubernetes.handlers import apply_event
from rocketmq_operator.kubernetes.kube import Kube, KubeError
from rocketmq_operator.kubernetes.ledger import Ledger
from rocketmq_operator.kubernetes.pod_refusals import PodRefusals
from rocketmq_operator.kubernetes.recorder import EventRecorder
from rocketmq_operator.kubernetes.secrets import Secrets
from rocketmq_operator.kubernetes.work_queue import WorkQueue
from rocketmq_operator.metrics import OperatorMetrics
from rocketmq_operator.observe import Observer
from rocketmq_operator.reconciler import Reconciler
from rocketmq_resources import names
from rocketmq_resources.decoding import SpecError
from tests.operator.model.api import Body
from tests.operator.model.cluster import Cluster, Unheard, is_ready, ordinal_of, revision
from tests.operator.model.server import DirectKube, Server
from tests.operator.model.state import NOW

MARKER = "example.com/marker"
ROUNDS = 400
STATEFUL_SETS = {"BrokerGroup": "g", "ControllerCluster": "c-controller", "NameServer": "n-namesrv"}
RESOURCES = {"BrokerGroup": "g", "ControllerCluster": "c", "NameServer": "n"}
SIZES = {"BrokerGroup": "replicas", "ControllerCluster": "members", "NameServer": "replicas"}


def made(kind: str, **spec: Any) -> Body:
    template = {"podTemplate": {"annotations": {MARKER: "0"}}}
    metadata = {"name": RESOURCES[kind], "namespace": "ns"}
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": {**template, **spec}}


class Whole:
    """One operator and its cluster."""

    def __init__(self, seed: int = 0) -> None:
        self.dice = random.Random(seed)
        self.carried: set[tuple[str, int]] = set()
        """uid and generation of what was carried out at some time."""
        self.were_ready: set[str] = set()
        """Uids of pods that were ready at some time: the watch reports of no two pods at one moment."""
        self.last_sets: dict[str, Body] = {}
        """By kind: the last StatefulSet, because the watch may report of its pods before it reports its deletion."""
        self.writes: list[str] = []
        self.server = Server(self._look)
        self.cluster = Cluster(self.server, self.dice)
        self.interleaves = 0.3
        self._moment = NOW
        self.namespaces: tuple[str, ...] = ()
        self.kube = DirectKube(self.server, self._turn, self._check)
        self.dirty: set[Key] = set()
        self.server.put(made("NameServer", replicas=2))
        self.server.put(made("ControllerCluster", members=3))
        self.server.put(made("BrokerGroup", replicas=3, controllerRef={"name": "c"}, nameServerRef={"name": "n"}))
        self.restart()

    # The operator

    def restart(self) -> None:
        """Another process: it lists everything first."""
        self.cluster.sidecars.forget()
        self.dirty.clear()
        self.cache = Cache(self._enqueue)
        unheard, metrics = Unheard(), OperatorMetrics(leading=lambda: True, waiting=lambda: 0, resources=tuple)
        ledger, queue = Ledger(self.cache, clock=lambda: self._moment), WorkQueue[Key]()
        quorums = cast("QuorumRegistry", self.cluster.quorum)
        sidecars, recorder = cast("Sidecars", self.cluster.sidecars), cast("EventRecorder", unheard)
        self.reconciler = Reconciler(
            cache=self.cache,
            queue=queue,
            observer=Observer(
                cache=self.cache,
                ledger=ledger,
                quorums=quorums,
                sidecars=sidecars,
                tls=cast("TlsFiles", unheard),
                secrets=Secrets(cast("Kube", self.kube), clock=lambda: self._moment),
                refusals=PodRefusals(cast("Kube", self.kube), clock=lambda: self._moment),
                namespaces=self.namespaces,
            ),
            executor=Executor(
                kube=cast("Kube", self.kube),
                cache=self.cache,
                ledger=ledger,
                recorder=recorder,
                quorums=quorums,
                sidecars=sidecars,
                metrics=metrics,
                hand_over_seconds=1.0,
            ),
            recorder=recorder,
            quorums=quorums,
            metrics=metrics,
            settings=PlanSettings(),
            wall=lambda: self._moment,
        )
        self.server.news.clear()
        for _, body in sorted(self.server.objects.items()):
            self.cache.put(body)

    def _enqueue(self, key: Key) -> None:
        if key.kind not in names.PLURALS:
            return
        self.dirty.add(key)
        if key.kind != "BrokerGroup":
            self.dirty.update(one for one in self.cache.keys("BrokerGroup") if refers(self.cache.body(one), key))

    async def reconcile(self, key: Key) -> None:
        self.dirty.discard(key)
        self._moment += 1.0
        try:
            after = await self.reconciler.reconcile(key)
        except (StepFailedError, KubeError, SpecError):
            after = 1.0
        if after is not None:
            self.dirty.add(key)

    def deliver(self, uid: str | None = None) -> None:
        """One event reaches the operator: of any object."""
        kind, body = self.server.take(uid or self.dice.choice(sorted(self.server.news)))
        apply_event(self.cache, kind, body)

    # What happens

    async def _turn(self) -> None:
        while self.dice.random() < self.interleaves:
            self.happen()

    def happen(self) -> None:
        """One thing that is not the operator's doing."""
        happenings = [*self.cluster.choices(), *([self.deliver] if self.server.news else ())]
        if happenings:
            self.dice.choice(happenings)()
            self._look()

    def disturb(self) -> None:
        """An edit or a fault."""
        kind = self.dice.choice(sorted(RESOURCES))
        match self.dice.randrange(9):
            case 0 | 1:
                self.edit(kind, podTemplate={"annotations": {MARKER: str(self.dice.randrange(100))}})
            case 2:
                self.edit(kind, **{SIZES[kind]: self.dice.choice([3, 5] if kind == "ControllerCluster" else [2, 3, 4])})
            case 3:
                self.edit("BrokerGroup", fenced=self.dice.random() < 0.5)
            case 4:
                self.edit(kind, paused=self.dice.random() < 0.3)
            case 5 if pods := [pod for pod in self.server.of("Pod") if is_ready(pod)]:
                self.cluster.set_ready(self.dice.choice(pods), ready=False)
            case 6 if pods := self.cluster.pods("BrokerGroup"):
                self.cluster.silent ^= {self.dice.choice(pods)["metadata"]["uid"]}
            case 7 if self.server.get("StatefulSet", STATEFUL_SETS[kind]) is not None:
                # Somebody deletes it without its pods; the operator makes another one of that name.
                self.server.remove("StatefulSet", "ns", STATEFUL_SETS[kind])
            case 8:
                self.restart()
            case _:
                pass

    def edit(self, kind: str, **spec: Any) -> None:
        """The user changes a spec."""
        body = self.resource(kind)
        self.server.put({**body, "spec": {**body["spec"], **spec}})

    def resource(self, kind: str) -> Body:
        body = self.server.get(kind, RESOURCES[kind])
        assert body is not None
        return body

    async def churn(self, steps: int) -> None:
        """So many things in any order."""
        for _ in range(steps):
            chance = self.dice.random()
            if chance < 0.06:
                self.disturb()
            elif chance < 0.4 and self.dirty:
                await self.reconcile(self.dice.choice(sorted(self.dirty)))
            else:
                self.happen()

    async def settle(self) -> None:
        """No more edits and faults: until nothing is left to do.

        Raises:
            AssertionError: it does not end.
        """
        self.cluster.silent.clear()
        for _ in range(ROUNDS):
            before = len(self.writes)
            while self.server.news or self.cluster.choices():
                self.happen()
            ready = all(self.is_ready(kind) for kind in RESOURCES)
            for kind, name in RESOURCES.items():
                await self.reconcile(Key(kind, "ns", name))
            if ready and len(self.writes) == before and not self.server.news:
                return
        raise AssertionError({kind: self.resource(kind).get("status") for kind in RESOURCES})

    def is_ready(self, kind: str) -> bool:
        """As `kubectl wait --for=condition=Ready` takes it."""
        body = self.resource(kind)
        ready = find(body.get("status", {}).get("conditions"), "Ready")
        return ready.get("status") == "True" and ready.get("observedGeneration") == body["metadata"]["generation"]

    # What has to hold

    def _look(self) -> None:
        self.were_ready.update(pod["metadata"]["uid"] for pod in self.server.of("Pod") if is_ready(pod))
        for kind, name in RESOURCES.items():
            body = self.server.get(kind, name)
            if body is not None and self._is_carried_out(body):
                self.carried.add((body["metadata"]["uid"], body["metadata"]["generation"]))

    def _is_carried_out(self, body: Body) -> bool:
        kind, spec = body["kind"], body["spec"]
        stateful_set = self.server.get("StatefulSet", STATEFUL_SETS[kind]) or self.last_sets.get(kind)
        if stateful_set is None:
            return False
        self.last_sets[kind] = stateful_set
        wanted, pods = spec[SIZES[kind]], self.cluster.pods(kind)
        seen = stateful_set.get("status", {}).get("observedGeneration") == stateful_set["metadata"]["generation"]
        return (
            seen
            and stateful_set["spec"]["replicas"] == wanted
            and sorted(map(ordinal_of, pods)) == list(range(wanted))
            and all("deletionTimestamp" not in pod["metadata"] for pod in pods)
            and all(pod["metadata"]["uid"] in self.were_ready for pod in pods)
            and all(pod["metadata"]["annotations"][MARKER] == _marker(spec) for pod in pods)
            and all(pod["metadata"]["labels"]["controller-revision-hash"] == revision(stateful_set) for pod in pods)
        )

    def _check(self, body: Body) -> None:
        """A status was written."""
        kind, metadata, status = body["kind"], body["metadata"], body["status"]
        conditions = {
            str(one["type"]): one
            for one in status["conditions"]
            if one["status"] == "True" and one["observedGeneration"] == metadata["generation"]
        }
        self.writes.append(f"{kind} {metadata['generation']} {status['phase']} {sorted(conditions)}")
        done = (metadata["uid"], metadata["generation"]) in self.carried
        story = "\n".join(self.writes[-8:])
        if "Ready" in conditions:
            assert done, f"{kind} is Ready, but generation {metadata['generation']} was not carried out\n{story}"
            assert not body["spec"].get("paused"), story
        if kind == "BrokerGroup" and "Available" in conditions:
            master = self.cluster.quorum.groups["g"].master_broker_id
            assert master is not None
            assert master - 1 not in self.cluster.fenced, f"Available, but broker {master} refuses sends\n{story}"


def _marker(spec: Mapping[str, Any]) -> str:
    return str(spec["podTemplate"]["annotations"][MARKER])
