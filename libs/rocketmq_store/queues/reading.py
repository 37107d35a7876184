"""Reads of queues: messages from an offset, offsets by time. Used by message_store.py for the broker.

Java's rules. Bodies are not copied: results are pieces of the mapped log.
Source: rocketmq-all-5.3.3: DefaultMessageStore.java, ConsumeQueue.java.
"""

import os
import struct
from collections.abc import Collection
from typing import Final

from rocketmq_formats.store.consume_queue import Unit, is_pre_blank, is_unit
from rocketmq_formats.store.message import SMALLEST_RECORD, SysFlag
from rocketmq_formats.store.walk import unpack_unit_head
from rocketmq_store.log.commit_log import CommitLog
from rocketmq_store.model import GetResult, GetStatus, StoreSettings
from rocketmq_store.queues.consume_queue import ConsumeQueue
from rocketmq_store.queues.unit_repair import Missing, UnitRepair

MAX_FILTERED: Final = 800
"""Units scanned for one answer while none matches (maxFilterMessageSize 16000 bytes)."""
_SYS_FLAG_AT: Final = 36
_SYS_FLAG: Final = struct.Struct(">i")
_STORE_TIMESTAMP_V4_AT: Final = 56
_STORE_TIMESTAMP_V6_AT: Final = 68
_TIMESTAMP: Final = struct.Struct(">q")
_NOTHING: Final = memoryview(b"\xff" * 64)
"""The head of no record."""


class Reader:
    def __init__(self, commit_log: CommitLog, settings: StoreSettings, units: UnitRepair) -> None:
        self._log = commit_log
        self._settings = settings
        self._units = units
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._in_memory = memory * settings.in_memory_ratio // 100

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_messages: int,
        max_bytes: int,
        tag_codes: Collection[int],
    ) -> GetResult:
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        return self._collect(queue, offset, max_messages, max_bytes, tag_codes)

    def _collect(
        self, queue: ConsumeQueue, offset: int, max_messages: int, max_bytes: int, tag_codes: Collection[int]
    ) -> GetResult:
        high = queue.max_offset
        log_end = self._log.max_offset
        span = max(MAX_FILTERED, max_messages) if tag_codes else max(1, max_messages)
        starts: list[int] = []
        sizes: list[int] = []  # neighbours in the log become one piece
        next_offset = offset
        count = total = 0
        piece_end = -1
        removed = lagging = False
        queue_id = queue.queue_id
        view, begin, end = _NOTHING, 0, 0
        for physical, size, code in queue.units(offset, min(span, high - offset)):
            if next_offset == offset:
                lagging = log_end - physical > self._in_memory
                max_messages, max_bytes = self._limits(max_messages, max_bytes, lagging=lagging)
            if count and (count >= max_messages or total + size > max_bytes):
                break
            if tag_codes and size > 0 and code not in tag_codes:
                next_offset += 1
                continue
            if size < SMALLEST_RECORD or not begin <= physical <= end - size:
                view, begin, end = self._part_with(physical, size)
            # not the topic, for speed: damage hardly ever leads to another topic's record with the same numbers
            if unpack_unit_head(view, physical - begin) != (size, queue_id, next_offset, physical):
                if not self._may_lack(queue, next_offset, (physical, size, code)):
                    break
                removed = True
                next_offset += 1
                continue
            next_offset += 1
            if physical != piece_end:
                starts.append(physical)
                sizes.append(0)
            sizes[-1] += size
            piece_end = physical + size
            count += 1
            total += size
        if next_offset == offset:
            if queue.unit(offset) is not None:
                return self._at_damage(queue, offset, tag_codes)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file(offset), queue.min_offset, high)
        pieces = [self._log.files.read(start, size) for start, size in zip(starts, sizes, strict=True)]
        missed = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        status = GetStatus.FOUND if count else missed
        return GetResult(status, next_offset, queue.min_offset, high, pieces, count, total, lagging)

    def _at_damage(self, queue: ConsumeQueue, offset: int, tag_codes: Collection[int]) -> GetResult:
        """The answer where the unit at `offset` is damaged."""
        bounds = queue.min_offset, queue.max_offset
        unit = self._units.find(queue, offset)
        if unit is Missing.SOUGHT:  # an answer that passes over the message would lose it for this consumer
            return GetResult(GetStatus.OFFSET_FOUND_NULL, offset, *bounds)
        if unit is Missing.LOST:
            return GetResult(GetStatus.MESSAGE_WAS_REMOVING, offset + 1, *bounds)
        physical, size, code = unit
        if tag_codes and code not in tag_codes:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, offset + 1, *bounds)
        return GetResult(GetStatus.FOUND, offset + 1, *bounds, [self._log.files.read(physical, size)], 1, size)

    def _part_with(self, physical: int, size: int) -> tuple[memoryview, int, int]:
        """Memory with a record of the log, where in the log it begins, and where it ends; without one, memory that
        starts at `physical` and holds for it what no record does."""
        files, log_end = self._log.files, self._log.max_offset
        if size >= SMALLEST_RECORD and files.min_offset <= physical <= log_end - size:
            segment = files.segment_at(physical)
            if physical + size <= segment.end:
                return segment.view, segment.start, min(segment.end, log_end)
        return _NOTHING, physical, 0

    def _is_of(self, queue: ConsumeQueue, offset: int, unit: Unit) -> bool:
        """Whether the log has the unit's message where it says."""
        physical, size, _ = unit
        view, begin, _ = self._part_with(physical, size)
        return unpack_unit_head(view, physical - begin) == (size, queue.queue_id, offset, physical)

    def _may_lack(self, queue: ConsumeQueue, offset: int, unit: Unit) -> bool:
        """Whether a unit may have no message in the log."""
        if is_pre_blank(unit):
            return True
        return is_unit(unit) and unit[0] < self._log.min_offset and self._units.has_expired(queue, offset)

    def _limits(self, max_messages: int, max_bytes: int, *, lagging: bool) -> tuple[int, int]:
        settings = self._settings
        if lagging:
            return min(max_messages, settings.max_count_on_disk), min(max_bytes, settings.max_bytes_on_disk)
        return min(max_messages, settings.max_count_in_memory), min(max_bytes, settings.max_bytes_in_memory)

    def record_of(self, queue: ConsumeQueue, offset: int) -> memoryview | None:
        if not queue.min_offset <= offset < queue.max_offset:
            return None
        unit: Unit | Missing | None = queue.unit(offset)
        if isinstance(unit, tuple) and not self._is_of(queue, offset, unit):
            unit = None if self._may_lack(queue, offset, unit) else self._units.find(queue, offset)
        return self._log.read(unit[0], unit[1]) if isinstance(unit, tuple) else None

    def store_time(self, queue: ConsumeQueue, offset: int) -> int:
        record = self.record_of(queue, offset)
        if record is None or len(record) < SMALLEST_RECORD:
            return -1
        (sys_flag,) = _SYS_FLAG.unpack_from(record, _SYS_FLAG_AT)
        at = _STORE_TIMESTAMP_V6_AT if sys_flag & SysFlag.BORN_HOST_V6 else _STORE_TIMESTAMP_V4_AT
        timestamp: int = _TIMESTAMP.unpack_from(record, at)[0]
        return timestamp

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, *, upper: bool) -> int:
        # store timestamps do not fall along a queue: the first offset with a later (upper) or no earlier one
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            time = self.store_time(queue, middle)
            if time < timestamp or (upper and time == timestamp):
                low = middle + 1
            else:
                high = middle
        if not upper:
            return low
        return low - 1 if low > queue.min_offset else 0
