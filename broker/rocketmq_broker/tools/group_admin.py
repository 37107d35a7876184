"""Requests of tools and slaves for the table of consumer groups: 200 and 207 change it, 201 and 352 read it.

A group that is deleted with its offsets (`cleanOffset`) loses its retry and dead letter topics too, which mqadmin
deletes by requests of their own in any case; without, a group of the same name continues where the old one was.

The answer to a change leaves when the table is on disk and, with strict durability, at the slaves in sync. Only a
master takes changes: at a slave they would last until it copies its master's table (Java's takes them). A slave that
has a master leaves deletions to it, as in `topic_deletion.py`.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import structlog
from msgspec import structs

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.subscription_groups import MAX_GROUPS, SubscriptionGroups
from rocketmq_broker.domain.tables.topic_attributes import altered_group_attributes
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_broker.tables.table_body import TableBody
from rocketmq_broker.tables.table_file import MakeBarrier, TableFile, answer_when_durable, check_may_edit, no_barrier
from rocketmq_broker.tools.topic_deletion import TopicDeletion
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_request_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    SubscriptionGroupWrapper,
)
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.topics import DLQ_PREFIX, RETRY_PREFIX, SubscriptionGroupConfig
from rocketmq_runtime import background
from rocketmq_runtime.remoting.server import Answer, Peer

log = structlog.get_logger(__name__)


class GroupAdmin:
    """The table of groups by request."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        groups: SubscriptionGroups,
        file: TableFile,
        lane: SlowLane,
        topic_deletion: TopicDeletion,
        forget_locks: Callable[[AbstractSet[str]], None],
    ) -> None:
        self._role = role
        self._groups = groups
        self._file = file
        self._topic_deletion = topic_deletion
        self._forget_locks = forget_locks
        self.replication_barrier: MakeBarrier = no_barrier
        self.all = TableBody(
            lane,
            b"subscriptionGroupTable",
            name="groups",
            version=lambda: groups.version,
            table=lambda: groups.table,
            around=lambda: SubscriptionGroupWrapper(forbidden_table=groups.forbidden, data_version=groups.version),
        )

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all.answer,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._get,
        }

    def _update(self, request: RemotingCommand, peer: Peer) -> Answer:
        check_may_edit(self._role)
        group = decode_request_body(SubscriptionGroupConfig, request.body)
        problem = self._groups.name_problem(group.group_name)
        if problem is None and self._groups.get(group.group_name) is None and len(self._groups.table) >= MAX_GROUPS:
            problem = f"there are {MAX_GROUPS} groups already"
        if problem is not None:
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, problem)
        old = self._groups.get(group.group_name)
        known = (old.attributes if old is not None else None) or {}
        group = structs.replace(group, attributes=altered_group_attributes(known, group.attributes or {}))
        if self._groups.put(group):
            log.info("consumer group changed", group=group.group_name, by=peer.address)
        return background.awaited(answer_when_durable(request, self._file, self.replication_barrier()), "group")

    def _delete(self, request: RemotingCommand, peer: Peer) -> Answer:
        if self._role.leaves_deletions_to_master:
            return response(request, ResponseCode.SUCCESS)
        check_may_edit(self._role)
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request.ext_fields or {})
        group = header.group_name
        if header.clean_offset:
            self._topic_deletion.delete({RETRY_PREFIX + group, DLQ_PREFIX + group}, peer, groups={group})
        self._forget_locks({group})
        if self._groups.delete(group):
            log.info("consumer group deleted", group=group, by=peer.address, offsets=header.clean_offset)
        return self._topic_deletion.answer(request)

    def _get(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(GetSubscriptionGroupConfigRequestHeader, request.ext_fields or {})
        group = self._groups.get(header.group)
        if group is None:
            remark = f"No group in this broker. group: {header.group}"
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(group))
