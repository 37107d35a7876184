"""The tables about consumers and their files in `{storePathRootDir}/config`: groups, offsets, delivered delays.

`app.py` makes one, loads it before anything answers and saves it at the end. Groups are written at every change,
offsets every flushConsumerOffsetInterval if there was a commit, as in Java.
Source: commit log reference, section 13.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from rocketmq_broker.domain.offsets import ConsumerOffsets
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.subscription_groups import SubscriptionGroups
from rocketmq_broker.host import now_ms
from rocketmq_broker.persistence import TableFile, load_table
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.remoting.bodies import encode_body
from rocketmq_formats.store.config_files import (
    CONSUMER_OFFSETS_FILE,
    DELAY_OFFSETS_FILE,
    SUBSCRIPTION_GROUPS_FILE,
    ConsumerOffsetsFile,
    DelayOffsetsFile,
    EntryTexts,
    SubscriptionGroupsFile,
    encode_config,
)
from rocketmq_formats.topics import DataVersion

DELAY_SAVE_SECONDS = 10.0
"""flushDelayOffsetInterval of Java."""


class DelayOffsets:
    """How far each delay level is delivered for good: level -> next offset of its queue. A slave's is its master's."""

    def __init__(self) -> None:
        self.table: dict[int, int] = {}
        self.version = DataVersion()
        self.changes = 0

    def put(self, level: int, offset: int) -> None:
        """Delivered before `offset`."""
        if self.table.get(level) != offset:
            self.table[level] = offset
            self.changes += 1


class ConsumerTables:
    """Groups, offsets and delay offsets, with their files."""

    def __init__(self, settings: BrokerSettings, role: ReplicaRole) -> None:
        self._role = role
        self._interval = settings.flush_consumer_offset_interval / 1000
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self.groups = SubscriptionGroups(
            auto_create=settings.auto_create_subscription_group,
            allow_long_names=settings.allow_long_group_names,
            may_change=lambda: role.role is Role.MASTER,
            state_version=lambda: role.epoch,
            now_ms=now_ms,
        )
        self.offsets = ConsumerOffsets()
        self.delays = DelayOffsets()
        self.settle_delays: Callable[[], None] = _nothing
        """Brings `delays` up to date; set by the service that delivers."""
        self._config = settings.root / "config"
        self._group_texts = EntryTexts()
        self.groups_file = TableFile(self._config / SUBSCRIPTION_GROUPS_FILE, self._groups_now)
        self._offsets_changes = _Changes(self.offsets, role)
        self._delays_changes = _Changes(self.delays, role)
        self._offsets_file = TableFile(self._config / CONSUMER_OFFSETS_FILE, self._offsets_now)
        self._delays_file = TableFile(self._config / DELAY_OFFSETS_FILE, self._delays_now)

    def load(self) -> None:
        """Take over what the files kept.

        Raises:
            TableDamagedError, OSError: see `load_table`.
        """
        groups = load_table(self._config / SUBSCRIPTION_GROUPS_FILE, SubscriptionGroupsFile)
        if groups is not None:
            self.groups.load(groups.data_version, groups.subscription_group_table.values(), groups.forbidden_table)
        self.groups.on_change(self.groups_file.changed)
        offsets = load_table(self._config / CONSUMER_OFFSETS_FILE, ConsumerOffsetsFile)
        if offsets is not None:
            self.offsets.load(offsets.data_version, offsets.offset_table)
        delays = load_table(self._config / DELAY_OFFSETS_FILE, DelayOffsetsFile)
        if delays is not None:
            self.delays.version = delays.data_version
            self.delays.table.update(delays.offset_table)
        self._offsets_changes.loaded()
        self._delays_changes.loaded()

    def start(self) -> None:
        """Begin to save now and then."""
        self._again(self._interval, self._save_offsets)
        self._again(DELAY_SAVE_SECONDS, self._save_delays)

    async def stop(self) -> None:
        """Save what is new."""
        for timer in self._timers.values():
            timer.cancel()
        self._save_offsets()
        self._save_delays()
        for file in (self.groups_file, self._offsets_file, self._delays_file):
            await file.close()

    # bodies for slaves

    def encode_offsets(self) -> bytes:
        """Body of the answer to 43: a `ConsumerOffsetWrapper`, written from the numbers' texts."""
        self._offsets_changes.version()
        table = b",".join([b"%b:{%b}" % (encode_body(key), text) for key, text in self.offsets.texts()])
        return b'{"dataVersion":%b,"groupTopicMap":{},"offsetTable":{%b}}' % (encode_body(self.offsets.version), table)

    def encode_delays(self) -> bytes:
        """Body of the answer to 45: a `DelayOffsetWrapper`, with bare integer keys, as Java's slave expects."""
        self.settle_delays()
        self._delays_changes.version()
        table = b",".join([b"%d:%d" % item for item in sorted(self.delays.table.items())])
        return b'{"dataVersion":%b,"offsetTable":{%b}}' % (encode_body(self.delays.version), table)

    # inside

    def _again(self, seconds: float, act: Callable[[], None]) -> None:
        def run() -> None:
            self._again(seconds, act)  # first: a defect must not be the end of it
            act()

        self._timers[act] = self._loop.call_later(seconds, run)

    def _save_offsets(self) -> None:
        self._offsets_changes.version()
        if self._offsets_changes.to_save():
            self._offsets_file.changed()

    def _save_delays(self) -> None:
        self.settle_delays()
        self._delays_changes.version()
        if self._delays_changes.to_save():
            self._delays_file.changed()

    # what the files are to hold; see `persistence.Snapshot`

    def _groups_now(self) -> Callable[[], bytes]:
        frame = SubscriptionGroupsFile(data_version=self.groups.version, forbidden_table=self.groups.forbidden)
        return partial(self._group_texts.encode, frame, dict(self.groups.table))

    def _offsets_now(self) -> Callable[[], bytes]:
        return partial(_offsets_text, self.offsets.version, list(self.offsets.texts()))

    def _delays_now(self) -> Callable[[], bytes]:
        table = dict(sorted(self.delays.table.items()))
        return partial(encode_config, DelayOffsetsFile(data_version=self.delays.version, offset_table=table))


def _offsets_text(version: DataVersion, texts: list[tuple[str, bytes]]) -> bytes:
    """As `encode_config` writes a `ConsumerOffsetsFile`, from the numbers' texts."""
    frame = encode_config(ConsumerOffsetsFile(data_version=version))
    head, _, tail = frame.rpartition(b"{}")
    lines = b",".join([b"\n\t\t%b:{%b\n\t\t}" % (encode_body(key), text) for key, text in sorted(texts)])
    return b"%b{%b\n\t}%b" % (head, lines, tail) if lines else frame


class _Changes:
    """Which changes of a table have a version, which are in its file."""

    def __init__(self, table: ConsumerOffsets | DelayOffsets, role: ReplicaRole) -> None:
        self._table, self._role = table, role
        self._versioned = self._saved = table.changes

    def loaded(self) -> None:
        """What the table holds is what the file holds."""
        self._versioned = self._saved = self._table.changes

    def version(self) -> None:
        """The changes since the last call make a version; a slave's version is its master's."""
        if self._versioned != self._table.changes:
            self._versioned = self._table.changes
            if self._role.role is not Role.SLAVE:
                before = self._table.version
                # a broker that is stopping has forgotten its epoch
                self._table.version = before.next(max(self._role.epoch, before.state_version), now_ms())

    def to_save(self) -> bool:
        """There is something that the file does not hold; from now on it does."""
        before, self._saved = self._saved, self._table.changes
        return before != self._saved


def _nothing() -> None:
    pass
