"""The entries that a journal holds in memory, and the rules for changing them: live, and when a journal is read back.

Apart from the journal so that appending and replaying cannot disagree on what a record means.
"""

from collections.abc import Callable

from rocketmq_controller.raft.ports import Entry
from rocketmq_controller.raft.storage.storage_codec import RECORD_HEADER, CodecError, RecordKind


class LogImage:
    """Entries with consecutive indexes and terms that never fall."""

    __slots__ = ("entries", "first_index", "last_term", "next_index")

    def __init__(self, next_index: int = 0, last_term: int = 0, first_index: int = 0) -> None:
        self.entries: list[Entry] = []
        self.next_index = next_index  # 0: any index may come
        self.last_term = last_term  # of the entry before next_index; 0 if unknown
        self.first_index = first_index  # lowest index retained; 0: that of the next entry

    def append(self, command: bytes, index: int, term: int) -> None:
        """Raises `ValueError` if the entry does not follow the last one."""
        if index != self.next_index or index < 1:
            if self.next_index or index < 1:
                raise ValueError(f"entry {index} where entry {self.next_index} had to follow")
            self.first_index = index
        if term < self.last_term:
            raise ValueError(f"entry {index} of term {term} after one of term {self.last_term}")
        self.entries.append((command, index, term))
        self.next_index = index + 1
        self.last_term = term

    def cut(self, index: int) -> None:
        """Drop the entries from `index` on."""
        if index < 1 or not self.first_index <= index <= self.next_index:
            raise ValueError(f"cut at {index}, but the log is {self.first_index}..{self.next_index - 1}")
        if self.entries:
            del self.entries[max(index - self.entries[0][1], 0) :]
        self.next_index = index
        self.last_term = self.entries[-1][2] if self.entries else 0

    def forget(self, index: int) -> None:
        """Drop the entries below `index`."""
        if not self.first_index <= index <= self.next_index:
            raise ValueError(f"forget below {index}, but the log is {self.first_index}..{self.next_index - 1}")
        if self.entries:
            del self.entries[: max(index - self.entries[0][1], 0)]
        self.first_index = index

    def reset(self) -> None:
        """Drop all entries; any index may come next."""
        self.entries = []
        self.next_index = self.last_term = self.first_index = 0

    def replay(self, records: memoryview, count: int) -> None:
        """Apply the records of one frame; raises `CodecError` with the offset of a record that cannot be applied."""
        data = bytes(records)
        header_size, unpack = RECORD_HEADER.size, RECORD_HEADER.unpack_from
        others: dict[int, Callable[[int], None]] = {
            RecordKind.CUT: self.cut,
            RecordKind.FORGET: self.forget,
            RecordKind.RESET: lambda _: self.reset(),
        }
        offset = 0
        for _ in range(count):
            start = offset + header_size
            if start > len(data):
                raise CodecError(offset, "a record is cut short")
            length, kind, term, index = unpack(data, offset)
            end = start + length
            if end > len(data):
                raise CodecError(offset, "a record is cut short")
            change = others.get(kind)
            if change is None and kind != RecordKind.ENTRY:
                raise CodecError(offset, f"unknown kind of record {kind}")
            try:
                if change is None:
                    self.append(data[start:end], index, term)
                else:
                    change(index)
            except ValueError as error:
                raise CodecError(offset, str(error)) from error
            offset = end
        if offset != len(data):
            raise CodecError(offset, "bytes after the last record")
