"""Tools and slaves at the table of consumer groups: 200 and 207 change it, 201 and 352 read it.

The answer to a change leaves when the table is on disk. As in Java a slave takes changes too; they last until it copies
its master's table.
Source: client reference, section 6 (`AdminBrokerProcessor`).
"""

import asyncio

import structlog

from rocketmq_broker.domain.offsets import ConsumerOffsets
from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_broker.domain.subscription_groups import MAX_GROUPS, SubscriptionGroups
from rocketmq_broker.front import Processor
from rocketmq_broker.persistence import TableFile
from rocketmq_formats.remoting.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    SubscriptionGroupWrapper,
)
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.server import Answer, Peer

log = structlog.get_logger(__name__)


class GroupAdmin:
    """The table of groups by request."""

    def __init__(self, *, groups: SubscriptionGroups, offsets: ConsumerOffsets, file: TableFile) -> None:
        self._groups = groups
        self._offsets = offsets
        self._file = file
        self._body = b""
        self._body_version: DataVersion | None = None

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._get,
        }

    def _update(self, request: RemotingCommand, peer: Peer) -> Answer:
        group = decode_body(SubscriptionGroupConfig, request.body)
        problem = self._groups.name_problem(group.group_name)
        if problem is None and self._groups.get(group.group_name) is None and len(self._groups.table) >= MAX_GROUPS:
            problem = f"there are {MAX_GROUPS} groups already"
        if problem is not None:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, problem)
        if not self._groups.put(group):
            return response(request, ResponseCode.SUCCESS)
        log.info("consumer group changed", group=group.group_name, by=peer.address)
        return asyncio.ensure_future(self._when_saved(request))

    def _delete(self, request: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request.ext_fields or {})
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
        if not self._groups.delete(header.group_name):
            return response(request, ResponseCode.SUCCESS)
        log.info("consumer group deleted", group=header.group_name, by=peer.address, offsets=header.clean_offset)
        return asyncio.ensure_future(self._when_saved(request))

    def _get(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(GetSubscriptionGroupConfigRequestHeader, request.ext_fields or {})
        group = self._groups.get(header.group)
        if group is None:
            remark = f"No group in this broker. group: {header.group}"
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(group))

    def _all(self, request: RemotingCommand, _peer: Peer) -> Answer:
        """201; the body is made once per version."""
        version = self._groups.version
        if self._body_version != version:
            self._body = encode_body(
                SubscriptionGroupWrapper(
                    subscription_group_table=self._groups.table,
                    forbidden_table=self._groups.forbidden,
                    data_version=version,
                )
            )
            self._body_version = version
        return response(request, ResponseCode.SUCCESS, None, None, self._body)

    async def _when_saved(self, request: RemotingCommand) -> RemotingCommand:
        try:
            await self._file.saved()
        except StorageError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, f"the change holds until a restart only: {error}")
        return response(request, ResponseCode.SUCCESS)
