"""What /metrics of the operator shows; the chart's alerts and dashboard are checked against it.

Reconciles and decisions are counted in the event loop, the rest is read when scraped: reads only, another thread calls.
"""

from collections.abc import Callable, Iterable

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_operator.domain.names import Kind

RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""


class Group(msgspec.Struct, frozen=True):
    """What a BrokerGroup should have and has."""

    cluster: str
    broker_set: str
    """Its brokerName, as the sidecars' metrics call it."""
    replicas: int
    """Wanted; 0 while it is hibernated."""
    in_sync: int
    verification: "Verification | None" = None
    """None: never compared, and no comparison expected."""


class Verification(msgspec.Struct, frozen=True):
    """What the last comparison of a group's logs said."""

    result: str = ""
    """Aligned, Different or Failed; empty: none has ended yet."""
    ended: float | None = None
    due: float | None = None
    """By when the next one should have ended; None: none is expected."""
    aligned_up_to: int | None = None


RESULTS = ("Aligned", "Different", "Failed")


class Resource(msgspec.Struct, frozen=True):
    """One resource as its status has it."""

    kind: Kind
    namespace: str
    name: str
    phase: str
    ready: bool
    """Condition Ready; hibernated and paused resources count by that condition too."""
    group: Group | None = None


class OperatorMetrics:
    """The registry of one process."""

    def __init__(
        self, *, leading: Callable[[], bool], waiting: Callable[[], int], resources: Callable[[], Iterable[Resource]]
    ) -> None:
        """
        Args:
            leading: whether this process holds the Lease.
            waiting: resources that are to be reconciled, or are being.
            resources: all it looks after, if it leads; else none.
        """
        self.registry = CollectorRegistry()
        self._reconciles = Counter(
            "rocketmq_operator_reconciles",
            "Reconciles by their result: done, or error (tried again)",
            ("kind", "result"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "rocketmq_operator_reconcile_seconds",
            "Time of a reconcile",
            ("kind",),
            buckets=RECONCILE_BUCKETS,
            registry=self.registry,
        )
        self._decisions = Counter(
            "rocketmq_operator_decisions",
            "Decisions that it made an Event of",
            ("kind", "reason"),
            registry=self.registry,
        )
        self._actions = Counter(
            "rocketmq_operator_actions",
            "What it has done to a group beside applying objects, by kind of action: done, or error (tried again)",
            ("action", "result"),
            registry=self.registry,
        )
        self._calls = Counter(
            "rocketmq_operator_api_calls",
            "Calls to the Kubernetes API but for watches, by verb, resource and HTTP status (error: no answer)",
            ("verb", "resource", "status"),
            registry=self.registry,
        )
        # not `namespace`: see _Gauges
        self._master_changes = Counter(
            "rocketmq_operator_master_changes",
            "Changes of a group's master that it saw, failovers and hand-overs alike",
            ("resource_namespace", "name"),
            registry=self.registry,
        )
        self._hand_overs = Counter(
            "rocketmq_operator_hand_overs",
            "Planned switchovers that it asked for and that came about",
            ("resource_namespace", "name"),
            registry=self.registry,
        )
        self.registry.register(_Gauges(leading, waiting, resources))

    def reconciled(self, kind: Kind, *, seconds: float, failed: bool) -> None:
        """One reconcile has ended."""
        self._reconciles.labels(kind, "error" if failed else "done").inc()
        self._seconds.labels(kind).observe(seconds)

    def decided(self, kind: str, reason: str) -> None:
        """One Event of that reason was emitted; reasons are CamelCase words of ours, so there are few."""
        self._decisions.labels(kind, reason).inc()

    def acted(self, action: str, *, failed: bool) -> None:
        """One action of a plan was carried out, or not."""
        self._actions.labels(action, "error" if failed else "done").inc()

    def called(self, verb: str, resource: str, status: str) -> None:
        """One call to the API server has ended."""
        self._calls.labels(verb, resource, status).inc()

    def master_changed(self, namespace: str, name: str) -> None:
        """A group has another master than its status said."""
        self._master_changes.labels(namespace, name).inc()

    def handed_over(self, namespace: str, name: str) -> None:
        """A hand-over that was asked for came about."""
        self._hand_overs.labels(namespace, name).inc()


class _Gauges(Collector):
    def __init__(
        self, leading: Callable[[], bool], waiting: Callable[[], int], resources: Callable[[], Iterable[Resource]]
    ) -> None:
        self._leading, self._waiting, self._resources = leading, waiting, resources

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("rocketmq_operator_leader", "1 for the one that acts", value=float(self._leading()))
        yield GaugeMetricFamily("rocketmq_operator_queue_length", "Resources to be reconciled", value=self._waiting())
        # not `namespace`: that is the operator's own pod's, added by Prometheus
        place = ("resource_namespace", "name")
        ready = GaugeMetricFamily(
            "rocketmq_operator_resource_ready", "Condition Ready of a resource", labels=("kind", "phase", *place)
        )
        groups = ("cluster", "broker_set", *place)
        wanted = GaugeMetricFamily(
            "rocketmq_operator_group_replicas", "Replicas that a group should have", labels=groups
        )
        in_sync = GaugeMetricFamily(
            "rocketmq_operator_group_in_sync_replicas",
            "Members of its SyncStateSet that the operator saw",
            labels=groups,
        )
        verified = _Verifications(groups)
        for one in self._resources():
            ready.add_metric((one.kind, one.phase, one.namespace, one.name), float(one.ready))
            if one.group is not None:
                labels = (one.group.cluster, one.group.broker_set, one.namespace, one.name)
                wanted.add_metric(labels, one.group.replicas)
                in_sync.add_metric(labels, one.group.in_sync)
                if one.group.verification is not None:
                    verified.add(labels, one.group.verification)
        yield from (ready, wanted, in_sync, *verified.families)


class _Verifications:
    def __init__(self, labels: tuple[str, ...]) -> None:
        self._result = GaugeMetricFamily(
            "rocketmq_operator_verification_result",
            "1 for what the last comparison of a group's logs said: Aligned, Different or Failed",
            labels=(*labels, "result"),
        )
        self._ended = GaugeMetricFamily(
            "rocketmq_operator_verification_timestamp_seconds",
            "When the last comparison of a group's logs ended",
            labels=labels,
        )
        self._due = GaugeMetricFamily(
            "rocketmq_operator_verification_due_timestamp_seconds",
            "By when the next comparison of a group's logs should have ended, by its schedule and time-out",
            labels=labels,
        )
        self._offset = GaugeMetricFamily(
            "rocketmq_operator_verification_aligned_offset",
            "Offset below which the replicas' logs were found alike",
            labels=labels,
        )
        self.families = (self._result, self._ended, self._due, self._offset)

    def add(self, labels: tuple[str, ...], one: Verification) -> None:
        if one.result:
            for result in RESULTS:
                self._result.add_metric((*labels, result), float(one.result == result))
        values = ((self._ended, one.ended), (self._due, one.due), (self._offset, one.aligned_up_to))
        for family, value in values:
            if value is not None:
                family.add_metric(labels, value)
