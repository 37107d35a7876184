"""What tests of the verification share."""

from collections.abc import Iterator

import pytest

from rocketmq_demo.ports import PortPool


@pytest.fixture(scope="session")
def ports() -> Iterator[PortPool]:
    """Loopback ports that no other process takes while the tests run."""
    with PortPool() as pool:
        yield pool
