"""What the process tests share: log lines as values, requests to the leader, waiting without guessed times."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from rocketmq_demo.calls import call
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST
from rocketmq_demo.processes import OwnedProcess
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_formats.remoting.controller import (
    ApplyBrokerIdRequestHeader,
    BrokerReplicasInfo,
    ElectMasterRequestHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import Header, decode_header
from tests.gate.patience import patient

PATIENCE = patient(60.0)
"""Seconds after which a required event counts as missing: generous, for busy machines."""

NOTHING_DONE = frozenset({ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_BUSY})
"""Answers that promise that the request changed nothing."""


def wait_until(condition: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
    """Wait until `condition` holds; AssertionError with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout:g} s for: {what}"
        time.sleep(0.02)


def log_lines(process: OwnedProcess) -> list[dict[str, Any]]:
    """What the process has logged (logFormat=json); a line that is no JSON fails the test."""
    lines = process.output().splitlines()
    if lines and process.alive and not process.output().endswith("\n"):
        lines.pop()  # still being written
    return [json.loads(line) for line in lines]


def logged(process: OwnedProcess, event: str, **keys: str) -> bool:
    """Whether it logged `event` with each of `keys` holding the given text somewhere in its value."""
    with suppress(json.JSONDecodeError):  # killed in the middle of a line
        return any(
            line["event"] == event and all(text in str(line.get(key)) for key, text in keys.items())
            for line in log_lines(process)
        )
    return False


def call_leader(
    cluster: ControllerCluster, code: RequestCode, header: Header | None = None, body: bytes = b""
) -> RemotingCommand:
    """The leader's answer; tries again where nothing was done. For requests that may be repeated."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for process in cluster:
            with suppress(OSError):
                answer = call(process.address, request(code, header, body), timeout=2.0)
                if answer.code not in NOTHING_DONE:
                    return answer
        assert time.monotonic() < deadline, f"no controller answered {code.name} as leader"
        time.sleep(0.02)


def check_code(broker_name: str, broker_id: int) -> str:
    """The register check code that `make_group` uses."""
    return f"127.0.0.1:{10911 + 10 * broker_id};{broker_name}-{broker_id}"


def make_group(cluster: ControllerCluster, broker_name: str, replicas: int = 2) -> None:
    """Register `replicas` members of a new group and elect the first."""
    for broker_id in range(1, replicas + 1):
        answer = call_leader(
            cluster,
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            ApplyBrokerIdRequestHeader(
                cluster_name="C",
                broker_name=broker_name,
                applied_broker_id=broker_id,
                register_check_code=check_code(broker_name, broker_id),
            ),
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    answer = call_leader(
        cluster,
        RequestCode.CONTROLLER_ELECT_MASTER,
        ElectMasterRequestHeader(cluster_name="C", broker_name=broker_name, broker_id=1),
    )
    assert answer.code in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}, answer.remark


def fill(cluster: ControllerCluster, broker_name: str, entries: int, *, suffix: str = "") -> str:
    """Make `entries` Raft entries by registering member 2 of the group at a new address each time; returns the last
    one."""
    deadline = time.monotonic() + PATIENCE
    address, number = "", 0
    while number < entries:  # once for each leader: one that is starved hands over
        assert time.monotonic() < deadline, f"no leader took entry {number + 1}"
        leader = cluster[cluster.wait_leader()]
        frames = RemotingConnection()
        with socket.create_connection((HOST, leader.port), timeout=PATIENCE) as connection:
            while number < entries:
                address = f"{broker_name}{suffix}.at:{number + 1}"
                header = RegisterBrokerToControllerRequestHeader(
                    cluster_name="C", broker_name=broker_name, broker_id=2, broker_address=address
                )
                connection.sendall(encode_frame(request(RequestCode.CONTROLLER_REGISTER_BROKER, header)))
                answers: list[RemotingCommand] = []
                while not answers:
                    data = connection.recv(65_536)
                    assert data, f"{leader.name} hung up:\n{leader.tail()}"
                    answers = frames.receive_data(data)
                if answers[0].code in NOTHING_DONE:
                    break
                assert answers[0].code == ResponseCode.SUCCESS, answers[0].remark
                number += 1
                deadline = time.monotonic() + PATIENCE
    return address


def replica_info(cluster: ControllerCluster, broker_name: str) -> tuple[GetReplicaInfoResponseHeader, SyncStateSet]:
    """The group as the leader reports it (1004)."""
    answer = call_leader(
        cluster, RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=broker_name)
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_header(GetReplicaInfoResponseHeader, answer.ext_fields or {}), decode_body(SyncStateSet, answer.body)


def address_of(cluster: ControllerCluster, broker_name: str, broker_id: int) -> str:
    """The member's address as the leader reports it (1006)."""
    answer = call_leader(cluster, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_body([broker_name]))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    info = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table[broker_name]
    members = {replica.broker_id: replica for replica in (*info.in_sync_replicas, *info.not_in_sync_replicas)}
    return members[broker_id].broker_address


def metric(page: str, name: str, **labels: str) -> float:
    """The value of one metric on a /metrics page; KeyError if it is not there."""
    for sample, found, value in samples(page):
        if sample == name and labels.items() <= found.items():
            return value
    raise KeyError(f"{name} {labels}")


def samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of everything on a /metrics page."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, dict(sample.labels), sample.value


def closed_by_peer(connection: socket.socket, timeout: float = PATIENCE) -> bytes:
    """Wait until the peer has closed; returns what it sent before."""
    connection.settimeout(timeout)
    received = b""
    try:
        while data := connection.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received
