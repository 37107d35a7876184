"""`rocketmq-broker` as a process: starts, refuses to start, ends in order."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.replica_link import Hello
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import free_ports, pull_request, send_request
from tests.broker.fake_sidecar import FakeSidecar

pytestmark = pytest.mark.processes
PROGRAM = [sys.executable, "-m", "rocketmq_broker"]


def config(folder: Path, **keys: object) -> Path:
    values: dict[str, object] = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "storePathRootDir": folder / "store",
        "mappedFileSizeCommitLog": 1024 * 1024,
        "logFormat": "json",
        **keys,
    }
    path = folder / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def test_help_and_version() -> None:
    assert "ROCKETMQ_<KEY>" in run("--help").stdout
    assert run("--version").stdout.startswith("rocketmq-broker ")


def test_the_configuration_can_be_shown(tmp_path: Path) -> None:
    shown = run("-c", config(tmp_path, listenPort=30911), "-p")
    assert (shown.returncode, "listenPort=30911" in shown.stdout, "durability=strict" in shown.stdout) == (
        0,
        True,
        True,
    )


def test_a_wrong_configuration(tmp_path: Path) -> None:
    refused = run("-c", config(tmp_path, listenPort=1))
    assert (refused.returncode, "listenPort" in refused.stderr) == (2, True)
    assert run("-c", tmp_path / "missing").returncode == 2


def test_unknown_keys_are_reported_known_ones_of_the_sidecar_are_not(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a folder")
    path = config(tmp_path, controllerAddr="127.0.0.1:1", inventedKey=1)
    refused = run("-c", path)
    assert refused.returncode == 1
    assert "inventedKey" in refused.stderr
    assert "controllerAddr" not in refused.stderr


def test_a_damaged_table_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "store" / "config").mkdir(parents=True)
    (tmp_path / "store" / "config" / "topics.json").write_text("{")
    refused = run("-c", config(tmp_path, listenPort=free_ports()))
    assert (refused.returncode, "topics.json" in refused.stderr) == (1, True)


@pytest.mark.parametrize("root", ["/dev/null", "/proc/store"])
def test_a_root_that_can_be_no_folder_refuses_the_start(tmp_path: Path, root: str) -> None:
    refused = run("-c", config(tmp_path, listenPort=free_ports(), storePathRootDir=root))
    assert (refused.returncode, root in refused.stderr, "Traceback" in refused.stderr) == (1, True, False)


async def test_a_taken_port(tmp_path: Path) -> None:
    port = free_ports()
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port)
    try:
        refused = await asyncio.to_thread(run, "-c", config(tmp_path, listenPort=port))
    finally:
        server.close()
        await server.wait_closed()
    assert refused.returncode == 3
    assert not (tmp_path / "store" / "abort").exists(), "the store was closed in order"


class Process:
    def __init__(self, process: asyncio.subprocess.Process, sidecar: FakeSidecar, port: int) -> None:
        self.process, self.sidecar, self.address = process, sidecar, f"127.0.0.1:{port}"

    async def end(self, number: int) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(30):
            return await self.process.wait()


@asynccontextmanager
async def started(folder: Path, **keys: object) -> AsyncIterator[Process]:
    port = free_ports()
    (folder / "store").mkdir(exist_ok=True)
    (folder / "store" / "sidecar.sock").unlink(missing_ok=True)
    sidecar = FakeSidecar(folder / "store" / "sidecar.sock")
    await sidecar.start()
    process = await asyncio.create_subprocess_exec(*PROGRAM, "-c", str(config(folder, listenPort=port, **keys)))
    try:
        yield Process(process, sidecar, port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await sidecar.stop()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_what_was_acknowledged_is_there_after(tmp_path: Path, client: RemotingClient, number: int) -> None:
    async with started(tmp_path) as broker:
        await broker.sidecar.make_master(1)
        answers = await asyncio.gather(*(client.call(broker.address, send_request(b"%d" % n)) for n in range(200)))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert await broker.end(number) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    assert (tmp_path / "store" / "abort").exists() == (number == signal.SIGKILL)
    async with started(tmp_path) as broker:
        hello = await broker.sidecar.receive(Hello)
        end = await broker.sidecar.make_master(2, hello=False)
        assert end == hello.max_offset
        pulled = await client.call(broker.address, pull_request(0, suspend_ms=20_000), timeout=30)
        assert (pulled.code, (pulled.ext_fields or {})["maxOffset"]) == (0, "200")


async def test_a_hung_relaxed_broker_that_wakes_up_without_a_lease_accepts_nothing(
    tmp_path: Path, client: RemotingClient
) -> None:
    async with started(tmp_path, durability="relaxed") as broker:
        await broker.sidecar.make_master(1, lease=boot_clock() + 1.0)
        os.kill(broker.process.pid, signal.SIGSTOP)
        sending = asyncio.ensure_future(client.call(broker.address, send_request(), timeout=30))
        await asyncio.sleep(1.1)  # real time: the lease is in another process
        os.kill(broker.process.pid, signal.SIGCONT)
        assert (await sending).code == ResponseCode.SERVICE_NOT_AVAILABLE
