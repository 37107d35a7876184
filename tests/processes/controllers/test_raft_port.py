"""The Raft port under strangers: nothing they send is parsed beyond a handshake, the quorum continues, and the log
names the remedy."""

import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_controller.raft.network.handshake import Handshake
from rocketmq_demo.controllers import ControllerCluster, ControllerProcess
from rocketmq_demo.ports import HOST, PortPool
from tests.processes.kit import PATIENCE, address_of, closed_by_peer, fill, log_lines, logged, make_group, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

MEMBERS = ("n0", "n1", "n2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ports: PortPool) -> Iterator[ControllerCluster]:
    with ControllerCluster(tmp_path_factory.mktemp("raft-port"), ports=ports) as cluster:
        cluster.start()
        cluster.wait_ready(60.0)
        make_group(cluster, "g")
        yield cluster


@pytest.fixture
def target(cluster: ControllerCluster) -> Iterator[ControllerProcess]:
    """The leader; afterwards all members run, a commit is possible, and no member hit a bug."""
    yield cluster[cluster.wait_leader()]
    address = fill(cluster, "g", 3)
    assert address_of(cluster, "g", 2) == address
    assert all(process.alive for process in cluster)
    for process in cluster:
        assert not [line for line in log_lines(process) if line["level"] == "critical" or "exception" in line]


def connect(process: ControllerProcess) -> socket.socket:
    return socket.create_connection((HOST, process.port + 1), timeout=PATIENCE)


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self._trace),)


GARBAGE = {
    "zeros": bytes(1000),
    "noise": bytes(range(255, -1, -1)) * 50,
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
    "TLS": bytes.fromhex("160301020001000001fc0303") + bytes(600),
    "a remoting frame": b'\x00\x00\x00\x50\x00\x00\x00\x4c{"code":1005}' + b" " * 300,
    "a huge frame": b"\x7f\xff\xff\xff" + bytes(300),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_the_connection(target: ControllerProcess, name: str) -> None:
    with connect(target) as connection:
        connection.sendall(GARBAGE[name])
        assert closed_by_peer(connection) == b""
    wait_until(lambda: logged(target, "raft connection refused", remote=HOST), "a log line")


def test_a_pickle_is_not_opened(target: ControllerProcess, tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    payload = pickle.dumps(Bomb(trace))
    for data in (payload, len(payload).to_bytes(4, "little") + payload, len(payload).to_bytes(4, "big") + payload):
        with connect(target) as connection:
            connection.sendall(data + bytes(300))
            closed_by_peer(connection)
    assert not trace.exists()


def test_a_peer_with_another_secret_gets_an_error_and_is_disconnected(target: ControllerProcess) -> None:
    dialer = next(member for member in MEMBERS if member != target.member)
    handshake = Handshake(
        self_id=dialer, members=MEMBERS, secret=b"not the secret of this quorum", nonce=bytes(32), dial=target.member
    )
    with connect(target) as connection:
        connection.sendall(handshake.begin())
        connection.sendall(handshake.receive(connection.recv(4096)))
        answer = closed_by_peer(connection)
    assert len(answer) == 3, "REFUSED with a reason, and nothing that depends on the secret"
    wait_until(lambda: logged(target, "raft connection refused", reason="give all members the same"), "a log line")


def test_a_peer_that_expects_another_member_is_refused(target: ControllerProcess) -> None:
    handshake = Handshake(self_id="n7", members=MEMBERS, secret=b"x" * 32, nonce=bytes(32), dial=target.member)
    with connect(target) as connection:
        connection.sendall(handshake.begin())
        closed_by_peer(connection)
    wait_until(
        lambda: logged(target, "raft connection refused", reason="has no member of the dialer's id"), "a log line"
    )


def test_silent_connections_are_bounded_and_closed(target: ControllerProcess) -> None:
    before = target.resident_bytes()
    opened = [connect(target) for _ in range(150)]
    for connection in opened[:10]:
        connection.sendall(b"\xff")  # a handshake message that never ends
    for connection in opened:
        closed_by_peer(connection)
        connection.close()
    assert target.resident_bytes() - before < 8 * 1024 * 1024
    wait_until(lambda: logged(target, "too many unproven raft connections"), "a log line")
    wait_until(lambda: logged(target, "raft connection refused", reason="no handshake within"), "a log line")


def test_a_member_with_the_wrong_secret_stays_out_and_joins_once_it_is_mended(
    target: ControllerProcess, cluster: ControllerCluster, tmp_path: Path
) -> None:
    member = next(member for member in MEMBERS if member != target.member)
    old = cluster[member]
    old.stop()
    wrong = tmp_path / "wrong.secret"
    wrong.write_text("ffeeddccbbaa99887766554433221100")
    config = cluster.folder / member / "controller.conf"
    right = config.read_bytes()
    config.write_bytes(right + f"\ncontrollerRaftSecretFile={wrong}\n".encode())
    stranger = ControllerProcess(member, cluster.ports[member], config, folder=cluster.folder / member)
    try:
        others = [process for process in cluster if process.member != member]
        wait_until(
            lambda: any(
                logged(process, "raft connection refused", reason="controllerRaftSecretFile")
                for process in (*others, stranger)
            ),
            "a log line that names the key",
        )
        fill(cluster, "g", 3)
        wait_until(lambda: stranger.http("/healthz")[0] == 200, "the stranger's probes")
        assert stranger.http("/readyz")[0] == 503
        secret = (cluster.folder / "raft.secret").read_text()
        for process in (*others, stranger):
            assert secret not in process.output()
            assert wrong.read_text() not in process.output()
    finally:
        stranger.close()
        mended = cluster.start_member(member)
    mended.wait_ready(60.0)
