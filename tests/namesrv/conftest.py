"""Fixtures of the name server's tests."""

import pytest

from rocketmq_namesrv import registry


@pytest.fixture(autouse=True)
def _removals_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine would put the rest of a removal off, and tests ask at once. Those of the steps set a clock of
    their own."""
    monkeypatch.setattr(registry, "perf_counter", lambda: 0.0)
