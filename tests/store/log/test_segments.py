"""The log's files: what is read and written where, what another process sees, what is refused."""

import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_store.errors import (
    NotWriterError,
    OutOfRangeError,
    StoreDamagedError,
    StoreFullError,
    WriterLockHeldError,
)
from rocketmq_store.log import segment
from rocketmq_store.log.segment import Segment
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.writer_lock import WriterLock

SIZE = BLOCK = 4096


@pytest.fixture
def lock(tmp_path: Path) -> WriterLock:
    lock = WriterLock(tmp_path / "writer.lock")
    lock.acquire()
    return lock


@pytest.fixture
def files(tmp_path: Path, lock: WriterLock) -> MappedFiles:
    return loaded(tmp_path, lock)


def loaded(tmp_path: Path, lock: WriterLock) -> MappedFiles:
    files = MappedFiles(tmp_path / "commitlog", SIZE, writer=lock)
    files.load()
    return files


def names(files: MappedFiles) -> list[str]:
    return sorted(path.name for path in files.directory.iterdir())


def test_bytes_across_files_are_read_back(files: MappedFiles) -> None:
    data = os.urandom(3 * SIZE + 10)
    files.write(0, data)
    assert files.end == 4 * SIZE
    assert b"".join(bytes(files.read(start, SIZE)) for start in files.file_starts)[: len(data)] == data
    assert bytes(files.read(SIZE - 3, 100)) == data[SIZE - 3 : SIZE]  # to the end of the file
    part = files.readable(SIZE + 1, 10**9)
    assert os.pread(part.fd, part.size, part.position) == data[SIZE + 1 : 2 * SIZE]


def test_a_view_is_received_into(files: MappedFiles) -> None:
    assert len(files.view(0, 100)) == 100
    view = files.view(SIZE - 4, 100)
    assert len(view) == 4
    view[:] = b"abcd"
    assert bytes(files.read(SIZE - 4, 4)) == b"abcd"


def test_a_slave_begins_where_its_master_does(files: MappedFiles) -> None:
    files.write(5 * SIZE + 7, b"x")
    assert (files.min_offset, files.end) == (5 * SIZE, 6 * SIZE)
    with pytest.raises(OutOfRangeError):
        files.write(8 * SIZE, b"gap")
    with pytest.raises(OutOfRangeError):
        files.read(0, 1)


def test_all_blocks_of_a_file_are_there_before_it_is_written(files: MappedFiles) -> None:
    files.view(0, 1)
    assert (files.directory / f"{0:020d}").stat().st_blocks * 512 >= SIZE


def test_only_the_holder_of_the_lock_writes(files: MappedFiles, lock: WriterLock, tmp_path: Path) -> None:
    files.write(0, b"x")
    other = WriterLock(tmp_path / "writer.lock")
    with pytest.raises(WriterLockHeldError, match="another broker runs with this storePathRootDir"):
        other.acquire()
    lock.release()
    for change in (lambda: files.view(0, 1), lambda: files.write(0, b"y"), lambda: files.truncate(0)):
        with pytest.raises(NotWriterError):
            change()
    files.preallocate_next()  # a thread's work that came too late
    assert len(names(files)) == 1
    other.acquire()
    assert bytes(files.read(0, 1)) == b"x"


def test_truncation_leaves_zeros_and_no_later_files(files: MappedFiles) -> None:
    files.write(0, b"x" * (3 * SIZE))
    files.truncate(SIZE + 10)
    assert files.end == 2 * SIZE
    assert bytes(files.read(SIZE, SIZE)) == b"x" * 10 + bytes(SIZE - 10)
    files.truncate(SIZE)
    assert names(files) == [f"{0:020d}"]
    files.write(SIZE, b"new")
    assert bytes(files.read(SIZE, 4)) == b"new\0"
    files.truncate(0)
    assert bytes(files.read(0, SIZE)) == bytes(SIZE)


@pytest.mark.parametrize("cut", [0, 10, BLOCK - 1, BLOCK, 2 * BLOCK + 7, 4 * BLOCK - 1])
@pytest.mark.parametrize("zeroes_ranges", [True, False])
def test_a_truncated_file_keeps_its_blocks(
    tmp_path: Path, lock: WriterLock, monkeypatch: pytest.MonkeyPatch, cut: int, *, zeroes_ranges: bool
) -> None:
    """The other process has looked for them once, and writes into the mapping: without a block it would be killed."""
    if not zeroes_ranges:  # as tmpfs, NFS
        real = Segment._fallocate
        monkeypatch.setattr(
            Segment, "_fallocate", lambda self, mode, *where: not mode & 0x10 and real(self, mode, *where)
        )
    size = 4 * BLOCK  # a hole takes whole blocks only
    files = MappedFiles(tmp_path / "commitlog", size, writer=lock)
    files.load()
    files.write(0, b"x" * size)
    path = files.directory / names(files)[0]
    blocks = path.stat().st_blocks
    files.truncate(cut)
    assert (path.stat().st_blocks, path.stat().st_size) == (blocks, size)
    assert bytes(files.read(0, size)) == b"x" * cut + bytes(size - cut)
    files.write(cut, b"y")
    assert bytes(files.read(0, size)) == b"x" * cut + b"y" + bytes(size - cut - 1)


def test_the_other_process_sees_new_and_deleted_files_after_refresh(files: MappedFiles, tmp_path: Path) -> None:
    files.write(0, b"a" * (2 * SIZE))
    reader = loaded(tmp_path, WriterLock(tmp_path / "writer.lock"))
    files.write(SIZE, b"b")
    assert bytes(reader.read(SIZE, 2)) == b"ba"
    old = reader.read(SIZE, 4)
    files.truncate(SIZE)
    files.write(SIZE, b"c" * (SIZE + 1))
    reader.refresh()
    assert reader.end == 3 * SIZE
    assert bytes(reader.read(SIZE, 2)) == b"cc"  # another file under the old name
    assert bytes(old) == b"baaa"  # and who still reads the old one may
    files.delete_before(SIZE)
    reader.refresh()
    assert reader.min_offset == SIZE


def test_a_slice_being_sent_outlives_its_file(files: MappedFiles) -> None:
    files.write(0, b"a" * (2 * SIZE))
    part = files.readable(0, 100)
    assert files.delete_before(SIZE) == SIZE
    assert os.pread(part.fd, part.size, part.position) == b"a" * 100


def test_deleting_keeps_the_last_file(files: MappedFiles) -> None:
    files.write(0, b"a" * (3 * SIZE))
    assert files.delete_before(2 * SIZE - 1) == SIZE
    assert files.delete_before(10**9) == 2 * SIZE


def test_preallocation(files: MappedFiles) -> None:
    files.write(0, b"a")
    files.preallocate_next()
    assert files.end == 2 * SIZE
    files.write(SIZE, b"b")
    assert files.end == 2 * SIZE


def test_a_full_disk_changes_nothing(files: MappedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(0, b"a")

    def no_room(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(StoreFullError, match="free disk space"):
        files.write(1, b"b" * SIZE)
    assert names(files) == [f"{0:020d}"]
    assert bytes(files.read(0, 2)) == b"a\0"
    monkeypatch.undo()
    files.write(1, b"b" * SIZE)
    assert bytes(files.read(0, 3)) == b"abb"


class TestFound:
    """Files that were there before."""

    def test_what_a_crash_leaves_of_a_file_being_made(self, tmp_path: Path, lock: WriterLock) -> None:
        folder = tmp_path / "commitlog"
        folder.mkdir()
        (folder / f"{0:020d}").write_bytes(b"x" * SIZE)
        (folder / f"{SIZE:020d}").touch()
        assert loaded(tmp_path, lock).end == SIZE
        assert not (folder / f"{SIZE:020d}").exists()
        (folder / f"{SIZE:020d}").write_bytes(bytes(100))
        assert loaded(tmp_path, lock).end == 2 * SIZE

    def test_a_sparse_file_is_allocated_before_it_is_written(self, tmp_path: Path, lock: WriterLock) -> None:
        folder = tmp_path / "commitlog"
        folder.mkdir()
        path = folder / f"{0:020d}"
        path.touch()
        os.truncate(path, SIZE)
        assert path.stat().st_blocks == 0
        loaded(tmp_path, lock).view(0, 1)
        assert path.stat().st_blocks > 0

    def test_lost_and_found_is_none_of_our_business(self, tmp_path: Path, lock: WriterLock) -> None:
        (tmp_path / "commitlog" / "lost+found").mkdir(parents=True)
        assert loaded(tmp_path, lock).end == 0

    @pytest.mark.parametrize(
        ("name", "length", "says"),
        [
            ("notes.txt", 1, "move it out"),
            (f"{7:020d}", SIZE, "mappedFileSizeCommitLog"),
            (f"{SIZE:020d}", SIZE + 1, "mappedFileSizeCommitLog"),
            (f"{SIZE:020d}", 17, "has data"),
            (f"{5 * SIZE:020d}", SIZE, "put the missing files back"),
        ],
    )
    def test_refused_with_the_way_out(
        self, tmp_path: Path, lock: WriterLock, name: str, length: int, says: str
    ) -> None:
        folder = tmp_path / "commitlog"
        folder.mkdir()
        (folder / f"{0:020d}").write_bytes(bytes(SIZE))
        (folder / name).write_bytes(b"x" * length)
        with pytest.raises(StoreDamagedError, match=says) as refusal:
            loaded(tmp_path, lock)
        assert name in str(refusal.value)
        assert (folder / name).exists()

    def test_a_foreign_file_does_not_stop_a_running_store(self, tmp_path: Path, lock: WriterLock) -> None:
        files = loaded(tmp_path, lock)
        files.write(0, b"1" * SIZE)
        stranger = tmp_path / "commitlog" / "core.4711"
        stranger.write_bytes(b"x")
        with capture_logs() as logs:
            for _ in range(3):
                files.refresh()
                files.load()
        assert [(entry["log_level"], entry["path"]) for entry in logs] == [("warning", str(stranger))]
        files.write(SIZE, b"2" * SIZE)
        assert files.end == 2 * SIZE
        with pytest.raises(StoreDamagedError, match="move it out"):
            loaded(tmp_path, lock)

    @pytest.mark.parametrize("start", [1, SIZE + 1, 9 * SIZE])
    @pytest.mark.parametrize("length", [0, 17, SIZE])
    def test_a_stray_file_that_does_not_continue_the_log_stops_no_running_store(
        self, tmp_path: Path, lock: WriterLock, start: int, length: int
    ) -> None:
        files, reader = loaded(tmp_path, lock), loaded(tmp_path, WriterLock(tmp_path / "writer.lock"))
        files.write(0, b"1" * 2 * SIZE)
        reader.refresh()
        stray = tmp_path / "commitlog" / f"{start:020d}"
        stray.write_bytes(bytes(length))
        with capture_logs() as logs:
            for change in (files.refresh, files.load, reader.refresh, reader.refresh):
                change()
        assert [(entry["log_level"], entry["path"]) for entry in logs] == [("warning", str(stray))] * 2
        files.write(2 * SIZE, b"3" * SIZE)
        reader.refresh()
        assert reader.end == files.end == 3 * SIZE
        assert stray.stat().st_size == length

    def test_a_running_store_still_notices_that_a_file_is_gone(self, tmp_path: Path, lock: WriterLock) -> None:
        files = loaded(tmp_path, lock)
        files.write(0, b"1" * 3 * SIZE)
        (tmp_path / "commitlog" / f"{SIZE:020d}").unlink()
        with pytest.raises(StoreDamagedError, match="put the missing files back"):
            files.refresh()

    @pytest.mark.parametrize("name", [".nfs000000000123456700000001", ".fuse_hidden0000002d00000001", ".DS_Store"])
    def test_hidden_files_are_left_alone(self, tmp_path: Path, lock: WriterLock, name: str) -> None:
        loaded(tmp_path, lock).write(0, b"1")
        (tmp_path / "commitlog" / name).write_bytes(b"x")
        assert loaded(tmp_path, lock).end == SIZE

    def test_an_empty_next_file_is_taken_over(self, tmp_path: Path, lock: WriterLock) -> None:
        """As a process that was killed while it made the file leaves it to the other one, which runs."""
        files = loaded(tmp_path, lock)
        files.write(0, b"1" * SIZE)
        (tmp_path / "commitlog" / f"{SIZE:020d}").touch()
        files.refresh()
        files.write(SIZE, b"2")
        assert bytes(files.read(SIZE, 1)) == b"2"
        assert (tmp_path / "commitlog" / f"{SIZE:020d}").stat().st_size == SIZE

    def test_a_file_with_bytes_is_not(self, tmp_path: Path, lock: WriterLock) -> None:
        files = loaded(tmp_path, lock)
        files.write(0, b"1" * SIZE)
        path = tmp_path / "commitlog" / f"{SIZE:020d}"
        path.write_bytes(b"x" * SIZE)
        with pytest.raises(FileExistsError, match=path.name):
            files.write(SIZE, b"2")
        assert path.read_bytes() == b"x" * SIZE

    def test_a_folder_named_like_a_file(self, tmp_path: Path, lock: WriterLock) -> None:
        (tmp_path / "commitlog" / f"{0:020d}").mkdir(parents=True)
        with pytest.raises(StoreDamagedError, match="move it out"):
            loaded(tmp_path, lock)

    def test_an_empty_file_in_the_middle(self, tmp_path: Path, lock: WriterLock) -> None:
        folder = tmp_path / "commitlog"
        folder.mkdir()
        (folder / f"{0:020d}").touch()
        (folder / f"{SIZE:020d}").write_bytes(bytes(SIZE))
        with pytest.raises(StoreDamagedError):
            loaded(tmp_path, lock)


@pytest.mark.parametrize("room", [True, False])
def test_a_file_that_a_thread_is_making_does_not_count_yet(
    files: MappedFiles, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    real = Segment.allocate

    def allocate(made: Segment) -> None:
        if made.start == SIZE:
            files.refresh()  # by the event loop meanwhile
            if not room:
                raise StoreFullError("no room")
        real(made)

    files.write(0, b"a")
    monkeypatch.setattr(Segment, "allocate", allocate)
    if room:
        files.preallocate_next()
    else:
        with pytest.raises(StoreFullError):
            files.preallocate_next()
    assert files.file_starts == ([0, SIZE] if room else [0])
    monkeypatch.undo()
    files.write(SIZE, b"b" * (SIZE + 1))
    files.refresh()
    assert files.file_starts == [0, SIZE, 2 * SIZE]
    assert bytes(files.read(2 * SIZE, 2)) == b"b\0"


def test_files_that_expired_go_in_another_thread(files: MappedFiles) -> None:
    files.write(0, b"a" * (4 * SIZE))
    delete = files.deleter(3 * SIZE)
    old = files.read(0, 4)
    thread = threading.Thread(target=delete)
    thread.start()
    thread.join()
    assert files.min_offset == 0, "still mapped, and readable"
    assert bytes(old) == bytes(files.read(SIZE, 4)) == b"aaaa"
    files.refresh()
    assert files.file_starts == [3 * SIZE]
    assert bytes(old) == b"aaaa"


def test_a_new_log_keeps_its_files(files: MappedFiles) -> None:
    files.write(0, b"a" * (3 * SIZE))
    late, slow = files.deleter(2 * SIZE), files.deleter(2 * SIZE)
    files.truncate(0)  # stops them
    files.write(0, b"b" * (3 * SIZE))
    late()
    assert files.file_starts == [0, SIZE, 2 * SIZE]
    assert len(list(files.directory.iterdir())) == 3
    again = files.deleter(2 * SIZE)
    for path in files.directory.iterdir():  # the sidecar's doing
        path.unlink()
    files.refresh()
    for thread in threading.enumerate():  # what is closed now may give its inode to a new file
        if thread.name == "log-files-closing":
            thread.join()
    files.write(0, b"c" * (3 * SIZE))
    again()
    slow()
    assert len(list(files.directory.iterdir())) == 3


def test_pages_made_ahead_change_nothing(files: MappedFiles) -> None:
    files.write(0, b"abc")
    assert files.segment_at(0).populate(0, 2 * SIZE)
    assert bytes(files.read(0, SIZE)) == b"abc" + bytes(SIZE - 3)


@pytest.mark.parametrize("room", [True, False])
def test_the_other_process_does_not_see_a_file_that_may_find_no_room(
    files: MappedFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, room: bool
) -> None:
    # It would keep reading zeros from a deleted file after a new file got its name.
    files.write(0, b"a")
    reader = loaded(tmp_path, WriterLock(tmp_path / "writer.lock"))
    real = segment.reserve_blocks

    def reserve(handle: int, size: int) -> bool:
        reader.refresh()
        if not room:
            raise OSError(28, "No space left on device")
        done = real(handle, size)
        reader.refresh()
        assert reader.file_starts == [0]
        return done

    monkeypatch.setattr(segment, "reserve_blocks", reserve)
    if not room:
        with pytest.raises(StoreFullError):
            files.preallocate_next()
        assert reader.file_starts == [0]
        monkeypatch.undo()
    files.write(SIZE, b"b")
    reader.refresh()
    assert bytes(reader.read(SIZE, 1)) == b"b"


def test_after_a_failed_sync_the_next_one_writes_the_bytes_again(
    files: MappedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports the error once, and counts the pages as written: only a second write reaches the disk."""
    on_disk: set[int] = set()
    dirty_to = [0]
    real_write, fails = os.pwrite, [True, False, False]

    def sync(_handle: int) -> None:
        lost = fails.pop(0)
        if not lost:
            on_disk.update(range(dirty_to[0]))
        dirty_to[0] = 0  # clean, whether or not they reached the disk
        if lost:
            raise OSError(5, "Input/output error")

    def write(handle: int, data: bytes, position: int) -> int:
        dirty_to[0] = max(dirty_to[0], position + len(data))
        return real_write(handle, data, position)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "pwrite", write)
    files.write(0, b"acknowledged")
    dirty_to[0] = len(b"acknowledged")
    with pytest.raises(OSError, match="Input/output"):
        files.flush(0, 12)
    files.flush(6, 12)
    assert on_disk == set(range(12))
    files.flush(6, 12)
    assert files.read(0, 12) == b"acknowledged"
    assert fails == []
