"""Completion by kubectl's protocol: one proposal a line, then cobra's directive."""

from collections.abc import Sequence

import pytest

from rocketmq_kubectl import complete as module
from rocketmq_kubectl.cli import app
from rocketmq_kubectl.complete import DEFAULT, NO_FILES, complete
from tests.kubectl.fake_cluster import FakeCluster


def names(words: Sequence[str], found: Sequence[str] = ()) -> tuple[list[str], int]:
    proposals, directive = complete(words, query=lambda connection, given: list(found))
    return [one.partition("\t")[0] for one in proposals], directive


@pytest.mark.parametrize(
    ("words", "proposals", "directive"),
    [
        (["re"], ["rebuild", "report", "restart", "resume"], NO_FILES),
        (["-n", "shop", "sw"], ["switchover"], NO_FILES),
        (["controller", "tr"], ["transfer-leader"], NO_FILES),
        (["status", "-o", "j"], ["json"], NO_FILES),
        (["report", "orders", "-o", ""], [], DEFAULT),
        (["status", "--kubeconfig", ""], [], DEFAULT),
        (["status", "-n", ""], [], NO_FILES),
        (["fence", "orders", "--o"], ["--off", "--output"], NO_FILES),
        (["elect-master", "orders", "--force"], ["--force-unclean"], NO_FILES),
        (["controller", "config", "--req"], ["--request-timeout"], NO_FILES),
        (["version", ""], [], NO_FILES),
        (["fence", "orders", ""], [], NO_FILES),
        (["getSyncStateSet", "ot"], ["other"], NO_FILES),
        (["switchover", "orders", "orders-"], ["orders-0"], NO_FILES),
        (["controller", "status", ""], ["orders", "orders-0", "other"], NO_FILES),
    ],
)
def test_proposals(words: list[str], proposals: list[str], directive: int) -> None:
    assert names(words, ["orders", "orders-0", "other"]) == (proposals, directive)


def test_every_verb_is_proposed_with_its_help() -> None:
    proposals, _ = complete([""])
    verbs = {info.name for info in app.registered_commands} | {"controller"}
    assert {one.partition("\t")[0] for one in proposals} == verbs
    assert all(one.partition("\t")[2] for one in proposals)


def test_names_come_from_the_cluster_that_the_flags_mean(cluster: FakeCluster) -> None:
    assert complete(["status", ""]) == (["orders"], NO_FILES)
    assert complete(["status", "-n", "empty", ""]) == ([], NO_FILES)
    assert complete(["--namespace=empty", "status", ""]) == ([], NO_FILES)
    assert complete(["rebuild", "orders", ""]) == (["orders-0", "orders-1", "orders-2"], NO_FILES)
    assert complete(["controller", "config", ""]) == (["main"], NO_FILES)


def test_a_cluster_in_trouble_is_no_complaint(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.api.token = "another"
    assert complete(["status", ""]) == ([], NO_FILES)
    assert complete(["status", "--context", "nowhere", ""]) == ([], NO_FILES)
    assert capsys.readouterr() == ("", "")


def test_the_program_prints_the_directive_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module.sys, "argv", ["kubectl_complete-rocketmq", "status", "-o", "y"])
    monkeypatch.setattr(module.os, "_exit", lambda code: None)
    module.main()
    assert capsys.readouterr().out == "yaml\n:4\n"
