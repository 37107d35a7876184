"""getReplicaInfo, getSyncStateData (1004, 1006) and updateControllerConfig (1009): controller reference 4.5, 4.7, 3."""

from collections.abc import Mapping

import pytest

from rocketmq_controller.domain import config_update, decide
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    BrokerReplicasInfo,
    GetReplicaInfoResponseHeader,
    InSyncReplica,
    ReplicasInfo,
)
from tests.controller.domain_kit import StaticView, address, fresh_group, make_group, sync_set, tombstone


@pytest.mark.parametrize("group", [None, tombstone()])
def test_replica_info_of_an_unknown_set(group: BrokerGroup | None) -> None:
    decision = decide.get_replica_info(group)
    assert (decision.code, decision.remark) == (
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        "Broker metadata is not existed",
    )
    assert (decision.header, decision.body) == (GetReplicaInfoResponseHeader(), None)


def test_replica_info_names_the_master_dead_or_alive() -> None:
    decision = decide.get_replica_info(make_group())
    assert (decision.code, decision.remark) == (ResponseCode.SUCCESS, None)
    assert decision.header == GetReplicaInfoResponseHeader(
        master_broker_id=1, master_address=address(1), master_epoch=4
    )
    assert decision.body == sync_set(1, 2, 3)


def test_replica_info_before_the_first_election() -> None:
    decision = decide.get_replica_info(fresh_group())
    assert decision.header == GetReplicaInfoResponseHeader(master_epoch=0)
    assert decision.body == sync_set(epoch=0)


@pytest.mark.parametrize("names", [None, [], ()])
def test_sync_state_data_without_names(names: list[str] | None) -> None:
    decision = decide.get_sync_state_data({}, names, StaticView())
    assert (decision.code, decision.remark) == (ResponseCode.SYSTEM_ERROR, "not set any response code")


def test_sync_state_data_skips_the_unknown() -> None:
    state = {"broker-a": make_group(in_sync=(1, 2)), "gone": tombstone()}
    decision = decide.get_sync_state_data(state, ["broker-a", "nobody", "gone", "broker-a"], StaticView({1, 3}))

    def replica(broker_id: int, *, alive: bool) -> InSyncReplica:
        return InSyncReplica(
            alive=alive, broker_address=address(broker_id), broker_id=broker_id, broker_name="broker-a"
        )

    assert (decision.code, decision.remark, decision.header) == (ResponseCode.SUCCESS, None, None)
    assert decision.body == BrokerReplicasInfo(
        replicas_info_table={
            "broker-a": ReplicasInfo(
                in_sync_replicas=[replica(1, alive=True), replica(2, alive=False)],
                not_in_sync_replicas=[replica(3, alive=True)],
                master_epoch=4,
                sync_state_set_epoch=7,
                master_address=address(1),
                master_broker_id=1,
            )
        }
    )


BLACK = "Can not update config in black list."


def numbers_only(values: Mapping[str, str]) -> str | None:
    return next((f"{key}: not a number" for key, value in values.items() if not value.isdigit()), None)


@pytest.mark.parametrize(
    ("update", "code", "remark", "values"),
    [
        ({}, 0, None, {}),
        ({"period": "7", "unknown": "x"}, 0, None, {"period": "7"}),
        ({"period": "7", "limit": "8"}, 0, None, {"period": "7", "limit": "8"}),
        ({"period": "x", "limit": "8"}, 2005, "period: not a number", {}),
        ({"configBlackList": "", "period": "x"}, 16, BLACK, {}),
        ({"configStorePath": "/"}, 16, BLACK, {}),
        ({"rocketmqHome": "/", "period": "1"}, 16, BLACK, {}),
        ({"secret": "1"}, 16, BLACK, {}),
    ],
)
def test_config_update(update: dict[str, str], code: int, remark: str | None, values: dict[str, str]) -> None:
    """The black list counts for all keys and comes first; unknown keys are left out; one wrong value refuses all."""
    result = config_update.update_config(
        update,
        known_keys={"period", "limit", "secret"},
        config_black_list="configBlackList; secret ;",
        validate=numbers_only,
    )
    assert (result.code, result.remark, result.values) == (ResponseCode(code), remark, values)


def test_differs_from_5_3_3_a_wrong_value_is_refused_by_name() -> None:
    """Java answers success and drops the value."""
    result = config_update.update_config(
        {"period": "soon"}, known_keys={"period"}, config_black_list="", validate=numbers_only
    )
    assert (result.code, result.remark) == (ResponseCode.CONTROLLER_INVALID_REQUEST, "period: not a number")
