"""The plugin, and a cluster for it to talk to; its clock says 2026-01-01 12:00:00."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rocketmq_kubectl.__main__ import run_command_line
from rocketmq_kubectl.cluster import session
from tests import command_lines
from tests.command_lines import Tool
from tests.kubectl.fake_cluster import FakeCluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    cluster = FakeCluster(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setattr(session, "utc_now", lambda: NOW)
    monkeypatch.setattr(session, "CALL_SECONDS", session.CALL_SECONDS)  # put back what a story sets
    yield cluster
    cluster.stop()


@pytest.fixture
def plugin(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> Tool:
    """Runs one command line; the API server's port is masked."""

    def masked(text: str) -> str:
        return text.replace(cluster.api.url, "http://api").replace(str(cluster.kubeconfig), "KUBECONFIG")

    return lambda *arguments: command_lines.run(run_command_line, arguments, capsys, masked)
