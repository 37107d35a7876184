"""The processes that a run of pytest started and did not end (Linux; elsewhere nothing is done)."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SET_CHILD_SUBREAPER = 36
"""prctl(2), PR_SET_CHILD_SUBREAPER."""
ROUNDS = 50


def adopt_orphans() -> None:
    """From now on a descendant that loses its parent becomes a child of this process, so that it can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all() -> list[int]:
    """Kill all descendants, and return their process ids. Bounded: what starts processes faster than this stays."""
    ended: list[int] = []
    for _ in range(ROUNDS):
        found = list(_below(os.getpid()))
        if not found:
            break
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ended += [process for process in found if process not in ended]
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.1)
    return ended


def _below(process: int) -> Iterator[int]:
    """The descendants of a process, its children first."""
    for tasks in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                yield child
                yield from _below(child)
