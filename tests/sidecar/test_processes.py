"""Real sidecars and controllers as processes, and a fake broker beside each sidecar."""

import asyncio
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rocketmq_api.channels import NoAnswerError
from rocketmq_api.replica_view import ReplicaRole
from rocketmq_api.sidecars import SidecarClient
from rocketmq_demo.calls import http_get
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool
from rocketmq_demo.processes import OwnedProcess, clean_environment
from rocketmq_formats import properties
from rocketmq_formats.replica_link import LogState
from rocketmq_sidecar.__main__ import main
from rocketmq_sidecar.domain.acting import ACTING
from tests.gate.patience import patient
from tests.processes.kit import replica_info
from tests.sidecar.control.fake_broker import FILE_SIZE, HOST, FakeBroker

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerCluster]:
    with PortPool() as pool, ControllerCluster(tmp_path_factory.mktemp("controllers"), ports=pool) as cluster:
        cluster.start()
        cluster.wait_ready()
        yield cluster


class Pair:
    """A sidecar process and the broker beside it."""

    def __init__(self, folder: Path, ports: PortPool, controllers: ControllerCluster, name: str) -> None:
        self.folder, self.ports, self.controllers, self.name = folder, ports, controllers, name
        self.sidecar: OwnedProcess | None = None
        self.broker = FakeBroker(folder / "store", port=ports.broker(), name=name)
        self.metrics_port, self.grpc_port = ports.single(), ports.single()

    async def start(self) -> None:
        await self.broker.start()
        self.start_sidecar()

    def start_sidecar(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "broker.conf"
        config.write_bytes(
            properties.dump(
                {
                    "brokerClusterName": "C",
                    "brokerName": self.name,
                    "controllerAddr": self.controllers.controller_addr,
                    "listenPort": str(self.broker.port),
                    "storePathRootDir": str(self.folder / "store"),
                    "mappedFileSizeCommitLog": str(FILE_SIZE),
                    "bindAddress": HOST,
                    "brokerIP1": HOST,
                    "metricsPromExporterPort": str(self.metrics_port),
                    "sidecarGrpcPort": str(self.grpc_port),
                    "brokerHangTimeoutMs": "1000",
                    "logFormat": "json",
                    "logLevel": "debug",
                }
            )
        )
        self.sidecar = OwnedProcess(
            "sidecar",
            [sys.executable, "-m", "rocketmq_sidecar", "-c", str(config)],
            folder=self.folder,
            environment=clean_environment(),
        )

    def http(self, path: str) -> tuple[int, str]:
        """Status and text of the sidecar's probes; status 0 without an answer."""
        return http_get(f"{HOST}:{self.metrics_port}", path, timeout=5)

    async def stop(self) -> None:
        if self.sidecar is not None:
            self.sidecar.close()
        await self.broker.stop()


class Trio:
    """Three pairs of one group."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.pairs = pairs

    async def wait(self, condition: "object", what: str, timeout: float = 30.0) -> None:
        assert callable(condition)
        deadline = time.monotonic() + patient(timeout)
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n" + "\n".join(
                pair.sidecar.tail() for pair in self.pairs if pair.sidecar is not None
            )
            await asyncio.sleep(0.005)

    @property
    def masters(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.broker.accepts]

    @property
    def slaves(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.broker.role == "slave"]


@pytest.fixture
async def trio(request: pytest.FixtureRequest, tmp_path: Path, controllers: ControllerCluster) -> AsyncIterator[Trio]:
    name = re.sub(r"[^\w-]", "-", f"broker-{request.node.name}")
    with PortPool() as ports:
        pairs = [Pair(tmp_path / str(number), ports, controllers, name) for number in range(3)]
        for pair in pairs:
            await pair.start()
        yield Trio(pairs)
        for pair in pairs:
            assert pair.sidecar is not None
            pair.sidecar.close()  # all at once: no notice of another master
        for pair in pairs:
            await pair.stop()


async def settled(trio: Trio) -> Pair:
    await trio.wait(lambda: len(trio.masters) == 1 and len(trio.slaves) == 2, "one master, two slaves")
    master = trio.masters[0]
    await trio.wait(lambda: master.broker.in_sync == 3, "all in sync")
    while len(await asyncio.to_thread(members, master)) < 3:  # the master tells of a set before the controllers agree
        await asyncio.sleep(0.005)
    return master


def members(pair: Pair) -> frozenset[int]:
    """The SyncStateSet as the controllers have it."""
    return frozenset(replica_info(pair.controllers, pair.name)[1].sync_state_set)


async def test_three_get_ids_and_one_master_and_survive_its_death(trio: Trio) -> None:
    master = await settled(trio)
    assert sorted(pair.broker.broker_id or 0 for pair in trio.pairs) == [1, 2, 3]
    assert master.sidecar is not None
    epoch = master.broker.epoch
    began = time.monotonic()
    master.sidecar.kill9()
    await trio.wait(lambda: len(trio.masters) == 1 and trio.masters[0] is not master, "another master")
    gap = time.monotonic() - began
    successor = trio.masters[0]
    await trio.wait(lambda: successor.broker.in_sync == 2, "the other slave in sync")
    print(f"another master after {gap:.3f} s, in sync after {time.monotonic() - began:.3f} s")
    assert successor.broker.epoch > epoch
    old_id = master.broker.broker_id
    master.start_sidecar()
    await trio.wait(lambda: master.broker.role == "slave" and successor.broker.in_sync == 3, "it comes back as slave")
    assert master.broker.broker_id == old_id


async def test_broker_that_reads_nothing_is_replaced(trio: Trio) -> None:
    master = await settled(trio)
    master.broker.hang()
    await trio.wait(lambda: any(pair is not master for pair in trio.masters), "another master")
    assert master.sidecar is not None
    assert "it hangs" in master.sidecar.output()


async def test_orderly_end_hands_over(trio: Trio) -> None:
    master = await settled(trio)
    assert master.sidecar is not None
    assert await asyncio.to_thread(master.sidecar.stop) == 0
    await trio.wait(lambda: len(trio.masters) == 1, "another master")
    assert "mastership handed over" in master.sidecar.output()
    assert not master.broker.lock.held


async def test_a_full_disk_hands_over(trio: Trio) -> None:
    master = await settled(trio)
    others = [pair for pair in trio.pairs if pair is not master]
    epoch = master.broker.epoch
    master.broker.refuses = "the disk is full"
    await trio.wait(lambda: master.broker.role == "slave" and len(trio.masters) == 1, "another master")
    assert trio.masters[0] in others
    assert trio.masters[0].broker.epoch == epoch + 1
    assert master.broker.held is None or master.broker.held.kind is None


async def test_a_damaged_log_hands_over_and_is_not_elected_again(trio: Trio) -> None:
    damaged = await settled(trio)
    damaged.broker.log = LogState(damage=0, reason="a flipped byte")
    damaged.broker.send(damaged.broker.log)
    await trio.wait(lambda: damaged.broker.role == "slave" and len(trio.masters) == 1, "another master")
    second = await settled(trio)
    assert second is not damaged
    assert second.sidecar is not None
    second.sidecar.kill9()
    await trio.wait(lambda: trio.masters not in ([], [second]), "the third one is master")
    assert trio.masters[0] is not damaged


async def test_a_slave_that_acts_for_a_master_is_seen(trio: Trio) -> None:
    """By /readyz, /metrics and gRPC; that it acts is the broker's word."""
    await settled(trio)
    slave = trio.slaves[0]
    await trio.wait(lambda: slave.http("/readyz") == (200, "ok\n"), "it is ready")
    slave.broker.acting = True
    await trio.wait(lambda: slave.http("/readyz") == (200, f"{ACTING}\n"), "it says so, and stays ready")
    metric = re.compile(r"^rocketmq_sidecar_acting_master{.*} 1\.0$", re.MULTILINE)
    assert metric.search((await asyncio.to_thread(slave.http, "/metrics"))[1])
    async with SidecarClient(f"{HOST}:{slave.grpc_port}", timeout=30.0) as client:
        view = await client.get_replica()
        assert (view.role, view.acting_master) == (ReplicaRole.SLAVE, True)
    slave.broker.acting = False
    await trio.wait(lambda: slave.http("/readyz") == (200, "ok\n"), "there is a master again")


async def test_hung_sidecar_loses_its_lease_before_another_is_elected(trio: Trio) -> None:
    master = await settled(trio)
    assert master.sidecar is not None
    master.sidecar.suspend()
    overlaps = 0
    deadline = time.monotonic() + patient(30)
    while not any(pair is not master for pair in trio.masters):
        overlaps += len(trio.masters) > 1
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    assert not overlaps
    assert not master.broker.accepts
    master.sidecar.resume()
    await trio.wait(lambda: master.broker.role == "slave", "it follows the new master")
    await trio.wait(lambda: trio.masters[0].broker.in_sync == 3, "all in sync again")


@pytest.mark.parametrize("fault", ["kill", "hang"])
async def test_lost_leading_controller_costs_the_master_nothing(
    trio: Trio, controllers: ControllerCluster, fault: str
) -> None:
    master = await settled(trio)
    leader = await asyncio.to_thread(controllers.wait_leader)
    epoch = master.broker.epoch
    if fault == "kill":
        controllers[leader].kill9()
    else:
        controllers[leader].suspend()
    try:
        for _ in range(400):
            assert trio.masters == [master]
            await asyncio.sleep(0.01)
        assert master.broker.epoch == epoch
    finally:
        if fault == "kill":
            controllers.start_member(leader)
        else:
            controllers[leader].resume()
        await asyncio.to_thread(controllers.wait_ready)


async def test_taken_ha_port_is_reported(trio: Trio) -> None:
    master = await settled(trio)
    pair = Pair(master.folder.parent / "other", master.ports, master.controllers, master.name)
    pair.broker.port = master.broker.port
    pair.start_sidecar()
    try:
        assert pair.sidecar is not None
        assert await asyncio.to_thread(pair.sidecar.wait, 30) == 3
        assert "cannot open a port" in pair.sidecar.output()
    finally:
        await pair.stop()


async def test_taken_grpc_port_ends_it_before_it_does_anything(tmp_path: Path) -> None:
    with PortPool() as ports, socket.create_server((HOST, 0)) as accepted:
        values = {
            "controllerAddr": "127.0.0.1:1",
            "listenPort": str(ports.broker()),
            "storePathRootDir": str(tmp_path / "store"),
            "bindAddress": HOST,
            "metricsPromExporterPort": "0",
            "sidecarGrpcPort": str(accepted.getsockname()[1]),
        }
        config = tmp_path / "broker.conf"
        config.write_bytes(properties.dump(values))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rocketmq_sidecar", "-c", str(config), stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
    assert process.returncode == 3
    assert f"gRPC cannot listen on {HOST}".encode() in said
    assert b"sidecar started" not in said


async def test_second_broker_and_second_sidecar_wait(trio: Trio, request: pytest.FixtureRequest) -> None:
    master = await settled(trio)
    rival = FakeBroker(master.folder / "store", port=trio.pairs[0].ports.broker(), name=master.name)
    await rival.start()
    first = master.sidecar
    assert first is not None
    request.addfinalizer(first.close)
    await trio.wait(lambda: "another broker is connected" in first.output(), "the rival is refused")
    assert rival.heard == []
    await rival.stop()
    master.metrics_port, master.grpc_port = master.ports.single(), master.ports.single()
    master.start_sidecar()
    second = master.sidecar
    assert second is not None
    await trio.wait(lambda: "another sidecar holds" in second.output(), "the second sidecar waits")
    assert await asyncio.to_thread(master.http, "/healthz") == (200, "ok\n")
    await trio.wait(lambda: "another sidecar" in master.http("/readyz")[1], "it says why")
    assert master.broker.accepts, "nobody noticed"
    first.kill9()
    await trio.wait(lambda: master.broker.role == "slave", "the second takes over")
    _, text = await asyncio.to_thread(master.http, "/metrics")
    assert 'rocketmq_sidecar_role{broker_id="' in text


async def test_damaged_identity_is_waited_for_and_not_a_crash_loop(
    tmp_path: Path, controllers: ControllerCluster
) -> None:
    with PortPool() as ports:
        pair = Pair(tmp_path, ports, controllers, "broker-damaged")
        trio = Trio([pair])
        meta = tmp_path / "store" / ".broker.meta"
        meta.parent.mkdir(parents=True)
        meta.write_bytes(b"D#other#7")
        try:
            await pair.start()
            assert pair.sidecar is not None
            await trio.wait(lambda: "identity refused" in pair.sidecar.output(), "it says so")
            await trio.wait(lambda: "belongs to D#other" in pair.http("/readyz")[1], "it says why")
            assert pair.sidecar.alive
            assert meta.read_bytes() == b"D#other#7"
            async with SidecarClient(f"{HOST}:{pair.grpc_port}", timeout=30.0) as client:
                await trio.wait(lambda: "gRPC open" in pair.sidecar.output(), "operators may ask meanwhile")
                view = await client.get_replica()
                assert view.role is ReplicaRole.UNKNOWN
                assert "belongs to D#other" in view.ready_reason
                assert (await client.set_fenced(True, "not yet")).fenced
                with pytest.raises(NoAnswerError, match="not started"):
                    await client.hand_over()
                meta.unlink()
                await trio.wait(lambda: pair.broker.role == "master", "it goes on by itself")
                assert not pair.broker.accepts
                assert (await client.set_fenced(False)).role is ReplicaRole.MASTER
            await trio.wait(lambda: pair.broker.accepts, "the fence has ended")
            assert (meta.read_bytes(), pair.sidecar.output().count("identity refused")) == (b"C#broker-damaged#1", 1)
        finally:
            await pair.stop()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("controllerAddr", "", "controllerAddr is not set"),
        ("controllerAddr", "nowhere", "controllerAddr"),
        ("enableControllerMode", "perhaps", "enableControllerMode"),
        ("storePathRootDir", "", "storePathRootDir"),
        ("brokerName", "a#b", "brokerName"),
        ("durability", "maybe", "durability"),
        ("brokerLeaseTimeoutMs", "20000", "brokerLeaseTimeoutMs"),
        ("controllerHeartBeatTimeoutMills", "2000", "brokerLeaseTimeoutMs=2000 must be less"),
    ],
)
def test_wrong_configuration_is_refused_by_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: str, says: str
) -> None:
    config = tmp_path / "broker.conf"
    config.write_bytes(properties.dump({"controllerAddr": "127.0.0.1:9878", "brokerName": "a", key: value}))
    assert main(["-c", str(config)]) == 2
    assert says in capsys.readouterr().err


async def test_unknown_keys_are_reported_and_those_of_the_broker_are_not(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a folder")
    values = {
        "controllerAddr": "127.0.0.1:1",
        "storePathRootDir": str(tmp_path / "store"),
        "metricsPromExporterPort": "0",
        "sidecarGrpcPort": "0",
    }
    config = tmp_path / "broker.conf"
    config.write_bytes(properties.dump({**values, "deleteWhen": "04", "inventedKey": "1"}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rocketmq_sidecar", "-c", str(config), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 1
    assert b"inventedKey" in said
    assert b"deleteWhen" not in said


async def test_socket_that_cannot_be_made_is_no_taken_port(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with PortPool() as ports:
        values = {
            "controllerAddr": "127.0.0.1:1",
            "listenPort": str(ports.broker()),
            "storePathRootDir": str(tmp_path / "store"),
            "sidecarSocketPath": str(tmp_path / "file" / "sidecar.sock"),
            "metricsPromExporterPort": "0",
            "sidecarGrpcPort": "0",
        }
        config = tmp_path / "broker.conf"
        config.write_bytes(properties.dump(values))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rocketmq_sidecar", "-c", str(config), stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
    assert process.returncode == 1
    assert str(tmp_path / "file").encode() in said
