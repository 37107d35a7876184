"""Damage in the log of a broker that runs."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_broker import log_scrubber
from rocketmq_broker.log_scrubber import LogScrubber
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.replica_link import LogState
from tests.store.kit import abandon, draft, opened, put, show


async def watched(root: Path, *, clean: bool, rate: int) -> LogScrubber:
    """A store with a flipped byte is opened again; what its watch says after the first look."""
    store, _ = opened(root)
    first = store.append(draft(b"x" * 500), 1)
    put(store, b"y" * 500)
    show(store)
    store.flush()
    os.pwrite(store.files.segment_at(0).fd, b"?", first.offset + 200)
    if clean:
        store.close()
    else:
        abandon(store)
    store, found = opened(root)
    traffic = Traffic()
    watch = LogScrubber(store, traffic, bytes_per_second=rate)
    with capture_logs() as logs:
        watch.start(found.check_from)
        while not watch.tail_checked or (rate and watch.damage is None):
            await asyncio.sleep(0)
        await watch.stop()
    store.close()
    said = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(said) == traffic.counts.log_damaged == (watch.damage is not None)
    return watch


@pytest.mark.parametrize(("clean", "rate", "found"), [(False, 0, True), (True, 0, False), (True, 10**9, True)])
async def test_damage_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool, rate: int, found: bool
) -> None:
    monkeypatch.setattr(log_scrubber, "REST_SECONDS", 0.0)
    watch = await watched(tmp_path, clean=clean, rate=rate)
    assert (watch.damage is not None) is found
    if watch.damage is not None:
        assert watch.damage.offset == 0


class Watched:
    """A store with three files, the watch on it, and what it told."""

    def __init__(self, root: Path) -> None:
        self.store, _ = opened(root)
        self.made = [self.store.append(draft(b"x" * 500), 1) for _ in range(20)]
        show(self.store)
        self.reported: list[LogState] = []
        self.scrubber = LogScrubber(self.store, Traffic(), bytes_per_second=0, on_change=self.reported.append)

    def body(self, number: int, byte: bytes) -> None:
        segment = self.store.files.segment_at(self.made[number].offset)
        os.pwrite(segment.fd, byte, self.made[number].offset + 200 - segment.start)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.scrubber.stop()
        self.store.close()


async def test_the_log_counts_as_unchecked_until_it_has_been_read(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    one.scrubber.start(0)
    assert one.reported == [LogState(checked=False)]
    await one.until(lambda: one.reported[-1] == LogState())
    await one.close()


async def test_repaired_damage_is_forgotten_and_the_next_one_found(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    one.body(2, b"?")
    one.body(15, b"?")
    one.scrubber.start(0)
    await one.until(lambda: one.reported[-1].damage == one.made[2].offset)
    one.body(2, b"x")
    one.scrubber.repaired(one.made[2].offset)
    await one.until(lambda: one.reported[-1].damage == one.made[15].offset)
    one.body(15, b"x")
    one.scrubber.repaired(one.made[15].offset)
    await one.until(lambda: one.reported[-1] == LogState())
    await one.close()


async def test_what_is_suspected_is_read_and_nothing_else_is_believed(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    one.scrubber.start(-1)
    assert one.reported == [LogState()]
    one.body(7, b"?")
    one.scrubber.suspect(one.made[12].offset + 1)  # another file, and no record's start
    one.scrubber.suspect(one.made[7].offset)
    await one.until(lambda: one.reported[-1].damage == one.made[7].offset)
    assert {state.damage for state in one.reported} == {-1, one.made[7].offset}
    await one.close()


@pytest.mark.parametrize("how", ["cut", "expired"])
async def test_damage_that_was_removed_is_forgotten(tmp_path: Path, how: str) -> None:
    one = Watched(tmp_path)
    one.body(2, b"?")
    one.scrubber.start(0)
    await one.until(lambda: one.scrubber.damage is not None)
    if how == "cut":
        one.scrubber.bytes_removed(behind=one.made[2].end)
        assert one.scrubber.damage is not None
        one.scrubber.bytes_removed(behind=one.made[2].offset)
    else:
        one.scrubber.bytes_removed(before=one.made[2].offset)
        assert one.scrubber.damage is not None
        one.scrubber.bytes_removed(before=one.made[2].end)
    assert one.reported[-1] == LogState()
    await one.close()
