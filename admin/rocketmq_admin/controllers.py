"""The commands on controllers: what is asked and what comes back, as values. Printing is `output`'s.

Codes, headers and bodies: `rocketmq_formats/remoting/controller.py`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_admin.caller import Caller, read_body, read_header
from rocketmq_admin.errors import AdminError, ClusterRefusedError, UnreachableError
from rocketmq_admin.leader import call_leader, get_metadata
from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import (
    BrokerReplicasInfo,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    ReplicasInfo,
)


@dataclass(frozen=True)
class Elected:
    """A successful election: the group's new state, and its members' addresses by broker id."""

    cluster_name: str
    broker_name: str
    header: ElectMasterResponseHeader
    members: Mapping[int, str]
    sync_state_set: tuple[int, ...]


@dataclass(frozen=True)
class ControllerConfig:
    """The configuration of one controller."""

    address: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class ConfigUpdated:
    """The result of an update at one controller; without `error` the new value was read back."""

    address: str
    error: AdminError | None


async def get_sync_state_sets(
    caller: Caller, controllers: Sequence[str], broker_names: Sequence[str]
) -> Mapping[str, ReplicasInfo]:
    """The state of the named broker groups, by name; those the leader does not know are missing.

    Raises:
        ClusterRefusedError, UnreachableError: see `leader.call_leader`.
    """
    asked = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_body(sorted(broker_names)))
    answer = await call_leader(caller, controllers, asked)
    return read_body(answer.address, BrokerReplicasInfo, answer.command).replicas_info_table


async def elect_master(
    caller: Caller, controllers: Sequence[str], *, cluster_name: str, broker_name: str, broker_id: int
) -> Elected:
    """Have `broker_id` made master.

    Raises:
        ClusterRefusedError, UnreachableError: see `leader.call_leader`; 2011 (master already) is a refusal, as in
        mqadmin.
    """
    header = ElectMasterRequestHeader(
        cluster_name=cluster_name,
        broker_name=broker_name,
        broker_id=broker_id,
        designate_elect=True,
        invoke_time=_now_millis(),
    )
    answer = await call_leader(caller, controllers, request(RequestCode.CONTROLLER_ELECT_MASTER, header))
    body = ElectMasterResponseBody()
    if answer.command.body:
        body = read_body(answer.address, ElectMasterResponseBody, answer.command)
    return Elected(
        cluster_name,
        broker_name,
        read_header(answer.address, ElectMasterResponseHeader, answer.command),
        body.broker_member_group.broker_addrs if body.broker_member_group else {},
        tuple(sorted(body.sync_state_set or ())),
    )


async def get_first_metadata(caller: Caller, controllers: Sequence[str]) -> GetMetaDataResponseHeader:
    """The group's members and leader as the first controller that answers reports them.

    Raises:
        UnreachableError: none answers.
        ClusterRefusedError: the only one asked refuses.
    """
    problems: list[AdminError] = []
    for address in controllers:
        try:
            return await get_metadata(caller, address)
        except AdminError as error:
            problems.append(error)
    raise problems[0] if len(problems) == 1 else UnreachableError("; ".join(map(str, problems)))


async def clean_broker_metadata(
    caller: Caller,
    controllers: Sequence[str],
    *,
    cluster_name: str | None,
    broker_name: str,
    broker_ids: Sequence[int],
    living: bool,
) -> None:
    """Forget `broker_ids` of a broker group, or, without ids, all of it; `living`: also brokers that are alive.

    Raises:
        ClusterRefusedError, UnreachableError: see `leader.call_leader`.
    """
    header = CleanControllerBrokerDataRequestHeader(
        cluster_name=cluster_name,
        broker_name=broker_name,
        broker_controller_ids_to_clean=";".join(map(str, broker_ids)) or None,
        is_clean_living_broker=living,
        invoke_time=_now_millis(),
    )
    await call_leader(caller, controllers, request(RequestCode.CLEAN_BROKER_DATA, header))


async def get_config(caller: Caller, address: str) -> ControllerConfig:
    """The configuration of the controller at `address`, whether it leads or not.

    Raises:
        ClusterRefusedError, UnreachableError: no such answer.
    """
    answer = await caller.call_checked(address, request(RequestCode.GET_CONTROLLER_CONFIG))
    try:
        return ControllerConfig(address, properties.parse(answer.body))
    except FormatError as error:
        raise ClusterRefusedError(f"{address} sent an answer that cannot be read: {error}") from error


async def update_config(caller: Caller, address: str, key: str, value: str) -> ConfigUpdated:
    """Set `key` at the controller at `address` and read it back: controllers answer success for unknown keys."""
    body = properties.dump({key: value})
    try:
        await caller.call_checked(address, request(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body))
        held = (await get_config(caller, address)).values.get(key)
    except AdminError as error:
        return ConfigUpdated(address, error)
    if held is None:
        return ConfigUpdated(address, ClusterRefusedError(f"{address} has no key {key}: nothing was set"))
    if held.casefold() != value.casefold():
        return ConfigUpdated(address, ClusterRefusedError(f"{address} did not take the value: {key} is {held}"))
    return ConfigUpdated(address, None)


def _now_millis() -> int:
    return int(time.time() * 1000)
