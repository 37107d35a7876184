"""Makes the pages of the log ready that a slave far behind is going to write. Used by `ha_client`.

Memory that nobody has touched costs whoever touches it first, on a virtual machine several times what receiving the
bytes costs: done ahead, by other threads, a new replica has its log in half the time.
"""

import asyncio
from typing import Final

from rocketmq_store.segments import MappedFiles

CHUNK: Final = 4 * 1024 * 1024
LEAD: Final = 16 * 1024 * 1024
"""Where threads go on that have been overtaken: two at the same pages would wait for each other."""
WINDOW: Final = 64 * 1024 * 1024
"""Bytes ahead of what was written. They are dirty, though nothing but zeros as before: not more than a disk writes in a
moment."""
THREADS: Final = 2


class PageMaker:
    """From `start` of the log to `end`, at the pace of `written`. Nothing for a slave less than `WINDOW` behind."""

    def __init__(self, files: MappedFiles, start: int, end: int) -> None:
        self.running: set[asyncio.Future[bool]] = set()
        """Threads at work."""
        self._loop = asyncio.get_running_loop()
        self._files = files
        self._next = 0
        self._end = end if end - start > WINDOW else 0
        self._written = start

    def written(self, offset: int) -> None:
        """The log reaches to `offset`."""
        self._written = offset
        while len(self.running) < THREADS:
            position = self._next
            if position < offset + CHUNK:
                position = self._next = offset - offset % CHUNK + LEAD
            if position >= min(offset + WINDOW, self._end, self._files.end) or position < self._files.min_offset:
                return
            segment = self._files.segment_at(position)
            self._next = min(position + CHUNK, segment.end)
            work = self._loop.run_in_executor(None, segment.populate, position - segment.start, CHUNK)
            self.running.add(work)
            work.add_done_callback(self._made)

    def close(self) -> None:
        """Begin nothing more."""
        self._end = 0

    def _made(self, work: asyncio.Future[bool]) -> None:
        self.running.discard(work)
        if work.cancelled() or work.exception() is not None or not work.result():
            self.close()  # it was a service; writing does without
        self.written(self._written)
