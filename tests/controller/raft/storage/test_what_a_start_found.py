"""What a start found stays: the process before may have ended, or its sync failed, before it was on disk."""

import contextlib
import errno
from pathlib import Path
from random import Random

import pytest

from rocketmq_controller.raft.ports import Snapshot
from rocketmq_controller.raft.storage.storage_errors import StorageError
from rocketmq_controller.raft.storage.store import Store, open_store
from tests.sim.disk import SimCrash, SimDisk

FOLDER = Path("/data/raft")


def open_on(disk: SimDisk) -> Store:
    return open_store(FOLDER, "a", ("a", "b", "c"), filesystem=disk, make_store_id=lambda: b"0123456789abcdef")


def process_before(disk: SimDisk) -> None:
    """From an empty folder on: votes, entries, marks, a snapshot."""
    store = open_on(disk)
    for index in (1, 2, 3):
        store.hard_state.save(index, "b")
        store.journal.add(b"command", index, index)
        store.journal.sync()
        store.journal.set_commit_index(index)
        store.journal.sync_mark()
    store.snapshots.save(Snapshot(2, 2, b"state"))
    store.journal.forget(2)
    store.journal.sync()
    store.close()


def calls_of_the_process() -> int:
    disk = SimDisk()
    process_before(disk)
    return disk.calls


def found_by_a_start(disk: SimDisk) -> tuple[object, ...]:
    store = open_on(disk)
    journal = store.journal
    return journal.term, journal.voted_for, journal[:], journal.commit_index, store.snapshots.load()


@pytest.mark.parametrize("error", [None, errno.EIO, errno.ENOSPC], ids=["killed", "EIO", "ENOSPC"])
@pytest.mark.parametrize("call", range(1, calls_of_the_process() + 1))
def test_a_power_cut_after_a_start_takes_nothing_that_it_found(call: int, error: int | None) -> None:
    """Whichever call the process before ended in."""
    for seed in range(10):
        disk = SimDisk()
        if error is None:
            disk.crash_at = call
        else:
            disk.fail_call(call, error)
        with contextlib.suppress(SimCrash, StorageError):
            process_before(disk)
        disk.kill()
        found = found_by_a_start(disk)
        disk.crash(Random(seed))
        assert found_by_a_start(disk) == found
