"""What controllers' answers say, in the machine's terms. Pure; raises `FormatError` for what cannot be read."""

from rocketmq_demo.agent.sync_set import View, sync_state_set
from rocketmq_formats.errors import HeaderError
from rocketmq_formats.remoting.bodies import decode_body
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import (
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import decode_header


def leader(answer: RemotingCommand) -> str | None:
    """1005: the leader's address, None if the asked controller knows of none."""
    return decode_header(GetMetaDataResponseHeader, answer.ext_fields or {}).controller_leader_address or None


def next_broker_id(answer: RemotingCommand) -> int:
    """1012: the id to apply for."""
    found = decode_header(GetNextBrokerIdResponseHeader, answer.ext_fields or {}).next_broker_id
    if found is None:
        raise HeaderError("no nextBrokerId in the answer")
    return found


def agreed(answer: RemotingCommand) -> SyncStateSet:
    """1001: the set and its epoch as they are now."""
    return decode_body(SyncStateSet, answer.body)


def view(code: RequestCode, answer: RemotingCommand) -> View | None:
    """1002, 1003, 1004: who is master; None if the request was refused. 2011 (the master lives) is no refusal."""
    fields = answer.ext_fields or {}
    if code is RequestCode.CONTROLLER_ELECT_MASTER:
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            return None
        elected = decode_header(ElectMasterResponseHeader, fields)
        members = decode_body(ElectMasterResponseBody, answer.body).sync_state_set or frozenset()
        return View(
            code,
            elected.master_epoch or 0,
            elected.master_broker_id,
            elected.master_address,
            sync_state_set(members, elected.sync_state_set_epoch or 0),
        )
    if answer.code != ResponseCode.SUCCESS:
        return None
    if code is RequestCode.CONTROLLER_REGISTER_BROKER:
        registered = decode_header(RegisterBrokerToControllerResponseHeader, fields)
        return View(
            code,
            registered.master_epoch or 0,
            registered.master_broker_id,
            registered.master_address,
            agreed(answer),
        )
    replica = decode_header(GetReplicaInfoResponseHeader, fields)
    return View(code, replica.master_epoch or 0, replica.master_broker_id, replica.master_address, agreed(answer))
