"""Members that stop, restart, were away or hang: leadership is handed over, state stays, probes report it."""

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

import pytest

from rocketmq_demo.controllers import ControllerCluster, ControllerProcess
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import encode_frame, request
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader, RegisterBrokerToControllerRequestHeader
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from tests.processes.kit import (
    NOTHING_DONE,
    PATIENCE,
    address_of,
    fill,
    log_lines,
    make_group,
    metric,
    replica_info,
    samples,
    wait_until,
)
from tests.processes.stores import state_on_disk

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

MEMBERS = ("n0", "n1", "n2")


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory, ports: PortPool) -> Iterator[ControllerCluster]:
    """Three members, snapshots as often as may be."""
    folder = tmp_path_factory.mktemp("life-cycle")
    with ControllerCluster(folder, ports=ports, config={"raftSnapshotEntries": "100"}) as cluster:
        cluster.start()
        cluster.wait_ready(60.0)
        make_group(cluster, "g")
        yield cluster


@pytest.fixture
def cluster(quorum: ControllerCluster) -> Iterator[ControllerCluster]:
    """The quorum with all members up and none with a bug in its log."""
    quorum.start()
    quorum.wait_ready(60.0)
    yield quorum
    for process in quorum:
        assert not [line for line in log_lines(process) if line["level"] == "critical" or "exception" in line]


def term_above(term: float, process: ControllerProcess) -> float:
    """Its term, once it says one above `term`: /metrics is as old as its last pulse."""

    def found() -> float:
        return metric(process.http("/metrics")[1], "rocketmq_controller_raft_term")

    wait_until(lambda: found() > term, f"a term above {term:g}")
    return found()


class Writer:
    """One client that writes all the time, over one connection to the leader, and follows a leader change."""

    def __init__(self, cluster: ControllerCluster) -> None:
        """Writes to group g, which must exist."""
        self.acknowledged: list[float] = []
        """When, seconds."""
        self.last = ""
        self.unknown: list[str] = []
        self.stopping = False
        self._cluster = cluster

    async def more(self, writes: int = 50) -> None:
        """Wait until so many more are acknowledged."""
        count = len(self.acknowledged) + writes
        async with asyncio.timeout(PATIENCE):
            while len(self.acknowledged) < count:
                await asyncio.sleep(0.02)

    async def run(self) -> None:
        """Write until `stopping`."""
        client = RemotingClient()
        addresses = itertools.cycle(self._cluster.addresses)
        address = next(addresses)
        for number in itertools.count():
            if self.stopping:
                break
            wanted = f"w.{number}:1"
            header = RegisterBrokerToControllerRequestHeader(
                cluster_name="C", broker_name="g", broker_id=2, broker_address=wanted
            )
            try:
                answer = await client.call(
                    address, request(RequestCode.CONTROLLER_REGISTER_BROKER, header), timeout=PATIENCE
                )
            except RemotingError:
                address = next(addresses)
                continue
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged.append(time.monotonic())
                self.last = wanted
            elif answer.code in NOTHING_DONE:
                address = next(addresses)
                await asyncio.sleep(0.005)
            else:
                self.unknown.append(f"{answer.code} {answer.remark}")
        await client.close()


@asynccontextmanager
async def writing(cluster: ControllerCluster) -> AsyncIterator[Writer]:
    """A running writer; at the end its writes must succeed, and every answer must have the outcome of the write."""
    writer = Writer(cluster)
    task = asyncio.create_task(writer.run())
    await writer.more()
    yield writer
    await writer.more()
    writer.stopping = True
    await task
    gap = max(later - earlier for earlier, later in itertools.pairwise(writer.acknowledged))
    print(f"longest gap between acknowledged writes: {gap * 1000:.0f} ms")
    assert writer.unknown == []
    assert await asyncio.to_thread(address_of, cluster, "g", 2) == writer.last


async def test_sigterm_of_the_leader_hands_over_first_and_no_write_is_left_in_doubt(
    cluster: ControllerCluster,
) -> None:
    async with writing(cluster):
        old = await asyncio.to_thread(cluster.wait_leader)
        term = await asyncio.to_thread(term_above, 0, cluster[old])
        assert await asyncio.to_thread(cluster[old].stop, 60.0) == 0
        new = await asyncio.to_thread(cluster.wait_leader, 60.0)
    await asyncio.to_thread(term_above, term, cluster[new])
    said = [line for line in log_lines(cluster[old]) if line["event"] in {"raft role", "controller stopped"}]
    follows = [line for line in said if line["event"] == "raft role" and line["term"] > term]
    assert follows, "the old leader left before it saw the new one's term: it did not hand over"
    assert said[-1]["event"] == "controller stopped"


async def test_a_rolling_restart_under_load(cluster: ControllerCluster) -> None:
    before = await asyncio.to_thread(replica_info, cluster, "g")
    async with writing(cluster):
        for member in MEMBERS:
            assert await asyncio.to_thread(cluster[member].stop, 60.0) == 0
            await asyncio.to_thread(cluster.start_member(member).wait_ready, 60.0)
    assert await asyncio.to_thread(replica_info, cluster, "g") == before


def test_a_crash_of_all_keeps_all_state(cluster: ControllerCluster) -> None:
    address = fill(cluster, "g", 150)
    before = replica_info(cluster, "g")
    for process in cluster:
        process.kill9()
    cluster.start()
    cluster.wait_ready(60.0)
    assert replica_info(cluster, "g") == before
    assert address_of(cluster, "g", 2) == address


@pytest.mark.parametrize("entries", [50, 1300])  # 1000 are kept before a snapshot: from the log, through a snapshot
def test_a_member_that_was_away_catches_up(cluster: ControllerCluster, entries: int) -> None:
    leader = cluster.wait_leader()
    away = next(member for member in MEMBERS if member != leader)
    cluster[away].kill9()
    had = applied(cluster[leader])
    fill(cluster, "g", entries)
    cluster.start_member(away).wait_ready(60.0)
    wait_until(
        lambda: len({applied(process) for process in cluster}) == 1 and applied(cluster[away]) >= had + entries,
        f"{away} catches up",
    )
    snapshot = metric(cluster[away].http("/metrics")[1], "rocketmq_controller_raft_snapshot_index")
    assert entries < 1000 or snapshot > had + 1000
    for process in cluster:
        assert process.stop(60.0) == 0
    states = {
        state_on_disk(cluster.folder / member / "store", member, [other for other in MEMBERS if other != member])
        for member in MEMBERS
    }
    assert len(states) == 1


def applied(process: ControllerProcess) -> float:
    """The applied index on its page of metrics, which is as old as the last pulse; -1 without an answer."""
    status, page = process.http("/metrics")
    return metric(page, "rocketmq_controller_raft_applied_index") if status == 200 else -1.0


@pytest.mark.parametrize("survivor", ["leader", "follower"])
def test_probes_distinguish_a_lost_majority_from_a_sick_member(cluster: ControllerCluster, survivor: str) -> None:
    leader = cluster.wait_leader()
    left = leader if survivor == "leader" else next(member for member in MEMBERS if member != leader)
    hung = [member for member in MEMBERS if member != left]
    wait_until(lambda: all(process.http("/readyz")[0] == 200 for process in cluster), "all ready")
    for member in hung:
        cluster[member].suspend()
    try:
        wait_until(lambda: cluster[left].http("/readyz")[0] == 503, "not ready without a majority", timeout=10.0)
        status, reason = cluster[left].http("/readyz")
        assert (status, "no leader" in reason) == (503, True)
        assert cluster[left].http("/healthz") == (200, "ok\n")
        assert cluster[left].http("/nowhere")[0] == 404
    finally:
        for member in hung:
            cluster[member].resume()
    wait_until(lambda: all(process.http("/readyz")[0] == 200 for process in cluster), "all ready again")
    assert all(process.http("/healthz")[0] == 200 for process in cluster)


def role(process: ControllerProcess) -> float:
    """As at the last beat, a quarter of a second ago at most."""
    status, page = process.http("/metrics")
    return metric(page, "role") if status == 200 else 0


COMMON = {"address", "group", "peer_id"}
METRICS = {
    "role": COMMON,
    "dledger_disk_usage_bytes": COMMON,
    "active_broker_num": COMMON | {"cluster", "broker_set"},
    "request_total": COMMON | {"request_type", "request_handle_status"},
    "request_latency_microseconds_count": COMMON | {"request_type"},
    "dledger_op_total": COMMON | {"dledger_operation", "dLedger_operation_status"},
    "dledger_op_latency_microseconds_count": COMMON | {"dledger_operation"},
    "election_total": COMMON | {"cluster", "broker_set", "election_result"},
    "rocketmq_controller_raft_term": COMMON,
    "rocketmq_controller_raft_election_timeout_seconds": COMMON,
    "rocketmq_controller_raft_commit_index": COMMON,
    "rocketmq_controller_raft_member_connected": COMMON | {"member"},
}
"""Names and labels; the first eight as the Java controller's exporter writes them."""


def test_metrics_carry_the_java_names_and_labels(cluster: ControllerCluster) -> None:
    make_group(cluster, "m")
    replica_info(cluster, "m")
    wait_until(lambda: sorted(map(role, cluster)) == [2, 2, 3], "one leader and two followers")
    number, first = next((number, process) for number, process in enumerate(cluster) if role(process) == 2)
    # A controller that answered an election counts its broker as alive. No one has elected a broker of this group.
    beat = BrokerHeartbeatRequestHeader(cluster_name="C", broker_addr="a:1", broker_name="not-elected", broker_id=2)
    with socket.create_connection((HOST, first.port), timeout=PATIENCE) as connection:
        connection.sendall(encode_frame(request(RequestCode.BROKER_HEARTBEAT, beat)))
        assert connection.recv(4096)
        pages = [process.http("/metrics")[1] for process in cluster]

    labels = {name: set(found) for page in pages for name, found, _ in samples(page)}
    for name, wanted in METRICS.items():
        assert labels[name] == wanted, name
    common = {"address": first.address, "group": "demo", "peer_id": first.member}
    assert metric(pages[number], "role", **common) in {1, 2, 3}
    assert metric(pages[number], "active_broker_num", cluster="C", broker_set="not-elected") == 1
    assert metric(pages[number], "dledger_disk_usage_bytes") > 0
    # Counted by the leader at the time.
    assert total(pages, "election_total", broker_set="m", election_result="new_master_elected") == 1
    assert total(pages, "dledger_op_total", dledger_operation="append", dLedger_operation_status="success") >= 3
    counted = {"request_type": "CONTROLLER_GET_REPLICA_INFO", "request_handle_status": "success"}
    assert total(pages, "request_total", **counted) >= 1
    assert total(pages, "request_latency_microseconds_sum", request_type="CONTROLLER_GET_REPLICA_INFO") > 0
    buckets = {found["le"] for name, found, _ in samples(pages[0]) if name == "request_latency_microseconds_bucket"}
    assert {"1.0", "500.0", "1000.0", "500000.0", "1e+06", "1e+07", "+Inf"} <= buckets


def total(pages: Iterable[str], name: str, **labels: str) -> float:
    """The sum over all members."""
    return sum(
        value
        for page in pages
        for sample, found, value in samples(page)
        if sample == name and labels.items() <= found.items()
    )


def test_every_log_line_is_json_with_time_level_and_event(cluster: ControllerCluster) -> None:
    for process in cluster:
        assert process.stop(60.0) == 0
        lines = log_lines(process)
        events = [line["event"] for line in lines]
        assert [event for event in events if event != "log lines left out"][-1] == "controller stopped"
        for line in lines:
            assert {"timestamp", "level", "event", "logger"} <= line.keys()
