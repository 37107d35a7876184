"""The controller's metrics: the Java controller's names and labels, so that its dashboards keep working, and Raft's
own.

Counters and histograms are updated in the event loop; gauges are read when scraped.
Source: rocketmq-all-5.3.3: ControllerMetricsConstant.java, ControllerMetricsManager.java.
"""

import contextlib
from collections import Counter as CountOf
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_controller.raft import RaftStatus, Role
from rocketmq_formats.codes import RequestCode, ResponseCode

LATENCY_BUCKETS_US = (
    *(base * scale for scale in (1, 1000) for base in (1, 3, 5, 10, 30, 50, 100, 300, 500)),
    *(1_000_000, 3_000_000, 5_000_000, 10_000_000),
)
ROLE_VALUES = {Role.CANDIDATE: 1, Role.FOLLOWER: 2, Role.LEADER: 3}
ELECTION_RESULTS: Mapping[int, str] = {
    ResponseCode.SUCCESS: "new_master_elected",
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: "no_master_elected",
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: "no_master_elected",
}

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class ControllerMetrics:
    """Everything /metrics shows of one controller."""

    def __init__(self, *, address: str, group: str, peer_id: str, extra_labels: Mapping[str, str]) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.common = {"address": address, "group": group, "peer_id": peer_id, **extra_labels}
        names = tuple(self.common)
        self._values = tuple(self.common.values())
        self._requests = prometheus_client.Counter(
            "request", "Requests answered", (*names, "request_type", "request_handle_status"), registry=self.registry
        )
        self._latency = prometheus_client.Histogram(
            "request_latency_microseconds",
            "Time from a request's arrival to its answer",
            (*names, "request_type"),
            buckets=LATENCY_BUCKETS_US,
            registry=self.registry,
        )
        self._operations = prometheus_client.Counter(
            "dledger_op",
            "Entries appended to the Raft log",
            (*names, "dledger_operation", "dLedger_operation_status"),
            registry=self.registry,
        )
        self._operation_latency = prometheus_client.Histogram(
            "dledger_op_latency_microseconds",
            "Time from a proposal to its commit",
            (*names, "dledger_operation"),
            buckets=LATENCY_BUCKETS_US,
            registry=self.registry,
        )
        self._elections = prometheus_client.Counter(
            "election",
            "Elections of masters",
            (*names, "cluster", "broker_set", "election_result"),
            registry=self.registry,
        )
        # Looking children up by label costs more than counting; there are few of them.
        self._request_children: dict[tuple[int, str], prometheus_client.Counter] = {}
        self._latency_children: dict[int, prometheus_client.Histogram] = {}

    def request(self, code: int, status: str, seconds: float) -> None:
        """Count one request; `status` is success, failed or timeout."""
        key = (code, status)
        counter = self._request_children.get(key)
        if counter is None:
            counter = self._requests.labels(*self._values, request_type(code), status)
            self._request_children[key] = counter
        counter.inc()
        histogram = self._latency_children.get(code)
        if histogram is None:
            histogram = self._latency.labels(*self._values, request_type(code))
            self._latency_children[code] = histogram
        histogram.observe(seconds * 1e6)

    def append(self, status: str, seconds: float) -> None:
        """Count one Raft entry; `status` is success, failed or timeout."""
        self._operations.labels(*self._values, "append", status).inc()
        self._operation_latency.labels(*self._values, "append").observe(seconds * 1e6)

    def election(self, cluster_name: str, broker_name: str, code: int) -> None:
        """Count one election by its answer; codes that decide nothing do not count."""
        result = ELECTION_RESULTS.get(code)
        if result is not None:
            self._elections.labels(*self._values, cluster_name, broker_name, result).inc()

    def read_at_scrape(
        self,
        status: Callable[[], RaftStatus | None],
        active_brokers: Callable[[], Iterable[tuple[str, str]]],
        group_count: Callable[[], int],
        store_path: Path,
    ) -> None:
        """Register the gauges; the callables run in the scraping thread and only read."""
        self.registry.register(_Gauges(self.common, status, active_brokers, group_count, store_path))


class _Gauges(Collector):
    def __init__(
        self,
        common: Mapping[str, str],
        status: Callable[[], RaftStatus | None],
        active_brokers: Callable[[], Iterable[tuple[str, str]]],
        group_count: Callable[[], int],
        store_path: Path,
    ) -> None:
        self._names, self._values = list(common), list(common.values())
        self._status, self._active_brokers, self._group_count = status, active_brokers, group_count
        self._store_path = store_path

    def collect(self) -> Iterable[Metric]:
        status = self._status()
        role = 0 if status is None else ROLE_VALUES[status.role]
        yield self._gauge("role", "0 unknown, 1 candidate, 2 follower, 3 leader", role)
        yield self._gauge(
            "dledger_disk_usage_bytes", "Bytes of journal, snapshots and vote", disk_usage(self._store_path)
        )
        active = GaugeMetricFamily(
            "active_broker_num",
            "Brokers alive by this member's heartbeat table",
            labels=[*self._names, "cluster", "broker_set"],
        )
        for (cluster, broker_set), count in sorted(CountOf(self._active_brokers()).items()):
            active.add_metric([*self._values, cluster, broker_set], count)
        yield active
        yield self._gauge("rocketmq_controller_groups", "Broker groups in the state machine", self._group_count())
        if status is not None:
            yield from self._raft(status)

    def _raft(self, status: RaftStatus) -> Iterable[Metric]:
        yield self._gauge("rocketmq_controller_raft_term", "Current term", status.term)
        yield self._gauge("rocketmq_controller_raft_commit_index", "Newest committed entry", status.commit_index)
        yield self._gauge("rocketmq_controller_raft_applied_index", "Newest applied entry", status.last_applied)
        yield self._gauge(
            "rocketmq_controller_raft_election_timeout_seconds",
            "Silence allowed to a leader by now: longer while members are held up",
            status.election_timeout,
        )
        yield self._gauge("rocketmq_controller_raft_last_index", "Newest entry in the journal", status.last_index)
        yield self._gauge(
            "rocketmq_controller_raft_snapshot_index", "Entry that the newest snapshot covers", status.snapshot_index
        )
        connected = GaugeMetricFamily(
            "rocketmq_controller_raft_member_connected", "1 if connected", labels=[*self._names, "member"]
        )
        voter = GaugeMetricFamily(
            "rocketmq_controller_raft_member_voter",
            "1 for a voter, 0 for a learner, by this member's newest configuration",
            labels=[*self._names, "member"],
        )
        match = GaugeMetricFamily(
            "rocketmq_controller_raft_member_match_index",
            "Newest entry that is known to be on the member's disk; of others on the leader only",
            labels=[*self._names, "member"],
        )
        for member in status.members:
            connected.add_metric([*self._values, member.id], int(member.connected))
            if member.match_index is not None:
                match.add_metric([*self._values, member.id], member.match_index)
        match.add_metric([*self._values, status.self_id], status.durable_index)
        for configured in status.configuration.members:
            voter.add_metric([*self._values, configured.id], int(configured.voter))
        yield connected
        yield voter
        yield match

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=self._names)
        family.add_metric(self._values, value)
        return family


def request_type(code: int) -> str:
    """The Java label of a request code."""
    names: Mapping[int, str] = {
        RequestCode.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
        RequestCode.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA",
        RequestCode.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
        RequestCode.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
        RequestCode.GET_BROKER_EPOCH_CACHE: "CONTROLLER_GET_BROKER_EPOCH_CACHE",
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: "CONTROLLER_NOTIFY_BROKER_ROLE_CHANGED",
    }
    if code in names:
        return names[code]
    try:
        return RequestCode(code).name
    except ValueError:
        return "UNKNOWN"


def disk_usage(folder: Path) -> int:
    """Bytes of the files in `folder`; files that vanish during the call (a cut journal) count as nothing."""
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total
