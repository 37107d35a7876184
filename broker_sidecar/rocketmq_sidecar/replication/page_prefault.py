"""Prefaults the pages of the log that a slave far behind is about to write. Used by `ha_client`.

The first write to a page costs a page fault, on a virtual machine several times as much as receiving the bytes. If
other threads do that ahead, a new replica has its log in half the time.
"""

import asyncio
from typing import Final

from rocketmq_store.log.segments import MappedFiles

CHUNK: Final = 4 * 1024 * 1024
LEAD: Final = 16 * 1024 * 1024
"""How far ahead threads continue after the writer has overtaken them: on the same pages both would wait."""
WINDOW: Final = 64 * 1024 * 1024
"""Most bytes ahead of the writer. Prefaulted pages are dirty, although they still contain zeros, so they must not be
more than a disk writes in a moment."""
THREADS: Final = 2


class PagePrefaulter:
    """From `start` to `end` of the log, as fast as `written` advances. Does nothing for a slave less than `WINDOW`
    behind."""

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
        if not self._end:  # every packet comes here, and few slaves are so far behind
            return
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
        """Stop starting threads."""
        self._end = 0

    def _made(self, work: asyncio.Future[bool]) -> None:
        self.running.discard(work)
        if work.cancelled() or work.exception() is not None or not work.result():
            self.close()  # prefaulting is optional
        self.written(self._written)
