"""The tool and a cluster for it to talk to."""

from collections.abc import Iterator

import pytest

from rocketmq_admin.__main__ import run_command_line
from tests import command_lines
from tests.admin.fake_cluster import FakeCluster
from tests.command_lines import Outcome, Tool


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def admin(cluster: FakeCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Runs one command line, written with the recorded addresses."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run(*arguments: str) -> Outcome:
        real = [cluster.real(argument) for argument in arguments]
        return command_lines.run(run_command_line, real, capsys, cluster.as_recorded)

    return run
