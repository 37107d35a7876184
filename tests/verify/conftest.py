"""One Spark session for all tests that need one; they are marked `processes` and run alone."""

from collections.abc import Iterator

import pytest

from rocketmq_demo.apache.ports import PortPool
from rocketmq_verify.session import Engine, SessionOptions


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Spark on this machine, warm."""
    started = Engine(SessionOptions(master="local[2]"))
    started.start()
    try:
        started.spark()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def ports() -> Iterator[PortPool]:
    """Loopback ports that nobody else takes while the tests run."""
    with PortPool() as pool:
        yield pool
