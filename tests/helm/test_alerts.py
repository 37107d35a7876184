"""The alerts: expressions name what is exported, links lead somewhere, and promtool's tests say when they fire."""

import re
from typing import Any

import pytest
import yaml

from tests.helm.exported import TARGET, exported
from tests.helm.promql import groupings, selectors
from tests.helm.tools import promtool
from tests.paths import ROOT

CHART = ROOT / "helm" / "rocketmq-ha"
ALERTS = CHART / "alerts" / "rocketmq-ha.yaml"
GROUPS = yaml.safe_load(ALERTS.read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    return exported(tmp_path_factory.mktemp("exported"))


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_it_names_metrics_and_labels_that_are_exported(rule: dict[str, Any], known: dict[str, frozenset[str]]) -> None:
    named = list(selectors(rule["expr"]))
    assert named
    assert [one.metric for one in named if one.metric not in known] == []
    allowed = TARGET.union(*(known[one.metric] for one in named))
    for one in named:
        assert one.labels <= known[one.metric] | TARGET, one.metric
    assert groupings(rule["expr"]) <= allowed
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= allowed


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_it_has_a_severity_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    link = rule["annotations"]["runbook_url"]
    assert link.endswith(f"/docs/failure-modes.md#{rule['alert'].lower()}")
    assert f"### {rule['alert']}\n" in (ROOT / "docs" / "failure-modes.md").read_text()


def test_the_runbooks_are_those_of_alerts() -> None:
    section = (ROOT / "docs" / "failure-modes.md").read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### (\w+)$", section, re.MULTILINE)) == sorted(NAMES)


def test_every_alert_is_tried_both_ways() -> None:
    tests = yaml.safe_load((CHART / "alerts" / "tests.yaml").read_text())["tests"]
    tried = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in tried if case.get("exp_alerts")} == set(NAMES)
    assert {case["alertname"] for case in tried if not case.get("exp_alerts")} == set(NAMES)


def test_promtool_agrees() -> None:
    promtool("check", "rules", ALERTS)
    promtool("test", "rules", CHART / "alerts" / "tests.yaml")
