"""All controllers hang, and brokers close their connections: that proves nothing about the brokers."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import encode_frame, request
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    BrokerHeartbeatRequestHeader,
    BrokerReplicasInfo,
    SyncStateSet,
)
from tests.processes.kit import call_leader, log_lines, logged, make_group, replica_info, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

NAME = "g"
MASTER, SLAVE = 1, 2
STALL = 4.0
"""Seconds: longer than a broker waits for an answer, and than a controller counts a connection as new."""
PATIENT = 60_000
"""Milliseconds after which silence counts: only closed connections are tested here, and the machine may be slow."""


class LightBroker:
    """Sends heartbeats to every controller, over one connection to each, from a thread of its own."""

    def __init__(self, cluster: ControllerCluster, broker_id: int) -> None:
        self._ports = tuple(cluster.ports.values())
        self._broker_id = broker_id
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.connect()
        self._thread.start()

    def connect(self) -> None:
        """Open the connections and send heartbeats; the kernel accepts for a stopped process too."""
        with self._lock:
            self._connections = [socket.create_connection((HOST, port), timeout=60) for port in self._ports]
        self._heartbeat()

    def hang_up(self) -> None:
        """Close the connections and be silent until `connect`."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections = []

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.hang_up()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            self._heartbeat()

    def _heartbeat(self) -> None:
        header = BrokerHeartbeatRequestHeader(
            cluster_name="C",
            broker_addr=f"127.0.0.1:{self._broker_id}",
            broker_name=NAME,
            broker_id=self._broker_id,
            heartbeat_timeout_mills=PATIENT,
        )
        beat = request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)
        with self._lock, suppress(OSError):
            for connection in self._connections:
                connection.sendall(encode_frame(beat))


@pytest.fixture
def cluster(tmp_path: Path, ports: PortPool) -> Iterator[ControllerCluster]:
    with ControllerCluster(tmp_path, ports=ports, config={"brokerSuspectTimeoutMs": str(PATIENT)}) as cluster:
        cluster.start()
        cluster.wait_ready(60.0)
        make_group(cluster, NAME)
        yield cluster


def alive(cluster: ControllerCluster) -> set[int]:
    answer = call_leader(cluster, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_body([NAME]))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    info = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table[NAME]
    return {replica.broker_id for replica in (*info.in_sync_replicas, *info.not_in_sync_replicas) if replica.alive}


def elections(cluster: ControllerCluster) -> list[dict[str, Any]]:
    """Elections that controllers began by themselves, and why."""
    return [line for process in cluster for line in log_lines(process) if line["event"] in {"election", "broker lost"}]


@pytest.mark.parametrize("back", ["during the stall", "after it"])
def test_lost_connections_while_all_controllers_hang_cause_no_election(cluster: ControllerCluster, back: str) -> None:
    """As Java brokers do whose requests are not answered; the next heartbeat opens another connection."""
    with ExitStack() as ends:
        master, slave = (LightBroker(cluster, broker_id) for broker_id in (MASTER, SLAVE))
        ends.callback(master.close)
        ends.callback(slave.close)
        wait_until(lambda: alive(cluster) == {MASTER, SLAVE}, "both brokers alive")
        header, in_sync = replica_info(cluster, NAME)
        answer = call_leader(
            cluster,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            AlterSyncStateSetRequestHeader(
                broker_name=NAME, master_broker_id=MASTER, master_epoch=header.master_epoch or 0
            ),
            encode_body(
                SyncStateSet(
                    sync_state_set=frozenset({MASTER, SLAVE}), sync_state_set_epoch=in_sync.sync_state_set_epoch
                )
            ),
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        before, already = replica_info(cluster, NAME), elections(cluster)

        for process in cluster:
            process.suspend()
        try:
            time.sleep(STALL)
            master.hang_up()
            if back == "during the stall":
                master.connect()
        finally:
            for process in cluster:
                process.resume()
        wait_until(
            lambda: all(logged(process, "event loop was stalled, silence counts from now on") for process in cluster),
            "they woke up",
        )
        cluster.wait_leader(60.0)
        if back == "after it":
            master.connect()
        wait_until(lambda: alive(cluster) == {MASTER, SLAVE}, "both brokers alive again")
        assert replica_info(cluster, NAME) == before
        assert elections(cluster) == already
