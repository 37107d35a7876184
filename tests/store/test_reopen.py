"""A store that is opened again: after an orderly end, after a kill, by another process, at another path."""

import os
from pathlib import Path

from rocketmq_store.errors import StoreInUseError
from tests.store.kit import abandon, bodies, draft, opened, put


def test_after_an_orderly_stop(tmp_path: Path) -> None:
    store, first = opened(tmp_path)
    assert first.clean
    sent = [b"%d" % n * 50 for n in range(60)]
    put(store, *sent)
    end = store.max_offset
    store.close()
    assert not (tmp_path / "abort").exists()
    store, found = opened(tmp_path)
    assert (found.clean, found.max_offset, found.confirm_offset, found.cut) == (True, end, end, -1)
    assert bodies(store) == sent
    put(store, b"next")
    assert bodies(store) == [*sent, b"next"]


def test_after_a_kill(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    sent = [b"%d" % n * 50 for n in range(60)]
    put(store, *sent)
    store.append(draft(b"unconfirmed"), 1)
    confirm, end = store.confirm_offset, store.max_offset
    abandon(store)
    store, found = opened(tmp_path)
    assert (found.clean, found.max_offset, found.confirm_offset) == (False, end, confirm)
    assert bodies(store) == sent
    assert store.cut_tail() == end
    assert store.next_queue_offset("T", 0) == 61
    put(store, b"next")
    assert bodies(store) == [*sent, b"unconfirmed", b"next"]


def test_one_broker_at_a_time(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.writer.release()
    pid = os.fork()  # Java's kind of lock belongs to a process
    if pid == 0:
        try:
            opened(tmp_path)
        except StoreInUseError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def test_another_place_for_the_log(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "root", commit_log=tmp_path / "disk2" / "log")
    put(store, b"1")
    assert [path.name for path in (tmp_path / "disk2" / "log").iterdir()] == [f"{0:020d}"]
    assert not (tmp_path / "root" / "commitlog").exists()
    store.close()
    store, _ = opened(tmp_path / "root", commit_log=tmp_path / "disk2" / "log")
    assert bodies(store) == [b"1"]
