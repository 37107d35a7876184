"""A member's folder: lock, term and vote, snapshot, and that the parts belong together."""

import contextlib
import errno
from pathlib import Path
from random import Random

import pytest

from rocketmq_controller.raft import storage_codec
from rocketmq_controller.raft.snapshot_file import SnapshotFile
from rocketmq_controller.raft.storage_errors import (
    DiskFullError,
    ForeignStoreError,
    HardStateCorruptError,
    JournalCorruptError,
    SnapshotCorruptError,
    StorageError,
    StorageFailedError,
    StoreLockedError,
)
from rocketmq_controller.raft.store import Store, open_store
from rocketmq_controller.raft.stores import Snapshot
from tests.sim.disk import SimCrash, SimDisk

FOLDER = Path("/data/raft")
MEMBERS = ("a", "b", "c")
STORE_ID = b"0123456789abcdef"


def open_on(disk: SimDisk, self_id: str = "a", members: tuple[str, ...] = MEMBERS) -> Store:
    return open_store(FOLDER, self_id, members, filesystem=disk, make_store_id=lambda: STORE_ID)


def used_disk() -> SimDisk:
    """Voted, entries 1 to 3, a snapshot up to 2."""
    disk = SimDisk()
    store = open_on(disk)
    store.hard_state.save(4, "b")
    for index in (1, 2, 3):
        store.journal.add(b"command", index, 4)
    store.journal.sync()
    store.snapshots.save(Snapshot(2, 4, b"state"))
    store.journal.forget(2)
    store.journal.sync()
    store.close()
    return disk


def test_real_folder(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    store = open_store(folder, "a", MEMBERS)
    assert (store.hard_state.term, store.hard_state.voted_for) == (0, None)
    store.journal.setCurrentTerm(3, "c")
    store.journal.add(b"x", 1, 3)
    store.journal.sync()
    with pytest.raises(StoreLockedError, match="lock"):
        open_store(folder, "a", MEMBERS)
    store.close()
    store = open_store(folder, "a", MEMBERS)
    assert (store.journal.getCurrentTerm(), store.journal.getVotedForNodeId()) == (3, "c")
    assert store.journal[:] == [(b"x", 1, 3)]
    assert store.snapshots.load() is None
    store.close()
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_lock_is_free_again_after_a_refused_start() -> None:
    disk = used_disk()
    with pytest.raises(ForeignStoreError):
        open_on(disk, "b")
    open_on(disk).close()


def test_another_members_folder_is_refused() -> None:
    with pytest.raises(ForeignStoreError, match="store of member a, not of b"):
        open_on(used_disk(), "b")


def test_another_set_of_members_is_refused() -> None:
    with pytest.raises(ForeignStoreError, match=r"made for the members a, b, c; the configuration says a, b, d"):
        open_on(used_disk(), members=("a", "b", "d"))
    open_on(used_disk(), members=("c", "b"))  # order does not matter, nor whether one names oneself


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("hard-state", HardStateCorruptError),
        ("journal-000000000001.log", JournalCorruptError),
        ("snapshot", SnapshotCorruptError),
    ],
)
def test_a_missing_file_is_refused_and_named(name: str, error: type[StorageError]) -> None:
    disk = used_disk()
    disk.unlink(FOLDER / name)
    with pytest.raises(error, match=name):
        open_on(disk)


@pytest.mark.parametrize(("name", "error"), [("hard-state", HardStateCorruptError), ("snapshot", SnapshotCorruptError)])
def test_every_flipped_bit_and_every_shortening_is_refused(name: str, error: type[StorageError]) -> None:
    path = FOLDER / name
    size = len(used_disk().files()[path])
    for offset in range(size):
        disk = used_disk()
        disk.flip_bit(path, offset, bit=offset % 8)
        with pytest.raises(error, match=f"{name}: damaged at offset"):
            open_on(disk)
        disk = used_disk()
        disk.truncate(disk.open(path), offset)
        with pytest.raises(error, match=f"{name}: damaged at offset"):
            open_on(disk)


def test_a_vote_never_changes_within_its_term_and_terms_never_go_back() -> None:
    votes = open_on(SimDisk()).hard_state
    votes.save(5, None)
    votes.save(5, "b")
    votes.save(5, "b")
    for term, voted_for in ((5, "c"), (5, None), (4, "b")):
        with pytest.raises(ValueError, match="cannot become"):
            votes.save(term, voted_for)
    votes.save(6, None)
    assert (votes.term, votes.voted_for) == (6, None)


def test_an_empty_id_is_still_a_vote() -> None:
    record = storage_codec.HardStateRecord(STORE_ID, "a", ("a",), 1, "", journal_begun=True)
    assert storage_codec.decode_hard_state(storage_codec.encode_hard_state(record)) == record


def test_a_vote_on_a_full_disk_is_not_given() -> None:
    disk = SimDisk()
    store = open_on(disk)
    store.hard_state.save(1, None)
    disk.capacity = 0
    with pytest.raises(DiskFullError):
        store.hard_state.save(1, "b")
    assert store.hard_state.voted_for is None
    disk.capacity = None
    store.hard_state.save(1, "c")
    disk.crash(Random(0))
    assert open_on(disk).hard_state.voted_for == "c"


def test_a_vote_that_may_or_may_not_be_on_disk_ends_the_process() -> None:
    disk = SimDisk()
    store = open_on(disk)
    disk.log = []
    store.hard_state.save(1, "b")
    disk.fail_call(disk.calls + len(disk.log), errno.EIO)
    with pytest.raises(StorageFailedError):
        store.hard_state.save(2, "b")


def story(disk: SimDisk, saved: list[tuple[int, str | None]]) -> None:
    store = open_on(disk)
    saved.append((0, None))
    for term, voted_for in ((1, None), (1, "b"), (2, "a")):
        store.hard_state.save(term, voted_for)
        saved.append((term, voted_for))
    store.close()


def calls_of_the_story() -> int:
    disk = SimDisk()
    story(disk, [])
    return disk.calls


@pytest.mark.parametrize("call", range(1, calls_of_the_story() + 1))
def test_power_cut_in_every_call(call: int) -> None:
    allowed = [(0, None), (1, None), (1, "b"), (2, "a")]
    for seed in range(10):
        rng = Random(seed)
        disk = SimDisk()
        disk.crash_at = call
        saved: list[tuple[int, str | None]] = []
        with contextlib.suppress(SimCrash):
            story(disk, saved)
        disk.crash(rng)
        disk.crash_at = disk.calls + rng.randint(1, 30)
        with contextlib.suppress(SimCrash):
            open_on(disk)
        disk.crash(rng)
        store = open_on(disk)
        found = (store.hard_state.term, store.hard_state.voted_for)
        assert found in allowed[max(len(saved) - 1, 0) : len(saved) + 1]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", range(1, calls_of_the_story() + 1))
def test_failure_of_every_call(call: int, error: int) -> None:
    disk = SimDisk()
    disk.fail_call(call, error)
    saved: list[tuple[int, str | None]] = []
    with contextlib.suppress(StorageError):
        story(disk, saved)
    disk.kill()
    store = open_on(disk)
    if saved:
        assert (store.hard_state.term, store.hard_state.voted_for or "") >= (saved[-1][0], saved[-1][1] or "")
    store.hard_state.save(9, "c")


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 200_000])
def test_snapshot_round_trip(size: int) -> None:
    disk = SimDisk()
    snapshots = SnapshotFile(FOLDER, disk)
    assert snapshots.load() is None
    snapshot = Snapshot(7, 3, Random(size).randbytes(size))
    snapshots.save(snapshot)
    assert snapshots.load() == snapshot
    disk.crash(Random(0))
    assert snapshots.load() == snapshot


def test_a_damaged_snapshot_names_the_block() -> None:
    disk = SimDisk()
    snapshots = SnapshotFile(FOLDER, disk)
    snapshots.save(Snapshot(7, 3, bytes(200_000)))
    for offset, block in ((50, 40), (65_580, 65_580), (150_000, 40 + 2 * 65_540)):
        damaged = disk.copy()
        damaged.flip_bit(FOLDER / "snapshot", offset)
        with pytest.raises(SnapshotCorruptError) as caught:
            SnapshotFile(FOLDER, damaged).load()
        assert caught.value.offset == block


def test_swapped_blocks_are_noticed() -> None:
    data = storage_codec.encode_snapshot(7, 3, b"a" * 65536 + b"b" * 65536)
    start, size = 40, 65540
    swapped = data[:start] + data[start + size :] + data[start : start + size]
    with pytest.raises(storage_codec.CodecError):
        storage_codec.decode_snapshot(swapped)


def test_a_snapshot_on_a_full_disk_leaves_the_old_one() -> None:
    disk = SimDisk()
    snapshots = SnapshotFile(FOLDER, disk)
    snapshots.save(Snapshot(7, 3, b"old"))
    disk.capacity = 100
    with pytest.raises(DiskFullError):
        snapshots.save(Snapshot(9, 3, bytes(1000)))
    assert snapshots.load() == Snapshot(7, 3, b"old")


@pytest.mark.parametrize("seed", range(30))
def test_a_snapshot_cut_off_leaves_old_or_new(seed: int) -> None:
    disk = SimDisk()
    snapshots = SnapshotFile(FOLDER, disk)
    old, new = Snapshot(7, 3, b"old"), Snapshot(9, 3, b"new" * 100)
    snapshots.save(old)
    disk.crash_at = disk.calls + 1 + seed % 8
    with contextlib.suppress(SimCrash):
        snapshots.save(new)
    disk.crash(Random(seed))
    assert snapshots.load() in (old, new)
