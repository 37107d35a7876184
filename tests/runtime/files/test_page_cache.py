"""Whether a page is still in the kernel's memory, as its own file system says."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_runtime.files.page_cache import is_cached


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def drop(fd: int) -> None:
    """As when the file system is mounted again."""
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def test_what_was_written_is_there_until_it_is_dropped(file: int) -> None:
    os.write(file, b"x" * 64)
    assert is_cached(file)
    drop(file)
    if is_cached(file):
        pytest.skip("the file system of the temporary folder keeps its pages, or cannot tell")
    # not asked twice: the first question may have started a read
    os.pread(file, 1, 0)
    assert is_cached(file)


def test_an_empty_file_has_lost_nothing(file: int) -> None:
    assert is_cached(file)


@pytest.mark.parametrize("number", [95, 22, 38])
def test_a_file_system_that_cannot_tell(file: int, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    os.write(file, b"x")
    monkeypatch.setattr(os, "preadv", refuse)
    assert is_cached(file)


def test_a_disk_that_fails_is_no_answer(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    os.write(file, b"x")
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output"):
        is_cached(file)
