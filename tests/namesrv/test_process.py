"""`rocketmq-namesrv` as a process: alone, refusing to start, and with a controller inside."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from rocketmq_demo.calls import call, http_get
from rocketmq_demo.controllers import metadata
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import clean_environment
from rocketmq_demo.replica import NameServer
from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request
from rocketmq_formats.remoting.controller import GetNextBrokerIdRequestHeader
from rocketmq_formats.remoting.nameserver import GetRouteInfoRequestHeader
from tests.gate.patience import patient
from tests.golden.namesrv_story import T, U, register, version, wrapper

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

PATIENCE = patient(60.0)
STEP = register("r", body=wrapper([T, U], version(1, 1)))
REGISTRATION = RemotingCommand(103, ext_fields=dict(STEP.ext or {}), body=STEP.body)
NOBODY = request(
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequestHeader(cluster_name="x", broker_name="x")
)


@pytest.fixture(scope="module")
def ports() -> Iterator[PortPool]:
    with PortPool() as pool:
        yield pool


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)


def http(port: int, path: str) -> tuple[int, str]:
    return http_get(f"{HOST}:{port}", path, timeout=5)


def route(server: NameServer, topic: str = "T") -> int:
    return call(
        server.address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    ).code


def test_it_serves_reports_and_stops_cleanly(tmp_path: Path, ports: PortPool) -> None:
    port = ports.block()
    server = NameServer(tmp_path, port=port, config={"metricsPromExporterPort": port + 1})
    try:
        server.wait_listening()
        with socket.create_connection((HOST, port), timeout=10) as broker:
            broker.sendall(encode_frame(REGISTRATION))
            until(lambda: route(server) == ResponseCode.SUCCESS, "the broker's route")
            assert http(port + 1, "/readyz") == (200, "ok\n")
            assert http(port + 1, "/healthz") == (200, "ok\n")
            _, page = http(port + 1, "/metrics")
            assert "rocketmq_namesrv_topics 2.0" in page
            broker.shutdown(socket.SHUT_RDWR)
        until(lambda: route(server) == ResponseCode.TOPIC_NOT_EXIST, "the end of the route with the connection")
        with socket.create_connection((HOST, port), timeout=10):  # an open connection must not hold it up
            assert server.stop() == 0
        assert "name server stopped" in server.tail()
    finally:
        server.close()


class Hosts:
    """Three name servers, three members of one quorum in them."""

    def __init__(self, folder: Path, ports: PortPool) -> None:
        secret = folder / "raft.secret"
        secret.write_text("for this test only, and long enough")
        self.ports = {name: ports.block() for name in ("n0", "n1", "n2")}
        """Remoting ports of the controllers; Raft, gRPC and the probes of both follow."""
        peers = ";".join(f"{name}-{HOST}:{port}" for name, port in self.ports.items())
        self.servers = {
            name: NameServer(
                folder / name,
                port=ports.single(),
                config={
                    "enableControllerInNamesrv": True,
                    "controllerDLegerPeers": peers,
                    "controllerDLegerSelfId": name,
                    "controllerStorePath": folder / name / "store",
                    "controllerRaftSecretFile": secret,
                    "controllerListenHost": HOST,
                    "metricsPromExporterPort": port + 3,
                    "noSuchKey": "x",
                },
            )
            for name, port in self.ports.items()
        }

    def controller(self, name: str) -> str:
        """Where the controller `name` listens."""
        return f"{HOST}:{self.ports[name]}"

    def leader(self) -> str | None:
        """The member that decides."""
        for name in self.ports:
            try:
                answer = call(self.controller(name), NOBODY, timeout=1.0)
            except OSError:
                continue
            if answer.code == ResponseCode.SUCCESS:
                return name
        return None

    def close(self) -> None:
        for server in self.servers.values():
            server.close()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, ports: PortPool) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path_factory.mktemp("inside"), ports)
    try:
        for server in hosts.servers.values():
            server.wait_listening()
        yield hosts
    finally:
        hosts.close()


class TestControllersInside:
    def test_one_process_is_both(self, hosts: Hosts) -> None:
        until(lambda: hosts.leader() is not None, "a leading controller")
        for name, server in hosts.servers.items():
            assert metadata(hosts.controller(name)) is not None
            assert route(server) == ResponseCode.TOPIC_NOT_EXIST
            _, page = http(hosts.ports[name] + 3, "/metrics")
            assert "rocketmq_namesrv_topics 0.0" in page
            assert f'peer_id="{name}"' in page
            assert http(hosts.ports[name] + 3, "/healthz") == (200, "ok\n")
            said = server.log_path.read_text()
            assert said.count("is not known and ignored") == 1
            assert "noSuchKey" in said

    def test_each_part_keeps_its_own_updates(self, hosts: Hosts) -> None:
        server = hosts.servers["n1"]
        update = request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
        assert call(server.address, update).code == ResponseCode.SUCCESS
        update = request(RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"electMasterMaxRetryCount=5\n")
        assert call(hosts.controller("n1"), update).code == ResponseCode.SUCCESS
        assert (server.folder / "kept.properties").read_text() == "orderMessageEnable=true\n"
        assert (server.folder / "store" / "controller.properties").read_text() == "electMasterMaxRetryCount=5\n"

    def test_killed_or_stopped_the_others_continue(self, hosts: Hosts) -> None:
        first = hosts.leader()
        assert first is not None
        hosts.servers[first].kill9()
        until(lambda: hosts.leader() not in {None, first}, "another leader")
        second = next(name for name in hosts.servers if name != first)
        assert hosts.servers[second].stop() == 0
        (third,) = hosts.servers.keys() - {first, second}
        assert route(hosts.servers[third]) == ResponseCode.TOPIC_NOT_EXIST, "routes without a quorum"
        assert http(hosts.ports[third] + 3, "/readyz") == (200, "ok\n")


class TestRefusedStarts:
    """Each ends at once with its exit code and a line that says what to do."""

    @staticmethod
    def run(folder: Path, values: Mapping[str, object]) -> tuple[int, str]:
        file = folder / "namesrv.conf"
        defaults = {"kvConfigPath": folder / "kv.json", "configStorePath": folder / "kept", "bindAddress": HOST}
        file.write_bytes(properties.dump({key: str(value) for key, value in {**defaults, **values}.items()}))
        done = subprocess.run(
            [sys.executable, "-m", "rocketmq_namesrv", "-c", str(file)],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stderr

    def test_a_wrong_value(self, tmp_path: Path) -> None:
        code, said = self.run(tmp_path, {"listenPort": "many"})
        assert code == 2
        assert "listenPort" in said

    def test_a_controller_without_its_keys(self, tmp_path: Path, ports: PortPool) -> None:
        code, said = self.run(tmp_path, {"listenPort": ports.single(), "enableControllerInNamesrv": "true"})
        assert code == 2
        assert "controllerDLegerPeers is not set" in said

    def test_a_damaged_kv_file(self, tmp_path: Path, ports: PortPool) -> None:
        (tmp_path / "kv.json").write_text("{")
        code, said = self.run(tmp_path, {"listenPort": ports.single()})
        assert code == 1
        assert "kv.json" in said
        assert "Traceback" not in said

    def test_a_port_that_is_taken(self, tmp_path: Path, ports: PortPool) -> None:
        port = ports.single()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((HOST, port))
            taken.listen()
            code, said = self.run(tmp_path, {"listenPort": port})
        assert code == 3
        assert str(port) in said
