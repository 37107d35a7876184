"""Stories in two lanes on one cluster (`make e2e-stories`): each lane has an installation and groups of its own.

What the lanes share is prepared by the lane that comes first (`once`). A test that stops what both use runs while no
other does (`turn`). Locks are on files of a folder that the lanes of one run share; without lanes nobody waits.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def folder(config: pytest.Config) -> Path:
    """The folder that all lanes of this run share, and no other run has."""
    factory = getattr(config, "_tmp_path_factory", None)
    assert isinstance(factory, pytest.TempPathFactory)
    base = factory.getbasetemp()
    return base.parent if is_lane(config) else base


def is_lane(config: pytest.Config) -> bool:
    """This process is one of several that run tests."""
    return hasattr(config, "workerinput")


def has_lanes(config: pytest.Config) -> bool:
    """This process runs no tests; it starts those that do."""
    return not is_lane(config) and bool(config.getoption("numprocesses", None))


@contextmanager
def once(shared: Path, what: str) -> Iterator[bool]:
    """True for the lane that comes first. The others wait until it is done; if it fails, the next one is the first."""
    done = shared / f"{what}.done"
    with (shared / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = not done.exists()
        yield first
        done.touch()


@contextmanager
def turn(shared: Path, *, alone: bool) -> Iterator[None]:
    """For the time of one test. One that is `alone` waits for those that run, and those that come later wait for it."""
    with (shared / "door.lock").open("w") as door, (shared / "room.lock").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
