"""Consume queues against the log: exact about what cannot be consumed, silent about what is only late or gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import PRE_BLANK_SIZE, QueueCheck, QueueReason, Unit, check_queue, checkable
from rocketmq_formats.soundness.rows import batches
from rocketmq_formats.store.consume_queue import PRE_BLANK, is_unit, iter_units, unpack_unit
from rocketmq_formats.store.delay_levels import DEFAULT_LEVELS, parse_levels
from tests.verify.record_kit import GOLDEN, INDEX, golden_log

EXTENT = Extent(1000, 9000)


def records(*numbers: int) -> list[Unit]:
    """Record n is at 1000 + 100 n, with 100 + n bytes and tagsCode n."""
    return [Unit(n, 1000 + 100 * n, 100 + n, n) for n in numbers]


def pre_blank(*numbers: int) -> list[Unit]:
    return [Unit(n, 0, PRE_BLANK_SIZE, 0) for n in numbers]


def faults(found: QueueCheck) -> list[tuple[int, int | None, QueueReason]]:
    assert len(found.faults) == found.fault_count
    return [(fault.queue_offset, fault.physical_offset, fault.reason) for fault in found.faults]


@pytest.mark.parametrize(
    ("units", "log", "compared", "lag"),
    [
        ([], [], 0, 0),
        (records(0, 1, 2), records(0, 1, 2), 3, 0),
        (records(0, 1), records(0, 1, 2, 3), 2, 2),  # dispatching lags behind
        ([], records(0, 1), 0, 2),
        (pre_blank(0, 1, 2) + records(3, 4), records(3, 4), 2, 0),
        ([Unit(0, 10, 90, 0), Unit(1, 900, 90, 0), *records(2)], records(2), 1, 0),  # expired in the log
        ([*records(0), Unit(1, 9000, 90, 0)], records(0), 1, 0),  # not confirmed when the log was read
        ([Unit(7, 10, 90, 0), *records(9)], records(9), 1, 0),  # a gap among expired ones: who knows
        (records(5, 6), records(5, 6), 2, 0),
        ([Unit(0, 1000, 100, 1_700_000_000_000)], [Unit(0, 1000, 100, None)], 1, 0),  # a delay that is not known
        ([Unit(0, 1000, 100, -(2**31) - 1)], records(0), 1, 0),  # an address in an extension
    ],
)
def test_nothing_to_find(units: list[Unit], log: list[Unit], compared: int, lag: int) -> None:
    assert check_queue(units, log, EXTENT) == QueueCheck(units=compared, lag=lag)


@pytest.mark.parametrize(
    ("units", "log", "found"),
    [
        (records(0, 1, 2), records(0, 2), [(1, 1100, QueueReason.NO_RECORD)]),
        (records(0, 1, 2), [], [(n, 1000 + 100 * n, QueueReason.NO_RECORD) for n in range(3)]),
        (records(0, 2), records(0, 1, 2), [(1, 1100, QueueReason.NO_UNIT)]),
        (records(2), records(0, 1, 2), [(0, 1000, QueueReason.NO_UNIT), (1, 1100, QueueReason.NO_UNIT)]),
        (pre_blank(0) + records(1), records(0, 1), [(0, 1000, QueueReason.NO_UNIT)]),
        ([Unit(0, 10, 90, 0), *records(1)], records(0, 1), [(0, 1000, QueueReason.NO_UNIT)]),
        # a place beyond what was read, in front of one that was
        ([*records(0), Unit(1, 10**6, 101, 1), *records(2)], records(0, 1, 2), [(1, 10**6, QueueReason.NO_RECORD)]),
        (records(0, 4), records(0, 4), [(1, None, QueueReason.GAP)]),
        (pre_blank(0) + records(4), records(4), [(1, None, QueueReason.GAP)]),
        ([Unit(1, 1050, 101, 1)], records(1), [(1, 1100, QueueReason.NO_RECORD)]),
        # a higher place, but nothing is there that could have taken the record's
        ([Unit(0, 1200, 100, 0)], records(0), [(0, 1000, QueueReason.NO_RECORD)]),
        ([Unit(0, 1000, 99, 0)], records(0), [(0, 1000, QueueReason.SIZE)]),
        ([Unit(1, 1100, 101, 2)], records(1), [(1, 1100, QueueReason.TAGS_CODE)]),
        ([Unit(1, 1100, 9, 9)], records(1), [(1, 1100, QueueReason.SIZE), (1, 1100, QueueReason.TAGS_CODE)]),
        # two records with one number, and the later one has no unit
        (records(0, 1), [*records(0), Unit(0, 1050, 50, 0), *records(1)], [(0, 1050, QueueReason.NO_UNIT)]),
    ],
)
def test_what_is_wrong(units: list[Unit], log: list[Unit], found: list[tuple[int, int | None, QueueReason]]) -> None:
    assert faults(check_queue(units, log, EXTENT)) == found


def test_a_topic_that_was_deleted_and_created_again() -> None:
    old, new = records(*range(5)), [Unit(n, 5000 + 100 * n, 100, 0) for n in range(3)]
    log = sorted(old + new)
    assert check_queue(new, log, EXTENT) == QueueCheck(units=3, lag=2, superseded=3)
    assert check_queue(new, old, Extent(1000, 5000)) == QueueCheck(units=0, lag=2, superseded=3)


def test_a_unit_that_leads_nowhere() -> None:
    units = [*records(0), Unit(1, 9500, 101, 1)]
    assert faults(check_queue(units, records(0, 1), EXTENT)) == []
    assert faults(check_queue(units, records(0, 1), EXTENT, nowhere={9500})) == [(1, 9500, QueueReason.NO_RECORD)]
    between = [*units, *records(2)]
    assert faults(check_queue(between, records(0, 2), EXTENT, nowhere={9500})) == [(1, 9500, QueueReason.NO_RECORD)]


def test_a_pre_blank_at_the_start_of_a_log_is_no_message() -> None:
    assert faults(check_queue(pre_blank(0), [], Extent(0, 100))) == []
    offset, size, code = unpack_unit(PRE_BLANK, 0)
    assert pre_blank(7) == [Unit(7, offset, size, code)]


@pytest.mark.parametrize(("units", "log"), [(records(1, 0), []), ([], records(1, 0)), (records(0, 0), [])])
def test_what_is_not_sorted_is_refused(units: list[Unit], log: list[Unit]) -> None:
    with pytest.raises(ValueError, match=r"not sorted|two units"):
        check_queue(units, log, EXTENT)


def test_reported_faults_are_bounded() -> None:
    found = check_queue(records(*range(50)), [], EXTENT, max_faults=5)
    assert (len(found.faults), found.fault_count) == (5, 50)


NUMBERS = st.sets(st.integers(0, 30))


@given(st.integers(0, 20), st.integers(0, 10), st.integers(0, 10))
def test_a_sound_queue_seen_at_any_moment(expired: int, unread: int, late: int) -> None:
    log = records(*range(40))
    extent = Extent(log[expired].physical_offset, log[39 - unread].physical_offset)
    read = [record for record in log if extent.start <= record.physical_offset < extent.end]
    assert faults(check_queue(log[: 40 - late], read, extent)) == []
    assert faults(check_queue(log[expired : 40 - late], read, extent)) == []


@given(NUMBERS, NUMBERS)
def test_every_message_that_one_side_lacks_is_reported(with_unit: set[int], in_log: set[int]) -> None:
    found = check_queue(records(*sorted(with_unit)), records(*sorted(in_log)), EXTENT)
    last = max(with_unit, default=-1)
    told = {(fault.queue_offset, fault.reason) for fault in found.faults if fault.reason is not QueueReason.GAP}
    assert told == {(n, QueueReason.NO_RECORD) for n in with_unit - in_log} | {
        (n, QueueReason.NO_UNIT) for n in in_log - with_unit if n < last
    }
    assert found.lag == sum(n > last for n in in_log)
    assert found.units == len(with_unit)


def test_queues_of_other_topics() -> None:
    assert not checkable("%LMQ%a")
    assert checkable("TopicTest")
    assert checkable("%RETRY%a")


@pytest.mark.parametrize("levels", [parse_levels(DEFAULT_LEVELS), None])
@pytest.mark.parametrize("broker", ["controlled", "alone"])
def test_queues_of_official_brokers(broker: str, levels: tuple[int, ...] | None) -> None:
    data, end, size = golden_log(broker)
    log: dict[tuple[str, int], list[Unit]] = {}
    for batch in batches(data, 0, 0, end, segment_size=size, levels=levels):
        c = batch.columns
        columns = c.topic, c.queue_id, c.queued, c.queue_offset, c.physical_offset, c.size, c.tags_code
        for topic, queue_id, queued, *unit in zip(*columns, strict=True):
            if queued:
                log.setdefault((topic, queue_id), []).append(Unit(*unit))
    for entry in INDEX["files"]:
        if entry["file"].startswith(f"{broker}/consumequeue/"):
            *_, topic, queue, _ = entry["path"].split("/")
            stored = (GOLDEN / entry["file"]).read_bytes().ljust(entry["size"], b"\0")
            units = [Unit(n, *unit) for n, unit in enumerate(iter_units(stored)) if is_unit(unit)]
            wanted = sorted(log.pop((topic, int(queue))))
            assert check_queue(units, wanted, Extent(0, end)) == QueueCheck(units=len(wanted), lag=0)
    assert not log
