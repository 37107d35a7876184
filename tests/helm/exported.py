"""What the processes really export: every registry rendered once, with everything in it that can be."""

import asyncio
from collections import defaultdict
from pathlib import Path

from prometheus_client import CollectorRegistry

from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.raft import RaftStatus, Role
from rocketmq_controller.raft.configuration import Configuration, Member
from rocketmq_controller.raft.status import MemberStatus
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.replica_link import Counts
from rocketmq_namesrv.app import NameServerApp
from rocketmq_namesrv.config import LiveConfig
from rocketmq_operator.metrics import Group, OperatorMetrics, Resource, Verification
from rocketmq_sidecar.ports.metrics import SidecarMetrics, Snapshot
from rocketmq_sidecar.replication.ha_server import SlaveLag

TARGET = frozenset({"namespace", "pod", "container", "job", "instance", "endpoint"})
"""Labels that Prometheus adds, by the PodMonitors."""


def exported(folder: Path) -> dict[str, frozenset[str]]:
    """Labels by the name of each sample."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for registry in (_controller(folder), _name_server(folder), _sidecar(), _operator()):
        for family in registry.collect():
            assert family.samples, f"{family.name}: count something of it here"
            for sample in family.samples:
                found[sample.name] |= sample.labels.keys()
    return {name: frozenset(labels) for name, labels in found.items()}


def _controller(folder: Path) -> CollectorRegistry:
    metrics = ControllerMetrics(address="h:9878", group="g", peer_id="n0", extra_labels={})
    metrics.request(RequestCode.BROKER_HEARTBEAT, "success", 0.001)
    metrics.append("success", 0.001)
    metrics.election("C", "broker-a", ResponseCode.SUCCESS)
    status = RaftStatus(
        self_id="n0",
        role=Role.LEADER,
        is_leader=True,
        is_serving=True,
        term=3,
        leader_id="n0",
        commit_index=9,
        last_applied=9,
        first_index=1,
        last_index=9,
        durable_index=9,
        snapshot_index=0,
        pending=0,
        members=(MemberStatus(id="n1", connected=True, match_index=9, next_index=10),),
        configuration=Configuration((Member("n0", "h", 9879, voter=True), Member("n1", "h", 9879, voter=False)), 1),
    )
    metrics.read_at_scrape(lambda: status, lambda: [("C", "broker-a")], lambda: 1, folder)
    return metrics.registry


def _name_server(folder: Path) -> CollectorRegistry:
    async def build() -> NameServerApp:
        return NameServerApp(LiveConfig({"kvConfigPath": str(folder / "kv.json")}, {}))

    app = asyncio.run(build())
    app.counts.answered(RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.SUCCESS)
    return app.metrics_registry


def _sidecar() -> CollectorRegistry:
    now = Snapshot(
        cluster="C",
        broker_set="broker-a",
        broker_id=1,
        role="master",
        master_epoch=7,
        in_sync=2,
        lease_seconds=1.5,
        max_offset=2000,
        confirm_offset=1000,
        broker_connected=True,
        controller_known=True,
        slaves=(SlaveLag(2, 0, in_sync=True),),
        disk_used=0.5,
        counts=Counts(),
    )
    return SidecarMetrics(lambda: now).registry


def _operator() -> CollectorRegistry:
    verified = Verification("Aligned", ended=1.0, due=2.0, aligned_up_to=3, oldest_read=0.5)
    group = Resource("BrokerGroup", "mq", "a", "Running", ready=True, group=Group("C", "broker-a", 3, 3, verified))
    metrics = OperatorMetrics(leading=lambda: True, waiting=lambda: 0, resources=lambda: [group])
    metrics.reconciled("BrokerGroup", seconds=0.1, failed=False)
    metrics.decided("BrokerGroup", "RollingUpdate")
    metrics.acted("DeletePod", failed=False)
    metrics.called("patch", "pods", "200")
    metrics.master_changed("mq", "a")
    metrics.handed_over("mq", "a")
    return metrics.registry
