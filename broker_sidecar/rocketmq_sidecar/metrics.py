"""The sidecar's metrics: gauges that are read when scraped, out of the agent. Called in the probes' thread: reads only.

Names are ours; 5.3.3's broker has none of these. Labels: cluster, broker_set, and broker_id once it is known. The
broker's own counts, rocketmq_broker_*, come over the link.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_formats.replica_link import ANSWER_SECONDS, Counts
from rocketmq_runtime.filesystem import used_ratio
from rocketmq_sidecar.ha_server import SlaveLag


class Snapshot(msgspec.Struct, frozen=True):
    """What the gauges show."""

    cluster: str
    broker_set: str
    broker_id: int | None
    role: str
    """master, slave or fenced (neither)."""
    master_epoch: int
    in_sync: int
    """Members of the SyncStateSet as the controllers last said."""
    lease_seconds: float
    """Until the write lease ends; 0 if there is none."""
    max_offset: int
    confirm_offset: int
    broker_connected: bool
    controller_known: bool
    """Whether a leading controller is known."""
    fenced: bool = False
    """Whether an operator has sends refused; nothing to do with the role."""
    slaves: tuple[SlaveLag, ...] = ()
    """Of a master."""
    disk_used: float | None = None
    """0 to 1; None if nobody can say."""
    counts: Counts | None = None
    """The broker's."""
    log_digested: int = 0
    """Bytes of the log that digests were made of, for the verification."""
    log_sent: int = 0
    """Bytes of the log sent to the verification."""


ROLES = ("fenced", "slave", "master")


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
            ("master_epoch", "Newest masterEpoch heard of", now.master_epoch),
            ("in_sync_replicas", "Members of the SyncStateSet", now.in_sync),
            ("lease_seconds", "Time until the write lease ends", now.lease_seconds),
            ("max_offset", "End of the commit log in bytes", now.max_offset),
            ("confirm_offset", "What consumers may see, in bytes", now.confirm_offset),
            ("fenced", "1 while sends are refused by an operator's order", now.fenced),
            ("broker_connected", "1 while the broker is connected", now.broker_connected),
            ("controller_known", "1 while a leading controller is known", now.controller_known),
        ]
        if now.disk_used is not None:
            gauges.append(("disk_used_ratio", "How full the disk of the commit log is, 0 to 1", now.disk_used))
        for name, text, count in (
            ("verify_digested_bytes", "Bytes of the log digested for the verification", now.log_digested),
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
    for name, text, value in (
        ("messages_put", "Messages stored", counts.put_messages),
        ("bytes_put", "Bytes of records stored", counts.put_bytes),
        ("messages_got", "Messages that pulls were answered with", counts.got_messages),
        ("bytes_got", "Bytes of records that pulls were answered with", counts.got_bytes),
        ("sends_refused", "Sends refused over role, lease, too few in sync, load or disk", counts.sends_refused),
        ("sends_timed_out", "Sends stored, but not copied or synced in time", counts.sends_timed_out),
    ):
        family = CounterMetricFamily(f"rocketmq_broker_{name}", text, labels=tuple(labels))
        family.add_metric(values, value)
        yield family
    pulls = CounterMetricFamily("rocketmq_broker_pulls", "Pulls answered, by what they got", labels=(*labels, "result"))
    pulls.add_metric((*values, "found"), counts.pulls_found)
    pulls.add_metric((*values, "missed"), counts.pulls_missed)
    yield pulls
    seconds = HistogramMetricFamily(
        "rocketmq_broker_send_seconds", "Time of a send between append and PUT_OK", labels=tuple(labels)
    )
    bounds = (*(str(bound) for bound in ANSWER_SECONDS), "+Inf")
    buckets = list(zip(bounds, itertools.accumulate(counts.answers), strict=True))
    seconds.add_metric(values, buckets, sum_value=counts.answer_seconds)
    yield seconds


def disk_used(path: Path) -> float | None:
    """The used part of the volume of `path`; None while that is not there yet."""
    with contextlib.suppress(OSError):
        return used_ratio(path)
    return None
