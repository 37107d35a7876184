"""The dashboard: every panel asks for what is exported, shows what it asked for, and has its own place."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.exported import TARGET, exported
from tests.helm.promql import groupings, selectors
from tests.helm.tools import promtool
from tests.paths import ROOT

FILE = ROOT / "helm" / "rocketmq-ha" / "dashboards" / "rocketmq-ha.json"
DASHBOARD = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ROWS = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
NOT_SHOWN = {
    "dledger_op_total": "the time of commits says more",
    "rocketmq_broker_delayed_passed_over_total": "it hardly ever happens, and the log names the message",
    "rocketmq_broker_log_checked_bytes_total": "of interest to who looks at one broker",
    "rocketmq_broker_log_damaged": "an alert says so",
    "rocketmq_broker_queue_units_repaired_total": "repaired already; of interest to who looks at one broker's disk",
    "rocketmq_broker_unregistered": "an alert says so",
    "rocketmq_controller_groups": "rocketmq_sidecar_role is counted",
    "rocketmq_controller_raft_election_timeout_seconds": "of interest to who asks why a failover took long",
    "rocketmq_controller_raft_last_index": "commit and applied index are shown",
    "rocketmq_controller_raft_snapshot_index": "of interest to who looks at one member",
    "rocketmq_namesrv_brokers": "addresses are shown",
    "rocketmq_namesrv_clusters": "it hardly ever changes",
    "rocketmq_namesrv_topic_queues": "topics are shown",
    "rocketmq_sidecar_acting_master": "an alert says so",
    "rocketmq_sidecar_log_given_up": "the verification finds it, and an alert says so",
    "rocketmq_sidecar_log_unproven": "a group that waits for members has no master, which is shown",
}
"""Exported, but not in the dashboard, and why."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    return exported(tmp_path_factory.mktemp("exported"))


def queries(panel: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Expression and legend."""
    for target in panel["targets"]:
        yield target["expr"], target["legendFormat"]


@pytest.mark.parametrize("panel", PANELS, ids=[f"{panel['id']} {panel['title']}" for panel in PANELS])
def test_a_panel_names_metrics_and_labels_that_are_exported(
    panel: dict[str, Any], known: dict[str, frozenset[str]]
) -> None:
    for expression, legend in queries(panel):
        named = list(selectors(expression))
        assert named
        assert [one.metric for one in named if one.metric not in known] == []
        for one in named:
            assert one.labels <= known[one.metric] | TARGET, one.metric
        available = TARGET.union(*(known[one.metric] for one in named))
        grouped = groupings(expression)
        assert grouped <= available
        assert set(re.findall(r"{{(\w+)}}", legend)) <= available


def test_variables_and_annotations_too(known: dict[str, frozenset[str]]) -> None:
    for variable in DASHBOARD["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\w+)(?:{.*})?, (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]  # a failure says so
        assert label in known[metric] | TARGET
    for annotation in DASHBOARD["annotations"]["list"]:
        assert {one.metric for one in selectors(annotation["expr"])} <= known.keys()
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", FILE.read_text())) <= defined | {"__all"}


def test_everything_exported_is_shown_or_left_out_on_purpose(known: dict[str, frozenset[str]]) -> None:
    shown = {one.metric for panel in PANELS for expression, _ in queries(panel) for one in selectors(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}
    assert families - {re.sub(r"_bucket$", "", name) for name in shown} == NOT_SHOWN.keys()


def test_counters_are_never_shown_as_they_are() -> None:
    for panel in PANELS:
        for expression, _ in queries(panel):
            for counter in re.findall(r"\w+_(?:total|bucket)\b", expression):
                assert re.search(rf"(rate|increase)\({counter}\b", expression), expression


def test_promtool_parses_every_expression(tmp_path: Path) -> None:
    expressions = [expression for panel in PANELS for expression, _ in queries(panel)]
    expressions += [annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]]
    plain = [re.sub(r"\$\w+", ".*", one.replace("$__rate_interval", "5m")) for one in expressions]
    rules = [{"record": f"panel:expression:{number}", "expr": one} for number, one in enumerate(plain)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", file)


def test_rows() -> None:
    assert ROWS == [
        "Groups at a glance",
        "Failovers",
        "Sends and pulls",
        "Replication",
        "Leases and links",
        "Controllers",
        "Name servers",
        "Operator",
        "Verification",
    ]


def test_panels_have_ids_texts_and_places_of_their_own() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert [panel["title"] for panel in PANELS if not panel["description"]] == []
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
