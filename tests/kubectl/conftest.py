"""The plugin, and a cluster for it to talk to; its clock says 2026-01-01 12:00:00."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rocketmq_kubectl import session
from rocketmq_kubectl.__main__ import run_command_line
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


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    code: int
    out: str
    err: str


Plugin = Callable[..., Outcome]


@pytest.fixture
def plugin(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> Plugin:
    """Runs one command line; the API server's port is masked."""

    def run(*arguments: str) -> Outcome:
        code = run_command_line(arguments)
        printed = capsys.readouterr()
        masks = {cluster.api.url: "http://api", str(cluster.kubeconfig): "KUBECONFIG"}

        def masked(text: str) -> str:
            for real, shown in masks.items():
                text = text.replace(real, shown)
            return text

        return Outcome(code, masked(printed.out), masked(printed.err))

    return run
