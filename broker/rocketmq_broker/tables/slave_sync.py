"""Copies the master's tables while this replica is slave: topics, groups, consumer offsets, delay offsets.

From a native master it requests what is newer (COPY_TABLES, see `table_copies.py`); the answer comes when there is
something, so a change arrives within a round trip. A master answers only the slaves that it waits for; the others, and
slaves of an official master, request the whole tables (21, 201, 43, 45): at once, then every second while they are
small, up to Java's 10 s as they grow. What was not copied when that master died is recovered from the log (topics) or
lost (offsets: consumers repeat messages). Topics and groups are taken over when their version differs.

Consumer offsets are the master's, whether higher or lower than here (Java's putAll): a lower one is an operator's
reset, and keeping the higher one would undo it at the next failover. What was committed here while this replica acted
as master is sent to a native master until it answers that it has it. Delay offsets are the master's too, with the
places of the log that they belong to (`domain/consuming/delay_history.py`) and the ages of delayed messages.
Message request modes (402) and timers (60, 61) are not copied: this broker has neither.
Source: rocketmq-all-5.3.3: SlaveSynchronize.java.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

import msgspec
import structlog

from rocketmq_broker.domain.consuming.arrivals import Ages
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.topics import TopicTable, name_problem
from rocketmq_broker.tables.consumer_tables import ConsumerTables, states_of
from rocketmq_broker.tables.table_file import TableFile
from rocketmq_broker.tables.topic_bounds import report_bounded
from rocketmq_formats.addresses import format_address, parse_address
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import BodyError, FormatError
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.broker_admin import SubscriptionGroupWrapper
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.registration import TopicConfigSerializeWrapper
from rocketmq_formats.store.config_files import (
    ConsumerOffsetsFile,
    DelayOffsetWrapper,
    decode_ages,
    decode_config,
    decode_escaped,
)
from rocketmq_formats.table_copies import (
    NOTHING,
    ConsumerOffsetChanges,
    CopyTablesRefusalHeader,
    CopyTablesRequestHeader,
    CopyTablesResponseHeader,
    GroupChanges,
    TopicChanges,
    acting_proof,
    copy_proof,
    read_queue_ends,
    split_tables,
)
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig, TopicConfig
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_settings.replica import FAST_PORT_DISTANCE
from rocketmq_store.errors import MessageIllegalError, StoreFullError
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)

PERIOD_SECONDS: Final = (1.0, 10.0)
"""Minimum and maximum between two copies."""
BYTES_PER_SECOND: Final = 50_000
"""Bounds the master's effort for copies."""
MAX_TOPICS_COPIED: Final = 100_000
"""More than can be created here: an official master may have them."""
RETRY_SECONDS: Final = 1.0
TELL_SECONDS: Final = 1.0
"""Until a master that did not take over what was committed here gets it again."""
ASK_SECONDS: Final = 0.1
"""Until a native master that does not answer this slave yet is asked again."""
CALL_SECONDS: Final = 3.0


_NOTHING_COPIED: Final = CopyTablesResponseHeader(
    token="",
    topics=NOTHING,
    groups=NOTHING,
    offsets=NOTHING,
    topics_length=0,
    groups_length=0,
    offsets_length=0,
    delays_length=0,
)


class _NotSlaveError(Exception):
    """The role changed while an answer was awaited: the answer must not be used."""


class _NotMasterError(Exception):
    """The broker that the controllers elected is not yet, or no longer, master."""


class _RefusedError(BodyError):
    """The master answers a request for a table with an error."""


class _Source(Enum):
    """How a master is copied."""

    CHANGES = auto()
    """A native one, which answers this slave."""
    WHOLE_FOR_NOW = auto()
    """A native one, which does not wait for this slave: it is not in the SyncStateSet, nor about to enter it."""
    WHOLE = auto()
    """An official one."""


class SlaveSync:
    """One task, which sleeps while this replica is not slave."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        store: MessageStore,
        topics: TopicTable,
        topics_file: TableFile,
        tables: ConsumerTables,
        client: RemotingClient,
        on_ages: Callable[[Mapping[int, Ages]], None],
    ) -> None:
        """`on_ages`: takes the ages of delayed messages by level, which a native master sends."""
        self._role = role
        self._store = store
        self._on_ages = on_ages
        self._topics = topics
        self._topics_file = topics_file
        self._tables = tables
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._not_whole: _RefusedError | None = None
        """Why the last copy of whole tables lacks one."""
        self._master: str | None = None
        self._copied: dict[RequestCode, bytes] = {}
        """The last bodies taken over."""
        self._copied_changes = _NOTHING_COPIED
        """The last answer of a native master."""
        self._log_end = NOTHING
        """Where the log here ended when this master's ends of queues were known: one that begins behind it is new."""
        self._nonce = ""
        """The master's, for proofs over the connection to it."""
        self._official: str | None = None
        """The master, if it is an official broker."""
        self._whole_due = float("-inf")
        """Loop time of the next copy of whole tables."""
        self._topics_version = self._groups_version = DataVersion()
        """As copied last."""
        self._offsets_changes = 0
        """Of the table when it was copied last."""
        self._acting_told: tuple[int, str] | None = None
        """`ActingRecord.changes`, and the nonce, when this master got the commits; None: it did not."""
        self._acting_due = 0.0
        """Loop time to tell it again."""
        self._offsets_differ = False
        """The table was changed here since it was copied as a whole."""
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first copy follows when there is a master."""
        self._task = background.start(self._run(), "copy of the master's tables")

    async def stop(self) -> None:
        """Stop copying."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch: copy at once from a new master."""
        if self._role.role is not Role.SLAVE or self._role.master_address != self._master:
            self._copied.clear()
            self._copied_changes = _NOTHING_COPIED
            self._log_end = NOTHING
            self._official = self._acting_told = None
            self._whole_due = float("-inf")
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            wait: float | None = None
            if self._role.role is Role.SLAVE and self._role.master_address is not None:
                wait = await self._copy(self._role.master_address)
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _copy(self, master: str) -> float:
        """Copy what is due; seconds until the next time."""
        self._master = master
        try:
            source = _Source.WHOLE if self._official == master else await self._copy_changes(master)
            if source is _Source.WHOLE:
                self._official = master
            wait = 0.0 if source is _Source.CHANGES else await self._copy_whole(master)
        except _NotSlaveError:
            return 0
        except _NotMasterError:
            return ASK_SECONDS
        except (RemotingError, FormatError, StorageError, StoreFullError, ValueError) as error:
            if not self._failing:
                log.warning("the master's tables are not copied, retrying", master=master, reason=str(error))
            self._failing = True
            return RETRY_SECONDS
        except Exception:
            # if this task ended here, only a failover with old tables would show it
            log.exception("unexpected error while copying the master's tables, retrying", master=master)
            self._failing = True
            return PERIOD_SECONDS[1]
        self._succeeded(master)
        return min(wait, ASK_SECONDS) if source is _Source.WHOLE_FOR_NOW else wait

    def _succeeded(self, master: str) -> None:
        if self._failing:
            log.info("the master's tables are copied again", master=master)
        self._failing = False

    # from a native master

    async def _copy_changes(self, master: str) -> _Source:
        """Confirm what is held, take over what is newer, unless the tables are to be copied otherwise. Raises as
        `_request`."""
        log_begin, log_end = self._new_log()
        answer = await self._report(master, log_begin)
        if answer.code == ResponseCode.NO_PERMISSION:
            # the connection is new, and so is the master's nonce; asked once more only, whatever it answers
            before = self._nonce
            self._take_refusal(answer)
            if self._role.copy_key is not None and self._nonce != before:
                answer = await self._report(master, log_begin)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return _Source.WHOLE
        if answer.code == ResponseCode.SYSTEM_BUSY:
            raise _NotMasterError
        if answer.code != ResponseCode.SUCCESS:
            self._copied_changes = _NOTHING_COPIED
        if answer.code == ResponseCode.CONTROLLER_INVALID_REPLICAS:
            self._take_refusal(answer)
            return _Source.WHOLE_FOR_NOW
        _check(RequestCode.COPY_TABLES, answer)
        await self._take_changes(master, answer)
        if log_begin >= 0:
            self._log_end = log_end
        return _Source.CHANGES

    def _new_log(self) -> tuple[int, int]:
        """Where the log here begins, `NOTHING` if this master's ends of queues are known for it; where it ends."""
        begin, end = self._store.min_offset, self._store.max_offset
        if begin <= self._log_end or begin == 0 < end:  # a log with the first message shows where each queue ends
            self._log_end = end
            return NOTHING, end
        return begin, end

    async def _report(self, master: str, log_begin: int) -> RemotingCommand:
        held = self._copied_changes
        self._compare_offsets()
        header = CopyTablesRequestHeader(
            broker_id=self._role.broker_id or 0,
            token=held.token,
            # a table that was changed here since is not a copy
            topics=held.topics if log_begin < 0 and self._topics.version == self._topics_version else NOTHING,
            groups=held.groups if self._tables.groups.version == self._groups_version else NOTHING,
            offsets=NOTHING if self._offsets_differ and not self._tables.offsets.copying else held.offsets,
            parts=True,
            changes=True,
            epoch=self._role.epoch,
            log_begin=log_begin,
        )
        body = self._acting_body()
        key = self._role.copy_key
        if key is not None and self._nonce:
            proof = acting_proof(key.key, self._nonce, body) if body else ""
            header = msgspec.structs.replace(header, proof=copy_proof(key.key, self._nonce, header), acting_proof=proof)
        return await self._call(master, request(RequestCode.COPY_TABLES, header, body))

    def _acting_body(self) -> bytes:
        """What was committed here while this replica acted as master, if the master is to get it now."""
        acting = self._tables.offsets.acting
        told, now = (acting.changes, self._nonce), self._loop.time()
        if told == self._acting_told and now < self._acting_due:
            return b""
        commits = acting.commits
        if commits is None:
            return b""
        self._acting_told, self._acting_due = told, now + TELL_SECONDS
        return encode_body(commits)

    def _acting_taken(self) -> None:
        """The master has what it was sent last."""
        acting = self._tables.offsets.acting
        if self._acting_told is not None and self._acting_told[0] == acting.changes:
            acting.clear()

    def _take_refusal(self, answer: RemotingCommand) -> None:
        refusal = decode_header(CopyTablesRefusalHeader, answer.ext_fields or {})
        self._nonce = refusal.nonce
        if refusal.acting_taken:
            self._acting_taken()

    async def _take_changes(self, master: str, answer: RemotingCommand) -> None:
        news = decode_header(CopyTablesResponseHeader, answer.ext_fields or {})
        self._nonce = news.nonce
        tables = split_tables(news, answer.body)
        if tables.ends:
            await self._take_ends(master, tables.ends)
        if tables.topics:
            self._take_topics(master, tables.topics)
        if tables.topic_changes:
            self._take_changed_topics(master, tables.topic_changes)
            await self._pause(master)
        if tables.groups:
            self._take_groups(master, tables.groups)
        if tables.group_changes:
            self._take_changed_groups(master, tables.group_changes)
            await self._pause(master)
        removed = bool(tables.offsets) and await self._take_changed_offsets(master, tables.offsets)
        if news.acting_taken:
            self._acting_taken()
        if tables.delays:
            self._take_delays(tables.delays)
        if any((tables.topics, tables.topic_changes, tables.groups, tables.group_changes)):
            # for the master, the next request confirms that they are durable here
            await self._topics_file.saved()
            await self._tables.groups_file.saved()
        if removed:
            await self._tables.offsets_saved()
        if self._role.role is Role.SLAVE and self._role.master_address == master:
            self._copied_changes = news

    async def _take_ends(self, master: str, body: bytes) -> None:
        """Queues without a message here continue where the master's ended. Any name that a topic's can be counts: a
        deleted topic may be made again, and its offsets continue."""
        ended = 0
        for ends in read_queue_ends(body):
            for topic, queue_id, end in ends:
                try:
                    changed = self._store.end_queue(topic, queue_id, end)
                except MessageIllegalError as error:
                    raise BodyError(str(error)) from error
                if changed:  # milliseconds: blanks are written
                    ended += 1
                    await self._pause(master)
            await self._pause(master)
        if ended:
            log.info("queues without a message continue where the master's ended", master=master, count=ended)

    async def _pause(self, master: str) -> None:
        """Raises `_NotSlaveError`."""
        await asyncio.sleep(0)
        self._require_slave(master)

    async def _take_changed_offsets(self, master: str, body: bytes) -> bool:
        """Whether something was removed."""
        changes = decode_config(ConsumerOffsetChanges, body)
        offsets = self._tables.offsets
        self._compare_offsets()
        if changes.full:
            self._offsets_differ = False
        for _ in offsets.take_changes(
            changes.offset_table, changes.removed, begins=changes.full, ends=not changes.more
        ):
            self._offsets_changes = offsets.changes
            await self._pause(master)
            self._compare_offsets()
        if not changes.more:
            offsets.copied(changes.data_version)
        self._offsets_changes = offsets.changes
        return bool(changes.removed)

    def _compare_offsets(self) -> None:
        if self._tables.offsets.changes != self._offsets_changes:
            self._offsets_changes = self._tables.offsets.changes
            self._offsets_differ = True

    async def _copy_whole(self, master: str) -> float:
        """Copy all tables if that is due; seconds until it is due again."""
        now = self._loop.time()
        if now < self._whole_due:
            if self._not_whole is not None:
                raise self._not_whole
            return self._whole_due - now
        size, self._not_whole = 0, None
        for copy in (self._copy_topics, self._copy_groups, self._copy_offsets):
            try:
                size += await copy(master)
            except _RefusedError as error:  # one table may be too large for an answer; the others are copied
                self._not_whole = error
        await self._copy_delays(master)
        at_least, at_most = PERIOD_SECONDS
        wait = min(max(size / BYTES_PER_SECOND, at_least), at_most)
        self._whole_due = self._loop.time() + wait
        if self._not_whole is not None:
            raise self._not_whole
        return wait

    # each returns the size of its table in bytes

    async def _copy_topics(self, master: str) -> int:
        host, port = parse_address(master)
        fast = format_address(host, port - FAST_PORT_DISTANCE)
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        body = await self._request(master, code, address=fast)
        if body != self._copied.get(code) or self._topics.version != self._topics_version:
            self._take_topics(master, body)
            self._copied[code] = body
        return len(body)

    def _take_topics(self, master: str, body: bytes) -> None:
        wrapper = decode_body(TopicConfigSerializeWrapper, body)
        self._topics_version = wrapper.data_version
        if wrapper.data_version == self._topics.version:
            return
        table = self._legal(wrapper.topic_config_table)
        if len(table) > MAX_TOPICS_COPIED:
            raise BodyError(f"the master has {len(table)} topics, more than {MAX_TOPICS_COPIED}")
        report_bounded(table)
        self._topics.replace(wrapper.data_version, table)
        log.info("topics copied", master=master, count=len(table))

    def _take_changed_topics(self, master: str, body: bytes) -> None:
        changes = decode_body(TopicChanges, body)
        table = self._legal(changes.topic_config_table)
        most = 2 * MAX_TOPICS_COPIED  # until the last part there are those of before, too
        if len(self._topics.table) + len(table) > most:
            raise BodyError(f"with the master's there are more than {most} topics")
        report_bounded(table)
        self._topics.take_changes(
            changes.data_version, table, changes.removed, begins=changes.full, ends=not changes.more
        )
        self._topics_version = self._topics.version
        log.info("changed topics copied", master=master, count=len(table), removed=len(changes.removed))

    def _legal(self, topics: Mapping[str, TopicConfig]) -> dict[str, TopicConfig]:
        table = {}
        for name, topic in topics.items():
            legal = name_problem(name) is None or self._topics.is_built_in(name)
            if name != topic.topic_name or not legal:
                log.warning("a topic of the master is skipped: illegal name", topic=name[:300])
            else:
                table[name] = topic
        return table

    async def _copy_groups(self, master: str) -> int:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        body = await self._request(master, code)
        if body != self._copied.get(code) or self._tables.groups.version != self._groups_version:
            self._take_groups(master, body)
            self._copied[code] = body
        return len(body)

    def _take_groups(self, master: str, body: bytes) -> None:
        groups = self._tables.groups
        wrapper = decode_body(SubscriptionGroupWrapper, body)
        self._groups_version = wrapper.data_version
        if wrapper.data_version == groups.version:
            return
        table = _by_name(wrapper.subscription_group_table)
        groups.replace(wrapper.data_version, table, wrapper.forbidden_table)
        log.info("groups copied", master=master, count=len(table))

    def _take_changed_groups(self, master: str, body: bytes) -> None:
        groups, changes = self._tables.groups, decode_body(GroupChanges, body)
        table, forbidden = _by_name(changes.subscription_group_table), changes.forbidden_table
        groups.take_changes(
            changes.data_version, table, forbidden, changes.removed, begins=changes.full, ends=not changes.more
        )
        self._groups_version = groups.version
        log.info("changed groups copied", master=master, count=len(table), removed=len(changes.removed))

    async def _copy_offsets(self, master: str) -> int:
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        body = await self._request(master, code)
        offsets = self._tables.offsets
        if body != self._copied.get(code) or offsets.changes != self._offsets_changes:
            # integer keys are bare here, as in the file
            wrapper = decode_config(ConsumerOffsetsFile, body)
            offsets.merge(wrapper.offset_table)
            offsets.copied(wrapper.data_version)
            if self._official == master:
                offsets.acting.clear()  # it cannot take them
            self._copied[code], self._offsets_changes = body, offsets.changes
        return len(body)

    async def _copy_delays(self, master: str) -> None:
        self._take_delays(await self._request(master, RequestCode.GET_ALL_DELAY_OFFSET))

    def _take_delays(self, body: bytes) -> None:
        wrapper = decode_config(DelayOffsetWrapper, body)
        # an official master does not send the place of the log that its table belongs to
        self._tables.delays.replace(
            states_of(wrapper, self._store.dispatched_offset),
            wrapper.data_version,
            decode_escaped(wrapper.escaped or {}),
        )
        self._on_ages(decode_ages(wrapper.ages or {}))

    async def _request(self, master: str, code: RequestCode, *, address: str | None = None) -> bytes:
        """The body of the answer, from `master` itself unless its `address` is another.

        Raises:
            _NotSlaveError: this replica is no longer the slave of `master`.
            RemotingError, _RefusedError: no answer, or one with an error.
        """
        answer = await self._call(master, request(code), address=address)
        _check(code, answer)
        return answer.body

    async def _call(self, master: str, command: RemotingCommand, *, address: str | None = None) -> RemotingCommand:
        answer = await self._client.call(address or master, command, timeout=CALL_SECONDS)
        self._require_slave(master)
        return answer

    def _require_slave(self, master: str) -> None:
        if self._role.role is not Role.SLAVE or self._role.master_address != master:
            raise _NotSlaveError


def _check(code: RequestCode, answer: RemotingCommand) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise _RefusedError(f"{code.name} is answered with {answer.code}: {answer.remark}")


def _by_name(groups: Mapping[str, SubscriptionGroupConfig]) -> dict[str, SubscriptionGroupConfig]:
    """An official master may have longer names than can be created here; they are kept."""
    return {name: group for name, group in groups.items() if name == group.group_name}
