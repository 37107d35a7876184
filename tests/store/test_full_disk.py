"""A store without room: what is refused, what stays readable, and that it continues when there is room again."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from rocketmq_store import disk_space as room
from rocketmq_store.errors import StoreFullError
from rocketmq_store.log.segment import Segment
from rocketmq_store.message_store import MessageStore
from tests.store.kit import FILE, abandon, bodies, dispatched, draft, opened, put, retain, show


def refuse_names(monkeypatch: pytest.MonkeyPatch, call: str, below: Path) -> None:
    """The file system has no room for another name (a full folder, no inodes left)."""
    real = getattr(os, call)

    def refuse(path: str | Path, *args: int, **names: int) -> int:
        if Path(path).is_relative_to(below) and (call == "mkdir" or args[0] & os.O_CREAT):
            raise OSError(28, "No space left on device")
        return int(real(path, *args, **names) or 0)

    monkeypatch.setattr(os, call, refuse)


def test_no_room_for_the_next_file(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, *(b"x" * 1000 for _ in range(3)))
    end = store.max_offset

    def no_room(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    for _ in range(2):
        with pytest.raises(StoreFullError, match="free disk space"):
            store.append(draft(b"x" * 1000), 1)
    assert (store.max_offset, bool(store.disk_space.refuses)) == (end, True)
    assert len(bodies(store)) == 3
    monkeypatch.undo()
    store.check_disk()
    assert store.disk_space.refuses is None
    put(store, b"y" * 1000)
    assert bodies(store)[-1] == b"y" * 1000


def test_no_room_in_consume_queues(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, b"1")
    for queue_id in (0, 1, 0):
        store.append(draft(b"2", queue_id=queue_id), 1)
    real = os.pwrite

    def no_room(handle: int, data: bytes, position: int) -> int:
        if position == 20:  # the second unit of queue 0
            raise OSError(28, "No space left on device")
        return real(handle, data, position)

    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(StoreFullError):
        dispatched(store)
    with pytest.raises(StoreFullError):
        store.append(draft(b"3"), 1)
    assert bodies(store) == [b"1"]
    monkeypatch.undo()
    store.check_disk()
    put(store, b"4")
    assert (bodies(store), bodies(store, queue_id=1)) == ([b"1", b"2", b"2", b"4"], [b"2"])


@pytest.mark.parametrize("call", ["open", "mkdir"])
def test_no_room_for_a_new_queue(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    put(store, b"1")
    end = store.append(draft(b"2", topic=b"U"), 1).end
    refuse_names(monkeypatch, call, tmp_path / "consumequeue" / "U")
    with pytest.raises(StoreFullError, match="free disk space"):
        dispatched(store, end)
    assert store.disk_space.refuses is not None
    monkeypatch.undo()
    assert dispatched(store, end) == {("U", 0)}


def test_no_room_for_the_name_of_the_next_file(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, *(b"x" * 1000 for _ in range(3)))
    refuse_names(monkeypatch, "open", store.files.directory)
    with pytest.raises(StoreFullError, match="free disk space"):
        store.append(draft(b"x" * 1000), 1)
    store.writer.acquire()
    with pytest.raises(StoreFullError, match="free disk space"):
        store.files.preallocate_next()
    monkeypatch.undo()
    store.check_disk()
    put(store, b"y" * 1000)
    assert bodies(store)[-1] == b"y" * 1000


def test_sends_stay_refused_while_the_room_is_missing(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # A disk without names left has bytes: `df` does not tell.
    put(store, b"1")
    end = store.append(draft(b"2", topic=b"U"), 1).end
    real = os.open

    def no_names(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(28, "No space left on device")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", no_names)
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(StoreFullError):
                dispatched(store, end)
            store.check_disk()
            with pytest.raises(StoreFullError):
                store.append(draft(b"3"), 1)
        assert [line["log_level"] for line in lines] == ["error"]
        monkeypatch.undo()
        store.check_disk()
    assert [line["log_level"] for line in lines] == ["error", "info"]
    assert dispatched(store, end) == {("U", 0)}
    put(store, b"4")


def test_sends_stay_refused_while_there_is_no_room_for_a_whole_file(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, *(b"x" * 1000 for _ in range(3)))
    monkeypatch.setattr(Segment, "allocate", no_blocks)
    with pytest.raises(StoreFullError):
        store.append(draft(b"x" * 1000), 1)
    asked: list[int] = []

    def reserve(_handle: int, size: int) -> bool:
        asked.append(size)
        if size >= FILE:
            raise OSError(28, "No space left on device")
        return True

    monkeypatch.setattr(room, "reserve_blocks", reserve)
    store.check_disk()
    assert store.disk_space.refuses is not None
    assert asked == [FILE]
    monkeypatch.undo()
    store.check_disk()
    put(store, b"y" * 1000)


def test_where_the_file_system_knows_no_nameless_files_it_is_believed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs(store.files.directory)
    names = 0

    def no_nameless(path: str | Path, flags: int, mode: int = 0o777) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    def statvfs(_path: Path) -> SimpleNamespace:
        found = {name: getattr(disk, name) for name in dir(disk) if name.startswith("f_")}
        return SimpleNamespace(**{**found, "f_files": 10, "f_favail": names})

    store.disk_space.refuse("no names")
    monkeypatch.setattr(os, "open", no_nameless)
    monkeypatch.setattr(os, "statvfs", statvfs)
    store.check_disk()
    assert store.disk_space.refuses is not None
    names = 1
    store.check_disk()
    assert store.disk_space.refuses is None


def no_blocks(segment: Segment) -> None:
    raise StoreFullError(f"{segment.path}: no room")


def test_nearly_full(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, disk_refuse_ratio=0.0)
    with pytest.raises(StoreFullError, match="diskSpaceWarningLevelRatio"):
        store.append(draft(b"1"), 1)


def full(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """No bytes for consume queues."""
    real = os.pwrite

    def no_room(handle: int, data: bytes, position: int) -> int:
        if "consumequeue" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(28, "No space left on device")
        return real(handle, data, position)

    refuse_names(monkeypatch, "open", root / "consumequeue")
    monkeypatch.setattr(os, "pwrite", no_room)


def test_a_start_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be read is served; sends come in again once what was missing is made."""
    store, _ = opened(tmp_path)
    put(store, b"1")
    store.durability.flush()
    for body in (b"2", b"3"):
        store.append(draft(body), 1)
    store.append(draft(b"4", topic=b"U"), 1)
    store._checkpoint.set_confirm_offset(store.max_offset)
    abandon(store)
    full(monkeypatch, tmp_path)
    monkeypatch.setattr(room, "_takes", lambda *_: False)
    store, recovered = opened(tmp_path)
    assert (recovered.max_offset, bodies(store)) == (store.max_offset, [b"1"])
    store.cut_tail()
    for _ in range(2):
        with pytest.raises(StoreFullError):
            store.append(draft(b"5"), 1)
        with pytest.raises(StoreFullError):
            dispatched(store)
    monkeypatch.undo()
    store.check_disk()
    show(store)
    put(store, b"5")
    assert (bodies(store), bodies(store, "U")) == ([b"1", b"2", b"3", b"5"], [b"4"])


def test_a_start_on_a_full_disk_gives_no_offset_out_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is lost and its messages have expired: only what was noted says where it ended."""
    store, _ = opened(tmp_path, file_reserved_hours=1)
    put(store, *[b"old"] * 7, now_ms=1)
    put(store, *[b"new" * 300] * 20, topic=b"U", now_ms=1)
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (1, 1))
    store.durability.flush()
    assert retain(store, 10 * 3600 * 1000, 4) > 0
    put(store, b"last", topic=b"U")
    store.durability.flush()
    abandon(store)
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    full(monkeypatch, tmp_path)
    store, _ = opened(tmp_path)
    store.cut_tail()
    store.durability.flush()
    abandon(store)  # what was noted outlives another start
    store, _ = opened(tmp_path)
    store.cut_tail()
    assert store.disk_space.refuses is None
    with pytest.raises(StoreFullError):
        store.append(draft(b"new"), 1)
    monkeypatch.undo()
    assert store.append(draft(b"new"), 1).queue_offset == 7
