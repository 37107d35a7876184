"""`write_atomically`: old bytes or new ones after a crash at any call, typed errors, nothing left behind."""

import errno
from pathlib import Path
from random import Random

import pytest

from rocketmq_runtime.files import atomic_file
from rocketmq_runtime.files.filesystem import DiskFullError, OsFileSystem, StorageError, read_file, write_all
from tests.sim.disk import SimCrash, SimDisk

FOLDER = Path("/store")
TARGET = FOLDER / "file"


def test_write_replaces_and_sets_mode(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    atomic_file.write_atomically(target, b"one", mode=0o600)
    atomic_file.write_atomically(target, b"two", mode=0o600)
    assert target.read_bytes() == b"two"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_leftover_temporary_file_does_not_lend_its_mode(tmp_path: Path) -> None:
    (tmp_path / "secret.tmp").write_bytes(b"old and longer")
    (tmp_path / "secret.tmp").chmod(0o666)
    atomic_file.write_atomically(tmp_path / "secret", b"new", mode=0o600)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "secret").read_bytes() == b"new"


def test_missing_file_reads_as_none_and_missing_folder_is_typed(tmp_path: Path) -> None:
    assert read_file(tmp_path / "nothing") is None
    with pytest.raises(StorageError) as caught:
        atomic_file.write_atomically(tmp_path / "no" / "file", b"x")
    assert caught.value.errno == errno.ENOENT
    assert str(tmp_path / "no" / "file") in str(caught.value)


def calls_of_a_write() -> int:
    disk = SimDisk()
    atomic_file.write_atomically(TARGET, b"x", filesystem=disk)
    return disk.calls


@pytest.mark.parametrize("call", range(1, calls_of_a_write() + 2))
@pytest.mark.parametrize("seed", range(20))
def test_crash_at_every_call_leaves_old_or_new(call: int, seed: int) -> None:
    disk = SimDisk()
    atomic_file.write_atomically(TARGET, b"old content", filesystem=disk)
    disk.crash_at = disk.calls + call
    try:
        atomic_file.write_atomically(TARGET, b"new, longer content", filesystem=disk)
        done = True
    except SimCrash:
        done = False
    disk.crash(Random(seed))
    content = read_file(TARGET, filesystem=disk)
    assert content in ({b"new, longer content"} if done else {b"old content", b"new, longer content"})
    atomic_file.remove_temporaries(FOLDER, filesystem=disk)
    assert disk.listdir(FOLDER) == ["file"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", range(1, calls_of_a_write() + 1))
def test_failure_at_every_call_is_typed_and_leaves_no_temporary(call: int, error: int) -> None:
    disk = SimDisk()
    atomic_file.write_atomically(TARGET, b"old", filesystem=disk)
    disk.fail_call(disk.calls + call, error)
    expected = StorageError if error == errno.EIO else DiskFullError
    with pytest.raises(expected) as caught:
        atomic_file.write_atomically(TARGET, b"new", filesystem=disk)
    assert caught.value.errno == error
    assert disk.listdir(FOLDER) == ["file"]
    atomic_file.write_atomically(TARGET, b"newer", filesystem=disk)
    disk.crash(Random(0))
    assert read_file(TARGET, filesystem=disk) == b"newer"


def test_full_disk_keeps_the_old_file() -> None:
    disk = SimDisk(capacity=10)
    atomic_file.write_atomically(TARGET, b"old", filesystem=disk)
    with pytest.raises(DiskFullError):
        atomic_file.write_atomically(TARGET, b"far too long", filesystem=disk)
    assert disk.files() == {TARGET: b"old"}


def test_write_all_continues_after_a_short_write(tmp_path: Path) -> None:
    class Short(OsFileSystem):
        def pwrite(self, handle: int, data: bytes, offset: int) -> int:
            return super().pwrite(handle, data[:3], offset)

    filesystem = Short()
    handle = filesystem.open(tmp_path / "file", create=True)
    write_all(filesystem, handle, b"0123456789", 0)
    filesystem.close(handle)
    assert (tmp_path / "file").read_bytes() == b"0123456789"
