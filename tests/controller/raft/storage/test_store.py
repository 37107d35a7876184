"""A member's folder: lock, term and vote, snapshot, and that the parts belong together."""

import contextlib
import errno
import os
import shutil
import zlib
from pathlib import Path
from random import Random

import msgspec
import pytest

from rocketmq_controller.raft.configuration import Configuration, Member, of_voters
from rocketmq_controller.raft.ports import Snapshot, Standing
from rocketmq_controller.raft.storage import snapshot_codec, storage_codec
from rocketmq_controller.raft.storage.snapshot_file import SnapshotFile
from rocketmq_controller.raft.storage.storage_errors import (
    DiskFullError,
    ForeignStoreError,
    HardStateCorruptError,
    JournalCorruptError,
    SnapshotCorruptError,
    StorageError,
    StorageFailedError,
    StoreLockedError,
)
from rocketmq_controller.raft.storage.store import FORCE_NAME, Store, open_store
from rocketmq_runtime.files.filesystem import OS
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
    store.journal.set_term(3, "c")
    store.journal.add(b"x", 1, 3)
    store.journal.sync()
    with pytest.raises(StoreLockedError, match="lock"):
        open_store(folder, "a", MEMBERS)
    store.close()
    store = open_store(folder, "a", MEMBERS)
    assert (store.journal.term, store.journal.voted_for) == (3, "c")
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


def test_a_store_of_a_quorum_keeps_the_members_it_was_made_for() -> None:
    disk = used_disk()
    store = open_on(disk, members=("a", "b"))
    assert store.hard_state.members == ("a", "b")  # belongs to no quorum yet: the configured members hold
    store.hard_state.set_standing(Standing(STORE_ID, voter=True))
    store.close()
    store = open_on(disk, members=("a", "b", "d"))
    assert store.first_configuration({"b": ("h", 1)}) == of_voters({"a": ("", 0), "b": ("h", 1)})
    assert store.hard_state.term == used_term(disk)


def used_term(disk: SimDisk) -> int:
    store = open_on(disk.copy())
    return store.hard_state.term


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("hard-state", HardStateCorruptError),
        ("journal-000000000001.log", JournalCorruptError),
        ("journal.mark", JournalCorruptError),
        ("snapshot", SnapshotCorruptError),
    ],
)
def test_a_missing_file_is_refused_and_named(name: str, error: type[StorageError]) -> None:
    disk = used_disk()
    disk.unlink(FOLDER / name)
    with pytest.raises(error, match=name):
        open_on(disk)


@pytest.mark.parametrize("length", [0, 1, storage_codec.MARK_SLOT_SIZE, 2 * storage_codec.MARK_SLOT_SIZE - 1])
def test_a_shortened_mark_is_refused(length: int) -> None:
    disk = used_disk()
    disk.truncate(disk.open(FOLDER / "journal.mark"), length)
    with pytest.raises(JournalCorruptError, match=f"journal.mark: damaged at offset {length}"):
        open_on(disk)


HARD_STATE_HEADER = storage_codec.HARD_STATE_SECTOR


@pytest.mark.parametrize(("name", "error"), [("hard-state", HardStateCorruptError), ("snapshot", SnapshotCorruptError)])
def test_every_flipped_bit_and_every_shortening_is_refused(name: str, error: type[StorageError]) -> None:
    path = FOLDER / name
    size = len(used_disk().files()[path])
    for offset in range(size):
        if name == "snapshot" or offset < HARD_STATE_HEADER:
            disk = used_disk()
            disk.flip_bit(path, offset, bit=offset % 8)
            with pytest.raises(error, match=f"{name}: damaged at offset"):
                open_on(disk)
        disk = used_disk()
        disk.truncate(disk.open(path), offset)
        with pytest.raises(error, match=f"{name}: damaged at offset"):
            open_on(disk)


def test_one_damaged_sector_forgets_no_vote() -> None:
    path = FOLDER / "hard-state"
    size = len(used_disk().files()[path])
    known = open_on(used_disk()).hard_state
    for offset in range(HARD_STATE_HEADER, size):
        disk = used_disk()
        disk.flip_bit(path, offset, bit=offset % 8)
        found = open_on(disk).hard_state
        assert (found.term, found.voted_for, found.journal_begun) == (known.term, known.voted_for, True)
    for number in range(storage_codec.VOTE_SLOTS):
        disk = used_disk()
        start = HARD_STATE_HEADER + number * storage_codec.HARD_STATE_SECTOR
        disk.pwrite(disk.open(path), bytes(storage_codec.HARD_STATE_SECTOR), start)
        found = open_on(disk).hard_state
        assert (found.term, found.voted_for) == (known.term, known.voted_for)


def test_a_state_that_was_only_in_the_page_cache_is_durable_before_it_counts() -> None:
    """The process before was killed between write and sync; then the power goes."""
    disk = SimDisk()
    store = open_on(disk)
    disk.log = []
    store.hard_state.save(3, "b")
    disk.crash_at = disk.calls + len(disk.log)
    with contextlib.suppress(SimCrash):
        store.hard_state.save(4, "c")
    disk.kill()
    found = open_on(disk).hard_state
    assert (found.term, found.voted_for) == (4, "c")
    for seed in range(20):
        disk.crash(Random(seed))
        assert open_on(disk).hard_state.term == 4


def test_the_file_of_version_1_is_read_and_replaced() -> None:
    disk = SimDisk()
    open_on(disk).close()
    strings = [b"a", b"c", *(name.encode() for name in MEMBERS)]
    tail = b"".join(len(text).to_bytes(4, "little") + text for text in strings)
    body = storage_codec.HARD_STATE_1_HEADER.pack(b"", 0, 0, STORE_ID, 7, 3, len(strings))[16:] + tail
    old = b"RMQRVOTE" + (1).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body
    handle = disk.open(FOLDER / "hard-state", truncate=True)
    disk.pwrite(handle, old, 0)
    for _ in range(2):
        store = open_on(disk)
        assert (store.hard_state.term, store.hard_state.voted_for) == (7, "c")
        assert store.hard_state.standing == Standing(storage_codec.LEGACY_LINEAGE, voter=True)
        store.close()


def test_promise_and_standing_are_kept() -> None:
    disk = SimDisk()
    store = open_on(disk)
    assert (store.hard_state.promised, store.hard_state.standing) == (0.0, Standing())
    store.hard_state.promise(4.5)
    store.hard_state.set_standing(Standing(b"l" * 16, voter=True, sole=True))
    disk.crash(Random(0))
    found = open_on(disk).hard_state
    assert (found.promised, found.standing) == (4.5, Standing(b"l" * 16, voter=True, sole=True))


def test_a_copy_does_not_count_and_a_snapshot_of_the_disk_does() -> None:
    """A copy is another file; the blocks of a disk are the same file on another disk."""
    disk = SimDisk()
    store = open_on(disk)
    voter = Standing(b"l" * 16, voter=True)
    store.hard_state.set_standing(voter)
    store.close()
    copy = disk.copy()
    for same in (disk, disk.snapshot()):
        assert open_on(same).hard_state.standing == voter
    waits = Standing(b"l" * 16)
    assert open_on(copy).hard_state.standing == waits
    copy.kill()
    assert open_on(copy).hard_state.standing == waits, "also at its second start"


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_while_a_copy_is_opened_makes_it_no_voter(seed: int) -> None:
    disk = SimDisk()
    store = open_on(disk)
    store.hard_state.set_standing(Standing(b"l" * 16, voter=True, sole=True))
    copy = disk.copy()
    copy.crash_at = 1 + seed
    with contextlib.suppress(SimCrash):
        open_on(copy)
    copy.crash(Random(seed))
    assert open_on(copy).hard_state.standing == Standing(b"l" * 16)


def test_a_copied_folder_does_not_count(tmp_path: Path) -> None:
    """On the machine's own file system."""
    store = open_store(tmp_path / "store", "a", MEMBERS)
    voter = Standing(b"l" * 16, voter=True)
    store.hard_state.set_standing(voter)
    store.close()
    shutil.copytree(tmp_path / "store", tmp_path / "copy", copy_function=shutil.copy2)
    (tmp_path / "store").rename(tmp_path / "moved")
    moved = open_store(tmp_path / "moved", "a", MEMBERS)
    assert moved.hard_state.standing == voter, "a folder with another name is the same store"
    moved.close()
    copy = open_store(tmp_path / "copy", "a", MEMBERS)
    handle = os.open(tmp_path / "copy" / "hard-state", os.O_RDONLY)
    can_tell = bool(OS.identity(handle))
    os.close(handle)
    assert copy.hard_state.standing.voter is not can_tell
    copy.close()


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
    owner = storage_codec.HardStateOwner(STORE_ID, "a", ("a",))
    record = storage_codec.HardStateRecord(1, "", journal_begun=True)
    assert storage_codec.decode_hard_state(storage_codec.encode_hard_state(owner, 3, record))[2:] == (3, record)


def test_a_vote_needs_no_space() -> None:
    disk = SimDisk()
    store = open_on(disk)
    disk.capacity = sum(len(data) for data in disk.files().values())
    store.hard_state.save(1, None)
    store.hard_state.save(1, "c")
    disk.capacity = None
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


MADE = Configuration((Member("a", "host", 9879), Member("n7", "::1", 1, voter=False)), 5)


def test_a_snapshot_without_members_has_the_bytes_it_always_had() -> None:
    assert snapshot_codec.encode_snapshot(Snapshot(7, 3, b"state"))[8:12] == (2).to_bytes(4, "little")
    assert snapshot_codec.encode_snapshot(Snapshot(7, 3, b"state", members=MADE))[8:12] == (3).to_bytes(4, "little")


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 200_000])
@pytest.mark.parametrize("with_members", [False, True])
def test_snapshot_round_trip(size: int, with_members: bool) -> None:
    disk = SimDisk()
    snapshots = SnapshotFile(FOLDER, disk)
    assert snapshots.load() is None
    snapshot = Snapshot(7, 3, Random(size).randbytes(size), b"12345678" * (size % 2), STORE_ID if size % 2 else None)
    if with_members:
        snapshot = msgspec.structs.replace(snapshot, members=MADE)
    snapshots.save(snapshot)
    assert snapshots.load() == snapshot
    disk.crash(Random(0))
    assert snapshots.load() == snapshot


def test_a_damaged_snapshot_names_the_block() -> None:
    disk = SimDisk()
    snapshots = SnapshotFile(FOLDER, disk)
    snapshots.save(Snapshot(7, 3, bytes(200_000)))
    for offset, block in ((82, 72), (65_612, 65_612), (150_000, 72 + 2 * 65_540)):
        damaged = disk.copy()
        damaged.flip_bit(FOLDER / "snapshot", offset)
        with pytest.raises(SnapshotCorruptError) as caught:
            SnapshotFile(FOLDER, damaged).load()
        assert caught.value.offset == block


def test_a_snapshot_of_version_1_is_read() -> None:
    body = snapshot_codec.SNAPSHOT_1_HEADER.pack(b"", 0, 0, 7, 3, 5)[16:]
    crc = zlib.crc32(body)
    block = zlib.crc32(b"state", crc).to_bytes(4, "little") + b"state"
    old = b"RMQRSNAP" + (1).to_bytes(4, "little") + crc.to_bytes(4, "little") + body + block
    assert snapshot_codec.decode_snapshot(old) == Snapshot(7, 3, b"state")
    with pytest.raises(storage_codec.CodecError, match="version 4"):
        snapshot_codec.decode_snapshot(old[:8] + (4).to_bytes(4, "little") + old[12:])


def test_swapped_blocks_are_noticed() -> None:
    data = snapshot_codec.encode_snapshot(Snapshot(7, 3, b"a" * 65536 + b"b" * 65536))
    start, size = 72, 65540
    swapped = data[:start] + data[start + size :] + data[start : start + size]
    with pytest.raises(storage_codec.CodecError):
        snapshot_codec.decode_snapshot(swapped)


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


def test_an_operators_order_makes_one_store_the_majority_of_a_new_lineage() -> None:
    disk = used_disk()
    disk.open(FOLDER / FORCE_NAME, create=True)
    store = open_on(disk)
    assert store.hard_state.standing == Standing(STORE_ID, voter=True, sole=True)
    snapshot = store.snapshots.load()
    assert snapshot is not None
    assert snapshot.lineage == STORE_ID
    assert FORCE_NAME not in disk.listdir(FOLDER)
    disk.crash(Random(0))
    assert open_on(disk).hard_state.standing.sole
