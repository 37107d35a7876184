"""Real sidecars and controllers as processes, and a fake broker beside each sidecar."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache.ports import PortPool
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.processes import OwnedProcess, clean_environment
from rocketmq_formats import properties
from tests.sidecar.fake_broker import FILE_SIZE, HOST, FakeBroker

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
                    "metricsPromExporterPort": "0",
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
        deadline = time.monotonic() + timeout
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
    name = f"broker-{request.node.name}"
    with PortPool() as ports:
        pairs = [Pair(tmp_path / str(number), ports, controllers, name) for number in range(3)]
        for pair in pairs:
            await pair.start()
        yield Trio(pairs)
        for pair in pairs:
            await pair.stop()


async def settled(trio: Trio) -> Pair:
    await trio.wait(lambda: len(trio.masters) == 1 and len(trio.slaves) == 2, "one master, two slaves")
    master = trio.masters[0]
    await trio.wait(lambda: master.broker.in_sync == 3, "all in sync")
    return master


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
