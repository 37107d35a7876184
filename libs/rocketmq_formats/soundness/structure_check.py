"""Is an extent of one replica's log a chain of sound records? Checked piece by piece, at the speed of CRC-32.

Spark tasks feed it with what a source reads. `structure` defines what is sound, and the result.
"""

import zlib
from collections.abc import Iterable
from typing import Final

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.records import LATEST_TIMESTAMP, MAGICS, next_record_start
from rocketmq_formats.soundness.structure import (
    MAX_FAULTS,
    MAX_TOPICS,
    OTHER_TOPICS,
    Fault,
    Reason,
    Structure,
    TopicCount,
    add_topics,
)
from rocketmq_formats.store import walk as heads
from rocketmq_formats.store.message import (
    BLANK_SIZE,
    HOSTS,
    MAGIC_BLANK,
    MAGIC_V1,
    SMALLEST_RECORD,
    Blank,
    Buffer,
    RecordError,
    read_record,
)

LARGEST_HELD: Final = 256 << 20
"""Bytes of the largest record that is waited for: far above any sensible maxMessageSize, and still a bound."""
_OTHER_TOPICS: Final = OTHER_TOPICS.encode()
_crc32 = zlib.crc32


class StructureCheck:
    """Takes the bytes of `extent`, and what follows until `done`, in consecutive pieces of any size.

    Holds back at most one incomplete record. `aligned`: a record starts at the extent's start; otherwise the first one
    is searched, and what is before it belongs to the extent before.
    """

    def __init__(
        self, extent: Extent, segment_size: int, *, aligned: bool = True, max_faults: int = MAX_FAULTS
    ) -> None:
        self._extent = extent
        self._segment_size = segment_size
        self._max_faults = max_faults
        self._position = extent.start
        self._fed = extent.start
        self._rest = bytearray()
        self._need = 0
        self._first = extent.start if aligned or extent.start % segment_size == 0 else None
        self._lost: tuple[int, Reason, str] | None = None
        self._records = self._record_bytes = self._blanks = self._blank_bytes = self._skipped = 0
        self._first_timestamp = self._last_timestamp = 0
        self._tallies: dict[bytes, list[int]] = {}
        self._faults: list[Fault] = []
        self._fault_count = 0

    @property
    def done(self) -> bool:
        """All that starts in the extent was checked: further bytes change nothing."""
        return self._position >= self._extent.end

    @property
    def position(self) -> int:
        """Everything before this physical offset was checked."""
        return self._position

    def feed(self, piece: Buffer) -> None:
        """The next bytes, from where the last piece ended; a memoryview of single bytes is read where it is."""
        start = self._fed
        self._fed += len(piece)
        if self.done or self._position >= self._fed:
            return
        if not self._rest:
            with memoryview(piece) as view:
                self._run(view, start)
                self._rest = self._kept(view, start)
            return
        self._rest += piece
        if len(self._rest) < self._need:
            return
        start = self._position
        with memoryview(self._rest) as view:
            self._run(view, start)
            rest = self._kept(view, start)
        self._rest = rest

    def feed_until_done(self, pieces: Iterable[Buffer]) -> None:
        """Takes as many of `pieces` as it needs."""
        for piece in pieces:
            self.feed(piece)
            if self.done:
                break

    def finish(self) -> Structure:
        """The result; feed nothing after this."""
        if self._rest and not self.done:  # held back for more than there is: perhaps enough to see that it is no record
            with memoryview(self._rest) as view:
                self._run(view, self._position)
        chained = self._first is not None and self._lost is None
        if self._lost is not None:  # to the end, with the few bytes that were held back because they might be a head
            self._found(min(self._fed, self._extent.end))
        topics: dict[str, TopicCount] = {}
        for topic, (records, size) in self._tallies.items():
            add_topics(topics, {topic.decode("utf-8", "replace"): TopicCount(records, size)})
        return Structure(
            extent=self._extent,
            first=self._first,
            next=self._position if self.done and chained else None,
            records=self._records,
            record_bytes=self._record_bytes,
            blanks=self._blanks,
            blank_bytes=self._blank_bytes,
            skipped_bytes=self._skipped,
            unread=max(self._fed - self._position, 0) if chained and not self.done else 0,
            first_timestamp=self._first_timestamp or None,
            last_timestamp=self._last_timestamp or None,
            topics=topics,
            faults=tuple(self._faults),
            fault_count=self._fault_count,
        )

    def _kept(self, view: memoryview, start: int) -> bytearray:
        return bytearray(view[self._position - start :]) if self._position < self._extent.end else bytearray()

    def _run(self, view: memoryview, base: int) -> None:
        self._need = 0
        while self._position < min(self._extent.end, base + len(view)):
            if self._first is None or self._lost is not None:
                if not self._search(view, base):
                    return
            else:
                self._plain(view, base)
                if self._position >= min(self._extent.end, base + len(view)) or not self._step(view, base):
                    return

    def _plain(self, view: memoryview, base: int) -> None:
        """Pass sound records of the commonest kind, for speed: one unpack and one CRC each. `_step` does the others."""
        unpack, crc32, tallies, magic_v1, not_v4 = heads.unpack_checked, _crc32, self._tallies, MAGIC_V1, HOSTS
        head, latest = heads.V4_HEAD_SIZE, LATEST_TIMESTAMP
        at = first = self._position - base
        border = self._position - self._position % self._segment_size + self._segment_size
        limit = min(len(view), border - base)
        last = min(limit - head, self._extent.end - base - 1)
        records = timestamp = 0
        first_timestamp = self._first_timestamp
        while at <= last:
            size, magic, body_crc, place, sys_flag, stamp, body_length = unpack(view, at)
            body_end = at + head + body_length
            end = at + size
            if magic != magic_v1 or place != base + at or sys_flag & not_v4 or body_length < 0 or end > limit:
                break
            if body_end + 3 > end or (topic_end := body_end + 1 + view[body_end]) + 2 > end or view[body_end] > 127:
                break
            if topic_end + 2 + (view[topic_end] << 8 | view[topic_end + 1]) != end or view[topic_end] > 127:
                break
            if body_length and crc32(view[at + head : body_end]) & 0x7FFFFFFF != body_crc:
                break
            if not 0 < stamp < latest:
                break
            topic = bytes(view[body_end + 1 : topic_end])
            tally = tallies.get(topic)
            if tally is None:
                tally = self._tally(topic)
            tally[0] += 1
            tally[1] += size
            records += 1
            timestamp = stamp
            if not first_timestamp:
                self._first_timestamp = first_timestamp = stamp
            at = end
        self._records += records
        self._record_bytes += at - first
        self._position = base + at
        self._last_timestamp = timestamp or self._last_timestamp

    def _step(self, view: memoryview, base: int) -> bool:
        """Check any piece at the position; False: more bytes are needed."""
        at = self._position - base
        room = self._segment_size - self._position % self._segment_size
        left = min(len(view) - at, room)
        if room < BLANK_SIZE:
            return self._lose(Reason.SEGMENT, f"{room} bytes are left in the file: too few for a blank")
        if left < BLANK_SIZE:
            return self._wait(BLANK_SIZE)
        size, magic = heads.unpack_start(view, at)
        if magic == MAGIC_BLANK:
            return self._blank(size, room)
        if left < heads.PLACE_SIZE <= room and magic in MAGICS:
            return self._wait(heads.PLACE_SIZE)
        plausible = heads.can_add_up(view, at)
        if magic not in MAGICS:
            reason, detail = Reason.NO_RECORD, f"magic {magic:#010x}"
        elif size < SMALLEST_RECORD:
            reason, detail = Reason.LENGTHS, f"a record of {size} bytes"
        elif left >= heads.PLACE_SIZE and (place := heads.unpack_place(view, at)[2]) != self._position:
            reason, detail = Reason.PLACE, f"a record with the offset {place} in it"
        elif size > room:
            reason, detail = Reason.SEGMENT, f"a record of {size} bytes, {room} bytes before its file's end"
        elif size > LARGEST_HELD or plausible is False:
            reason, detail = Reason.LENGTHS, f"a record of {size} bytes whose parts have another length"
        else:
            need = size if plausible else min(size, heads.LONGEST_HEAD)
            return self._record(view, at, size) if left >= size else self._wait(need)
        return self._lose(reason, detail)

    def _blank(self, size: int, room: int) -> bool:
        if size != room:
            return self._lose(Reason.BLANK, f"a blank of {size} bytes, {room} bytes before its file's end")
        self._blanks += 1
        self._blank_bytes += size
        self._position += size
        return True

    def _record(self, view: memoryview, at: int, size: int) -> bool:
        """One whole record with a head that belongs here."""
        place = self._position
        try:
            record = read_record(view, at, at + size, check_crc=False)
        except RecordError as error:
            return self._lose(Reason.LENGTHS, str(error))
        assert not isinstance(record, Blank)
        extent = Extent(place, place + size)
        if record.body_length and (found := _crc32(record.body(view)) & 0x7FFFFFFF) != record.body_crc:
            self._fault(extent, Reason.BODY_CRC, f"body {found:#010x}, the record has {record.body_crc:#010x}")
        if 0 < record.store_timestamp < LATEST_TIMESTAMP:
            self._first_timestamp = self._first_timestamp or record.store_timestamp
            self._last_timestamp = record.store_timestamp
        else:
            self._fault(extent, Reason.TIMESTAMP, f"stored at {record.store_timestamp} ms")
        tally = self._tally(record.topic)
        tally[0] += 1
        tally[1] += size
        self._records += 1
        self._record_bytes += size
        self._position += size
        return True

    def _tally(self, topic: bytes) -> list[int]:
        if topic not in self._tallies and len(self._tallies) >= MAX_TOPICS:
            topic = _OTHER_TOPICS
        return self._tallies.setdefault(topic, [0, 0])

    def _wait(self, need: int) -> bool:
        self._need = need
        return False

    def _lose(self, reason: Reason, detail: str) -> bool:
        """No record starts at the position: search for the next one."""
        self._lost = (self._position, reason, detail)
        self._position += 1
        return True

    def _search(self, view: memoryview, base: int) -> bool:
        """Go to the next record's start; False: it is not among these bytes."""
        found = next_record_start(view, base, self._position, segment_size=self._segment_size)
        if found is None:  # the last bytes may be a head's first ones
            self._position = max(self._position, base + len(view) - heads.PLACE_SIZE + 1)
            return False
        if found >= self._extent.end:
            self._position = self._extent.end
            return False
        if self._lost is not None:
            self._found(found)
        if self._first is None:
            self._first = found
        self._position = found
        return True

    def _found(self, end: int) -> None:
        """The next record starts at `end`."""
        assert self._lost is not None
        start, reason, detail = self._lost
        end = max(end, start + 1)
        self._lost = None
        self._skipped += end - start
        self._fault(Extent(start, end), reason, detail)

    def _fault(self, extent: Extent, reason: Reason, detail: str) -> None:
        self._fault_count += 1
        if len(self._faults) < self._max_faults:
            self._faults.append(Fault(extent, reason, detail))
