"""Whole replicas replicate in the same way whether they prove themselves to each other or not."""

import pytest

from tests.sidecar.replication import replica_kit


@pytest.fixture(params=[b"", b"a secret of the group"], ids=["unproven", "proven"])
def with_and_without_secret(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test twice."""
    monkeypatch.setattr(replica_kit, "secret", request.param)
