"""The tool and a cluster for it to talk to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from rocketmq_admin.__main__ import run_command_line
from tests.admin.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    cluster.stop()


@dataclass(frozen=True)
class Outcome:
    """What a run left behind, with the recorded addresses."""

    code: int
    out: str
    err: str


Admin = Callable[..., Outcome]


@pytest.fixture
def admin(cluster: FakeCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Runs one command line, written with the recorded addresses."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run(*arguments: str) -> Outcome:
        code = run_command_line([cluster.real(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(code, cluster.as_recorded(printed.out), cluster.as_recorded(printed.err))

    return run
