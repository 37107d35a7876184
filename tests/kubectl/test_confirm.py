"""What cannot be undone needs its name typed, at a terminal."""

import io

import pytest

from rocketmq_kubectl.errors import NotConfirmedError
from rocketmq_kubectl.verbs import change
from tests.command_lines import Tool
from tests.kubectl.fake_cluster import FakeCluster
from tests.kubectl.stage import Stage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("typed", ["orders\n", "  orders  \n"])
def test_the_name_typed(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    change.require_typed("orders", "All is lost.", flag="--yes", stdin=Terminal(typed))
    assert capsys.readouterr() == ("", "All is lost.\nType 'orders' to continue: ")


@pytest.mark.parametrize("typed", ["", "\n", "y\n", "Orders\n", "orders2\n"])
def test_anything_else(typed: str) -> None:
    with pytest.raises(NotConfirmedError, match="nothing was done"):
        change.require_typed("orders", "All is lost.", flag="--yes", stdin=Terminal(typed))


def test_no_terminal() -> None:
    with pytest.raises(NotConfirmedError, match="without a terminal: use --yes"):
        change.require_typed("orders", "All is lost.", flag="--yes", stdin=io.StringIO("orders\n"))


def test_an_unclean_election_by_hand(cluster: FakeCluster, plugin: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(cluster, plugin)
    stage.replica_dies("0")
    stage.replica_dies("1")
    monkeypatch.setattr("sys.stdin", Terminal("order\n"))
    refused = plugin("elect-master", "orders", "--force-unclean")
    assert (refused.code, cluster.elections) == (1, [])
    assert "orders-0 (brokerId 1), orders-1 (brokerId 2)" in refused.err
    assert "up to offset 4200" in refused.err

    monkeypatch.setattr("sys.stdin", Terminal("orders\n"))
    assert plugin("elect-master", "orders", "--force-unclean").code == 0
    assert cluster.group.master_broker_id == 3


def test_a_rebuild_by_hand(cluster: FakeCluster, plugin: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("orders-1\n"))
    assert plugin("rebuild", "orders", "orders-2").code == 1
    assert "annotations" not in cluster.resource["metadata"]
