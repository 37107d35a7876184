"""Copies a master's tables to its native slaves (COPY_TABLES), and delays answers until the slaves have them.

A slave's request is answered when something is newer than what it holds; its next request confirms that it holds it
(`table_holders.py`). So with strict durability an administrator's change is acknowledged when every member of the
SyncStateSet has it, and so is a commit of a consumer offset that wants an answer (`waiting_commits.py`). One-way
commits reach the slaves a round trip later.

Requests of others than those slaves are refused (`domain/tables/copy_reports.py`) and leave nothing here, so each table
below has at most an entry for each slave that the sidecar has named. What was committed at them while they acted as
master is nevertheless taken over (`acting_reports.py`).
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.change_order import Changed, ChangeOrder
from rocketmq_broker.domain.tables.copy_reports import Doubt, Mastership, Serials, held_by
from rocketmq_broker.domain.tables.part_copies import PartCopy
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.tables.acting_reports import ActingReports
from rocketmq_broker.tables.changes_body import group_changes_body, topic_changes_body
from rocketmq_broker.tables.consumer_tables import ConsumerTables
from rocketmq_broker.tables.table_file import Barrier, no_barrier
from rocketmq_broker.tables.table_holders import NO_MEMBERS, TableHolders
from rocketmq_broker.tables.waiting_commits import WaitingCommits
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.replica_link import Copied
from rocketmq_formats.steps import Steps
from rocketmq_formats.table_copies import (
    MAX_QUEUE_ENDS,
    NOTHING,
    CopyTablesRefusalHeader,
    CopyTablesRequestHeader,
    CopyTablesResponseHeader,
    Tables,
    queue_ends_line,
)
from rocketmq_runtime import background
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting.peer import Deferred
from rocketmq_runtime.remoting.server import DEFERRED, Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Lane, LaneFullError, in_steps

log = structlog.get_logger(__name__)

ADMIN_SECONDS: Final = 2.5
"""How long a change may wait for the slaves: longer than one whose broker hangs stays in the SyncStateSet
(brokerHangTimeoutMs), and shorter than tools wait."""
HOLD_SECONDS: Final = 0.5
"""How long a hand-over may wait for the slaves."""
LONG_POLL_SECONDS: Final = 1.0
"""After this a slave gets an answer without tables; it carries the delay offsets."""
BATCH_SECONDS: Final = 0.01
"""Between two answers to a slave where only offsets changed: commits come in thousands."""
DELAYS_SECONDS: Final = 0.5
"""Minimum time between two copies of delay offsets: a new master finds later ones in its log."""
MAX_PART: Final = 4 * 1024 * 1024
"""Bytes of an answer above which the next table waits for the next answer."""
PART: Final = 2000
"""Keys of each table in one answer: bounds how long they hold a turn of the loop, here and at the slave."""
ALL: Final = 2**62
"""Keys of an answer to a slave that takes no parts."""
LOG_SECONDS: Final = 60.0
_REFUSALS: Final = {
    Doubt.OUTSIDER: ResponseCode.CONTROLLER_INVALID_REPLICAS,
    Doubt.UNPROVEN: ResponseCode.NO_PERMISSION,
    Doubt.AHEAD: ResponseCode.INVALID_PARAMETER,
    Doubt.PAST_EPOCH: ResponseCode.SYSTEM_BUSY,
}


class _Takes(NamedTuple):
    """What a slave can read."""

    most: int
    """Keys of offsets in one answer."""
    changes: bool
    """Of topics and groups, too."""


class _SlaveCopies(NamedTuple):
    """What a slave has of each table."""

    topics: PartCopy
    groups: PartCopy
    offsets: PartCopy

    def reported(self, at: Serials, changes: Serials) -> Serials:
        """See `PartCopy.reported`."""
        return Serials(*map(PartCopy.reported, self, at, changes))


class _PendingCopy(NamedTuple):
    """A slave's request that waits for something newer."""

    request: RemotingCommand
    peer: Peer
    held: Serials
    takes: _Takes
    timer: asyncio.TimerHandle


class TableCopies:
    """One per broker; idle while it is not master."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        topics: TopicTable,
        tables: ConsumerTables,
        topics_body: Callable[[], Steps[bytes]],
        groups_body: Callable[[], Steps[bytes]],
        ended_queues: Callable[[int], Iterator[list[tuple[str, int, int]]]],
        on_copied: Callable[[Copied], None],
    ) -> None:
        """`topics_body`, `groups_body`: as of 21 and 201. `ended_queues`: as `MessageStore.ended_queues`. `on_copied`:
        informs the sidecar."""
        self._role = role
        self._tables = tables
        self._topics = topics
        self._topics_body = topics_body
        self._groups_body = groups_body
        self._ended_queues = ended_queues
        self._loop = asyncio.get_running_loop()
        self._token = ""
        self._replicas = frozenset[int]()
        """Broker ids whose requests are answered."""
        self._named: tuple[object, ...] = ()
        """What they were computed from."""
        self._may_log = LogLimiter(self._loop.time, LOG_SECONDS)
        self._acting = ActingReports(role=role, offsets=tables.offsets, may_log=self._may_log)
        self._holders = TableHolders(role=role, serials=self._serials, on_copied=on_copied)
        self._pending: dict[int, _PendingCopy] = {}
        self._copies: dict[int, _SlaveCopies] = {}
        """By broker id."""
        self._lane = Lane()
        """Separate from the tools' lane, because changes wait for slaves."""
        self._making: set[asyncio.Task[None]] = set()
        self._delays_sent: dict[int, float] = {}
        """By broker id, loop time."""
        self._wake: asyncio.TimerHandle | None = None
        self._commits = WaitingCommits(lambda changes: self._holders.problem(Serials(NOTHING, NOTHING, changes)))
        topics.on_change(self._table_changed)
        tables.groups.on_change(self._table_changed)
        tables.offsets.on_change = self._offsets_changed

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.COPY_TABLES: self._copy_tables}

    def on_role_change(self) -> None:
        """Another role or epoch: slaves have to confirm again what they hold."""
        self._token = secrets.token_hex(8) if self._role.role is Role.MASTER else ""
        self._replicas, self._named = frozenset(), ()
        self._copies.clear()
        self._delays_sent.clear()
        self._holders.begin()
        self._commits.end()
        pending, self._pending = self._pending, {}
        for copy in pending.values():
            copy.timer.cancel()
            copy.peer.answer_later(copy.request, _not_master(copy.request))

    def on_members(self) -> None:
        """The sidecar has sent the SyncStateSet and the slaves that may enter it."""
        role = self._role
        joins = role.joins
        named = (role.members, joins)
        if named == self._named:
            return  # as with every acknowledged message
        self._named = named
        self._replicas = ((role.members or frozenset()) | joins.keys()) - {role.broker_id}
        for slave in (self._pending.keys() | self._copies.keys() | self._delays_sent.keys()) - self._replicas:
            self._forget(slave)
        for slave in self._holders.on_members(self._replicas):
            if slave in self._pending:
                self._answer_one(slave)

    def replication_barrier(self) -> Barrier:
        """A wait until every member of the SyncStateSet holds the tables as they are now. It returns None, or why they
        may be lost; at once without strict durability."""
        if not self._role.durability.strict or self._role.role is not Role.MASTER:
            return no_barrier()
        return self._holders.barrier(ADMIN_SECONDS)

    def commit_answer(self, request: RemotingCommand, peer: Peer) -> Answer:
        """The answer to a commit of a consumer offset that was just applied."""
        if request.is_oneway or not self._role.durability.strict:
            return response(request, ResponseCode.SUCCESS)
        if self._role.role is not Role.MASTER:
            return _not_master(request)  # the master's table will replace it
        return self._commits.wait(request, peer, self._tables.offsets.changes, ADMIN_SECONDS)

    async def hand_over(self) -> None:
        """Another replica may become master: wait until the slaves have all commits and changes, if that is possible in
        time."""
        if self._role.role is not Role.MASTER:
            return
        problem = await self._holders.barrier(HOLD_SECONDS)()
        if problem is not None:
            log.warning("the tables are not at all replicas in sync", reason=problem)

    # inside

    def _forget(self, slave: int) -> None:
        """Its requests are refused from now on."""
        self._copies.pop(slave, None)
        self._delays_sent.pop(slave, None)
        pending = self._pending.pop(slave, None)
        if pending is not None:
            pending.timer.cancel()
            pending.peer.answer_later(pending.request, self._refusal(pending.request, Doubt.OUTSIDER, pending.peer))

    def _nonce(self, peer: Peer) -> str:
        """Of a connection: never used for another, nor in another mastership."""
        return f"{self._token}.{peer.id}"

    def _refusal(
        self, request: RemotingCommand, doubt: Doubt, peer: Peer, *, acting_taken: bool = False
    ) -> RemotingCommand:
        header = CopyTablesRefusalHeader(nonce=self._nonce(peer), acting_taken=acting_taken)
        return response(request, _REFUSALS[doubt], str(doubt), header)

    def _serials(self) -> Serials:
        tables = self._tables
        return Serials(self._topics.order.changes, tables.groups.order.changes, tables.offsets.changes)

    def _copy_tables(self, request: RemotingCommand, peer: Peer) -> Answer:
        if self._role.role is not Role.MASTER:
            return _not_master(request)
        if self._role.members is None:
            return response(request, ResponseCode.SYSTEM_BUSY, NO_MEMBERS)
        header = decode_header(CopyTablesRequestHeader, request.ext_fields or {})
        body, request.body = request.body, b""  # a request that waits must not keep it
        if not body:
            return self._answer_report(request, peer, header)
        token = self._token
        steps = self._acting.take_over(body, header, self._nonce(peer), lambda: token == self._token)
        made = self._lane.first_step(steps)
        if made is not None:
            return self._answer_report(request, peer, header, acting_taken=made[0])
        task = background.start(self._answer_report_later(steps, request, peer, header), "tables for a slave")
        self._making.add(task)
        task.add_done_callback(self._making.discard)
        return DEFERRED

    async def _answer_report_later(
        self, steps: Steps[bool], request: RemotingCommand, peer: Peer, header: CopyTablesRequestHeader
    ) -> None:
        token = self._token
        answer: Answer
        try:
            taken = await self._lane.run(header.broker_id, partial(in_steps, steps))
        except LaneFullError as error:
            answer = response(request, ResponseCode.SYSTEM_BUSY, str(error))
        else:
            current = token == self._token
            answer = self._answer_report(request, peer, header, acting_taken=taken) if current else _not_master(request)
        if isinstance(answer, RemotingCommand):
            peer.answer_later(request, answer)

    def _answer_report(
        self, request: RemotingCommand, peer: Peer, header: CopyTablesRequestHeader, *, acting_taken: bool = False
    ) -> RemotingCommand | Deferred:
        number = header.broker_id
        role = self._role
        mastership = Mastership(self._token, self._serials(), self._replicas, role.copy_key, role.epoch)
        held = held_by(header, self._nonce(peer), mastership)
        if isinstance(held, Doubt):
            if held is Doubt.AHEAD and self._may_log(held):
                log.warning("a report about copied tables refused", broker_id=number, peer=peer.address, reason=held)
            return self._refusal(request, held, peer, acting_taken=acting_taken)
        self._holders.confirmed(number, self._slave_copies(number).reported(held, self._serials()))
        self._commits.check()
        before = self._pending.pop(number, None)
        if before is not None:
            before.timer.cancel()
            self._answer_later(before, number)
        takes = _Takes(PART if header.parts else ALL, header.changes)
        if acting_taken or not held.reaches(self._serials()):
            begin = header.log_begin
            steps = self._render(request, peer, number, held, takes, log_begin=begin, acting_taken=acting_taken)
            return self._answer(request, peer, number, steps)
        timer = self._loop.call_later(LONG_POLL_SECONDS, self._answer_one, number)
        self._pending[number] = _PendingCopy(request, peer, held, takes, timer)
        return DEFERRED

    def _table_changed(self) -> None:
        self._answer_soon(0)

    def _offsets_changed(self) -> None:
        if self._pending and self._wake is None:
            self._answer_soon(BATCH_SECONDS)

    def _answer_soon(self, seconds: float) -> None:
        if self._pending:
            if self._wake is not None:
                self._wake.cancel()
            self._wake = self._loop.call_later(seconds, self._answer_all)

    def _answer_all(self) -> None:
        self._wake = None
        for number in list(self._pending):
            self._answer_one(number)

    def _answer_one(self, number: int) -> None:
        pending = self._pending.pop(number)
        pending.timer.cancel()
        self._answer_later(pending, number)

    def _answer_later(self, pending: _PendingCopy, number: int) -> None:
        steps = self._render(pending.request, pending.peer, number, pending.held, pending.takes)
        answer = self._answer(pending.request, pending.peer, number, steps)
        if answer is not DEFERRED:
            pending.peer.answer_later(pending.request, answer)

    def _answer(
        self, request: RemotingCommand, peer: Peer, number: int, steps: Steps[RemotingCommand]
    ) -> RemotingCommand | Deferred:
        """At once if one step is enough."""
        made = self._lane.first_step(steps)
        if made is not None:
            return made[0]
        task = background.start(self._make(steps, request, peer, number), "tables for a slave")
        self._making.add(task)
        task.add_done_callback(self._making.discard)
        return DEFERRED

    async def _make(self, steps: Steps[RemotingCommand], request: RemotingCommand, peer: Peer, number: int) -> None:
        token = self._token
        try:
            answer = await self._lane.run(number, partial(in_steps, steps))
        except LaneFullError as error:
            answer = response(request, ResponseCode.SYSTEM_BUSY, str(error))
        peer.answer_later(request, answer if token == self._token else _not_master(request))

    def _render(
        self,
        request: RemotingCommand,
        peer: Peer,
        number: int,
        held: Serials,
        takes: _Takes,
        *,
        log_begin: int = NOTHING,
        acting_taken: bool = False,
    ) -> Steps[RemotingCommand]:
        try:
            return (
                yield from self._tables_for(
                    request, peer, number, held, takes, log_begin=log_begin, acting_taken=acting_taken
                )
            )
        except RequestRefusedError as error:  # a slave of an older release, and a whole table that no frame carries
            return response(request, error.code, str(error))

    def _tables_for(
        self,
        request: RemotingCommand,
        peer: Peer,
        number: int,
        held: Serials,
        takes: _Takes,
        *,
        log_begin: int,
        acting_taken: bool,
    ) -> Steps[RemotingCommand]:
        topics = groups = offsets = ends = topic_changes = group_changes = b""
        now, copies = held, self._slave_copies(number)
        # a serial is taken in the same step as the table's entries
        if held.topics < self._topics.order.changes:
            if takes.changes:
                copy = partial(topic_changes_body, self._topics)
                topic_changes, until = _part(self._topics.order, copies.topics, held.topics, copy)
                now = now._replace(topics=until)
                yield
            else:
                now = now._replace(topics=_all(self._topics.order, copies.topics, held.topics))
                topics = yield from self._topics_body()
            if log_begin >= 0:  # a slave that confirms the topics has these, too
                ends = yield from self._ends_body(log_begin)
        size = len(topics) + len(topic_changes)
        table = self._tables.groups
        if held.groups < table.order.changes and size < MAX_PART:
            if takes.changes:
                copy = partial(group_changes_body, table)
                group_changes, until = _part(table.order, copies.groups, held.groups, copy)
                now = now._replace(groups=until)
                yield
            else:
                now = now._replace(groups=_all(table.order, copies.groups, held.groups))
                groups = yield from self._groups_body()
        size += len(groups) + len(group_changes)
        if held.offsets < self._tables.offsets.changes and size < MAX_PART:
            changed = self._changed_since(copies.offsets, held.offsets, takes.most)
            offsets, now = self._tables.encode_changed_offsets(changed), now._replace(offsets=changed.until)
        delays = b""
        if self._loop.time() - self._delays_sent.get(number, float("-inf")) >= DELAYS_SECONDS:
            self._delays_sent[number] = self._loop.time()
            delays = self._tables.encode_delays()
        header = CopyTablesResponseHeader(
            token=self._token,
            topics=now.topics,
            groups=now.groups,
            offsets=now.offsets,
            topics_length=len(topics),
            groups_length=len(groups),
            offsets_length=len(offsets),
            delays_length=len(delays),
            nonce=self._nonce(peer),
            acting_taken=acting_taken,
            ends_length=len(ends),
            topic_changes_length=len(topic_changes),
            group_changes_length=len(group_changes),
        )
        body = Tables(topics, groups, offsets, delays, ends, topic_changes, group_changes)
        return response(request, ResponseCode.SUCCESS, None, header, b"".join(body))

    def _ends_body(self, log_begin: int) -> Steps[bytes]:
        lines: list[bytes] = []
        count = 0
        for ends in self._ended_queues(log_begin):
            count += len(ends)
            if count > MAX_QUEUE_ENDS:
                log.error("too many queues have expired: slaves do not get the ends of all", most=MAX_QUEUE_ENDS)
                break
            if ends:
                lines.append(queue_ends_line(ends))
            yield
        return b"".join(lines)

    def _changed_since(self, copy: PartCopy, since: int, most: int) -> Changed:
        offsets = self._tables.offsets
        changed = offsets.changed_since(since, most, begun=copy.begun(since))
        copy.sent(since, changed.until, offsets.changes, begins=changed.begins, floor=offsets.floor)
        return changed

    def _slave_copies(self, number: int) -> _SlaveCopies:
        return self._copies.setdefault(number, _SlaveCopies(PartCopy(), PartCopy(), PartCopy()))


def _part(order: ChangeOrder, copy: PartCopy, since: int, body: Callable[[Changed], bytes]) -> tuple[bytes, int]:
    """What changed after number `since`, as much as one answer carries, and where it leads."""
    most = PART
    while True:
        changed = order.since(since, most, begun=copy.begun(since))
        part = body(changed)
        if len(part) <= MAX_PART or most == 1:
            copy.sent(since, changed.until, order.changes, begins=changed.begins, floor=order.floor)
            return part, changed.until
        most = max(most // 4, 1)


def _all(order: ChangeOrder, copy: PartCopy, since: int) -> int:
    """The whole table is sent; where it leads."""
    copy.sent(since, order.changes, order.changes, begins=False, floor=order.floor)
    return order.changes


def _not_master(request: RemotingCommand) -> RemotingCommand:
    return response(request, ResponseCode.SYSTEM_BUSY, "this broker is not master")
