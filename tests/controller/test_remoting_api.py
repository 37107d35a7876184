"""The remoting door: what one request may make the controller do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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

    async def apply_id(self, broker_name: str, broker_id: int = 1) -> RemotingCommand:
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


async def test_groups_above_the_bound_are_refused(stage: Stage) -> None:
    assert [(await stage.apply_id(name)).code for name in ("b", "c", "d")] == [0, 0, ResponseCode.SYSTEM_BUSY]
    assert (await stage.apply_id("c", 2)).code == ResponseCode.SUCCESS


async def test_a_configuration_update_that_is_no_text_is_answered(stage: Stage) -> None:
    answer = await stage.ask(request(RequestCode.UPDATE_CONTROLLER_CONFIG, None, b"\xff\xfe"))
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_broker_before_5_1_1_is_told_to_upgrade(stage: Stage) -> None:
    """It sends no brokerId, which 1003 gave it then."""
    fields = {"clusterName": "C", "brokerName": NAME, "brokerAddress": address(1), "epoch": "1", "maxOffset": "0"}
    answer = await stage.ask(RemotingCommand(RequestCode.CONTROLLER_REGISTER_BROKER, ext_fields=fields))
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert "upgrade the broker to 5.1.1 or later" in (answer.remark or "")
