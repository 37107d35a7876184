"""The operator's metrics. Tests check the chart's alerts and dashboard against them.

Reconciles and decisions are counted in the event loop. The rest is read at each scrape, by another thread: reads only.
"""

from collections.abc import Callable, Iterable

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_resources.names import Kind

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
    """None: never compared, and no comparison is expected."""


class Verification(msgspec.Struct, frozen=True):
    """The result of the last comparison of a group's logs."""

    result: str = ""
    """Aligned, Different or Failed; empty: no comparison has ended yet."""
    ended: float | None = None
    due: float | None = None
    """When the next one should have ended; None: no comparison is expected."""
    aligned_up_to: int | None = None
    oldest_read: float | None = None
    """Every byte that can be compared was read at this time or later."""


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
            waiting: resources that wait for a reconcile.
            resources: all watched resources while it leads, else none.
        """
        self.registry = CollectorRegistry()
        self._reconciles = Counter(
            "rocketmq_operator_reconciles",
            "Reconciles by result: done, or error (retried)",
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
            "Decisions for which it recorded an Event",
            ("kind", "reason"),
            registry=self.registry,
        )
        self._actions = Counter(
            "rocketmq_operator_actions",
            "Actions beside applying objects, by kind and result: done, or error (retried)",
            ("action", "result"),
            registry=self.registry,
        )
        self._calls = Counter(
            "rocketmq_operator_api_calls",
            "Calls to the Kubernetes API except watches, by verb, resource and HTTP status (error: no answer)",
            ("verb", "resource", "status"),
            registry=self.registry,
        )
        # not `namespace`: see _Gauges
        self._master_changes = Counter(
            "rocketmq_operator_master_changes",
            "Changes of a group's master, by failover or hand-over",
            ("resource_namespace", "name"),
            registry=self.registry,
        )
        self._hand_overs = Counter(
            "rocketmq_operator_hand_overs",
            "Completed planned switchovers",
            ("resource_namespace", "name"),
            registry=self.registry,
        )
        self.registry.register(_Gauges(leading, waiting, resources))

    def reconciled(self, kind: Kind, *, seconds: float, failed: bool) -> None:
        self._reconciles.labels(kind, "error" if failed else "done").inc()
        self._seconds.labels(kind).observe(seconds)

    def decided(self, kind: str, reason: str) -> None:
        """An Event was recorded. The reasons are ours, so there are few label values."""
        self._decisions.labels(kind, reason).inc()

    def acted(self, action: str, *, failed: bool) -> None:
        """An action of a plan has ended."""
        self._actions.labels(action, "error" if failed else "done").inc()

    def called(self, verb: str, resource: str, status: str) -> None:
        """A call to the API server has ended."""
        self._calls.labels(verb, resource, status).inc()

    def master_changed(self, namespace: str, name: str) -> None:
        """A group has a new master."""
        self._master_changes.labels(namespace, name).inc()

    def handed_over(self, namespace: str, name: str) -> None:
        """A planned switchover has completed."""
        self._hand_overs.labels(namespace, name).inc()


class _Gauges(Collector):
    def __init__(
        self, leading: Callable[[], bool], waiting: Callable[[], int], resources: Callable[[], Iterable[Resource]]
    ) -> None:
        self._leading, self._waiting, self._resources = leading, waiting, resources

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "rocketmq_operator_leader", "1 while this process holds the Lease", value=float(self._leading())
        )
        yield GaugeMetricFamily(
            "rocketmq_operator_queue_length", "Resources that wait for a reconcile", value=self._waiting()
        )
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
            "Members of the SyncStateSet, as last observed",
            labels=groups,
        )
        verified = _Verifications(groups)
        for resource in self._resources():
            ready.add_metric((resource.kind, resource.phase, resource.namespace, resource.name), float(resource.ready))
            if resource.group is not None:
                labels = (resource.group.cluster, resource.group.broker_set, resource.namespace, resource.name)
                wanted.add_metric(labels, resource.group.replicas)
                in_sync.add_metric(labels, resource.group.in_sync)
                if resource.group.verification is not None:
                    verified.add(labels, resource.group.verification)
        yield from (ready, wanted, in_sync, *verified.families)


class _Verifications:
    def __init__(self, labels: tuple[str, ...]) -> None:
        self._result = GaugeMetricFamily(
            "rocketmq_operator_verification_result",
            "1 for the result of the last comparison of a group's logs: Aligned, Different or Failed",
            labels=(*labels, "result"),
        )
        self._ended = GaugeMetricFamily(
            "rocketmq_operator_verification_timestamp_seconds",
            "When the last comparison of a group's logs ended",
            labels=labels,
        )
        self._due = GaugeMetricFamily(
            "rocketmq_operator_verification_due_timestamp_seconds",
            "When the next comparison of a group's logs should have ended, by its schedule and time-out",
            labels=labels,
        )
        self._offset = GaugeMetricFamily(
            "rocketmq_operator_verification_aligned_offset",
            "Offset below which the replicas' logs were found equal",
            labels=labels,
        )
        self._oldest = GaugeMetricFamily(
            "rocketmq_operator_verification_oldest_read_timestamp_seconds",
            "Every byte of a group's logs that can be compared was read at this time or later",
            labels=labels,
        )
        self.families = (self._result, self._ended, self._due, self._offset, self._oldest)

    def add(self, labels: tuple[str, ...], last: Verification) -> None:
        if last.result:
            for result in RESULTS:
                self._result.add_metric((*labels, result), float(last.result == result))
        values = (
            (self._ended, last.ended),
            (self._due, last.due),
            (self._offset, last.aligned_up_to),
            (self._oldest, last.oldest_read),
        )
        for family, value in values:
            if value is not None:
                family.add_metric(labels, value)
