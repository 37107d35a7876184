"""The files of a log that another process owns: what is there, what is not, and what happens while one reads."""

from pathlib import Path

import pytest

from rocketmq_commitlog.errors import NotALogError, SegmentGoneError, SegmentShortError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_formats.store.segment_names import segment_name
from tests.commitlog.kit import SEGMENT, Log


def files(folder: Path, *lengths: tuple[int, int]) -> Path:
    folder.mkdir(exist_ok=True)
    for start, length in lengths:
        (folder / segment_name(start)).write_bytes(bytes(length))
    return folder


def test_reads_across_files(tmp_path: Path) -> None:
    written = Log(2 * SEGMENT).fill(3)
    folder = LogFolder(written.save(tmp_path, spare=1) / "commitlog")
    assert folder.segments == [2 * SEGMENT, 3 * SEGMENT, 4 * SEGMENT, 5 * SEGMENT]
    assert (folder.min_offset, folder.segment_size, folder.capacity) == (2 * SEGMENT, SEGMENT, 6 * SEGMENT)
    assert folder.read(3 * SEGMENT - 10, SEGMENT + 20) == written.data[SEGMENT - 10 : 2 * SEGMENT + 10]
    assert folder.read(0, 0) == b""


@pytest.mark.parametrize("offset", [-1, 0, 2 * SEGMENT - 1, 4 * SEGMENT - 1, 4 * SEGMENT])
def test_what_was_never_there(tmp_path: Path, offset: int) -> None:
    folder = LogFolder(Log(2 * SEGMENT).fill(2).save(tmp_path) / "commitlog")
    with pytest.raises(SegmentGoneError):
        folder.read(offset, 2)


def test_files_expire_and_are_made_while_one_reads(tmp_path: Path) -> None:
    path = Log().fill(3).save(tmp_path) / "commitlog"
    with LogFolder(path) as folder:
        (path / segment_name(0)).unlink()
        with pytest.raises(SegmentGoneError, match=segment_name(0)):
            folder.read(10, 10)
        assert folder.min_offset == 0, "as of the last look"
        files(path, (3 * SEGMENT, SEGMENT))
        assert folder.read(3 * SEGMENT, 10) == bytes(10)
        folder.refresh()
        assert folder.segments == [SEGMENT, 2 * SEGMENT, 3 * SEGMENT]


def test_a_file_that_is_being_read_stays_readable(tmp_path: Path) -> None:
    path = Log().fill(1).save(tmp_path) / "commitlog"
    folder = LogFolder(path)
    before = folder.read(0, 20)
    (path / segment_name(0)).unlink()
    assert folder.read(0, 20) == before
    folder.refresh()
    with pytest.raises(SegmentGoneError):
        folder.read(0, 20)


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    path = Log().fill(3).save(tmp_path) / "commitlog"
    with (path / segment_name(SEGMENT)).open("r+b") as file:
        file.truncate(1000)
    folder = LogFolder(path)
    assert folder.segment_size == SEGMENT
    assert folder.read(SEGMENT + 990, 10)
    with pytest.raises(SegmentShortError, match=segment_name(SEGMENT)):
        folder.read(SEGMENT + 990, 11)


@pytest.mark.parametrize(
    ("lengths", "size"),
    [
        ([(0, SEGMENT)], SEGMENT),
        ([(0, SEGMENT), (3 * SEGMENT, SEGMENT)], SEGMENT),
        ([(0, 100), (SEGMENT, SEGMENT)], SEGMENT),
        ([(0, 100), (SEGMENT, 100)], SEGMENT),  # by the names
        ([(0, SEGMENT), (SEGMENT, 0)], SEGMENT),  # the last one is being made
        ([(0, 0), (SEGMENT, SEGMENT)], SEGMENT),
        ([(0, 0)], 0),
        ([], 0),
    ],
)
def test_the_size_of_files_is_seen(tmp_path: Path, lengths: list[tuple[int, int]], size: int) -> None:
    folder = LogFolder(files(tmp_path / "log", *lengths))
    assert folder.segment_size == size
    if size == 0:
        assert (folder.min_offset, folder.capacity) == (0, 0)
        with pytest.raises(SegmentGoneError):
            folder.read(0, 1)


@pytest.mark.parametrize(
    ("lengths", "odd"),
    [
        ([(0, SEGMENT), (SEGMENT, 2 * SEGMENT)], SEGMENT),
        ([(0, SEGMENT), (SEGMENT, SEGMENT), (2 * SEGMENT + 1, SEGMENT)], 2 * SEGMENT + 1),
        ([(0, SEGMENT), (1, SEGMENT), (SEGMENT, SEGMENT), (2 * SEGMENT, SEGMENT)], 1),
        ([(0, SEGMENT), (SEGMENT, SEGMENT), (2 * SEGMENT, SEGMENT + 4096)], 2 * SEGMENT),
    ],
)
def test_files_of_two_logs(tmp_path: Path, lengths: list[tuple[int, int]], odd: int) -> None:
    with pytest.raises(NotALogError, match=f"{segment_name(odd)}: .* do not fit a log of files of {SEGMENT}: two logs"):
        LogFolder(files(tmp_path / "log", *lengths))


def test_another_size_than_configured(tmp_path: Path) -> None:
    with pytest.raises(NotALogError, match="mappedFileSizeCommitLog"):
        LogFolder(files(tmp_path / "log", (0, SEGMENT)), segment_size=1024)


def test_what_else_lies_there_is_no_concern(tmp_path: Path) -> None:
    path = Log().fill(1).save(tmp_path) / "commitlog"
    (path / "lost+found").mkdir()
    (path / segment_name(9 * SEGMENT)).mkdir()
    (path / "notes.txt").write_text("mine")
    assert LogFolder(path).segments == [0]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotALogError, match="no such folder"):
        LogFolder(tmp_path / "commitlog")


def test_few_files_are_held_open(tmp_path: Path) -> None:
    written = Log().fill(20)
    folder = LogFolder(written.save(tmp_path) / "commitlog")
    for _ in range(2):
        for start in folder.segments:
            assert folder.read(start, 8) == written.data[start : start + 8]
    assert len(folder._open) <= 4
