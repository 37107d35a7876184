"""Damage that recovery does not see, since it believes what was durable."""

import os
from pathlib import Path

import pytest

from rocketmq_store.log import log_check
from rocketmq_store.log.log_check import LogCheck
from rocketmq_store.message_store import MessageStore
from tests.store.kit import FILE, abandon, bodies, draft, opened, put, show


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_check, "SLICE", 700)


def finished(check: LogCheck) -> LogCheck:
    steps = 0
    while check.step():
        steps += 1
        assert steps < 1000
    return check


def flip(store: MessageStore, offset: int) -> None:
    segment = store.files.segment_at(offset)
    os.pwrite(segment.fd, bytes([segment.view[offset - segment.start] ^ 1]), offset - segment.start)


def test_a_whole_log(store: MessageStore) -> None:
    put(store, *(b"x" * size for size in (0, 1, 500, 1500, 3900, 10, 2000, 2000, 3000)))
    check = store.log_check(0)
    assert check.end == store.max_offset > 3 * FILE
    steps = []
    while size := check.step():
        steps.append(size)
    assert (check.damage, check.offset) == (None, store.max_offset)
    assert max(steps) <= FILE
    assert len(steps) > 5
    assert finished(store.log_check(2 * FILE)).offset == store.max_offset
    store.append(draft(b"not dispatched"), 1)
    assert finished(store.log_check(0)).offset < store.max_offset


@pytest.mark.parametrize("at", [0, 4, 30, 86, 300, 1500])
def test_damage_is_found_where_it_is(store: MessageStore, at: int) -> None:
    made = [store.append(draft(b"x" * 1600), 1) for _ in range(9)]
    show(store)
    flip(store, made[5].offset + at)
    check = finished(store.log_check(0))
    assert check.damage is not None
    assert (check.damage.offset, check.offset) == (made[5].offset, made[5].offset)
    assert check.damage.path == store.files.segment_at(made[5].offset).path
    assert store.is_valid(check)
    assert check.step() == 0
    assert finished(store.log_check(made[5].end)).damage is None


def test_a_blank_that_is_damaged(store: MessageStore) -> None:
    put(store, b"x" * 3000, b"x" * 3000)
    flip(store, 3000 + 92 + 3)
    damage = finished(store.log_check(0)).damage
    assert damage is not None
    assert damage.offset == 3000 + 92


def test_a_length_that_is_damaged_costs_no_memory(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_check, "MAX_RECORD", 2000)
    put(store, b"x" * 100)
    segment = store.files.segment_at(0)
    os.pwrite(segment.fd, (3000).to_bytes(4, "big"), 0)
    damage = finished(store.log_check(0)).damage
    assert damage is not None
    assert damage.offset == 0


def test_what_cannot_be_read(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, *[b"x" * 1000] * 5)
    real = os.pread

    def failing(fd: int, size: int, position: int) -> bytes:
        if position >= 1000:
            raise OSError(5, "Input/output error")
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", failing)
    damage = finished(store.log_check(0)).damage
    assert damage is not None
    assert (damage.offset, "Input/output error" in damage.reason) == (1092, True)


def test_a_cut_meanwhile(store: MessageStore) -> None:
    put(store, *[b"x" * 1000] * 9)
    check = store.log_check(0)
    check.step()
    store.truncate(1092)
    store.files.truncate(1092)
    finished(check)
    assert not store.is_valid(check)


def test_files_that_expire_meanwhile(store: MessageStore) -> None:
    put(store, *[b"x" * 1000] * 20)
    flip(store, 1092 * 2 + 500)
    check = finished(store.log_check(0))
    assert check.damage is not None
    later = store.log_check(0)
    store.files.delete_before(2 * FILE)
    assert not store.is_valid(check)
    assert finished(store.log_check(0)).damage is None
    assert finished(later).damage is not None  # the files of the moment stay readable
    assert not store.is_valid(later)


def test_after_an_unclean_start_what_was_durable_is_read_again(tmp_path: Path) -> None:
    store, found = opened(tmp_path)
    assert found.check_from == -1
    made = [store.append(draft(b"x" * 900), 1) for _ in range(14)]
    show(store)
    store.durability.flush()
    for clean in (False, True):
        if clean:
            store.close()
        else:
            flip(store, made[10].offset + 500)
            abandon(store)
        store, found = opened(tmp_path)
        assert found.max_offset == made[-1].end, "recovery believes what was durable"
        if clean:
            assert found.check_from == -1
        else:
            assert found.check_from == (made[-1].end // FILE - 1) * FILE <= made[10].offset
            damage = finished(store.log_check(found.check_from)).damage
            assert damage is not None
            assert damage.offset == made[10].offset


@pytest.mark.parametrize("queue_id", [0, 1])
def test_units_of_records_that_were_repaired_are_made_again_where_they_do_not_fit(
    tmp_path: Path, queue_id: int
) -> None:
    store, _ = opened(tmp_path)
    made = [store.append(draft(b"%d" % number, queue_id=number % 2), 1) for number in range(10)]
    show(store)
    before = bodies(store, queue_id=0), bodies(store, queue_id=1)
    store.repaired(made[2].offset, made[5].end)
    assert store.dispatched_offset == store.max_offset, "all of them fit"
    queue = store._queues.table[b"T", queue_id]
    queue._files.write(queue._path(0), 2 * 20, b"\1" * 20)  # made from damaged bytes
    store.repaired(made[2].offset, made[5].end)
    show(store)
    assert (bodies(store, queue_id=0), bodies(store, queue_id=1)) == before
    store.close()
