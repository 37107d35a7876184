"""Index files as official brokers write them, made entry by entry as Java does, without the code that checks them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import pack_into
from typing import NamedTuple

from rocketmq_formats.store.message import Record, read_record
from tests.verify.planted.faults import SEGMENT, Message


class Layout(NamedTuple):
    """Slots, and entries with number 0."""

    slots: int
    entries: int

    @property
    def size(self) -> int:
        return self.at(self.entries)

    def slot_at(self, slot: int) -> int:
        return 40 + 4 * slot

    def at(self, number: int) -> int:
        return 40 + 4 * self.slots + 20 * number


LAYOUT = Layout(slots=100, entries=400)
NAME = "20261130094734151"


def hash_of(text: str) -> int:
    """Java's, of ASCII; never negative."""
    code = 0
    for letter in text.encode("ascii"):
        code = (31 * code + letter) % 2**32
    return abs(code - 2**32 if code >= 2**31 else code) % 2**31


class Index:
    """One file, in memory."""

    def __init__(self, layout: Layout = LAYOUT, after: Index | None = None) -> None:
        """`after`: the full one before it."""
        self.layout, self.data = layout, bytearray(layout.size)
        self.begin, self.end, self.begin_ms, self.end_ms, self.used, self.count = 0, 0, 0, 0, 0, 1
        self.places: list[tuple[str, int]] = [("", -1)]
        """Key and physical offset by an entry's number."""
        if after is not None:
            self.begin = self.end = after.end
            self.begin_ms = self.end_ms = after.end_ms
            pack_into(">qqqq", self.data, 0, self.begin_ms, self.end_ms, self.begin, self.end)

    @property
    def full(self) -> bool:
        return self.count >= self.layout.entries

    def put(self, key: str, offset: int, store_ms: int) -> Index:
        """One key of a message: `topic#key`."""
        seconds = max((store_ms - self.begin_ms) // 1000, 0) if self.begin_ms > 0 else 0
        if self.count == 1:
            self.begin, self.begin_ms = offset, store_ms
        code, self.end, self.end_ms = hash_of(key), offset, store_ms
        at = self.layout.slot_at(code % self.layout.slots)
        before = int.from_bytes(self.data[at : at + 4])
        self.used += not before
        pack_into(">iqii", self.data, self.layout.at(self.count), code, offset, seconds, before)
        pack_into(">i", self.data, at, self.count)
        self.count += 1
        self.places.append((key, offset))
        header = self.begin_ms, store_ms, self.begin, offset, self.used, self.count
        pack_into(">qqqqii", self.data, 0, *header)
        return self

    def save(self, root: Path, name: str = NAME) -> Path:
        """Into the store."""
        (root / "index").mkdir(exist_ok=True)
        file = root / "index" / name
        file.write_bytes(self.data)
        return file


class Indexes:
    """The files of one store, small ones, as its broker writes them while its log grows, is cut, and grows again."""

    def __init__(self, layout: Layout) -> None:
        self.files = [Index(layout)]

    def follow(self, log: bytes, messages: Sequence[Message]) -> None:
        """What is new of a log that has these messages."""
        for one in messages:
            if one.offset >= self.files[-1].end and (one.offset > self.files[-1].end or self.files[-1].count == 1):
                store_ms = int.from_bytes(log[one.offset + 56 : one.offset + 64])
                at = one.body_start + one.body_length
                topic, properties = log[at + 1 : at + 1 + log[at]].decode(), log[at + 3 + log[at] : one.end]
                for key in keys_of(properties):
                    if self.files[-1].full:
                        self.files.append(Index(self.files[-1].layout, self.files[-1]))
                    self.files[-1].put(f"{topic}#{key}", one.offset, store_ms)

    def save(self, root: Path) -> None:
        """Into the store."""
        for number, file in enumerate(self.files):
            file.save(root, name_of(number))


def name_of(number: int) -> str:
    """Of a store's file."""
    return f"{int(NAME) + number}"


def save_index(root: Path, messages: Sequence[Message], *, end: int = 2**62) -> Path:
    """Of the records of these messages in the store (of `faults.Group`), as far as they end up to `end`."""
    index = Index()
    for one in messages:
        if one.end <= end:
            record = _record(root, one)
            for key in keys_of(record.properties):
                index.put(f"{record.topic.decode()}#{key}", one.offset, record.store_timestamp)
    return index.save(root)


def keys_of(properties: bytes) -> list[str]:
    """Of a record, in the order of its entries."""
    pairs = dict(pair.split("\x01") for pair in properties.decode().split("\x02") if pair)
    return [pairs["UNIQ_KEY"], *pairs["KEYS"].split(" ")]


def _record(root: Path, message: Message) -> Record:
    file = root / "commitlog" / f"{message.offset - message.offset % SEGMENT:020d}"
    data = file.read_bytes()
    record = read_record(data, message.offset % SEGMENT, len(data), check_crc=False)
    assert isinstance(record, Record)
    return record


def index_of(root: Path) -> Path:
    """The file."""
    return root / "index" / NAME
