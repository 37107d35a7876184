"""Pages made ahead of a slave that is far behind: where, how many at a time, and when none."""

import asyncio
from typing import cast

from rocketmq_sidecar.replication.page_prefault import CHUNK, LEAD, THREADS, WINDOW, PagePrefaulter
from rocketmq_store.log.segment import Segment
from rocketmq_store.log.segments import MappedFiles

FILE = 4 * WINDOW


class Part:
    """A file of the log that notes what was asked of it."""

    def __init__(self, made: list[int], start: int, *, able: bool) -> None:
        self.start, self.end = start, start + FILE
        self._made, self._able = made, able

    def populate(self, position: int, size: int) -> bool:
        assert size == CHUNK
        self._made.append(self.start + position)
        return self._able


class Files:
    """As much of `MappedFiles` as is used."""

    min_offset = 0

    def __init__(self, count: int = 1, *, able: bool = True) -> None:
        self.made: list[int] = []
        self.end = count * FILE
        self._parts = [Part(self.made, number * FILE, able=able) for number in range(count)]

    def segment_at(self, offset: int) -> Segment:
        return cast("Segment", self._parts[offset // FILE])


def maker(files: Files, start: int, end: int) -> PagePrefaulter:
    return PagePrefaulter(cast("MappedFiles", files), start, end)


async def finished(pages: PagePrefaulter) -> None:
    while pages.running:
        assert len(pages.running) <= THREADS
        await asyncio.wait(set(pages.running))
        await asyncio.sleep(0)


async def test_pages_are_made_up_to_the_window() -> None:
    files = Files()
    pages = maker(files, 0, FILE)
    pages.written(1)
    await finished(pages)
    assert sorted(files.made) == list(range(LEAD, WINDOW + 1, CHUNK))
    pages.written(CHUNK + 1)
    await finished(pages)
    assert files.made[-1] == WINDOW + CHUNK, "one more for what was written"


async def test_overtaken_prefaulting_continues_ahead() -> None:
    files = Files()
    pages = maker(files, 0, FILE)
    pages.written(2 * WINDOW + 1)
    await finished(pages)
    assert min(files.made) == 2 * WINDOW + LEAD


async def test_only_in_files_that_exist_and_only_to_the_end() -> None:
    files = Files(2)
    pages = maker(files, 0, FILE + 2 * CHUNK)
    pages.written(FILE - LEAD)
    await finished(pages)
    assert sorted(files.made) == [FILE, FILE + CHUNK]
    files = Files(1)
    pages = maker(files, 0, 2 * FILE)
    pages.written(FILE - LEAD)
    await finished(pages)
    assert files.made == []


async def test_a_slave_that_is_nearly_there_needs_none() -> None:
    files = Files()
    pages = maker(files, 0, WINDOW)
    pages.written(1)
    assert not pages.running
    assert files.made == []


async def test_a_kernel_that_cannot_is_not_asked_again() -> None:
    files = Files(able=False)
    pages = maker(files, 0, FILE)
    pages.written(1)
    await finished(pages)
    assert len(files.made) <= THREADS
    pages.written(WINDOW)
    assert not pages.running
