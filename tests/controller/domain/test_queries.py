"""getReplicaInfo, getSyncStateData (1004, 1006), as in docs/protocol.md."""

import msgspec
import pytest

from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.domain.requests.queries import MAX_REPLICAS_SHOWN, get_replica_info, get_sync_state_data
from rocketmq_controller.domain.requests.registration import MAX_REPLICAS
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.controller import (
    BrokerReplicasInfo,
    GetReplicaInfoResponseHeader,
    InSyncReplica,
    ReplicasInfo,
)
from tests.controller.domain.domain_kit import StaticView, address, fresh_group, make_group, sync_set, tombstone


@pytest.mark.parametrize("group", [None, tombstone()])
def test_replica_info_of_an_unknown_set(group: BrokerGroup | None) -> None:
    decision = get_replica_info(group)
    assert (decision.code, decision.remark) == (
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        "Broker metadata is not existed",
    )
    assert (decision.header, decision.body) == (GetReplicaInfoResponseHeader(), None)


def test_replica_info_names_the_master_dead_or_alive() -> None:
    decision = get_replica_info(make_group())
    assert (decision.code, decision.remark) == (ResponseCode.SUCCESS, None)
    assert decision.header == GetReplicaInfoResponseHeader(
        master_broker_id=1, master_address=address(1), master_epoch=4
    )
    assert decision.body == sync_set(1, 2, 3)


def test_replica_info_before_the_first_election() -> None:
    decision = get_replica_info(fresh_group())
    assert decision.header == GetReplicaInfoResponseHeader(master_epoch=0)
    assert decision.body == sync_set(epoch=0)


@pytest.mark.parametrize("names", [None, [], ()])
def test_sync_state_data_without_names(names: list[str] | None) -> None:
    decision = get_sync_state_data({}, names, StaticView())
    assert (decision.code, decision.remark) == (ResponseCode.SYSTEM_ERROR, "not set any response code")


def test_sync_state_data_skips_the_unknown() -> None:
    state = {"broker-a": make_group(in_sync=(1, 2)), "gone": tombstone()}
    decision = get_sync_state_data(state, ["broker-a", "nobody", "gone", "broker-a"], StaticView({1, 3}))

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


def test_differs_from_5_3_3_a_new_leader_says_whom_it_could_not_hear_yet() -> None:
    """A new master asks them too for what only they have."""
    state = {"broker-a": make_group(ids=(1, 2, 3, 4), in_sync=(1, 2))}
    decision = get_sync_state_data(state, ["broker-a"], StaticView({1, 3}, unheard=frozenset({2, 3})))
    assert isinstance(decision.body, BrokerReplicasInfo)
    info = decision.body.replicas_info_table["broker-a"]
    shown = {one.broker_id: (one.alive, one.unheard) for one in (*info.in_sync_replicas, *info.not_in_sync_replicas)}
    assert shown == {1: (True, False), 2: (False, True), 3: (True, False), 4: (False, False)}
    assert encode_body(info.in_sync_replicas[0]) == (
        b'{"alive":true,"brokerAddress":"10.0.0.1:10911","brokerId":1,"brokerName":"broker-a"}'
    )


def test_sync_state_data_of_too_many_replicas_is_refused() -> None:
    """It takes time that grows with them, and everybody else waits meanwhile."""
    big = make_group(ids=tuple(range(1, MAX_REPLICAS + 1)))
    few = MAX_REPLICAS_SHOWN // MAX_REPLICAS
    state = {f"b{number}": msgspec.structs.replace(big, broker_name=f"b{number}") for number in range(few + 1)}
    assert get_sync_state_data(state, list(state)[:few], StaticView()).code == ResponseCode.SUCCESS
    refused = get_sync_state_data(state, list(state), StaticView())
    assert (refused.code, refused.body) == (ResponseCode.SYSTEM_ERROR, None)
    assert refused.remark is not None
    assert "ask for fewer names" in refused.remark
