"""Files of a member that were changed while it was down: the start is refused with file and offset, and never succeeds
with less state."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool
from rocketmq_demo.processes import clean_environment
from rocketmq_formats import properties
from tests.processes.kit import fill, make_group, replica_info

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

ENTRIES = 1300
"""Enough for the log to be cut after a snapshot: 1000 entries are kept before it."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ports: PortPool) -> Iterator[ControllerCluster]:
    """Three members with snapshot and journal, of which n0 is down."""
    folder = tmp_path_factory.mktemp("store-damage")
    with ControllerCluster(folder, ports=ports, config={"raftSnapshotEntries": "100"}) as cluster:
        cluster.start()
        cluster.wait_ready(60.0)
        make_group(cluster, "g")
        fill(cluster, "g", ENTRIES)
        assert cluster["n0"].stop() == 0
        assert (folder / "n0" / "store" / "snapshot").exists()
        yield cluster


def start_with(
    cluster: ControllerCluster, store: Path, member: str = "n0", peers: str | None = None
) -> subprocess.CompletedProcess[str]:
    settings = {**cluster.settings(member), "controllerStorePath": str(store)}
    if peers is not None:
        settings["controllerDLegerPeers"] = peers
    config = store.with_name("controller.conf")
    config.write_bytes(properties.dump(settings))
    return subprocess.run(
        [sys.executable, "-m", "rocketmq_controller", "-c", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(),
    )


def refusal(ended: subprocess.CompletedProcess[str]) -> str:
    """The reason of the refused start, from its one critical line."""
    assert ended.returncode == 1, ended.stderr
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    refused = [line for line in lines if line["event"] == "start refused"]
    assert len(refused) == 1
    assert refused[0]["level"] == "critical"
    assert not any("exception" in line or line["event"] == "raft role" for line in lines)
    return str(refused[0]["reason"])


def flip(name: str, where: Callable[[bytes], int]) -> Callable[[Path], str]:
    def damage(store: Path) -> str:
        path = store / name
        data = bytearray(path.read_bytes())
        data[where(bytes(data))] ^= 0x10
        path.write_bytes(data)
        return name

    return damage


def remove(name: str) -> Callable[[Path], str]:
    def damage(store: Path) -> str:
        (store / name).unlink()
        return name

    return damage


def used(data: bytes) -> int:
    """Bytes before the zeros that the journal keeps ahead."""
    return len(data.rstrip(b"\0"))


JOURNAL = "journal-000000000001.log"
# One of each kind; every byte and every cut: tests/controller/raft.
DAMAGES: dict[str, Callable[[Path], str]] = {
    "whose vote flipped": flip("hard-state", lambda data: 40),
    "vote gone": remove("hard-state"),
    "journal flipped in the middle": flip(JOURNAL, lambda data: used(data) // 2),
    "journal flipped in its last durable frame": flip(JOURNAL, lambda data: used(data) - 1),
    "journal gone": remove(JOURNAL),
    "snapshot flipped": flip("snapshot", lambda data: len(data) // 2),
    "snapshot gone": remove("snapshot"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_refuses_the_start_and_is_named_with_the_offset(
    cluster: ControllerCluster, tmp_path: Path, name: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(cluster.folder / "n0" / "store", store)
    blamed = DAMAGES[name](store)
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    reason = refusal(start_with(cluster, store))
    assert str(store / blamed) in reason
    assert "damaged at offset " in reason
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before, "the evidence was changed"


def test_another_members_store_and_another_quorums_are_refused(cluster: ControllerCluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(cluster.folder / "n0" / "store", store)
    assert "this is the store of member n0, not of n1" in refusal(start_with(cluster, store, member="n1"))
    peers = cluster.settings("n0")["controllerDLegerPeers"].replace("n2-", "n9-")
    ended = start_with(cluster, store, peers=peers)
    words = "this store was made for the members n0, n1, n2, and the configuration does not say where n2 is"
    assert words in refusal(ended)


def test_a_file_of_another_store_is_refused(cluster: ControllerCluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(cluster.folder / "n0" / "store", store)
    shutil.copy(cluster.folder / "n1" / "store" / JOURNAL, store / JOURNAL)
    assert JOURNAL in refusal(start_with(cluster, store))


def test_the_undamaged_store_continues_without_effect_on_the_others(cluster: ControllerCluster) -> None:
    before = replica_info(cluster, "g")
    cluster.start_member("n0")
    cluster["n0"].wait_ready(60.0)
    assert replica_info(cluster, "g") == before
