"""The controller's metrics: the Java controller's names and labels, so that its dashboards keep working, and Raft's
own.

What is counted is updated in the event loop; gauges are read when scraped.
Source: rocketmq-all-5.3.3: ControllerMetricsConstant.java, ControllerMetricsManager.java.
"""

import contextlib
import functools
import itertools
from bisect import bisect_left
from collections import Counter as CountOf
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from rocketmq_controller.raft import RaftStatus, Role
from rocketmq_formats.codes import RequestCode, ResponseCode

LATENCY_BUCKETS_US = (
    *(base * scale for scale in (1, 1000) for base in (1, 3, 5, 10, 30, 50, 100, 300, 500)),
    *(1_000_000, 3_000_000, 5_000_000, 10_000_000),
)
_BOUNDS = (*(floatToGoString(bound) for bound in LATENCY_BUCKETS_US), "+Inf")  # type: ignore[no-untyped-call]
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
        self._requests = _Timed(
            self.common,
            "request",
            "Requests answered",
            ("request_type", "request_handle_status"),
            "Time from a request's arrival to its answer",
        )
        self._operations = _Timed(
            self.common,
            "dledger_op",
            "Entries appended to the Raft log",
            ("dledger_operation", "dLedger_operation_status"),
            "Time from a proposal to its commit",
        )
        for timed in (self._requests, self._operations):
            self.registry.register(timed)
        self._elections = prometheus_client.Counter(
            "election",
            "Elections of masters",
            (*names, "cluster", "broker_set", "election_result"),
            registry=self.registry,
        )

    def request(self, code: int, status: str, seconds: float) -> None:
        """Count one request; `status` is success, failed or timeout."""
        self._requests.add(request_type(code), status, seconds)

    def append(self, status: str, seconds: float) -> None:
        """Count one Raft entry; `status` is success, failed or timeout."""
        self._operations.add("append", status, seconds)

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


class _Timed(Collector):
    """Counts what was done by kind and status, and its time by kind. Every request comes here: counters and histograms
    of prometheus_client would take a dozen calls, three locks and a search from the lowest bucket for each."""

    def __init__(
        self, common: Mapping[str, str], name: str, text: str, labels: tuple[str, str], time_text: str
    ) -> None:
        """`labels` of kind and status."""
        self._name, self._text, self._time_text = name, text, time_text
        self._names, self._values, self._labels = list(common), list(common.values()), labels
        self._counts: dict[tuple[str, str], int] = {}
        self._times: dict[str, list[float]] = {}
        """By kind: how many in each bucket, and longer; then the sum of the times, in microseconds."""

    def add(self, kind: str, status: str, seconds: float) -> None:
        key = (kind, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get(kind)
        if times is None:
            times = self._times[kind] = [0.0] * (len(LATENCY_BUCKETS_US) + 2)
        microseconds = seconds * 1e6
        times[bisect_left(LATENCY_BUCKETS_US, microseconds)] += 1
        times[-1] += microseconds

    def collect(self) -> Iterable[Metric]:
        kind_label, status_label = self._labels
        counter = CounterMetricFamily(self._name, self._text, labels=[*self._names, kind_label, status_label])
        for (kind, status), count in tuple(self._counts.items()):
            counter.add_metric([*self._values, kind, status], count)
        yield counter
        histogram = HistogramMetricFamily(
            f"{self._name}_latency_microseconds", self._time_text, labels=[*self._names, kind_label]
        )
        for kind, times in tuple(self._times.items()):
            *counts, total = times
            buckets = list(zip(_BOUNDS, itertools.accumulate(counts), strict=True))
            histogram.add_metric([*self._values, kind], buckets, total)
        yield histogram


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


@functools.lru_cache(maxsize=256)
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
