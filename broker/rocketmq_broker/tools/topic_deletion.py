"""215: deletes a topic. The master writes the deletion into the log, and so each replica hides the topic's messages
before that place (`rocketmq_store/queues/deletions.py`); a topic of the same name starts empty, and the offsets of its
queues continue. The tables of topics, groups and offsets lose the topic at once, and so does what only this process
keeps (docs/architecture.md#what-a-deletion-removes). The answer leaves when all of that is on disk and, with strict
durability, at the slaves in sync. If this master dies in between, the next one finds the deletion in its log and
carries it out (`log_topics.py`). `group_admin.py` deletes the topics of a group with it.

Only a master deletes. mqadmin asks every member, so a slave that has a master answers with success and changes nothing:
the deletion comes with the log. (Java's slaves delete in their own tables, until they copy their master's.)

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.sending.inner_writer import InnerWriter
from rocketmq_broker.tables.consumer_tables import ConsumerTables
from rocketmq_broker.tables.table_file import (
    Barrier,
    MakeBarrier,
    TableFile,
    answer_when_durable,
    check_may_edit,
    no_barrier,
)
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.broker_admin import TopicRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.store.deletions import Deleted, encode_deletion
from rocketmq_formats.topics import DELETED_TOPICS, RETRY_PREFIX
from rocketmq_runtime import background
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_store.errors import StoreError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft

log = structlog.get_logger(__name__)

CONFIRM_SECONDS: Final = 2.5
"""How long a deletion may wait for its copies: shorter than tools wait."""
POLL_SECONDS: Final = 0.01


class TopicDeletion:
    """Deletes topics by request."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        store: MessageStore,
        writer: InnerWriter,
        topics: TopicTable,
        topics_file: TableFile,
        tables: ConsumerTables,
        forget_locks: Callable[[AbstractSet[str]], None],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """`clock`: what leases are in."""
        self._role = role
        self._store = store
        self._writer = writer
        self._topics = topics
        self._file = topics_file
        self._tables = tables
        self._forget_locks = forget_locks
        self._clock = clock
        self._recorded = 0, 0
        """The epoch of the last deletion that this master wrote, and where in the log it ends."""
        self.replication_barrier: MakeBarrier = no_barrier

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.DELETE_TOPIC_IN_BROKER: self._delete}

    def _delete(self, request: RemotingCommand, peer: Peer) -> Answer:
        if self._role.leaves_deletions_to_master:
            return response(request, ResponseCode.SUCCESS)
        check_may_edit(self._role)
        header = decode_header(TopicRequestHeader, request.ext_fields or {})
        if self._topics.is_system(header.topic):
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{header.topic}] is conflict with system topic."
            )
        self.delete({header.topic}, peer)
        return self.answer(request)

    def delete(self, topics: AbstractSet[str], peer: Peer, *, groups: AbstractSet[str] = frozenset()) -> None:
        """Delete topics, or repeat that, and forget where these groups are. `answer` waits until it is done.

        Raises:
            RequestRefusedError: no table is changed.
        """
        there = {topic for topic in topics if self._topics.get(topic) is not None}
        if there != topics:  # a repetition, perhaps at another master
            there |= topics & self._store.queues().keys()
        offsets = self._tables.offsets
        retries = {
            RETRY_PREFIX + group: group
            for group in groups
            if self._tables.groups.get(group) is not None or offsets.topics_of(group)
        }
        for topic in sorted(there | retries.keys()):
            self._record(topic, retries.get(topic))
        offsets.remove(topics=topics, groups=groups)
        self._forget_locks(topics)
        for topic in sorted(topics):
            self._tables.groups.forget_topic(topic)
            if self._topics.delete(topic, state_version=self._role.epoch, now_ms=now_ms()):
                log.info("topic deleted", topic=topic, by=peer.address)

    def _record(self, topic: str, group: str | None) -> None:
        """Write the deletion into the log, with that of `group`."""
        refusal = self._writer.refusal()
        if refusal is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, f"topics cannot be deleted now, try again: {refusal}")
        # named as its own sender, which no client can be
        host = self._writer.store_host
        draft = Draft(
            topic=DELETED_TOPICS.encode(),
            queue_id=0,
            body=topic.encode(),
            properties=encode_deletion(
                Deleted(group, self._topics.version, self._tables.groups.version, self._tables.offsets_version())
            ),
            born_timestamp=now_ms(),
            born_host=host,
            store_host=host,
        )
        try:
            self._recorded = self._role.epoch, self._writer.append(draft).end
        except StoreError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"the topic is not deleted: {error}") from error

    def answer(self, request: RemotingCommand) -> Answer:
        """When the tables are as safe as every change of them, and the deletion in the log as safe as a message. Called
        in the step of the change: later another role would know nothing of it."""
        epoch, recorded = self._recorded
        end = recorded if epoch == self._role.epoch else 0
        return background.awaited(self._answer(request, end, self.replication_barrier()), "deletion")

    async def _answer(self, request: RemotingCommand, end: int, barrier: Barrier) -> RemotingCommand:
        answer = await answer_when_durable(request, self._file, barrier, self._tables_saved)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        until = asyncio.get_running_loop().time() + CONFIRM_SECONDS
        while self._role.acknowledged(self._clock(), self._store.max_offset) < end:
            if asyncio.get_running_loop().time() >= until:
                return response(
                    request, ResponseCode.SYSTEM_BUSY, "the deletion is not at all replicas in sync yet: repeat it"
                )
            await asyncio.sleep(POLL_SECONDS)
        return answer

    async def _tables_saved(self) -> None:
        await self._tables.groups_file.saved()
        await self._tables.offsets_saved()
