"""Index files: which records have a key. Official brokers write them (messageIndexEnable) and answer queries by key
from them; ours do not. The verification reads them.

`{root}/index/yyyyMMddHHmmssSSS`, big-endian: a header of 40 bytes, slots of 4, entries of 20. Entries are numbered from
1, in the order of the log; number 0 is never used. The entries of a slot are a chain: the slot has the newest one's
number, and each entry that of the one before it.

Source: rocketmq-all-5.3.3: IndexFile.java, IndexHeader.java, IndexService.java.
"""

import struct
from typing import Final, NamedTuple

from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.message_properties import KEYS, UNIQ_KEY, find_property
from rocketmq_formats.tags import java_hash_code

FOLDER: Final = "index"
HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
ENTRIES_PER_SLOT: Final = 4
"""maxIndexNum over maxHashSlotNum by Java's defaults. A file has neither; only its length is known."""
_NAME_DIGITS: Final = 17
_HEADER: Final = struct.Struct(">qqqqii")
_ENTRY: Final = struct.Struct(">iqii")

NOTHING: Final = bytes(ENTRY_SIZE)
"""An entry that was never written."""

unpack_slot = struct.Struct(">i").unpack
iter_entries = _ENTRY.iter_unpack
"""Every entry of bytes that are a whole number of them, as `Entry`'s fields."""
pack_entry = _ENTRY.pack


class Header(NamedTuple):
    """The first bytes of a file."""

    begin_ms: int
    """storeTimestamp of its first record."""
    end_ms: int
    begin_offset: int
    """Physical offset of its first record."""
    end_offset: int
    """Of its last one."""
    used_slots: int
    index_count: int
    """The next entry's number: 1 for a new file; 0 in one whose first entry is being written."""

    def pack(self) -> bytes:
        return _HEADER.pack(*self)


class Entry(NamedTuple):
    """One key of one record."""

    key_hash: int
    """`key_hash` of it, at least 0."""
    physical_offset: int
    seconds: int
    """Of the record's storeTimestamp, since the file's `begin_ms`."""
    before: int
    """Number of the entry before it in its slot; 0: none."""


class Layout(NamedTuple):
    """Where slots and entries are."""

    slots: int
    entries: int
    """How many there are at most, number 0 included."""

    @classmethod
    def of(cls, size: int) -> "Layout | None":
        """By the file's bytes; None for a file of another ratio of both than `ENTRIES_PER_SLOT`."""
        slots, rest = divmod(size - HEADER_SIZE, SLOT_SIZE + ENTRIES_PER_SLOT * ENTRY_SIZE)
        return None if rest or slots < 1 else cls(slots, slots * ENTRIES_PER_SLOT)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.at(self.entries)

    def slot_at(self, slot: int) -> int:
        """Where a slot starts."""
        return HEADER_SIZE + slot * SLOT_SIZE

    def at(self, number: int) -> int:
        """Where an entry starts."""
        return HEADER_SIZE + self.slots * SLOT_SIZE + number * ENTRY_SIZE


def is_index_name(name: str) -> bool:
    """Whether an index file has this name: the local time when it was made."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal()


def unpack_header(data: bytes) -> Header:
    """Raises `FormatError`: fewer than 40 bytes."""
    if len(data) < HEADER_SIZE:
        raise FormatError(f"{len(data)} bytes are no header of an index file")
    return Header(*_HEADER.unpack_from(data))


def seconds_since(begin_ms: int, store_ms: int) -> int:
    """What an entry has of its record's time, but the first one of a file: that was made before `begin_ms`."""
    return min(max((store_ms - begin_ms) // 1000, 0), 0x7FFFFFFF) if begin_ms > 0 else 0


def key_hash(topic: str, key: str) -> int:
    """What an entry has of a key of a topic's message."""
    code = abs(java_hash_code(f"{topic}#{key}"))
    return 0 if code > 0x7FFFFFFF else code  # Java's abs of the least int is itself


def key_hashes(topic: str, properties: bytes) -> frozenset[int] | None:
    """Of all keys by which a record with these properties is found; None: they are no UTF-8."""
    unique, keys = find_property(properties, UNIQ_KEY), find_property(properties, KEYS)
    if "\ufffd" in f"{topic}{unique}{keys}":
        return None
    found = [unique] if unique else []
    found += filter(None, (keys or "").split(" "))
    return frozenset(key_hash(topic, key) for key in found)
