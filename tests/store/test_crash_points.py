"""A process killed with SIGKILL before each of its calls that change a file, once for every call there is.

A child runs a story and reports, through a pipe, what it was promised; the parent opens what is left.
"""

import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_store.log.commit_log import CommitLog
from rocketmq_store.log.segment import Segment
from rocketmq_store.message_store import MessageStore
from tests.store.kit import abandon, append_zeros, bodies, dispatched, draft, opened, show

Story = Callable[[Path, Callable[[int], None]], None]
_NUMBER = struct.Struct(">q")
MAX_STEPS = 400


def appending(root: Path, promise: Callable[[int], None]) -> None:
    """A master's life: several files of each kind, two queues, flushes."""
    store, _ = opened(root)
    for n in range(24):
        store.append(draft(b"%03d" % n + b"x" * 400, queue_id=n % 2), 1)
        dispatched(store)
        promise(n + 1)
        if n % 10 == 9:
            store.durability.flush()
    store.close()


def zeros(root: Path, promise: Callable[[int], None]) -> None:
    """Messages of an official master whose properties look like lost sectors."""
    store, _ = opened(root)
    for n in range(24):
        append_zeros(store, draft(b"%03d" % n + b"x" * 100, queue_id=n % 2), 1100)
        dispatched(store)
        promise(n + 1)
        if n % 10 == 9:
            store.durability.flush()
    store.close()


def truncating(root: Path, promise: Callable[[int], None]) -> None:
    """A slave's log is cut, grows again; `promise` names what must be there in any case."""
    store, _ = opened(root)
    made = [store.append(draft(b"%03d" % n + b"x" * 400, queue_id=n % 2), 1) for n in range(24)]
    show(store)
    store.durability.flush()
    promise(10)
    store.truncate(made[10].offset)
    store.files.truncate(made[10].offset)
    store.extend(made[10].offset, made[10].offset)
    store.cut_tail()
    for n in range(10, 24):
        store.append(draft(b"%03d" % n + b"x" * 400, queue_id=n % 2), 1)
        show(store)
        promise(n + 1)
    store.close()


def reopening(root: Path, promise: Callable[[int], None]) -> None:
    """Recovery of a torn tail, killed itself."""
    store, _ = opened(root)
    made = [store.append(draft(b"%03d" % n + b"x" * 400, queue_id=n % 2), 1) for n in range(20)]
    show(store)
    promise(12)
    abandon(store)
    torn = made[14]
    path = root / "commitlog" / f"{torn.offset // 4096 * 4096:020d}"
    with path.open("r+b") as file:
        file.seek(torn.offset % 4096 + 100)
        file.write(b"torn")
    for _ in range(2):
        store, _ = opened(root)
        abandon(store)
    store, _ = opened(root)
    store.append(draft(b"014" + b"x" * 400, queue_id=0), 1)
    store.close()


def run_child(root: Path, story: Story, steps: int) -> tuple[int, bool]:
    """Kill before step number `steps`; (what was promised, whether it came to the end)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            count_down(steps)
            story(root, lambda number: os.write(writer, _NUMBER.pack(number)) and None)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        promised = pipe.read()
    status = os.waitpid(pid, 0)[1]
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    return (_NUMBER.unpack(promised[-8:])[0] if promised else 0), status == 0


def count_down(steps: int) -> None:
    """Only in a child that ends with this."""
    left = steps

    def killing(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    for name in ("pwrite", "ftruncate", "posix_fallocate", "fdatasync", "fsync", "truncate"):
        setattr(os, name, killing(getattr(os, name)))
    Path.unlink = killing(Path.unlink)  # type: ignore[method-assign]
    Path.write_text = killing(Path.write_text)  # type: ignore[method-assign]
    CommitLog.put = killing(half_a_put)  # type: ignore[method-assign]
    Segment._fallocate = killing(Segment._fallocate)  # type: ignore[method-assign]


_put = CommitLog.put


def half_a_put(log: CommitLog, data: bytes) -> None:
    """Two steps, so that a kill finds half a record in the mapping."""
    half = len(data) // 2
    log._view[log._position : log._position + half] = data[:half]
    assert log._segment is not None
    os.pwrite(log._segment.fd, b"", 0)  # a step
    _put(log, data)


def check(root: Path, promised: int) -> None:
    store, found = opened(root)
    assert found.max_offset >= 0
    assert store.cut_tail() == found.max_offset
    show(store)
    for queue_id in (0, 1):
        numbers = [int(body[:3]) for body in bodies(store, queue_id=queue_id)]
        assert numbers == list(range(queue_id, 2 * len(numbers), 2))
        assert len(numbers) >= len(range(queue_id, promised, 2))
    follow_up(store)


def follow_up(store: MessageStore) -> None:
    """It continues as if nothing had happened, and stops and starts."""
    before = [len(bodies(store, queue_id=queue_id)) for queue_id in (0, 1)]
    store.append(draft(b"more"), 1)
    show(store)
    store.close()
    store, found = opened(store.settings.root)
    assert found.clean
    assert [len(bodies(store, queue_id=queue_id)) for queue_id in (0, 1)] == [before[0] + 1, before[1]]
    abandon(store)


@pytest.mark.parametrize("story", [appending, zeros, truncating, reopening])
def test_killed_before_every_step(tmp_path: Path, story: Story) -> None:
    for steps in range(MAX_STEPS):
        root = tmp_path / str(steps)
        promised, finished = run_child(root, story, steps)
        check(root, promised)
        if finished:
            assert steps > 30
            return
    raise AssertionError(f"more than {MAX_STEPS} steps")
