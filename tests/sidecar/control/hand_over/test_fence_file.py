"""`.fenced`: kept through power cuts wherever they happen, and a fence whenever it cannot be understood."""

import errno
from pathlib import Path
from random import Random

import pytest

from rocketmq_formats.errors import FormatError
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.control.fence_file import FILE_NAME, FenceFile
from rocketmq_sidecar.domain.control import fence
from rocketmq_sidecar.domain.control.fence import Fence
from tests.sim.disk import SimCrash, SimDisk

FOLDER = Path("/store")
FENCE = Fence("Wartung: Gehäuse, then back", 1_763_712_345_678)


def disk() -> SimDisk:
    made = SimDisk()
    made.mkdir(FOLDER)
    return made


def test_kept_and_ended() -> None:
    made = disk()
    file = FenceFile(FOLDER, disk=made)
    assert file.load() is None
    file.save(FENCE)
    assert FenceFile(FOLDER, disk=made).load() == FENCE
    file.save(None)
    assert FenceFile(FOLDER, disk=made).load() is None
    file.save(None)


@pytest.mark.parametrize("ending", [False, True])
def test_power_cut_in_every_call(ending: bool) -> None:
    """What was returned from is kept; what was not is either kept or not, and readable in any case."""
    for seed in range(20):
        for call in range(1, 20):
            made = disk()
            file = FenceFile(FOLDER, disk=made)
            if ending:
                file.save(FENCE)
            before, after = (FENCE, None) if ending else (None, FENCE)
            made.crash_at = made.calls + call
            try:
                file.save(after)
            except SimCrash:
                made.crash(Random(seed))
                assert FenceFile(FOLDER, disk=made).load() in (before, after)
                continue
            made.crash_at = None
            made.crash(Random(seed))
            assert FenceFile(FOLDER, disk=made).load() == after
            break
        else:
            raise AssertionError("it never ends")


def test_disk_full_leaves_what_was() -> None:
    made = disk()
    made.fail_call(made.calls + 3, errno.ENOSPC)
    with pytest.raises(StorageError):
        FenceFile(FOLDER, disk=made).save(FENCE)
    assert FenceFile(FOLDER, disk=made).load() is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"version":1,"reason":"x"}',
        b'{"version":2,"reason":"x","sinceMillis":1}',
        b'{"version":1,"reason":3,"sinceMillis":1}',
        fence.encode(FENCE)[:-5],
        b" " * (fence.MAX_BYTES + 1),
    ],
)
def test_damaged_is_fenced(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(FormatError):
        fence.decode(text)
    (tmp_path / FILE_NAME).write_bytes(text)
    kept = FenceFile(tmp_path).load()
    assert kept is not None
    assert str(tmp_path / FILE_NAME) in kept.reason
    FenceFile(tmp_path).save(None)
    assert FenceFile(tmp_path).load() is None


def test_unreadable_is_fenced(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    kept = FenceFile(tmp_path).load()
    assert kept is not None
    assert "counts as a fence" in kept.reason


def test_the_text_as_it_is_written() -> None:
    assert fence.encode(Fence("why", 7)) == b'{"version":1,"reason":"why","sinceMillis":7}\n'
