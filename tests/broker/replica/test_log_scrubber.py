"""Damage in the log of a broker that runs."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_broker.replica import log_scrubber
from rocketmq_broker.replica.log_scrubber import LogScrubber
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.replica_link import LogState
from rocketmq_store.queues.unit_repair import Sought
from tests.store.kit import abandon, draft, opened, put, show


async def watched(root: Path, *, clean: bool, rate: int) -> LogScrubber:
    """A store with a flipped byte is opened again; what its watch says after the first look."""
    store, _ = opened(root)
    first = store.append(draft(b"x" * 500), 1)
    put(store, b"y" * 500)
    show(store)
    store.durability.flush()
    os.pwrite(store.files.segment_at(0).fd, b"?", first.offset + 200)
    if clean:
        store.close()
    else:
        abandon(store)
    store, found = opened(root)
    watch = LogScrubber(store, Traffic(), bytes_per_second=rate)
    with capture_logs() as logs:
        watch.start(found.check_from)
        while not watch.tail_checked or (rate and watch.damage is None):
            await asyncio.sleep(0)
        await watch.stop()
    store.close()
    said = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(said) == (watch.damage is not None)
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


def units(root: Path, topic: str = "T") -> Path:
    return root / "consumequeue" / topic / "0" / f"{0:020}"


def zeros(root: Path, first: int, count: int) -> None:
    with units(root).open("r+b") as file:
        file.seek(20 * first)
        file.write(bytes(20 * count))


@pytest.mark.parametrize("count", [1, 9])
async def test_units_that_differ_from_the_log_are_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(log_scrubber, "REST_SECONDS", 0.0)
    monkeypatch.setattr(log_scrubber, "MAX_LINES", 5)
    store, _ = opened(tmp_path)
    put(store, *(b"%d" % number for number in range(10)))
    before = units(tmp_path).read_bytes()
    zeros(tmp_path, 1, count)
    traffic = Traffic()
    scrubber = LogScrubber(store, traffic, bytes_per_second=10**9)
    with capture_logs() as logs:
        scrubber.start(-1)
        async with asyncio.timeout(20):
            while units(tmp_path).read_bytes() != before:
                await asyncio.sleep(0)
        await scrubber.stop()
    assert (traffic.counts.units_repaired, scrubber.damage) == (count, None)
    of_units = [entry for entry in logs if "topic" in entry]
    assert [entry["queue_offset"] for entry in of_units] == list(range(1, min(count, 5) + 1))
    assert (of_units[0]["topic"], of_units[0]["queue_id"], of_units[0]["was"]) == ("T", 0, (0, 0, 0))
    assert [entry["count"] for entry in logs if "count" in entry] == ([] if count <= 5 else [count - 5])
    store.close()


async def test_a_message_that_a_consumer_waits_for_is_searched_at_once(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.append(draft(b"before the queue's first one", topic=b"Other"), 1)
    put(store, *(b"%d" % number for number in range(10)))
    zeros(tmp_path, 0, 1)
    readable: list[object] = []
    scrubber = LogScrubber(store, Traffic(), bytes_per_second=0, on_readable=readable.append)
    scrubber.start(-1)
    assert store.get("T", 0, 0).next_offset == 0
    async with asyncio.timeout(20):
        while not readable:
            await asyncio.sleep(0.001)
    assert readable == [[("T", 0)]]
    assert store.get("T", 0, 0).count == 10
    await scrubber.stop()
    store.close()


async def test_a_message_that_the_log_does_not_have_is_given_up(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    put(store, *(b"%d" % number for number in range(10)))
    readable: list[object] = []
    scrubber = LogScrubber(store, Traffic(), bytes_per_second=0, on_readable=readable.append)
    scrubber.start(-1)
    store.files.read(20, 8)[:] = (77).to_bytes(8, "big")  # the first record's queue offset
    with capture_logs() as logs:
        assert store.get("T", 0, 0).next_offset == 0
        async with asyncio.timeout(20):
            while not readable:
                await asyncio.sleep(0.001)
    assert store.get("T", 0, 0).next_offset == 1
    assert [entry["queue_offset"] for entry in logs if entry["log_level"] == "error"] == [0]
    await scrubber.stop()
    store.close()


async def test_a_search_where_the_records_have_moved_is_no_damage_of_the_log(tmp_path: Path) -> None:
    one = Watched(tmp_path)
    readable: list[object] = []
    scrubber = LogScrubber(one.store, Traffic(), bytes_per_second=0, on_readable=readable.append)
    scrubber.start(-1)
    seek = one.store.units.on_sought
    assert seek is not None
    assert seek(Sought("T", 0, 3, one.made[3].offset + 5, one.made[4].end))
    await one.until(lambda: bool(readable) and not scrubber._urgent)
    assert scrubber.damage is None
    await scrubber.stop()
    one.store.close()
