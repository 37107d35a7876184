"""Copies the master's tables while this replica is slave: topics (21), groups (201), consumer offsets (43), delay
offsets (45), from a master of ours or Java's.

At once when there is a new master, then every second while the tables are small, up to Java's 10 s as they grow: what
was not copied when the master died is known to the next one from the log alone (topics) or lost (offsets: consumers
start again from where they were). Topics and groups are taken over when their version differs.

Consumer offsets are the master's, whether higher or lower than here (Java's putAll): a lower one is an operator's
reset, or comes from a new master that had an older copy, whose consumers go on from what they know and commit it within
5 s. Keeping the higher one instead would undo resets at the next failover. Delay offsets never go back: what is
delivered and confirmed stays so.
Message request modes (402) and timers (60, 61) are not copied: this broker has neither.
Source: broker reference, section 7 (`SlaveSynchronize`).
"""

import asyncio
from typing import Final

import structlog

from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.topics import TopicTable, name_problem
from rocketmq_broker.settings import FAST_PORT_DISTANCE
from rocketmq_broker.tables import ConsumerTables
from rocketmq_formats.errors import BodyError, FormatError
from rocketmq_formats.remoting.bodies import decode_body
from rocketmq_formats.remoting.broker_admin import SubscriptionGroupWrapper
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.registration import TopicConfigSerializeWrapper
from rocketmq_formats.store.config_files import ConsumerOffsetsFile, DelayOffsetsFile, decode_config
from rocketmq_formats.store.delay_levels import MAX_LEVELS
from rocketmq_formats.topics import DataVersion
from rocketmq_runtime.client import RemotingClient, RemotingError, parse_address

log = structlog.get_logger(__name__)

PERIOD_SECONDS: Final = (1.0, 10.0)
"""At least and at most between two copies."""
BYTES_PER_SECOND: Final = 50_000
"""What being copied may cost the master."""
MAX_TOPICS_COPIED: Final = 100_000
"""More than are made here: an official master may have them."""
RETRY_SECONDS: Final = 1.0
CALL_SECONDS: Final = 3.0


class _NotSlaveError(Exception):
    """The role changed while an answer was awaited: it must not be used any more."""


class SlaveSync:
    """One task, which sleeps while this replica is no slave."""

    def __init__(
        self, *, role: ReplicaRole, topics: TopicTable, tables: ConsumerTables, client: RemotingClient
    ) -> None:
        self._role = role
        self._topics = topics
        self._tables = tables
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._master: str | None = None
        self._copied: dict[RequestCode, bytes] = {}
        """Bodies as taken over last."""
        self._topics_version = self._groups_version = DataVersion()
        """As copied last."""
        self._offsets_changes = 0
        """Of the table when it was copied last."""
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first copy follows when there is a master."""
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Copy nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch: copy at once from a new master."""
        if self._role.role is not Role.SLAVE or self._role.master_address != self._master:
            self._copied.clear()
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
            size = await self._copy_topics(master)
            size += await self._copy_groups(master)
            size += await self._copy_offsets(master)
            await self._copy_delays(master)
        except _NotSlaveError:
            return 0
        except (RemotingError, FormatError, ValueError) as error:
            if not self._failing:
                log.warning("the master's tables are not copied, trying on", master=master, reason=str(error))
            self._failing = True
            return RETRY_SECONDS
        except Exception:
            # nobody would notice that this task has ended until a failover finds old tables
            log.exception("the master's tables are not copied, trying on", master=master)
            self._failing = True
            return PERIOD_SECONDS[1]
        if self._failing:
            log.info("the master's tables are copied again", master=master)
        self._failing = False
        at_least, at_most = PERIOD_SECONDS
        return min(max(size / BYTES_PER_SECOND, at_least), at_most)

    # each returns the size of its table in bytes

    async def _copy_topics(self, master: str) -> int:
        host, port = parse_address(master)
        fast = f"[{host}]:{port - FAST_PORT_DISTANCE}" if ":" in host else f"{host}:{port - FAST_PORT_DISTANCE}"
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        body = await self._ask(master, code, address=fast)
        if body == self._copied.get(code) and self._topics.version == self._topics_version:
            return len(body)
        wrapper = decode_body(TopicConfigSerializeWrapper, body)
        self._copied[code], self._topics_version = body, wrapper.data_version
        if wrapper.data_version == self._topics.version:
            return len(body)
        table = {}
        for name, topic in wrapper.topic_config_table.items():
            if name != topic.topic_name or name_problem(name) is not None:
                log.warning("a topic of the master is passed over: no legal name", topic=name[:300])
            else:
                table[name] = topic
        if len(table) > MAX_TOPICS_COPIED:
            raise BodyError(f"the master has {len(table)} topics, more than {MAX_TOPICS_COPIED}")
        self._topics.replace(wrapper.data_version, table)
        log.info("topics copied", master=master, count=len(table))
        return len(body)

    async def _copy_groups(self, master: str) -> int:
        code, groups = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._tables.groups
        body = await self._ask(master, code)
        if body == self._copied.get(code) and groups.version == self._groups_version:
            return len(body)
        wrapper = decode_body(SubscriptionGroupWrapper, body)
        self._copied[code], self._groups_version = body, wrapper.data_version
        if wrapper.data_version == groups.version:
            return len(body)
        # an official master may have longer names than are created here: they are its business
        table = {name: group for name, group in wrapper.subscription_group_table.items() if name == group.group_name}
        groups.replace(wrapper.data_version, table, wrapper.forbidden_table)
        log.info("groups copied", master=master, count=len(table))
        return len(body)

    async def _copy_offsets(self, master: str) -> int:
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        body = await self._ask(master, code)
        offsets = self._tables.offsets
        if body != self._copied.get(code) or offsets.changes != self._offsets_changes:
            # integer keys are bare here, as in the file
            wrapper = decode_config(ConsumerOffsetsFile, body)
            offsets.merge(wrapper.offset_table)
            offsets.version = wrapper.data_version
            self._copied[code], self._offsets_changes = body, offsets.changes
        return len(body)

    async def _copy_delays(self, master: str) -> None:
        wrapper = decode_config(DelayOffsetsFile, await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET))
        delays = self._tables.delays
        for level, offset in wrapper.offset_table.items():
            if 1 <= level <= MAX_LEVELS and offset > delays.table.get(level, -1):
                delays.put(level, offset)
        delays.version = wrapper.data_version

    async def _ask(self, master: str, code: RequestCode, *, address: str | None = None) -> bytes:
        """The body of the answer, from `master` itself unless its `address` is another.

        Raises:
            _NotSlaveError: this replica is not the slave of `master` any more.
            RemotingError, BodyError: no answer, or one with an error.
        """
        answer = await self._client.call(address or master, request(code), timeout=CALL_SECONDS)
        if self._role.role is not Role.SLAVE or self._role.master_address != master:
            raise _NotSlaveError
        if answer.code != ResponseCode.SUCCESS:
            raise BodyError(f"{code.name} is answered with {answer.code}: {answer.remark}")
        return answer.body
