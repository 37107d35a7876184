"""One queue's index: unit n points to message n in the commit log (20 bytes: formats' consume_queue.py).

`{root}/consumequeue/{topic}/{queueId}/%020d`, named by the byte offset of the first unit. Everything here can be
rebuilt from the commit log. Units are collected in memory and written once per turn (`write_pending`), then visible.
Used by consume_queues.py, dispatch.py and reading.py.
"""

import enum
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from rocketmq_formats.store.consume_queue import (
    PRE_BLANK,
    UNIT_SIZE,
    Unit,
    is_pre_blank,
    is_unit,
    iter_units,
    pack_unit,
    unpack_unit,
)
from rocketmq_formats.store.segment_names import SegmentNameError, is_segment_name, segment_name, segment_offset
from rocketmq_runtime.files.filesystem import OS
from rocketmq_store.errors import StoreDamagedError
from rocketmq_store.queues.queue_files import QueueFiles, read_file_part

log = structlog.get_logger()


class Misfit(enum.Enum):
    """Why a message cannot be the queue's next one."""

    GAP = "units before it are missing"
    OTHER = "its offset has the unit of another message"
    HIDDEN = "it follows the queue's messages in the log, but its offset is before all that the queue shows"


class ConsumeQueue:
    """Offsets are in units. `min_offset` <= visible < `max_offset`."""

    __slots__ = (
        "_files",
        "_folder",
        "_name",
        "_named",
        "_pending",
        "_starts",
        "dirty",
        "max_offset",
        "max_physical",
        "min_offset",
        "next_offset",
        "pending_offset",
        "queue_id",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int, folder: Path, files: QueueFiles) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._folder = folder
        self._files = files
        self._named, self._name = -1, folder
        self._starts: list[int] = []  # byte offsets of the files
        self._pending = bytearray()
        self.min_offset = 0
        self.max_offset = 0
        """One behind the last unit that is written."""
        self.pending_offset = 0
        """One behind the last unit, written or collected."""
        self.next_offset = 0
        """What the next message appended to the log gets; a master's."""
        self.max_physical = 0
        """Where in the log the message of the last unit ends."""
        self.dirty: set[Path] = set()
        """Files written since they were synced, and folders with new names."""

    # Loading

    def found(self) -> list[tuple[int, int]]:
        """Byte offset and length of the files, in order. Raises `StoreDamagedError`, `OSError`."""
        files: list[tuple[int, int]] = []
        for path in sorted(self._folder.iterdir()):
            try:
                start = segment_offset(path.name)
            except SegmentNameError:
                log.warning("not a file of a consume queue, left alone", path=str(path))
                continue
            if not path.is_file():
                raise StoreDamagedError(path, "is not a file", "move it out of this folder")
            length = path.stat().st_size
            if start % self._files.file_size or length > self._files.file_size:
                raise StoreDamagedError(
                    path,
                    f"does not fit a file size of {self._files.file_size} ({length} bytes long)",
                    "set mappedFileSizeConsumeQueue to what the store was made with, or delete the consumequeue "
                    "folder: it is made again from the commit log",
                )
            files.append((start, length))
        return files

    def load(self, found: Sequence[tuple[int, int]]) -> None:
        """Take over the files that were found, and repair what a crash left; `recover` then reads them. Raises
        `OSError`."""
        starts = [start for start, _ in found]
        short = [start for start, length in found if length < self._files.file_size]
        for start in short:  # a crash while it was made or cut; zeros are no units
            self._files.create(self._path(start))
        if short and short[0] != starts[-1]:  # no crash leaves this: what follows is rebuilt from the log, too
            log.warning("short file in a consume queue, newer files dropped", path=str(self._path(short[0])))
            for start in starts[starts.index(short[0]) + 1 :]:
                self._files.delete(self._path(start))
            del starts[starts.index(short[0]) + 1 :]
        # Queues are gapless; what lies before a gap cannot be reached and is made again from the log, if it is there.
        for index in range(len(starts) - 1, 0, -1):
            if starts[index] - starts[index - 1] != self._files.file_size:
                log.warning("gap in a consume queue, older files dropped", path=str(self._path(starts[index])))
                for start in starts[:index]:
                    self._files.delete(self._path(start))
                starts = starts[index:]
                break
        self._starts = starts

    def recover(self, limit: int) -> None:
        """Keep the units of messages that end at or before `limit` of the log; zeros behind them, durable when `dirty`
        was synced. The files were written in order and synced up to there, so a binary search finds the end."""
        self._pending = bytearray()
        first = self._starts[0] // UNIT_SIZE if self._starts else 0
        low, high = first, self._capacity
        while low < high:
            middle = (low + high) // 2
            if self._holds(self.unit(middle), limit):
                low = middle + 1
            else:
                high = middle
        self._cut(low)
        self.min_offset = first
        last = self.unit(low - 1) if low > first else None
        self.max_physical = last[0] + last[1] if last is not None and not is_pre_blank(last) else 0

    def _holds(self, unit: Unit | None, limit: int) -> bool:
        if unit is None:
            return False
        return is_pre_blank(unit) or (unit[0] >= 0 and unit[1] > 0 and unit[0] + unit[1] <= limit)

    # Writing

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> Misfit | None:
        """Collect the unit of a message; one that is there already is skipped. If it does not fit, nothing has changed:
        see `Misfit`."""
        if queue_offset != self.pending_offset:
            if queue_offset > self.pending_offset:
                return Misfit.GAP
            if self.unit_at(queue_offset)[:2] == (physical_offset, size):
                return None
            if queue_offset >= self.min_offset:
                return Misfit.OTHER
            # one that comes again lies before the queue's end
            return Misfit.HIDDEN if physical_offset >= self.last_end() else None
        self._pending += pack_unit(physical_offset, size, tags_code)
        self.pending_offset = queue_offset + 1
        self.max_physical = physical_offset + size
        return None

    def skip_to(self, offset: int) -> None:
        """`fill`, written at once. Raises `StoreFullError`, `OSError`."""
        self.fill(offset)
        try:
            self.write_pending()
        except BaseException:
            self.min_offset = min(self.min_offset, self.max_offset)
            raise
        self.max_offset = self.pending_offset = offset
        self.next_offset = max(self.next_offset, offset)

    def unit_at(self, offset: int) -> Unit:
        """The unit at `offset`, below `pending_offset`, collected ones too; (-1, 0, 0) if no file has it."""
        if offset >= self.max_offset:
            return unpack_unit(self._pending, (offset - self.max_offset) * UNIT_SIZE)
        return self.unit(offset) or (-1, 0, 0)

    def last_end(self) -> int:
        """Where in the log the message of the last unit ends; 0 if no unit says so."""
        if not self.max_physical and self.pending_offset > self.min_offset:
            offset, size, _ = last = self.unit_at(self.pending_offset - 1)
            self.max_physical = offset + size if is_unit(last) and not is_pre_blank(last) else 0
        return self.max_physical

    def write_pending(self) -> bool:
        """Write what was collected and make it visible; False if there was nothing new. Raises `StoreFullError`,
        `OSError`: nothing of it is visible then, and it is dropped: put it again."""
        pending = self._pending
        if not pending:
            return False
        try:
            self._write(self.max_offset * UNIT_SIZE, pending)
        except BaseException:
            self.forget_pending()
            raise
        self._pending = bytearray()
        self.max_offset = self.pending_offset
        self.next_offset = max(self.next_offset, self.max_offset)
        return True

    def forget_pending(self) -> None:
        """What was collected and not written; to be put again."""
        self._pending = bytearray()
        self.pending_offset = self.max_offset
        self.max_physical = 0

    def _write(self, position: int, data: bytearray) -> None:
        file_size = self._files.file_size
        while data:
            start = position - position % file_size
            if not self._starts or start > self._starts[-1]:
                self._add_file(start)
            room = start + file_size - position
            path = self._path(start)
            if len(data) <= room:
                self._files.write(path, position - start, data)
                self.dirty.add(path)
                return
            self._files.write(path, position - start, data[:room])
            self.dirty.add(path)
            position += room
            data = data[room:]

    def replace(self, offset: int, unit: Unit) -> None:
        """Write the unit at `offset`, which is visible, once more; as durable as other units: see `dirty`.
        Raises `StoreFullError`, `OSError`."""
        self._write(offset * UNIT_SIZE, bytearray(pack_unit(*unit)))
        if offset == self.pending_offset - 1:
            self.max_physical = unit[0] + unit[1]

    def fill(self, queue_offset: int) -> None:
        """No message has the offsets from `pending_offset` to `queue_offset`: they are no longer in the log."""
        empty = self.min_offset >= self.pending_offset
        per_file = self._files.file_size // UNIT_SIZE
        first = queue_offset - queue_offset % per_file
        if first > self.pending_offset:  # whole files would be blank: start a new queue
            self._drop_files()
            self.max_offset = self.pending_offset = first
            empty = True
        if empty:
            self.min_offset = queue_offset
        self._pending += PRE_BLANK * (queue_offset - self.pending_offset)
        self.pending_offset = queue_offset

    def _drop_files(self) -> None:
        self._pending = bytearray()
        for start in self._starts:
            self._files.delete(self._path(start))
        self._starts = []
        self.dirty.clear()

    def _add_file(self, start: int) -> None:
        """Its name is durable once `dirty` was synced, and so are those of new folders above it."""
        path = self._path(start)
        folder = self._folder
        self.dirty.add(folder)
        while not folder.is_dir():
            folder = folder.parent
            self.dirty.add(folder)
        self._files.create(path)
        self._starts.append(start)

    # Reading

    def unit(self, offset: int) -> Unit | None:
        """The unit at `offset`, None if no file holds it."""
        for unit in self.units(offset, 1):
            return unit
        return None

    def units(self, offset: int, count: int) -> Iterator[Unit]:
        """Up to `count` units from `offset`, within one file."""
        position = offset * UNIT_SIZE
        if not self._starts or position < self._starts[0] or count <= 0:
            return iter(())
        start = position - position % self._files.file_size
        if start > self._starts[-1]:
            return iter(())
        size = min(count * UNIT_SIZE, start + self._files.file_size - position)
        return iter_units(self._files.read(self._path(start), position - start, size))

    def peek(self, offset: int, count: int) -> bytes:
        """`units` as bytes, in any thread: a second look in the broker's has to follow, since the queue may change
        in between. Raises `OSError`."""
        position = offset * UNIT_SIZE
        start = position - position % self._files.file_size
        size = min(count * UNIT_SIZE, start + self._files.file_size - position)
        return read_file_part(self._folder / segment_name(start), position - start, size)

    def next_file(self, offset: int) -> int:
        """The first offset of the file after that of `offset`, at most the max offset."""
        per_file = self._files.file_size // UNIT_SIZE
        return min(offset - offset % per_file + per_file, self.max_offset)

    def first_at(self, physical_offset: int, low: int, high: int) -> int:
        """The first offset in [low, high) whose message starts at or behind `physical_offset`, `high` if none."""
        found = self._first_at(physical_offset, low, high)
        # a damaged unit may have misled the search: what is before it would count as expired
        while found - 2 >= low and not self._is_before(physical_offset, found - 2):
            found = self._first_at(physical_offset, low, found - 1)
        return found

    def _first_at(self, physical_offset: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high) // 2
            if self._is_before(physical_offset, middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_before(self, physical_offset: int, offset: int) -> bool:
        unit = self.unit(offset)
        return unit is not None and (is_pre_blank(unit) or unit[0] < physical_offset)

    def end_at(self, physical_offset: int) -> int:
        """The offset behind the last unit of a message that starts before `physical_offset`."""
        if self.last_end() <= physical_offset:
            return self.max_offset
        first = self._starts[0] // UNIT_SIZE if self._starts else self.min_offset  # hidden ones count too
        return self.first_at(physical_offset, first, self.max_offset)

    def ends_before(self, physical_offset: int) -> bool:
        """Whether all its messages, and there were some, end at or before `physical_offset`."""
        if self.max_offset == 0:
            return False
        offset, size, _ = last = self.unit_at(self.max_offset - 1)  # a damaged one proves nothing
        return is_pre_blank(last) or (is_unit(last) and offset + size <= physical_offset)

    # Cutting

    def truncate(self, physical_offset: int) -> None:
        """Drop the units of messages that end behind `physical_offset` of the log; durable when `dirty` was synced."""
        self._pending = bytearray()
        self.pending_offset = self.next_offset = self.max_offset
        if self._starts and not 0 < self.max_physical <= physical_offset:
            min_offset = self.min_offset
            self.recover(physical_offset)
            self.min_offset = min(min_offset, self.max_offset)

    def drop_from(self, offset: int) -> None:
        """Drop the units at and behind `offset`, which are damaged; they have to be put again. `next_offset` stays."""
        following = self.next_offset
        self._pending = bytearray()
        self._cut(max(offset, self._starts[0] // UNIT_SIZE if self._starts else 0))
        self.min_offset = min(self.min_offset, self.max_offset)
        self.max_physical = 0
        self.next_offset = following

    def first_hole(self, low: int, high: int) -> int | None:
        """The first offset in [low, high) whose unit lies where a file has no blocks; None without one. For whole
        blocks only: zeros that were written are not found."""
        for start in self._starts:
            begin = max(low * UNIT_SIZE - start, 0)
            end = min(high * UNIT_SIZE - start, self._files.file_size)
            if begin < end and (hole := self._files.first_hole(self._path(start), begin)) < end:
                return (start + hole) // UNIT_SIZE
        return None

    @property
    def begins_with_file(self) -> bool:
        """The first unit that can be seen is the first one of a file."""
        return not self._starts or self.min_offset * UNIT_SIZE <= self._starts[0]

    def raise_min(self, physical_offset: int) -> None:
        """The log begins at `physical_offset` now: units before it become invisible, files with only such units are
        deleted."""
        self.hide_before(physical_offset)
        while len(self._starts) > 1 and self._starts[1] <= self.min_offset * UNIT_SIZE:
            path = self._path(self._starts.pop(0))
            self._files.delete(path)
            self.dirty.discard(path)

    def hide_before(self, physical_offset: int) -> None:
        """Units of messages before `physical_offset` of the log become invisible."""
        self.min_offset = self.first_at(physical_offset, self.min_offset, self.max_offset)

    def lower_min(self, physical_offset: int) -> None:
        """All units that the files still have, of messages from `physical_offset` of the log on, are visible again."""
        if self._starts:
            self.min_offset = self.first_at(physical_offset, self._starts[0] // UNIT_SIZE, self.max_offset)

    def delete(self) -> None:
        """All files of the queue, and its folder if nothing else is in it: a network file system keeps a deleted file
        under another name while it is open."""
        self._drop_files()
        self.min_offset = self.max_offset = self.pending_offset = self.next_offset = self.max_physical = 0
        if self._folder.is_dir():
            for path in [path for path in self._folder.iterdir() if is_segment_name(path.name)]:
                path.unlink(missing_ok=True)
            with suppress(OSError):  # something else is in it, perhaps only now
                self._folder.rmdir()

    @property
    def _capacity(self) -> int:
        return (self._starts[-1] + self._files.file_size) // UNIT_SIZE if self._starts else 0

    def _cut(self, offset: int) -> None:
        """Nothing but zeros at and behind the unit `offset`; the last file first."""
        position = offset * UNIT_SIZE
        while len(self._starts) > 1 and self._starts[-1] >= position:
            path = self._path(self._starts.pop())
            self._files.delete(path)
            self.dirty.discard(path)
            OS.fsync_directory(self._folder)
        if self._starts and position < self._starts[-1] + self._files.file_size:
            path = self._path(self._starts[-1])
            if self._files.zero_from(path, position - self._starts[-1]):
                self.dirty.add(path)
        self.max_offset = self.pending_offset = self.next_offset = offset

    def _path(self, start: int) -> Path:
        """Cached for the last file: paths are slow to build, hash and compare."""
        if start != self._named:
            self._named, self._name = start, self._folder / segment_name(start)
        return self._name
