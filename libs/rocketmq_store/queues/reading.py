"""Reads of queues: messages from an offset, offsets by time. Used by message_store.py for the broker.

Java's rules. Bodies are not copied: results are pieces of the mapped log.
Source: rocketmq-all-5.3.3: DefaultMessageStore.java, ConsumeQueue.java.
"""

import os
import struct
from collections.abc import Collection
from typing import Final

import structlog

from rocketmq_formats.store.message import SMALLEST_RECORD, SysFlag
from rocketmq_store.log.commit_log import CommitLog
from rocketmq_store.model import GetResult, GetStatus, StoreSettings
from rocketmq_store.queues.consume_queue import ConsumeQueue

log = structlog.get_logger()

MAX_FILTERED: Final = 800
"""Units scanned for one answer while none matches (maxFilterMessageSize 16000 bytes)."""
_SYS_FLAG_AT: Final = 36
_SYS_FLAG: Final = struct.Struct(">i")
_STORE_TIMESTAMP_V4_AT: Final = 56
_STORE_TIMESTAMP_V6_AT: Final = 68
_TIMESTAMP: Final = struct.Struct(">q")


class Reader:
    def __init__(self, commit_log: CommitLog, settings: StoreSettings) -> None:
        self._log = commit_log
        self._settings = settings
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._reported: set[ConsumeQueue] = set()
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
        log_begin, log_end = self._log.min_offset, self._log.max_offset
        span = max(MAX_FILTERED, max_messages) if tag_codes else max(1, max_messages)
        pieces: list[memoryview] = []
        next_offset = offset
        count = total = 0
        piece_start = piece_end = -1  # neighbours in the log become one piece
        removed = lagging = False
        for physical, size, code in queue.units(offset, min(span, high - offset)):
            if next_offset == offset:
                lagging = log_end - physical > self._in_memory
                max_messages, max_bytes = self._limits(max_messages, max_bytes, lagging=lagging)
            if count and (count >= max_messages or total + size > max_bytes):
                break
            next_offset += 1
            if size <= 0:
                self._report(queue, next_offset - 1)
                removed = True
                continue
            if tag_codes and code not in tag_codes:
                continue
            if physical < log_begin or physical + size > log_end:
                removed = True
                continue
            if physical != piece_end:
                if count:
                    pieces.append(self._log.files.read(piece_start, piece_end - piece_start))
                piece_start = physical
            piece_end = physical + size
            count += 1
            total += size
        if count:
            pieces.append(self._log.files.read(piece_start, piece_end - piece_start))
            status = GetStatus.FOUND
        elif next_offset == offset:
            status = GetStatus.OFFSET_FOUND_NULL
            next_offset = queue.next_file(offset)
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, next_offset, queue.min_offset, high, pieces, count, total, lagging)

    def _report(self, queue: ConsumeQueue, offset: int) -> None:
        if queue not in self._reported:
            self._reported.add(queue)
            log.error(
                "a consume queue has no unit for a message, consumers skip it: stop the broker, delete the queue's"
                " folder, start it; the queue is made again from the commit log",
                folder=f"consumequeue/{queue.topic}/{queue.queue_id}",
                queue_offset=offset,
            )

    def _limits(self, max_messages: int, max_bytes: int, *, lagging: bool) -> tuple[int, int]:
        settings = self._settings
        if lagging:
            return min(max_messages, settings.max_count_on_disk), min(max_bytes, settings.max_bytes_on_disk)
        return min(max_messages, settings.max_count_in_memory), min(max_bytes, settings.max_bytes_in_memory)

    def record_of(self, queue: ConsumeQueue, offset: int) -> memoryview | None:
        if not queue.min_offset <= offset < queue.max_offset:
            return None
        unit = queue.unit(offset)
        return None if unit is None else self._log.read(unit[0], unit[1])

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
