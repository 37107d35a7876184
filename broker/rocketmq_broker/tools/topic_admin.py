"""UPDATE_AND_CREATE_TOPIC (17): tools create and change topics.

The answer leaves when the table is on disk and, with strict durability, at the slaves in sync; the table's
listeners update the name servers at once.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java.
"""

from collections.abc import Mapping

import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topic_attributes import altered_attributes
from rocketmq_broker.domain.tables.topics import MAX_TOPICS, TopicTable, name_problem
from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.tables.table_file import MakeBarrier, TableFile, answer_when_durable, check_may_edit, no_barrier
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.broker_admin import CreateTopicRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.topics import MAX_QUEUES, TopicConfig
from rocketmq_runtime import background
from rocketmq_runtime.remoting.server import Answer, Peer

log = structlog.get_logger(__name__)


class TopicAdmin:
    """Changes the topic table on behalf of tools."""

    def __init__(self, *, topics: TopicTable, file: TableFile, role: ReplicaRole) -> None:
        self._topics = topics
        self._file = file
        self._role = role
        self.replication_barrier: MakeBarrier = no_barrier

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.UPDATE_AND_CREATE_TOPIC: self._update}

    def _update(self, request: RemotingCommand, peer: Peer) -> Answer:
        check_may_edit(self._role)
        header = decode_header(CreateTopicRequestHeader, request.ext_fields or {})
        problem = name_problem(header.topic)
        if problem is None and self._topics.is_system(header.topic):
            problem = f"The topic[{header.topic}] is conflict with system topic."
        if problem is None and not (
            0 <= header.read_queue_nums <= MAX_QUEUES and 0 <= header.write_queue_nums <= MAX_QUEUES
        ):
            problem = f"queue numbers are between 0 and {MAX_QUEUES}"
        if problem is None and not 0 <= header.perm <= 15:
            problem = f"no perm: {header.perm}"
        if problem is None and self._topics.get(header.topic) is None and len(self._topics.table) >= MAX_TOPICS:
            problem = f"there are {MAX_TOPICS} topics already"
        if problem is not None:
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, problem)
        old = self._topics.get(header.topic)
        current: Mapping[str, str] = (old.attributes if old is not None else None) or {}
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type="MULTI_TAG" if header.topic_filter_type == "MULTI_TAG" else "SINGLE_TAG",
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=altered_attributes(current, header.attributes),
        )
        if self._topics.put(config, state_version=self._role.epoch, now_ms=now_ms()):
            log.info(
                "topic changed", topic=header.topic, by=peer.address, queues=header.write_queue_nums, perm=header.perm
            )
        return background.awaited(answer_when_durable(request, self._file, self.replication_barrier()), "topic")
