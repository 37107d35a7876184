"""Contract: every request to controllers that names a cluster is refused, with both values and without effect, when its
brokerName is a group of another cluster."""

import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting import controller as formats
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.headers import Header
from tests.controller.grpc_kit import NAME, address
from tests.controller.test_remoting_api import Stage


def requests(cluster: str) -> dict[int, Header]:
    """What would be done, or answered, for the group's own cluster."""
    group = {"cluster_name": cluster, "broker_name": NAME}
    code = f"{address(4)};4"
    return {
        RequestCode.CONTROLLER_ELECT_MASTER: formats.ElectMasterRequestHeader(
            **group, broker_id=2, designate_elect=True
        ),
        RequestCode.CONTROLLER_REGISTER_BROKER: formats.RegisterBrokerToControllerRequestHeader(
            **group, broker_id=2, broker_address=address(9)
        ),
        RequestCode.CLEAN_BROKER_DATA: formats.CleanControllerBrokerDataRequestHeader(
            **group, broker_controller_ids_to_clean="3", is_clean_living_broker=True
        ),
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: formats.GetNextBrokerIdRequestHeader(**group),
        RequestCode.CONTROLLER_APPLY_BROKER_ID: formats.ApplyBrokerIdRequestHeader(
            **group, applied_broker_id=4, register_check_code=code
        ),
        RequestCode.BROKER_HEARTBEAT: formats.BrokerHeartbeatRequestHeader(
            **group, broker_addr=address(2), broker_id=2, max_offset=10**9
        ),
        RequestCode.CONTROLLER_LOG_DOUBT: formats.LogDoubtRequestHeader(**group, broker_id=2, unproven=True),
    }


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    await stage.door.make_group()
    yield stage
    await stage.door.failover.stop()
    await stage.door.client.close()


def test_every_request_with_an_identity_is_in_the_table() -> None:
    with_cluster = {
        kind
        for _, kind in inspect.getmembers(formats, inspect.isclass)
        if kind.__name__.endswith("RequestHeader") and "cluster_name" in getattr(kind, "__struct_fields__", ())
    }
    assert {type(header) for header in requests("C").values()} == with_cluster


@pytest.mark.parametrize("code", list(requests("C")), ids=lambda code: RequestCode(code).name)
async def test_another_cluster_is_refused_with_both_values(stage: Stage, code: int) -> None:
    service = stage.door.service
    before = service.machine.groups[NAME], len(stage.door.failover._heartbeats)
    answer = await stage.ask(request(code, requests("Other")[code]))
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert f"brokerName {NAME} is a group of cluster C here, not of Other" in (answer.remark or "")
    assert (service.machine.groups[NAME], len(stage.door.failover._heartbeats)) == before
