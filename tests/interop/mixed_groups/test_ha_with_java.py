"""Our replication and an official broker as each other's slave, byte for byte, through changes of mastership.

Controllers and name server are a stand-in with scripted answers, so only the HA port is under test.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import (
    ApplyBrokerIdResponseHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.remoting.nameserver import RegisterBrokerResponseHeader
from rocketmq_formats.replica_link import LogState
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_runtime.remoting.server import Peer, RemotingServer
from tests.gate.patience import patient
from tests.interop.lab import JAVA_BROKER
from tests.sidecar.replication.replica_kit import Replica

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

OURS, JAVA = 1, 2
FILE_SIZE = 1024 * 1024
IN_BODY = 90
"""Of a record, as long as its hosts have IPv4."""
MESSAGE = {
    "producerGroup": "g",
    "topic": "interop",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "1",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
}


class Dictator:
    """Answers as a controller and a name server, from a few variables."""

    def __init__(self) -> None:
        self.server = RemotingServer(self, host=HOST, port=0)
        self.addresses: dict[int, str] = {}
        self.ha: dict[int, str] = {}
        self.master, self.epoch = OURS, 1
        self.agreed = SyncStateSet(sync_state_set=frozenset({OURS}), sync_state_set_epoch=1)
        self.altered = asyncio.Event()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.port}"

    def elect(self, broker_id: int) -> None:
        self.master, self.epoch = broker_id, self.epoch + 1
        self.agree({broker_id})

    def agree(self, members: set[int]) -> None:
        self.agreed = SyncStateSet(
            sync_state_set=frozenset(members), sync_state_set_epoch=self.agreed.sync_state_set_epoch + 1
        )
        self.altered.set()

    def on_request(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        header, body = self._answer(request)
        if request.flag & 2:
            return None
        if header is None and not body:
            return response(request, ResponseCode.SUCCESS)
        return response(request, ResponseCode.SUCCESS, header=header, body=body)

    def _answer(self, request: RemotingCommand) -> tuple[Header | None, bytes]:  # noqa: PLR0911 - one for each code
        master = {"master_broker_id": self.master, "master_address": self.addresses[self.master]}
        agreed = encode_body(self.agreed)
        match request.code:
            case RequestCode.CONTROLLER_GET_METADATA_INFO:
                return GetMetaDataResponseHeader(
                    group="g",
                    controller_leader_id="n0",
                    controller_leader_address=self.address,
                    is_leader=True,
                    peers=f"n0:{self.address}",
                ), b""
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
                return GetNextBrokerIdResponseHeader(next_broker_id=JAVA), b""
            case RequestCode.CONTROLLER_APPLY_BROKER_ID:
                return ApplyBrokerIdResponseHeader(), b""
            case RequestCode.CONTROLLER_REGISTER_BROKER:
                return RegisterBrokerToControllerResponseHeader(
                    **master, master_epoch=self.epoch, sync_state_set_epoch=self.agreed.sync_state_set_epoch
                ), agreed
            case RequestCode.CONTROLLER_ELECT_MASTER:
                return ElectMasterResponseHeader(**master, master_epoch=self.epoch), agreed
            case RequestCode.CONTROLLER_GET_REPLICA_INFO:
                return GetReplicaInfoResponseHeader(**master, master_epoch=self.epoch), agreed
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                self.agree(set(decode_body(SyncStateSet, request.body).sync_state_set))
                return None, encode_body(self.agreed)
            case RequestCode.REGISTER_BROKER:
                return RegisterBrokerResponseHeader(
                    ha_server_addr=self.ha[self.master], master_addr=self.addresses[self.master]
                ), b""
        return None, b""

    def on_close(self, peer: Peer) -> None:
        pass


def epochs_of(ours: Replica) -> list[str]:
    return (ours.folder / "epochFileCheckpoint").read_text().splitlines()[2:]


async def mend_from_java(
    ours: Replica, dictator: Dictator, java_log: Callable[[int], bytes], send: Callable[[bytes], Awaitable[None]]
) -> None:
    """The first record of the log and of Java's last epoch lose a byte here, and the broker detects it."""
    end = ours.end
    for place in (0, int(epochs_of(ours)[-1].partition("-")[2])):
        await ours.replication.unfollow()
        ours.files.refresh()
        os.pwrite(ours.files.segment_at(place).fd, b"\0", place + IN_BODY)  # the first file
        assert java_log(end) != ours.log()
        ours.known = LogState(damage=place, reason="changed")
        ours.hello()
        await ours.replication.follow(dictator.epoch, JAVA, dictator.addresses[JAVA])
        await ours.until(lambda place=place: bool(ours.repaired) and ours.repaired[-1][0] == place, 60)  # type: ignore[misc]
        ours.known = LogState()
        await send(b"acknowledged after the repair")
        await ours.until(lambda before=end: ours.end > before, 60)  # type: ignore[misc]
        end = ours.end
        assert java_log(end) == ours.log()
    async with asyncio.timeout(patient(60)):
        while dictator.agreed.sync_state_set != {OURS, JAVA}:
            assert dictator.agreed.sync_state_set <= {OURS, JAVA}
            dictator.altered.clear()
            await dictator.altered.wait()


async def test_each_follows_the_other(apache: None, tmp_path: Path) -> None:
    ports, dictator, client = PortPool(), Dictator(), RemotingClient()
    await dictator.server.start()
    ours = Replica(tmp_path / "ours", OURS, FILE_SIZE)
    await ours.start()
    java_port = ports.broker()
    java_address = f"{HOST}:{java_port}"
    dictator.addresses = {OURS: ours.address, JAVA: java_address}
    dictator.ha = {OURS: f"{HOST}:{ours.replication.ha_port}", JAVA: f"{HOST}:{java_port + 1}"}
    await ours.lead(1, OURS)
    ours.append(b"of our epoch 1", b"so that there is a log")
    process = await asyncio.to_thread(
        servers.start_broker,
        tmp_path / "java",
        port=java_port,
        controllers=[dictator.address],
        nameservers=[dictator.address],
        name="b",
        cluster="C",
        config={
            "mappedFileSizeCommitLog": FILE_SIZE,
            "allAckInSyncStateSet": True,
            "syncBrokerMetadataPeriod": 1000,
            "registerNameServerPeriod": 10_000,
        },
        options=JAVA_BROKER,
    )

    def java_log(size: int) -> bytes:
        return (tmp_path / "java" / "store" / "commitlog" / f"{0:020d}").read_bytes()[:size]

    async def send(body: bytes) -> None:
        async with asyncio.timeout(patient(60)):
            while True:
                try:
                    answer = await client.call(
                        java_address, RemotingCommand(RequestCode.SEND_MESSAGE, ext_fields=MESSAGE, body=body)
                    )
                except RemotingError:
                    answer = None
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    return
                await asyncio.sleep(0.2)

    async def lead_again() -> None:
        dictator.elect(OURS)
        ours.set_epoch = dictator.agreed.sync_state_set_epoch
        await ours.lead(dictator.epoch, OURS)
        ours.append(b"of our epoch %d" % dictator.epoch)
        await ours.until(lambda: ours.progress.in_sync == 2, 120)
        dictator.agree({OURS, JAVA})
        ours.append(b"x" * 100_000, b"y")
        await ours.until(lambda: ours.progress.acked_offset == ours.end, 120)
        assert java_log(ours.end) == ours.log()

    async def follow_java() -> None:
        dictator.elect(JAVA)
        await ours.replication.resign()
        ours.lock.release()
        await ours.replication.follow(dictator.epoch, JAVA, java_address)
        for number in range(5):
            await send(b"of Java's epoch, %d" % number)
        async with asyncio.timeout(patient(60)):
            while dictator.agreed.sync_state_set != {OURS, JAVA}:
                dictator.altered.clear()
                await dictator.altered.wait()
        await send(b"acknowledged by both")
        end = ours.replication.max_offset
        assert java_log(end) == ours.log()
        assert end > 1000

    try:
        await ours.until(lambda: ours.progress.in_sync == 2, 120)
        dictator.agree({OURS, JAVA})
        ours.append(*(b"%d" % number * 50 for number in range(200)))
        await ours.until(lambda: ours.progress.acked_offset == ours.end, 120)
        assert java_log(ours.end) == ours.log()
        await follow_java()
        await lead_again()
        await follow_java()
        epochs = epochs_of(ours)
        assert epochs == (tmp_path / "java" / "store" / "epochFileCheckpoint").read_text().splitlines()[2:]
        assert [epoch.partition("-")[0] for epoch in epochs] == ["1", "2", "3", "4"]
        await mend_from_java(ours, dictator, java_log, send)
    finally:
        await asyncio.to_thread(process.close)
        await client.close()
        await ours.stop()
        await dictator.server.stop()
        ports.close()
