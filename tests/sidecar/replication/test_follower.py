"""The follower's own life, without a master."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader, GroupName, encode_settings
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient
from rocketmq_sidecar.domain.replication.group_settings import GroupSettings
from rocketmq_sidecar.replication import follower as follower_module
from rocketmq_sidecar.replication.ha_client import MasterConnection
from rocketmq_store.writer_lock import WriterLock


class NobodyThere:
    async def call(self, address: str, *_: object, **__: object) -> None:
        raise ConnectError(f"cannot connect to {address}")


class MasterWithOtherFiles:
    async def call(self, _address: str, request: RemotingCommand, **_: object) -> RemotingCommand:
        header = ExchangeHAInfoHeader(master_ha_address="10.0.0.1:10912", mapped_file_size_commit_log=8192)
        return response(request, 0, header=header)


class MasterOfAGroup:
    def __init__(self, group: GroupName) -> None:
        self._group = group
        self.asked: dict[str, str] | None = None

    async def call(self, _address: str, request: RemotingCommand, **_: object) -> RemotingCommand:
        self.asked = request.ext_fields
        header = ExchangeHAInfoHeader(
            master_ha_address="127.0.0.1:1",
            cluster_name=self._group.cluster_name,
            broker_name=self._group.broker_name,
        )
        return response(request, 0, header=header)


class MasterWithOtherPromises:
    """Its HA port is closed, so it is asked again and again."""

    def __init__(self) -> None:
        self.values = {"durability": "relaxed"}
        self.asked = 0

    async def call(self, _address: str, request: RemotingCommand, **_: object) -> RemotingCommand:
        self.asked += 1
        header = ExchangeHAInfoHeader(master_ha_address="127.0.0.1:1", group_settings=encode_settings(self.values))
        return response(request, 0, header=header)


class MasterIsElsewhereMeanwhile:
    """Listens, at one address; name servers list another one by the time of its answer."""

    def __init__(self, ha_address: str, on_asked: Callable[[], None]) -> None:
        self._ha_address, self._on_asked = ha_address, on_asked
        self.asked: list[str] = []

    async def call(self, address: str, request: RemotingCommand, **_: object) -> RemotingCommand:
        self.asked.append(address)
        if len(self.asked) > 1:
            raise ConnectError(f"cannot connect to {address}")
        self._on_asked()
        header = ExchangeHAInfoHeader(master_ha_address=self._ha_address, enable_controller_mode=False)
        return response(request, 0, header=header)


def follower(
    lock: WriterLock,
    on_trouble: Callable[[str | None], None],
    client: object | None = None,
    *,
    connect: Callable[[socket.socket, int], MasterConnection] = lambda *_: pytest.fail("connected"),
    controllers: bool = True,
) -> follower_module.Follower:
    values = {
        "mappedFileSizeCommitLog": "4096",
        "enableControllerMode": str(controllers).lower(),
        "durability": "strict",
    }
    return follower_module.Follower(
        cast("RemotingClient", client or NobodyThere()),
        lock,
        connect=connect,
        prepare=lambda: None,
        on_trouble=on_trouble,
        on_change=lambda: None,
        on_aligned=lambda _: pytest.fail("aligned"),
        on_lost=lambda: None,
        settings=GroupSettings(values),
        group=GroupName("C", "broker-a"),
    )


@pytest.mark.timeout(20)
async def test_a_follower_without_a_connection_reports_it_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "PATIENCE", 0.05)
    told: asyncio.Queue[str | None] = asyncio.Queue()
    one = follower(WriterLock(tmp_path / "writer.lock"), told.put_nowait)
    one.follow(1, 7, "10.0.0.1:10911")
    assert await told.get() == ("cannot follow master 7 at 10.0.0.1:10911: cannot connect to 10.0.0.1:10911")
    await one.stop()
    while not told.empty():
        last = told.get_nowait()
    assert last is None


@pytest.mark.timeout(20)
async def test_a_follower_that_is_stopped_in_the_turn_it_was_woken_stops(tmp_path: Path) -> None:
    # Found by the simulation: it continued forever, with the writer lock, and no broker could start.
    lock = WriterLock(tmp_path / "writer.lock")
    one = follower(lock, lambda _: None)
    one.follow(1, 1, "10.0.0.1:10911")
    while not lock.held:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)  # it waits for its next try
    one.follow(2, 1, "10.0.0.1:10911")
    await one.stop()
    assert not lock.held


@pytest.mark.timeout(20)
async def test_a_master_with_files_of_another_size_is_not_followed(tmp_path: Path) -> None:
    told: asyncio.Queue[str | None] = asyncio.Queue()
    one = follower(WriterLock(tmp_path / "writer.lock"), told.put_nowait, MasterWithOtherFiles())
    one.follow(1, 7, "10.0.0.1:10911")
    assert "mappedFileSizeCommitLog is 4096 here and 8192 at the master" in str(await told.get())
    await one.stop()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("theirs", [GroupName("Other", "broker-a"), GroupName("C", "broker-b")])
async def test_a_master_of_another_group_is_not_followed(tmp_path: Path, theirs: GroupName) -> None:
    told: asyncio.Queue[str | None] = asyncio.Queue()
    master = MasterOfAGroup(theirs)
    one = follower(WriterLock(tmp_path / "writer.lock"), told.put_nowait, master)
    one.follow(1, 7, "10.0.0.1:10911")
    assert f"it is of {theirs}, and this replica of cluster C, brokerName broker-a" in str(await told.get())
    await one.stop()
    assert master.asked == {"clusterName": "C", "brokerName": "broker-a"}


@pytest.mark.timeout(20)
async def test_a_difference_is_logged_once_and_shown_until_it_ends(tmp_path: Path) -> None:
    master = MasterWithOtherPromises()
    one = follower(WriterLock(tmp_path / "writer.lock"), lambda _: None, master)

    async def asked_again() -> None:
        seen = master.asked
        while master.asked < seen + 2:
            await asyncio.sleep(0)

    difference = "durability is 'strict' here and 'relaxed' at the master"
    with capture_logs() as lines:
        one.follow(1, 7, "10.0.0.1:10911")
        await asked_again()
        assert one.differences == (difference,)
        master.values = {"durability": "strict"}
        await asked_again()
        assert one.differences == ()
        await one.stop()
    assert [line["difference"] for line in lines if "settings differ" in line["event"]] == [difference]


@pytest.mark.timeout(20)
async def test_without_controllers_an_address_that_is_listed_no_longer_is_not_connected_to(tmp_path: Path) -> None:
    connected: list[int] = []

    def connect(_sock: socket.socket, epoch: int) -> MasterConnection:
        connected.append(epoch)
        raise ConnectionError("refused")

    with socket.create_server(("127.0.0.1", 0)) as server:
        ha_address = f"127.0.0.1:{server.getsockname()[1]}"
        there = MasterIsElsewhereMeanwhile(ha_address, lambda: one.follow(1, 0, "10.0.0.2:10911"))
        one = follower(WriterLock(tmp_path / "writer.lock"), lambda _: None, there, connect=connect, controllers=False)
        one.follow(1, 0, "10.0.0.1:10911")
        while len(there.asked) < 2:
            await asyncio.sleep(0)
        await one.stop()
    assert there.asked[:2] == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert connected == []
