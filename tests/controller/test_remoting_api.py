"""The remoting door: what one request may make the controller do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_controller.domain.forms import FEATURE_LEVEL, FIRST_LEVEL
from rocketmq_controller.ports.remoting_api import MAX_BODY, RemotingApi
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerReplicasInfo,
    SyncStateSet,
)
from rocketmq_runtime.config.live_config import MAX_WAITING
from rocketmq_runtime.remoting.server import Peer, RemotingServer
from tests.controller.grpc_kit import LIMITS, NAME, Door, address


class Stage:
    """A controller that leads, asked without sockets."""

    def __init__(self, folder: Path, **extra: str) -> None:
        self.door = Door(folder, extra, LIMITS)
        self.api = RemotingApi(self.door.service)
        self.peer = Peer(RemotingServer(self.api, host="127.0.0.1", port=0), 1)

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        answer = self.api.on_request(command, self.peer)
        answered = await answer if isinstance(answer, asyncio.Future) else answer
        assert isinstance(answered, RemotingCommand)
        return answered

    async def apply_id(self, broker_name: str, broker_id: int = 1, *, host: str = "10.0.0.9") -> RemotingCommand:
        self.peer.host = host
        header = ApplyBrokerIdRequestHeader(
            cluster_name="C",
            broker_name=broker_name,
            applied_broker_id=broker_id,
            register_check_code=f"{address(broker_id)};{broker_id}",
        )
        return await self.ask(request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path, maxBrokerGroups="3")
    await stage.door.make_group()
    yield stage
    await stage.door.failover.stop()
    await stage.door.client.close()


async def test_a_name_asked_for_many_times_is_looked_up_once(stage: Stage) -> None:
    names = [NAME, "unknown"] * 20_000
    answer = await stage.ask(request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, encode_body(names)))
    assert answer.code == ResponseCode.SUCCESS
    assert list(decode_body(BrokerReplicasInfo, answer.body).replicas_info_table) == [NAME]
    assert len(answer.body) < 1000


async def test_bodies_are_bounded_before_they_are_decoded(stage: Stage) -> None:
    header = AlterSyncStateSetRequestHeader(broker_name=NAME, master_broker_id=1, master_epoch=1)
    many = encode_body(SyncStateSet(sync_state_set=frozenset(range(20_000)), sync_state_set_epoch=1))
    assert len(many) > MAX_BODY[RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET]
    bodies = {
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: many,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: encode_body([NAME] * 60_000),
        RequestCode.UPDATE_CONTROLLER_CONFIG: b"electMasterMaxRetryCount=5\n" * 5000,
    }
    for code, body in bodies.items():
        answer = await stage.ask(request(code, header, body))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert f"{len(body)} bytes" in answer.remark


@pytest.mark.parametrize("update", [b"maxBrokerGroups=4\n", b"enableElectUncleanMaster=true\n"])
async def test_what_bounds_or_loses_messages_is_for_the_machine_alone(stage: Stage, update: bytes) -> None:
    """Anyone who reaches the port could lift the bound, or let the next election lose messages."""
    answer = await stage.ask(request(RequestCode.UPDATE_CONTROLLER_CONFIG, None, update))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "only the configuration file" in (answer.remark or "")


async def test_waiting_updates_of_one_host_leave_places_to_others(stage: Stage) -> None:
    def update(host: str) -> "asyncio.Future[RemotingCommand]":
        stage.peer.host = host
        answer = stage.api.on_request(request(RequestCode.UPDATE_CONTROLLER_CONFIG), stage.peer)
        assert isinstance(answer, asyncio.Future)
        return answer

    for _ in range(2):  # places are given back
        async with stage.door.config._turn:  # an update is being written
            many = [update("stranger") for _ in range(MAX_WAITING)]
            honest = update("10.0.0.1")
            await asyncio.sleep(0)
        codes = [answer.code for answer in await asyncio.gather(*many)]
        assert codes == [ResponseCode.SUCCESS] * 8 + [ResponseCode.SYSTEM_BUSY] * 8
        assert (await honest).code == ResponseCode.SUCCESS


async def test_groups_above_the_bound_are_refused(stage: Stage) -> None:
    codes = [(await stage.apply_id(name, host=f"10.0.0.{name}")).code for name in ("b", "c", "d")]
    assert codes == [0, 0, ResponseCode.SYSTEM_BUSY]
    assert (await stage.apply_id("c", 2)).code == ResponseCode.SUCCESS


async def test_a_stranger_leaves_room_for_honest_groups(tmp_path: Path) -> None:
    """Also after a restart, and at the next leader: both have what was replicated."""
    stage = Stage(tmp_path / "before", maxBrokerGroups="8")
    with capture_logs() as lines:
        made = [name for name in "abcdefgh" if (await stage.apply_id(name, host="stranger")).code == 0]
    assert made == ["a", "b", "c", "d"]
    assert [line["host"] for line in lines if line["event"] == "no room for a broker"] == ["stranger"]
    assert (await stage.apply_id("honest", host="10.0.0.1")).code == ResponseCode.SUCCESS
    again = Stage(tmp_path / "after", maxBrokerGroups="8")
    again.door.machine.load(stage.door.machine.capture()())()
    assert (await again.apply_id("e", host="stranger")).code == ResponseCode.SYSTEM_BUSY
    assert (await again.apply_id("honest-too", host="10.0.0.2")).code == ResponseCode.SUCCESS
    for one in (stage, again):
        await one.door.failover.stop()
        await one.door.client.close()


async def test_while_older_members_are_there_groups_are_made_without_a_host(tmp_path: Path) -> None:
    """They could not read it; to refuse new groups until all are upgraded would be worse."""
    stage = Stage(tmp_path, maxBrokerGroups="8")
    stage.door.proposals._pipeline._feature_level = lambda: FIRST_LEVEL
    assert (await stage.apply_id("b", host="10.0.0.1")).code == ResponseCode.SUCCESS
    assert (stage.door.machine.groups["b"].host, stage.door.machine.feature_level) == ("", FIRST_LEVEL)
    stage.door.proposals._pipeline._feature_level = lambda: FEATURE_LEVEL
    assert (await stage.apply_id("c", host="10.0.0.1")).code == ResponseCode.SUCCESS
    assert stage.door.machine.groups["c"].host == "10.0.0.1"
    await stage.door.failover.stop()
    await stage.door.client.close()


async def test_a_configuration_update_that_is_no_text_is_answered(stage: Stage) -> None:
    answer = await stage.ask(request(RequestCode.UPDATE_CONTROLLER_CONFIG, None, b"\xff\xfe"))
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_broker_before_5_1_1_is_told_to_upgrade(stage: Stage) -> None:
    """It sends no brokerId, which 1003 gave it then."""
    fields = {"clusterName": "C", "brokerName": NAME, "brokerAddress": address(1), "epoch": "1", "maxOffset": "0"}
    answer = await stage.ask(RemotingCommand(RequestCode.CONTROLLER_REGISTER_BROKER, ext_fields=fields))
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert "upgrade the broker to 5.1.1 or later" in (answer.remark or "")
