"""The sidecar's metrics: gauges read from the agent when scraped. Called in the probes' thread, so it only reads.

5.3.3's broker has none of these. Labels: cluster, broker_set, and broker_id once it is known. The broker's own
counters, rocketmq_broker_*, come over the link.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_formats.replica_link import ANSWER_SECONDS, Counts, count_metrics
from rocketmq_runtime.files.filesystem import used_ratio
from rocketmq_sidecar.replication.ha_server import SlaveLag

_COUNTED: Final = count_metrics()


class Snapshot(msgspec.Struct, frozen=True):
    """The values of the gauges."""

    cluster: str
    broker_set: str
    broker_id: int | None
    role: str
    """master, slave or none."""
    master_epoch: int
    in_sync: int
    """Members of the SyncStateSet by the controllers' last answer; of a strict master those that are connected."""
    lease_seconds: float
    """Until the write lease ends; 0 without a lease."""
    max_offset: int
    confirm_offset: int
    broker_connected: bool
    controller_known: bool
    """Whether a leading controller is known."""
    acting: bool = False
    """Whether it is a slave that serves consumers in a master's place."""
    fenced: bool = False
    """Whether an operator has fenced the replica; unrelated to the role."""
    unproven: bool = False
    """Whether the log may lack what was acknowledged."""
    given_up: int = 0
    """Losses of acknowledged messages that are noted."""
    slaves: tuple[SlaveLag, ...] = ()
    """Of a master."""
    disk_used: float | None = None
    """0 to 1; None if not known."""
    counts: Counts | None = None
    """The broker's."""
    log_digested: int = 0
    """Bytes of the log digested or checked for the verification."""
    log_sent: int = 0
    """Bytes of the log sent to the verification."""


ROLES = ("none", "slave", "master")


class SidecarMetrics:
    """The registry of one process."""

    def __init__(self, read: Callable[[], Snapshot]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Gauges(read))


class _Gauges(Collector):
    def __init__(self, read: Callable[[], Snapshot]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        now = self._read()
        labels = {
            "cluster": now.cluster,
            "broker_set": now.broker_set,
            "broker_id": "" if now.broker_id is None else str(now.broker_id),
        }
        role = GaugeMetricFamily("rocketmq_sidecar_role", "1 for the role this replica has", labels=(*labels, "role"))
        for name in ROLES:
            role.add_metric((*labels.values(), name), float(now.role == name))
        yield role
        yield from _slaves(labels, now.slaves)
        if now.counts is not None:
            yield from _broker(labels, now.counts)
        gauges = [
            ("master_epoch", "Newest known masterEpoch", now.master_epoch),
            ("in_sync_replicas", "Members of the SyncStateSet, of a strict master the connected ones", now.in_sync),
            ("lease_seconds", "Time until the write lease ends", now.lease_seconds),
            ("max_offset", "End of the commit log in bytes", now.max_offset),
            ("confirm_offset", "What consumers may see, in bytes", now.confirm_offset),
            ("acting_master", "1 while this slave serves consumers in a master's place", now.acting),
            ("fenced", "1 while an operator has sends refused", now.fenced),
            ("log_unproven", "1 while the log may lack what was acknowledged", now.unproven),
            ("log_given_up", "Losses of acknowledged messages, until their note is deleted", now.given_up),
            ("broker_connected", "1 while the broker is connected", now.broker_connected),
            ("controller_known", "1 while a leading controller is known", now.controller_known),
        ]
        if now.disk_used is not None:
            gauges.append(("disk_used_ratio", "How full the disk of the commit log is, 0 to 1", now.disk_used))
        for name, text, count in (
            ("verify_digested_bytes", "Bytes of the log digested or checked for the verification", now.log_digested),
            ("verify_sent_bytes", "Bytes of the log sent to the verification", now.log_sent),
        ):
            counter = CounterMetricFamily(f"rocketmq_sidecar_{name}", text, labels=tuple(labels))
            counter.add_metric(tuple(labels.values()), count)
            yield counter
        for name, text, value in gauges:
            gauge = GaugeMetricFamily(f"rocketmq_sidecar_{name}", text, labels=tuple(labels))
            gauge.add_metric(tuple(labels.values()), float(value))
            yield gauge


def _slaves(labels: dict[str, str], slaves: tuple[SlaveLag, ...]) -> Iterable[Metric]:
    names, values = (*labels, "slave_broker_id"), tuple(labels.values())
    lag = GaugeMetricFamily(
        "rocketmq_sidecar_slave_lag_bytes", "Master: what a connected slave has not acknowledged", labels=names
    )
    in_sync = GaugeMetricFamily(
        "rocketmq_sidecar_slave_in_sync", "Master: 1 for a connected slave in the SyncStateSet", labels=names
    )
    for slave in slaves:
        lag.add_metric((*values, str(slave.broker_id)), float(slave.lag))
        in_sync.add_metric((*values, str(slave.broker_id)), float(slave.in_sync))
    yield lag
    yield in_sync


def _broker(labels: dict[str, str], counts: Counts) -> Iterable[Metric]:
    values = tuple(labels.values())
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for metric in _COUNTED:
        if (family := families.get(metric.name)) is None:
            make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
            family = make(f"rocketmq_broker_{metric.name}", metric.text, labels=(*labels, *metric.labels))
            families[metric.name] = family
        family.add_metric((*values, *metric.labels.values()), getattr(counts, metric.field))
    yield from families.values()
    seconds = HistogramMetricFamily(
        "rocketmq_broker_send_seconds", "Time of a send between append and PUT_OK", labels=tuple(labels)
    )
    bounds = (*(str(bound) for bound in ANSWER_SECONDS), "+Inf")
    buckets = list(zip(bounds, itertools.accumulate(counts.answers), strict=True))
    seconds.add_metric(values, buckets, sum_value=counts.answer_seconds)
    yield seconds


def disk_used(path: Path) -> float | None:
    """The used part of the volume of `path`; None while `path` does not exist."""
    with contextlib.suppress(OSError):
        return used_ratio(path)
    return None
