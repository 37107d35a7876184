"""One queue's index: unit n says where in the commit log message n is (20 bytes: formats' consume_queue.py).

`{root}/consumequeue/{topic}/{queueId}/%020d`, named by the byte offset of the first unit. Everything here can be made
again from the commit log. Units are collected in memory and written once per turn (`write_pending`), then visible.
Used by consume_queues.py, dispatch.py and reading.py.
"""

from collections.abc import Iterator
from pathlib import Path

import structlog

from rocketmq_formats.store.consume_queue import PRE_BLANK, UNIT_SIZE, Unit, iter_units, pack_unit
from rocketmq_formats.store.segment_names import SegmentNameError, segment_name, segment_offset
from rocketmq_runtime.filesystem import OS
from rocketmq_store.errors import StoreDamagedError
from rocketmq_store.queue_files import QueueFiles

log = structlog.get_logger()


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
        """Files written since they were synced."""

    # Loading

    def load(self) -> None:
        """See which files there are; `recover` then says what is in them. Raises `StoreDamagedError`, `OSError`."""
        starts = []
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
            if length < self._files.file_size:  # a crash while it was made or cut; zeros are no units
                self._files.create(path)
            starts.append(start)
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
        was synced. The files were written in order and synced up to there, so halving finds the end."""
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
        self.max_physical = last[0] + last[1] if last is not None and not _is_pre_blank(last) else 0

    def _holds(self, unit: Unit | None, limit: int) -> bool:
        if unit is None:
            return False
        return _is_pre_blank(unit) or (unit[0] >= 0 and unit[1] > 0 and unit[0] + unit[1] <= limit)

    # Writing

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        """Collect the unit of a message; one that is there already is skipped, a gap is filled."""
        if queue_offset != self.pending_offset:
            if queue_offset < self.pending_offset:
                return
            self._fill(queue_offset)
        self._pending += pack_unit(physical_offset, size, tags_code)
        self.pending_offset = queue_offset + 1
        self.max_physical = physical_offset + size

    def write_pending(self) -> bool:
        """Write what was collected and make it visible; False if there was nothing new. Raises `StoreFullError`,
        `OSError`: nothing of it is visible then, and it is forgotten: to be put again."""
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
            self._files.write(path, position - start, data[:room] if room < len(data) else data)
            self.dirty.add(path)
            position += min(room, len(data))
            data = data[room:]

    def _fill(self, queue_offset: int) -> None:
        """No message has the offsets from `pending_offset` to `queue_offset`: the log does not hold them any more."""
        empty = self.min_offset >= self.pending_offset
        per_file = self._files.file_size // UNIT_SIZE
        first = queue_offset - queue_offset % per_file
        if first > self.pending_offset:  # whole files would be blank: the queue begins anew
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
        self._files.create(self._path(start))
        self._starts.append(start)
        OS.fsync_directory(self._folder)

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

    def next_file(self, offset: int) -> int:
        """The first offset of the file after that of `offset`, at most the max offset."""
        per_file = self._files.file_size // UNIT_SIZE
        return min(offset - offset % per_file + per_file, self.max_offset)

    def first_at(self, physical_offset: int, low: int, high: int) -> int:
        """The first offset in [low, high) whose message starts at or behind `physical_offset`, `high` if none."""
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and (_is_pre_blank(unit) or unit[0] < physical_offset):
                low = middle + 1
            else:
                high = middle
        return low

    # Cutting

    def truncate(self, physical_offset: int) -> None:
        """Drop the units of messages that end behind `physical_offset` of the log; durable when `dirty` was synced."""
        self._pending = bytearray()
        self.pending_offset = self.next_offset = self.max_offset
        if self._starts and not 0 < self.max_physical <= physical_offset:
            min_offset = self.min_offset
            self.recover(physical_offset)
            self.min_offset = min(min_offset, self.max_offset)

    def raise_min(self, physical_offset: int) -> None:
        """The log begins at `physical_offset` now: units before it are invisible, files of such units alone go."""
        self.min_offset = self.first_at(physical_offset, self.min_offset, self.max_offset)
        while len(self._starts) > 1 and self._starts[1] <= self.min_offset * UNIT_SIZE:
            path = self._path(self._starts.pop(0))
            self._files.delete(path)
            self.dirty.discard(path)

    def delete(self) -> None:
        """All files of the queue and its folder."""
        self._drop_files()
        self.min_offset = self.max_offset = self.pending_offset = self.next_offset = self.max_physical = 0
        for path in self._folder.glob("*"):
            path.unlink(missing_ok=True)
        if self._folder.is_dir():
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
        """The same object while the same file is asked for: paths are slow to make, to hash and to compare."""
        if start != self._named:
            self._named, self._name = start, self._folder / segment_name(start)
        return self._name


def _is_pre_blank(unit: Unit) -> bool:
    return unit[0] == 0 and unit[1] == 0x7FFFFFFF
