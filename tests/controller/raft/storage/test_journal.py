"""The journal's contract one by one: what it holds, what is durable when, what it refuses."""

import errno
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from rocketmq_controller.raft.ports import Entry
from rocketmq_controller.raft.storage.journal import Journal, JournalOptions
from rocketmq_controller.raft.storage.storage_errors import (
    DiskFullError,
    ForeignStoreError,
    JournalCorruptError,
    StorageFailedError,
)
from tests.sim.disk import SimDisk

FOLDER = Path("/store")
STORE_ID = b"0123456789abcdef"
SMALL = JournalOptions(segment_bytes=400, zero_ahead_bytes=128)


@dataclass
class Votes:
    term: int = 0
    voted_for: str | None = None
    saved: list[tuple[int, str | None]] = field(default_factory=list)

    def save(self, term: int, voted_for: str | None) -> None:
        self.term, self.voted_for = term, voted_for
        self.saved.append((term, voted_for))


def open_journal(disk: SimDisk, *, must_exist: bool = False, options: JournalOptions = SMALL) -> Journal:
    return Journal(FOLDER, Votes(), store_id=STORE_ID, must_exist=must_exist, options=options, filesystem=disk)


def entry(index: int, term: int = 1) -> Entry:
    return (b"command %d of term %d" % (index, term), index, term)


def fill(journal: Journal, first: int, last: int, term: int = 1, *, per_sync: int = 1) -> None:
    for index in range(first, last + 1):
        journal.add(*entry(index, term))
        if index % per_sync == 0:
            journal.sync()
    journal.sync()


def test_a_new_journal_is_empty_and_durable() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    assert (len(journal), journal.first_index, journal.last_index, journal.durable_index) == (0, 0, 0, 0)
    assert journal.pending_bytes == 0
    disk.crash(Random(0))
    assert len(open_journal(disk, must_exist=True)) == 0


def test_entries_read_like_a_list_and_come_back() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 30)
    expected = [entry(index) for index in range(1, 31)]
    assert journal[-1] == expected[-1]
    assert journal[3:5] == expected[3:5]
    assert journal.position[0] > 1, "the story should span segments"
    disk.crash(Random(1))
    journal = open_journal(disk)
    assert journal[:] == expected
    assert journal.durable_index == 30


def test_only_sync_makes_durable() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 3)
    journal.add(*entry(4))
    assert (journal.last_index, journal.durable_index) == (4, 3)
    assert journal.pending_bytes > 0
    disk.kill()
    assert open_journal(disk).last_index == 3


def test_one_sync_for_many_entries() -> None:
    disk = SimDisk()
    journal = open_journal(disk, options=JournalOptions())
    journal.add(*entry(1))
    journal.sync()
    disk.log = []
    for index in range(2, 100):
        journal.add(*entry(index))
    journal.sync()
    journal.sync()
    assert disk.log.count("fdatasync") == 1
    assert journal.syncs == 2


def test_entries_may_change_while_a_batch_is_written_elsewhere() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 5)
    journal.add(*entry(6))
    journal.add(*entry(7))
    batch = journal.begin_sync()
    assert batch is not None
    journal.cut(6)
    journal.add(*entry(6, term=2))
    batch.write()
    journal.end_sync(batch)
    assert journal.durable_index == 5, "entry 6 on disk is not the one in memory"
    journal.sync()
    assert journal.durable_index == 6
    disk.crash(Random(0))
    assert open_journal(disk)[-1] == entry(6, term=2)


def test_only_one_batch_at_a_time() -> None:
    journal = open_journal(SimDisk())
    journal.add(*entry(1))
    journal.begin_sync()
    with pytest.raises(RuntimeError):
        journal.begin_sync()


def test_cut_at_a_conflict_comes_back_as_cut() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 20)
    journal.cut(10)
    assert journal.durable_index == 9
    fill(journal, 10, 12, term=3)
    journal = open_journal(disk.copy())
    assert journal[:] == [entry(index) for index in range(1, 10)] + [entry(index, 3) for index in range(10, 13)]


def test_compaction_removes_whole_segments_and_keeps_the_rest() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 60)
    before = len(disk.listdir(FOLDER))
    journal.forget(51)
    journal.sync()
    assert len(disk.listdir(FOLDER)) < before - 4
    assert (journal.first_index, journal.last_index, len(journal)) == (51, 60, 10)
    disk.crash(Random(0))
    journal = open_journal(disk)
    assert journal[:] == [entry(index) for index in range(51, 61)]
    fill(journal, 61, 62)
    assert journal.durable_index == 62


def test_compaction_waits_for_its_record_to_be_durable() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 60)
    before = disk.listdir(FOLDER)
    journal.forget(51)
    assert disk.listdir(FOLDER) == before


@pytest.mark.parametrize(("index", "term"), [(8, 2), (50, 2)], ids=["other term", "beyond the end"])
def test_a_cleared_log_begins_again_at_any_index(index: int, term: int) -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 10)
    journal.clear()
    journal.add(b"", index, term)
    assert journal.durable_index == 0
    fill(journal, index + 1, index + 2, term)
    disk.crash(Random(3))
    assert open_journal(disk)[:] == [(b"", index, term), entry(index + 1, term), entry(index + 2, term)]


@pytest.mark.parametrize(("index", "term"), [(5, 2), (7, 2), (3, 2), (6, 1), (0, 2)])
def test_an_entry_that_does_not_follow_is_refused(index: int, term: int) -> None:
    journal = open_journal(SimDisk())
    fill(journal, 4, 5, term=2)
    with pytest.raises(ValueError, match=str(index)):
        journal.add(b"", index, term)
    assert journal[:] == [entry(4, 2), entry(5, 2)]
    assert journal.pending_bytes == 0


def test_impossible_cuts_are_refused() -> None:
    journal = open_journal(SimDisk())
    fill(journal, 1, 5)
    journal.forget(3)
    for index in (2, 7):
        with pytest.raises(ValueError, match=r"log is 3\.\.5"):
            journal.cut(index)
        with pytest.raises(ValueError, match=r"log is 3\.\.5"):
            journal.forget(index)
    journal.cut(3)
    assert (len(journal), journal.last_index) == (0, 2)


def test_commit_index_comes_back_but_never_ahead_of_durable_entries() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    assert journal.commit_index == 1
    fill(journal, 1, 5)
    journal.add(*entry(6))
    journal.set_commit_index(6)
    journal.sync_mark()
    disk.crash(Random(0))
    journal = open_journal(disk)
    assert journal.commit_index == journal.last_index == 5


def test_term_and_vote_go_to_their_own_store() -> None:
    votes = Votes()
    journal = Journal(FOLDER, votes, store_id=STORE_ID, filesystem=SimDisk())
    journal.set_term(7, "b")
    assert votes.saved == [(7, "b")]
    assert (journal.term, journal.voted_for) == (7, "b")


def test_full_disk_is_waited_out() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 3)
    disk.capacity = sum(len(data) for data in disk.files().values())
    with pytest.raises(DiskFullError):
        fill(journal, 4, 100)
    accepted = journal.last_index
    assert journal.durable_index == accepted - 1
    with pytest.raises(DiskFullError):
        journal.sync()
    journal.add(*entry(accepted + 1))
    disk.capacity = None
    journal.sync()
    assert journal.durable_index == accepted + 1
    disk.crash(Random(0))
    assert open_journal(disk)[:] == [entry(index) for index in range(1, accepted + 2)]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_sync_nothing_is_believed(error: int) -> None:
    disk = SimDisk()
    journal = open_journal(disk, options=JournalOptions())
    fill(journal, 1, 3)
    journal.add(*entry(4))
    disk.fail_call(disk.calls + 2, error)  # the write, then the sync
    with pytest.raises(StorageFailedError) as caught:
        journal.sync()
    assert caught.value.__cause__ is not None
    assert journal.durable_index == 3
    for call in (journal.sync, journal.clear, journal.sync_mark, lambda: journal.add(*entry(5))):
        with pytest.raises(StorageFailedError):
            call()
    # The page cache still shows entry 4, the disk does not have it: a restart must not build on it unsynced.
    disk.kill()
    journal = open_journal(disk)
    durable = journal.durable_index
    disk.crash(Random(0))
    assert open_journal(disk).last_index >= durable


def test_another_store_is_refused() -> None:
    disk = SimDisk()
    fill(open_journal(disk), 1, 3)
    with pytest.raises(ForeignStoreError, match=r"journal-000000000001\.log"):
        Journal(FOLDER, Votes(), store_id=b"another store id", filesystem=disk)


def test_a_missing_journal_is_refused_when_there_was_one() -> None:
    disk = SimDisk()
    with pytest.raises(JournalCorruptError, match="missing"):
        open_journal(disk, must_exist=True)


@pytest.mark.parametrize("victim", ["oldest", "middle", "last", "all"])
def test_missing_segments_are_refused(victim: str) -> None:
    disk = SimDisk()
    fill(open_journal(disk), 1, 60)
    names = [name for name in disk.listdir(FOLDER) if name.endswith(".log")]
    chosen = {"oldest": names[:1], "middle": names[2:3], "last": names[-1:], "all": names}[victim]
    for name in chosen:
        disk.unlink(FOLDER / name)
    with pytest.raises(JournalCorruptError, match="missing"):
        open_journal(disk)


@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_segment_cut_short_below_what_was_durable_is_refused(segment: int) -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 25)
    end = journal.position[1]
    names = [name for name in disk.listdir(FOLDER) if name.endswith(".log")]
    path = FOLDER / names[segment]
    size = end if segment == -1 else len(disk.files()[path].rstrip(b"\0"))
    for cut in (size - 1, size // 2, 10, 0):
        twin = disk.copy()
        twin.truncate(twin.open(path), cut)
        with pytest.raises(JournalCorruptError, match=path.name) as caught:
            open_journal(twin)
        assert caught.value.offset <= cut


def test_a_torn_tail_is_cut_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    fill(journal, 1, 3)
    sequence, end = journal.position
    path = FOLDER / f"journal-{sequence:012d}.log"
    disk.pwrite(disk.open(path), b"half a frame", end)
    journal = open_journal(disk)
    assert journal.last_index == 3
    assert disk.files()[path][end:].strip(b"\0") == b""
    fill(journal, 4, 5)
    assert open_journal(disk.copy()).last_index == 5


def test_real_files(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Votes(), store_id=STORE_ID, options=SMALL)
    fill(journal, 1, 40)
    journal.forget(31)
    journal.cut(36)
    journal.sync()
    journal.close()
    again = Journal(tmp_path, Votes(), store_id=STORE_ID, must_exist=True, options=SMALL)
    assert again[:] == [entry(index) for index in range(31, 36)]
    again.close()
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
