"""The tables about consumers and their files in `{storePathRootDir}/config`: groups, offsets, delivered delays.

`app.py` makes one, loads it before anything answers and saves it at the end. Groups are written at every change,
offsets every flushConsumerOffsetInterval if there was a commit, as in Java.
Source: rocketmq-all-5.3.3: ConfigManager.java, SubscriptionGroupManager.java, ConsumerOffsetManager.java.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog

from rocketmq_broker.domain.consuming import escaped as facts
from rocketmq_broker.domain.consuming.arrivals import Ages
from rocketmq_broker.domain.consuming.delay_history import DeliveryHistory, Levels, State
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.change_order import Changed
from rocketmq_broker.domain.tables.offsets import SLICE, ConsumerOffsets
from rocketmq_broker.domain.tables.subscription_groups import SubscriptionGroups
from rocketmq_broker.host import now_ms
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.table_body import check_size
from rocketmq_broker.tables.table_file import TableFile, damaged, load_table
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.steps import Steps
from rocketmq_formats.store.config_files import (
    CONSUMER_OFFSETS_FILE,
    DELAY_OFFSETS_FILE,
    SUBSCRIPTION_GROUPS_FILE,
    ActingCommits,
    ConfigFileError,
    ConsumerOffsetsFile,
    DelayOffsetsFile,
    EntryTexts,
    Escaped,
    SubscriptionGroupsFile,
    decode_escaped,
    decode_history,
    encode_ages,
    encode_config,
    encode_escaped,
    encode_levels,
)
from rocketmq_formats.store.delay_levels import MAX_LEVELS
from rocketmq_formats.topics import DataVersion

log = structlog.get_logger(__name__)

DELAY_SAVE_SECONDS = 10.0
"""flushDelayOffsetInterval of Java. What was delivered since is found in the log."""
AT_THE_END = 2**62
"""Place of what an official broker wrote: `log_cut` puts it where the log ends."""
COUNTED_BYTES = 64 * 1024 * 1024
"""So much more of the log in which nothing was delivered is worth a write: it need not be searched again."""


class DelayOffsets:
    """How far each delay level is delivered for good. A slave's is its master's."""

    def __init__(self) -> None:
        self._history = DeliveryHistory()
        self._escaped: dict[int, Escaped] = {}
        self.version = DataVersion()
        self.changes = self.versioned = 0
        """As in `ConsumerOffsets`."""
        self._counted = 0
        """The newest state's place when `changes` was last raised."""

    @property
    def table(self) -> Levels:
        """Level -> next offset of its queue, the newest state."""
        return self._history.newest[1]

    @property
    def history(self) -> list[State]:
        """Older states too, see `DeliveryHistory`."""
        return self._history.states

    def at(self, end: int) -> State:
        """The state to continue from with a log that ends at `end`."""
        return self._history.at(end)

    def record(self, place: int, levels: Levels) -> None:
        """The records before `place` have delivered this much."""
        changed = levels != self.table
        self._history.record(place, levels)
        if changed or place - self._counted >= COUNTED_BYTES:
            self._changed()

    @property
    def escaped(self) -> Mapping[int, Escaped]:
        """By level, what is at other groups. It may be of another log (`domain/consuming/escaped.py`)."""
        return self._escaped

    def escape(self, level: int, fact: Escaped) -> None:
        """One more message is at another group."""
        self._take_facts({**self._escaped, level: fact})

    def join(self, escaped: Mapping[int, Escaped]) -> None:
        """What another member knows has escaped."""
        self._take_facts(facts.joined(self._escaped, escaped))

    def replace(
        self, states: Iterable[State], version: DataVersion, escaped: Mapping[int, Escaped] | None = None
    ) -> None:
        """A slave's states and their version become its master's, or those of a file; what escaped is added."""
        history = DeliveryHistory(states)
        if history.states != self._history.states:
            self._history = history
            self._changed()
        self.join(escaped or {})
        self.version, self.versioned = version, self.changes

    def cut(self, end: int) -> bool:
        """The log is cut at `end`, or will be; whether that changed anything."""
        before = self.changes
        if self._history.cut(end):
            self._changed()
        self._take_facts(facts.cut(self._escaped, end))
        return self.changes != before

    def _take_facts(self, escaped: dict[int, Escaped]) -> None:
        """Changes the file, not the version: an official member must not believe that `table` is newer."""
        if escaped != self._escaped:
            self._escaped = escaped
            if self.versioned == self.changes:
                self.versioned += 1
            self.changes += 1

    def _changed(self) -> None:
        self.changes += 1
        self._counted = self._history.newest[0]


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
        self.offsets = ConsumerOffsets(acts=lambda: role.acting)
        self.delays = DelayOffsets()
        self.settle_delays: Callable[[], None] = _nothing
        """Brings `delays` up to date; set by the service that delivers."""
        self.delay_ages: Callable[[], Mapping[int, Ages]] = dict
        """By level, for slaves; set by the same."""
        self._config = settings.root / "config"
        self._group_texts = EntryTexts()
        self.groups_file = TableFile(self._config / SUBSCRIPTION_GROUPS_FILE, self._groups_now)
        self._offsets_changes = _Changes(self.offsets)
        self._delays_changes = _Changes(self.delays)
        self._mastership: int | None = None
        """The epoch in which this replica is master."""
        self._acting_saved = 0
        self._offsets_file = TableFile(self._config / CONSUMER_OFFSETS_FILE, self._offsets_now)
        self._delays_file = TableFile(self._config / DELAY_OFFSETS_FILE, self._delays_now)

    def load(self) -> None:
        """Take over what the files kept.

        Raises:
            TableDamagedError, OSError: see `load_table`.
        """
        groups = load_table(self._config / SUBSCRIPTION_GROUPS_FILE, SubscriptionGroupsFile)
        if groups is not None:
            self.groups.load(groups.data_version, groups.subscription_group_table, groups.forbidden_table)
        self.groups.on_change(self.groups_file.changed)
        offsets = load_table(self._config / CONSUMER_OFFSETS_FILE, ConsumerOffsetsFile)
        if offsets is not None:
            self.offsets.load(offsets.data_version, offsets.offset_table, offsets.acting)
            self._acting_saved = self.offsets.acting.changes
        delays = load_table(self._config / DELAY_OFFSETS_FILE, DelayOffsetsFile)
        if delays is not None:
            try:
                states, escaped = states_of(delays, AT_THE_END), decode_escaped(delays.escaped or {})
            except ConfigFileError as error:
                raise damaged(self._config / DELAY_OFFSETS_FILE, error) from error
            self.delays.replace(states, delays.data_version, escaped)
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

    def on_role_change(self) -> None:
        """Master, slave or neither now, or another epoch."""
        before = self._mastership
        self._mastership = self._role.epoch if self._role.role is Role.MASTER else None
        if self._mastership is None:
            self.offsets.pending_resets.clear()
        if self._mastership is None and before is not None:
            for changes in (self._offsets_changes, self._delays_changes):
                changes.version(before)  # the last ones that this master made
        elif self._mastership is not None and before is None:
            self.offsets.master_again()

    # bodies for slaves

    def encode_offsets(self) -> Steps[bytes]:
        """Body of the answer to 43: a `ConsumerOffsetWrapper`, written from the numbers' texts.

        Raises:
            RequestRefusedError: no frame carries it.
        """
        texts = yield from self.offsets.texts()
        version = self.offsets_version()
        acting = self.offsets.acting.commits
        entries, parts, size = list(texts.items()), list[bytes](), 0
        for first in range(0, len(entries), SLICE):
            parts.append(
                b",".join([b"%b:{%b}" % (encode_body(key), text) for key, text in entries[first : first + SLICE]])
            )
            size += len(parts[-1]) + 1
            check_size(size, "consumer offsets")
            yield
        return b'{%b"dataVersion":%b,"groupTopicMap":{},"offsetTable":{%b}}' % (
            b"" if acting is None else b'"acting":%b,' % encode_body(acting),
            encode_body(version),
            b",".join(parts),
        )

    def offsets_version(self) -> DataVersion:
        """The version of the table: of all that it has now at a master, elsewhere of what was copied last."""
        self._offsets_changes.version(self._mastership)
        return self.offsets.version

    def acting_ended(self) -> None:
        """Put on disk what was committed at the acting master: the next one is still to get it."""
        self._save_offsets()

    def encode_changed_offsets(self, changed: Changed) -> bytes:
        """A `ConsumerOffsetChanges` of what has just changed."""
        version = self.offsets_version()
        table = b",".join([b"%b:{%b}" % (encode_body(key), self.offsets.text(key)) for key in changed.keys])
        return b'{"dataVersion":%b,"full":%b,"more":%b,"offsetTable":{%b},"removed":%b}' % (
            encode_body(version),
            b"true" if changed.begins else b"false",
            b"true" if changed.until < self.offsets.changes else b"false",
            table,
            encode_body(changed.removed),
        )

    def encode_delays(self) -> bytes:
        """Body of the answer to 45: a `DelayOffsetWrapper`, with bare integer keys, as Java's slave expects."""
        self.settle_delays()
        self._delays_changes.version(self._mastership)
        table = b",".join([b"%d:%d" % item for item in sorted(self.delays.table.items())])
        return b'{"ages":%b,"dataVersion":%b,"escaped":%b,"history":%b,"offsetTable":{%b}}' % (
            encode_body(encode_ages(self.delay_ages())),
            encode_body(self.delays.version),
            encode_body(encode_escaped(self.delays.escaped) or {}),
            encode_body(_texts(self.delays.history)),
            table,
        )

    async def offsets_saved(self) -> None:
        """Until the consumer offsets as they are now are on disk, with what was removed.

        Raises:
            StorageError: they are not; the write is retried.
        """
        self._save_offsets()
        await self._offsets_file.saved()

    async def delays_saved(self) -> None:
        """Until what is known now of delayed messages is on disk.

        Raises:
            StorageError: it is not; the write is retried.
        """
        self._save_delays()
        await self._delays_file.saved()

    async def log_cut(self, end: int) -> None:
        """The log is cut at `end`, or will be: forget, durably, what was delivered behind it.

        Raises:
            StorageError: it is forgotten only until a restart.
        """
        if self.delays.cut(end):
            log.info("deliveries of delayed messages behind the end of the log are forgotten", end=end)
            self._delays_changes.version(self._mastership)
            self._delays_changes.to_save()
            self._delays_file.changed()
        await self._delays_file.saved()

    # inside

    def _again(self, seconds: float, act: Callable[[], None]) -> None:
        def run() -> None:
            self._again(seconds, act)  # first, so that a defect does not end the cycle
            act()

        self._timers[act] = self._loop.call_later(seconds, run)

    def _save_offsets(self) -> None:
        self._offsets_changes.version(self._mastership)
        acting_saved, self._acting_saved = self._acting_saved, self.offsets.acting.changes
        if self._offsets_changes.to_save() or acting_saved != self._acting_saved:
            self._offsets_file.changed()

    def _save_delays(self) -> None:
        self.settle_delays()
        self._delays_changes.version(self._mastership)
        if self._delays_changes.to_save():
            self._delays_file.changed()

    # the contents of the files; see `table_file.Snapshot`

    def _groups_now(self) -> Callable[[], bytes]:
        frame = SubscriptionGroupsFile(data_version=self.groups.version, forbidden_table=dict(self.groups.forbidden))
        return partial(self._group_texts.encode, frame, dict(self.groups.table))

    def _offsets_now(self) -> Steps[Callable[[], bytes]]:
        texts = yield from self.offsets.texts()
        return partial(_offsets_text, self.offsets.version, self.offsets.acting.commits, texts)

    def _delays_now(self) -> Callable[[], bytes]:
        file = DelayOffsetsFile(
            data_version=self.delays.version,
            offset_table=dict(sorted(self.delays.table.items())),
            history=_texts(self.delays.history),
            escaped=encode_escaped(self.delays.escaped),
        )
        return partial(encode_config, file)


def states_of(file: DelayOffsetsFile, place: int) -> list[State]:
    """The states in a file or an answer; `place` is the place of its table where it gives none.

    Raises:
        ConfigFileError: its history is malformed.
    """
    table = {level: offset for level, offset in file.offset_table.items() if 1 <= level <= MAX_LEVELS and offset >= 0}
    states = decode_history(file.history or {})
    if states or file.escaped is not None:
        return sorted(states.items())
    # an official broker that used this folder has dropped the history
    return [(place, table)]


def _texts(states: Iterable[State]) -> dict[str, str]:
    return {str(place): encode_levels(levels) for place, levels in states}


def _offsets_text(version: DataVersion, acting: ActingCommits | None, texts: Mapping[str, bytes]) -> bytes:
    """As `encode_config` writes a `ConsumerOffsetsFile`, from the numbers' texts, but in their order: no one call may
    take long in this thread, because the event loop's waits for it."""
    frame = encode_config(ConsumerOffsetsFile(data_version=version, acting=acting))
    if not texts:
        return frame
    head, _, tail = frame.rpartition(b"{}")
    lines = [b"\n\t\t%b:{%b\n\t\t}" % (encode_body(key), text) for key, text in texts.items()]
    slices = [b",".join(lines[first : first + SLICE]) for first in range(0, len(lines), SLICE)]
    return b"%b{%b\n\t}%b" % (head, b",".join(slices), tail)


class _Changes:
    """Which changes of a table have a version, which are in its file."""

    def __init__(self, table: ConsumerOffsets | DelayOffsets) -> None:
        self._table = table
        self._saved = table.changes

    def loaded(self) -> None:
        """What the table holds is what the file holds."""
        self._saved = self._table.versioned = self._table.changes

    def version(self, mastership: int | None) -> None:
        """The changes since the last call make a version, if this replica is master of the epoch `mastership`. Anyone
        else's version is that of the last complete copy: half of a later one, or a commit at an acting slave, makes
        no table that is newer than a master's."""
        table = self._table
        if mastership is not None and table.versioned != table.changes:
            table.versioned = table.changes
            table.version = table.version.next(mastership, now_ms())

    def to_save(self) -> bool:
        """Whether the file lacks changes; marks them as saved."""
        before, self._saved = self._saved, self._table.changes
        return before != self._saved


def _nothing() -> None:
    pass
