"""The broker's tables on disk: topics.json, consumerOffset.json, subscriptionGroup.json, delayOffset.json.

They lie in `{root}/config`; beside each, `.bak` holds the text before the last change, to be read when the file itself
cannot be. Written exactly as fastjson prints them, so that an official broker can continue with our directory: tabs,
keys of objects in alphabetical order, integer keys bare and on one line, nulls left out, no line feed at the end. The
same shapes travel when a slave copies its master's tables.
Source: rocketmq-all-5.3.3: ConfigManager.java, TopicConfigManager.java, SubscriptionGroupManager.java;
tests/golden/store.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import field

from rocketmq_formats.errors import BodyError, FormatError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import Body, Int32, Int64
from rocketmq_formats.json.entries import Unread, read_table
from rocketmq_formats.store.delay_levels import MAX_LEVELS
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig, TopicConfig

TOPICS_FILE: Final = "topics.json"
CONSUMER_OFFSETS_FILE: Final = "consumerOffset.json"
SUBSCRIPTION_GROUPS_FILE: Final = "subscriptionGroup.json"
DELAY_OFFSETS_FILE: Final = "delayOffset.json"

MAX_LENGTH: Final = 64 * 1024 * 1024
"""Largest file read, in bytes; a topic takes about 230."""
TOPIC_GROUP_SEPARATOR: Final = "@"
MAX_HISTORY: Final = 256
NEVER: Final = -1
"""`ActingCommit.before` of a queue that had no offset."""

F = TypeVar("F", bound=Body)

_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_LEVELS: Final = re.compile(r"(?:[0-9]{1,3}:[0-9]{1,18}(?:,(?=[0-9])|$)){0,255}", re.ASCII)
_AGES: Final = re.compile(r"(?:[0-9]{1,18}:[0-9]{1,18}(?:,(?=[0-9])|$)){0,255}", re.ASCII)
_ESCAPED: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18}):([0-9]{1,18}):([0-9]{1,10})", re.ASCII)
_encode_scalar = msgspec.json.Encoder().encode


class ConfigFileError(FormatError):
    """A text that is not the table it should be: read the `.bak` file instead."""


class TopicsFile(Body, frozen=True):
    """topics.json: every topic of the broker by name."""

    data_version: DataVersion = DataVersion()
    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)


class ActingCommit(NamedTuple):
    """An offset that a group committed at a slave which acted as master."""

    queue_id: int
    offset: int
    """The last one."""
    before: int
    """What the queue had before the first one; `NEVER`: none."""
    reset: bool = False
    """One of the commits went back."""


class ActingCommits(Body, frozen=True):
    """What was committed at a slave while it acted as master, and no master has taken over yet."""

    base: DataVersion
    """Of the table at the first commit: what the slave had copied by then."""
    commits: Mapping[str, tuple[ActingCommit, ...]]
    """By `topic@group`."""


class ConsumerOffsetsFile(Body, frozen=True):
    """consumerOffset.json: `topic@group` -> queue id -> next offset to consume.

    Java writes a third table, `groupTopicMap`, which follows from this one, and never reads it.
    """

    data_version: DataVersion = DataVersion()
    offset_table: Mapping[str, Mapping[int, Int64]] = field(default_factory=dict)
    acting: ActingCommits | None = None
    """Ours; Java's reader skips it. `offset_table` may have these too."""


class SubscriptionGroupsFile(Body, frozen=True):
    """subscriptionGroup.json: every consumer group by name; `forbidden_table` is group -> topic -> bits."""

    data_version: DataVersion = DataVersion()
    forbidden_table: Mapping[str, Mapping[str, Int32]] = field(default_factory=dict)
    subscription_group_table: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)


class DelayOffsetsFile(Body, frozen=True):
    """delayOffset.json: delay level -> next offset to deliver of its queue."""

    data_version: DataVersion = DataVersion()
    offset_table: Mapping[int, Int64] = field(default_factory=dict)
    history: Mapping[str, str] | None = None
    """Ours, strings so that Java's reader skips it: place of the log -> `offset_table` when the log ended there,
    `level:offset` with commas between."""
    escaped: Mapping[str, str] | None = None
    """Ours, as `history`: delay level -> an `Escaped`, its numbers with colons between."""


class Escaped(NamedTuple):
    """What of a delay level's queue is at other groups: the messages from the offset `first` to `next`, this one not
    included."""

    first: int
    next: int
    place: int
    """In the log, of the record of the last one; a physical offset."""
    checksum: int
    """CRC-32 of that record."""


class DelayOffsetWrapper(DelayOffsetsFile, frozen=True):
    """The answer to GET_ALL_DELAY_OFFSET (45)."""

    ages: Mapping[str, str] | None = None
    """Ours: delay level -> `end:age` with commas between, both in rising order of the end: minimum time in ms since
    the messages of the level's queue before the offset `end` arrived."""


def encode_config(value: Body) -> bytes:
    """The text of a file; tables keep their order."""
    return b"".join(_pretty(value, b"\n"))


class EntryTexts:
    """The texts of the entries of a file's last table, kept for the next file: there may be tens of thousands of them,
    of which one changes. The first text of 40,000 topics takes half a second, later ones 40 ms."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Body, bytes]] = {}

    def encode(self, frame: Body, table: Mapping[str, Body]) -> bytes:
        """What `encode_config` makes of `frame`, whose last table is empty, with `table` there, keys sorted."""
        known, self._texts = self._texts, {}
        for key in sorted(table):
            entry = table[key]
            found = known.get(key)
            if found is None or (found[0] is not entry and found[0] != entry):
                text = b"".join(_pretty(entry, b"\n\t\t"))
                found = (entry, b"\n\t\t%b:%b" % (_encode_scalar(key), text))
            self._texts[key] = found
        text = encode_config(frame)
        if not table:
            return text
        head, _, tail = text.rpartition(b"{}")
        return b"%b{%b\n\t}%b" % (head, b",".join([found[1] for found in self._texts.values()]), tail)


def read_config(file_type: type[F], data: bytes, spare: F | None = None) -> tuple[F, list[Unread]]:
    """The table in a file, which people may have edited, and what of it cannot be read; `spare`: see `read_table`.

    Raises:
        ConfigFileError: empty, too long, or no table.
    """
    if len(data) > MAX_LENGTH:
        raise ConfigFileError(f"{file_type.__name__}: {len(data)} bytes, more than {MAX_LENGTH}")
    try:
        return read_table(file_type, data, spare)
    except BodyError as error:
        raise ConfigFileError(f"{file_type.__name__}: {error}") from error


def decode_config(file_type: type[F], data: bytes) -> F:
    """The table in a broker's answer, or in a file that only brokers have written: all or nothing. Unknown keys are
    ignored, as Java ignores them.

    Raises:
        ConfigFileError: empty, too long, not JSON (except bare integer keys), or of another shape.
    """
    if len(data) > MAX_LENGTH:
        raise ConfigFileError(f"{file_type.__name__}: {len(data)} bytes, more than {MAX_LENGTH}")
    try:
        quoted = fastjson.quote_keys(fastjson.without_mark(data), limit=0)
        try:
            return msgspec.json.decode(quoted, type=file_type)
        except msgspec.ValidationError:
            return msgspec.json.decode(quoted, type=file_type, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigFileError(f"{file_type.__name__}: {error}") from error


def encode_levels(levels: Mapping[int, int]) -> str:
    """A value of `DelayOffsetsFile.history`."""
    return ",".join(f"{level}:{offset}" for level, offset in sorted(levels.items()))


def decode_history(history: Mapping[str, str]) -> dict[int, dict[int, int]]:
    """`DelayOffsetsFile.history` in numbers.

    Raises:
        ConfigFileError: it is malformed.
    """
    if len(history) > MAX_HISTORY:
        raise ConfigFileError(f"delay offsets: a history of {len(history)} states, more than {MAX_HISTORY}")
    result: dict[int, dict[int, int]] = {}
    for place, text in history.items():
        if not (_NUMBER.fullmatch(place) and _LEVELS.fullmatch(text)):
            raise ConfigFileError(f"delay offsets: not a history: {place[:80]!r}: {text[:80]!r}")
        pairs = (pair.split(":") for pair in text.split(",") if pair)
        result[int(place)] = {int(level): int(offset) for level, offset in pairs}
    return result


def encode_ages(ages: Mapping[int, Sequence[tuple[int, int]]]) -> dict[str, str]:
    """`DelayOffsetWrapper.ages`, from level -> (end, age)."""
    return {str(level): ",".join(f"{end}:{age}" for end, age in pairs) for level, pairs in ages.items()}


def decode_ages(ages: Mapping[str, str]) -> dict[int, list[tuple[int, int]]]:
    """The opposite of `encode_ages`.

    Raises:
        ConfigFileError: other texts, too many, or ends and ages that do not follow each other.
    """
    if len(ages) > MAX_HISTORY:
        raise ConfigFileError(f"delay offsets: ages of {len(ages)} levels, more than {MAX_HISTORY}")
    result: dict[int, list[tuple[int, int]]] = {}
    for level, text in ages.items():
        if not (_NUMBER.fullmatch(level) and _AGES.fullmatch(text)):
            raise ConfigFileError(f"delay offsets: not ages: {level[:80]!r}: {text[:80]!r}")
        pairs = [(int(end), int(age)) for end, _, age in (pair.partition(":") for pair in text.split(",") if pair)]
        if any(end <= before or age > older for (before, older), (end, age) in itertools.pairwise(pairs)):
            raise ConfigFileError(f"delay offsets: ages out of order: {level}: {text[:80]!r}")
        result[int(level)] = pairs
    return result


def encode_escaped(escaped: Mapping[int, Escaped]) -> dict[str, str] | None:
    """`DelayOffsetsFile.escaped`; None if there is nothing."""
    return {str(level): ":".join(map(str, fact)) for level, fact in sorted(escaped.items())} or None


def decode_escaped(texts: Mapping[str, str]) -> dict[int, Escaped]:
    """The opposite of `encode_escaped`.

    Raises:
        ConfigFileError: other texts, levels that there cannot be, or an end that is not behind the beginning.
    """
    result: dict[int, Escaped] = {}
    for level, text in texts.items():
        numbers = _ESCAPED.fullmatch(text)
        if not (_NUMBER.fullmatch(level) and 1 <= int(level) <= MAX_LEVELS and numbers):
            raise ConfigFileError(f"delay offsets: not what escaped: {level[:80]!r}: {text[:80]!r}")
        fact = Escaped(*map(int, numbers.groups()))
        if fact.first >= fact.next:
            raise ConfigFileError(f"delay offsets: nothing has escaped: {level}: {text}")
        result[int(level)] = fact
    return result


def topic_at_group(topic: str, group: str) -> str:
    """The key of `ConsumerOffsetsFile.offset_table`."""
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


def _pretty(value: object, line: bytes) -> Iterable[bytes]:
    """Pieces of text; `line` is a line feed and the indentation of the line that `value` is on."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        fields = {encoded: getattr(value, name) for name, encoded in names}
        present = [(name, fields[name]) for name in sorted(fields) if fields[name] not in (None, msgspec.UNSET)]
        yield from _table(present, line)
    elif isinstance(value, Mapping):
        yield from _table(value.items(), line)
    else:
        yield _encode_scalar(value)


def _table(items: Iterable[tuple[object, object]], line: bytes) -> Iterable[bytes]:
    inner = line + b"\t"
    before = b"{"
    for key, value in items:
        # fastjson breaks the line only in front of keys that are strings
        yield b"%b%d:" % (before, key) if isinstance(key, int) else b"%b%b%b:" % (before, inner, _encode_scalar(key))
        yield from _pretty(value, inner)
        before = b","
    yield b"{}" if before == b"{" else line + b"}"
