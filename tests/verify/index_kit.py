"""Index files as official brokers write them, made entry by entry as Java does, without the code that checks them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import pack_into

from rocketmq_formats.store.index_file import Layout
from rocketmq_formats.store.message import Record, read_record
from tests.verify.planted.faults import SEGMENT, Message

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

    def __init__(self, layout: Layout = LAYOUT) -> None:
        self.layout, self.data = layout, bytearray(layout.size)
        self.begin, self.end, self.begin_ms, self.used, self.count = 0, 0, 0, 0, 1

    def put(self, key: str, offset: int, store_ms: int) -> Index:
        """One key of a message: `topic#key`."""
        if self.count == 1:
            self.begin, self.begin_ms = offset, store_ms
        code, self.end = hash_of(key), offset
        at = self.layout.slot_at(code % self.layout.slots)
        before = int.from_bytes(self.data[at : at + 4])
        self.used += not before
        entry = code, offset, (store_ms - self.begin_ms) // 1000, before
        pack_into(">iqii", self.data, self.layout.at(self.count), *entry)
        pack_into(">i", self.data, at, self.count)
        self.count += 1
        header = self.begin_ms, store_ms, self.begin, offset, self.used, self.count
        pack_into(">qqqqii", self.data, 0, *header)
        return self

    def save(self, root: Path, name: str = NAME) -> Path:
        """Into the store."""
        (root / "index").mkdir(exist_ok=True)
        file = root / "index" / name
        file.write_bytes(self.data)
        return file


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
