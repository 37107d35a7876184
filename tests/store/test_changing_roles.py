"""A store whose log another process writes: slaves dispatch, truncate, and become masters."""

from pathlib import Path

import pytest

from rocketmq_store.errors import LogDamagedError
from rocketmq_store.message_store import MessageStore
from tests.store.kit import FILE, abandon, bodies, draft, found_end, opened, put, show


def test_a_slave_dispatches_what_others_append(store: MessageStore, tmp_path: Path) -> None:
    log = bytearray()
    sent = [b"%d" % n * 40 for n in range(40)]
    put(store, *sent)
    for start in range(0, store.max_offset, 1000):
        size = min(1000, store.max_offset - start)
        left = store.files.read(start, size)
        log += left
        log += store.files.read(start + len(left), size - len(left)) if len(left) < size else b""
    slave, _ = opened(tmp_path / "slave")
    for start in range(0, len(log), 1000):  # slices as they come, not whole records
        slave.files.write(start, log[start : start + 1000])
        end = min(start + 1000, len(log))
        slave.extend(end, store.max_offset)
        slave.dispatch()
        assert slave.max_offset == end
        assert bodies(slave) == sent[: len(bodies(slave))]
    assert bodies(slave) == sent
    assert slave.cut_tail() == store.max_offset
    put(slave, b"as master")
    assert bodies(slave) == [*sent, b"as master"]


def test_a_half_slice_is_cut_by_the_next_master(store: MessageStore, tmp_path: Path) -> None:
    ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
    slave, _ = opened(tmp_path / "slave")
    slave.files.write(0, store.files.read(0, ends[3] + 50))
    slave.extend(ends[3] + 50, ends[1])
    slave.dispatch()
    assert slave.cut_tail() == ends[3]
    assert not any(slave.files.read(ends[3], 100))
    assert slave.next_queue_offset("T", 0) == 4
    assert len(bodies(slave)) == 2
    made = slave.append(draft(b"new"), 1)
    assert (made.offset, made.queue_offset) == (ends[3], 4)
    show(slave)
    assert len(bodies(slave)) == 5


@pytest.mark.parametrize(
    ("start", "damage", "dispatched"),
    [
        pytest.param(4, b"\xff", True, id="its head"),
        pytest.param(0, b"\x7f\xff\xff\xff", True, id="its size, larger than any file"),
        pytest.param(0, b"\x00\x00\x0f\xff", True, id="its size, larger than the rest of its file"),
        pytest.param(0, bytes(192), True, id="all of it"),
        pytest.param(100, b"\xff", False, id="its body, before it was dispatched"),
    ],
)
def test_a_confirmed_message_is_not_cut_by_the_next_master(
    store: MessageStore, tmp_path: Path, start: int, damage: bytes, *, dispatched: bool
) -> None:
    """No whole record follows that would show the damage."""
    ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
    slave, _ = opened(tmp_path / "slave")
    slave.files.write(0, store.files.read(0, ends[4]))
    slave.files.write(ends[3] + start, damage)
    slave.extend(ends[4], ends[4])
    if dispatched:
        slave.dispatch()
    before = bytes(slave.files.read(0, ends[4]))
    for _ in range(2):
        with pytest.raises(LogDamagedError, match=f"at offset {ends[3]} .* up to {ends[4]} are confirmed"):
            slave.cut_tail()
        assert found_end(slave).offset == ends[3]
    assert bytes(slave.files.read(0, ends[4])) == before
    slave.files.write(ends[3], store.files.read(ends[3], ends[4] - ends[3]))  # from a master
    assert slave.cut_tail() == ends[4]


@pytest.mark.parametrize(("received", "confirmed"), [(10, 10), (50, 40), (189, 189)])
@pytest.mark.parametrize("restarted", [False, True])
def test_confirmed_bytes_of_half_a_message_are_cut_by_the_next_master(
    store: MessageStore, tmp_path: Path, received: int, confirmed: int, *, restarted: bool
) -> None:
    ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
    slave, _ = opened(tmp_path / "slave")
    slave.files.write(0, store.files.read(0, ends[3] + received))
    slave.extend(ends[3] + received, ends[3] + confirmed)
    slave.dispatch()
    if restarted:  # the sidecar removes what is behind the reported end
        slave.files.truncate(found_end(slave).offset)
    for _ in range(2):
        assert slave.cut_tail() == ends[3]
    put(slave, b"as master")


def test_what_was_received_and_not_reported(store: MessageStore, tmp_path: Path) -> None:
    ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
    slave, _ = opened(tmp_path / "slave")
    slave.files.write(0, store.files.read(0, ends[3] + 50))
    slave.writer.release()
    assert found_end(slave).offset == ends[3] == slave.max_offset  # nothing was reported
    slave.extend(ends[2] + 10, ends[1])
    slave.dispatch()
    assert found_end(slave).offset == ends[3]
    assert any(slave.files.read(ends[3], 50))


def test_what_is_being_received_is_no_damage(store: MessageStore, tmp_path: Path) -> None:
    """A sidecar that has lost its link writes for another moment."""
    ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
    slave, _ = opened(tmp_path / "slave")
    slave.files.write(0, store.files.read(0, ends[2] + 50))
    search = slave.find_end()
    assert next(search) == (ends[2], None)
    slave.files.write(ends[2], store.files.read(ends[2], ends[4] - ends[2]))
    assert list(search)[-1] == (ends[4], None)


def test_truncation(store: MessageStore, tmp_path: Path) -> None:
    ends = [store.append(draft(b"%d" % n * 300, queue_id=n % 2), 1).end for n in range(30)]
    show(store)
    store.durability.flush()
    for cut in (20, 11, 0):
        store.truncate(ends[cut])
        assert (store.max_offset, store.confirm_offset) == (ends[cut], ends[cut])
        assert store.dispatched_offset == ends[cut]
        assert sum(store.queue_bounds("T", queue_id)[1] for queue_id in (0, 1)) == cut + 1
        store.files.truncate(ends[cut])  # the sidecar
        store.extend(ends[cut], ends[cut])
    store.cut_tail()
    put(store, b"new")
    assert bodies(store) == [b"0" * 300, b"new"]


def test_a_crash_between_truncation_of_queues_and_log(store: MessageStore, tmp_path: Path) -> None:
    ends = [store.append(draft(b"%d" % n * 300), 1).end for n in range(30)]
    show(store)
    store.durability.flush()
    store.truncate(ends[7])
    abandon(store)
    store, found = opened(tmp_path)
    assert (found.max_offset, found.confirm_offset) == (ends[29], ends[7])
    assert len(bodies(store)) == 8


def test_a_new_log_that_starts_elsewhere(store: MessageStore, tmp_path: Path) -> None:
    put(store, *(b"x" * 1000 for _ in range(7)))
    slave, _ = opened(tmp_path / "slave")
    put(slave, b"old")
    slave.truncate(0)
    slave.files.truncate(0)
    (tmp_path / "slave" / "commitlog" / f"{0:020d}").unlink()
    slave.files.refresh()
    for start in range(FILE, store.max_offset, FILE):
        slave.files.write(start, store.files.read(start, min(FILE, store.max_offset - start)))
    slave.extend(store.max_offset, store.max_offset)
    slave.dispatch()
    assert (slave.min_offset, slave.queue_bounds("T", 0)) == (FILE, (3, 7))
    assert len(bodies(slave)) == 4
