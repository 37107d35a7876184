"""Decodes controllers' answers for the control machine. Pure; raises `FormatError` for what cannot be read."""

import re
from typing import Final

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import HeaderError
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import (
    ApplyBrokerIdResponseHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_sidecar.domain.controllers.group_state import MasterAnswer

_IDS: Final = re.compile(r"\d{1,19}(;\d{1,19}){0,99}")
_NOT_ALIVE: Final = re.compile(r"the replicas \{(\d{1,18})\} don't alive")
"""Java's words, and our controllers'."""


def quorum(answer: RemotingCommand) -> GetMetaDataResponseHeader:
    """1005."""
    return decode_header(GetMetaDataResponseHeader, answer.ext_fields or {})


def next_broker_id(answer: RemotingCommand) -> int:
    """1012: the id to apply for, from 1."""
    found = decode_header(GetNextBrokerIdResponseHeader, answer.ext_fields or {}).next_broker_id
    if found is None or found < 1:
        raise HeaderError(f"no usable nextBrokerId in the answer: {found}")
    return found


def former_ids(answer: RemotingCommand) -> str | None:
    """1013: the ids that had this replica's address before, `1;4`, as our controllers say it; None: none."""
    found = decode_header(ApplyBrokerIdResponseHeader, answer.ext_fields or {}).former_broker_ids
    return found if found is not None and _IDS.fullmatch(found) else None


def agreed(answer: RemotingCommand) -> SyncStateSet:
    """1001: the set and its epoch after the change."""
    return decode_body(SyncStateSet, answer.body)


def not_alive(answer: RemotingCommand) -> int | None:
    """1001: the replica because of which the set was refused, if the controllers say that it is dead (2006)."""
    found = _NOT_ALIVE.search(answer.remark or "")
    return int(found[1]) if found and answer.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE else None


def master_answer(code: RequestCode, answer: RemotingCommand) -> MasterAnswer | None:
    """1002, 1003, 1004: who is master; None if the request was refused. 2011 (the master lives) is not a refusal."""
    fields = answer.ext_fields or {}
    if code is RequestCode.CONTROLLER_ELECT_MASTER:
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            return None
        elected = decode_header(ElectMasterResponseHeader, fields)
        members = decode_body(ElectMasterResponseBody, answer.body).sync_state_set or frozenset()
        in_sync = SyncStateSet(sync_state_set=members, sync_state_set_epoch=elected.sync_state_set_epoch or 0)
        return MasterAnswer(code, elected.master_epoch, elected.master_broker_id, elected.master_address, in_sync)
    if answer.code != ResponseCode.SUCCESS:
        return None
    if code is RequestCode.CONTROLLER_REGISTER_BROKER:
        registered = decode_header(RegisterBrokerToControllerResponseHeader, fields)
        return MasterAnswer(
            code, registered.master_epoch, registered.master_broker_id, registered.master_address, agreed(answer)
        )
    replica = decode_header(GetReplicaInfoResponseHeader, fields)
    return MasterAnswer(code, replica.master_epoch, replica.master_broker_id, replica.master_address, agreed(answer))
