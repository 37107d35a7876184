"""The chart's files as they are, without Helm: copies, values and their schema, RBAC as written, the test script."""

import ast
import datetime as dt
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from rocketmq_settings.operator import OperatorKeys
from rocketmq_settings.table import keys, rows
from tests.paths import ROOT
from tests.scripts import load_script

CHART = ROOT / "helm" / "rocketmq-ha"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
FREE = {"global"}
"""In the schema, not in the values: Helm puts it there."""


def test_what_is_made_is_as_it_would_be_made() -> None:
    chart = load_script(ROOT / "hack" / "chart.py")
    stale = [path for path, text in chart.make().items() if not path.exists() or path.read_text() != text]
    assert stale == []
    assert {p.name for p in (CHART / "crds").iterdir()} == {p.name for p in (ROOT / "crds").glob("*.yaml")}


def test_crds_stay_apart_when_they_are_put_together() -> None:
    text = "".join(p.read_text() for p in sorted((CHART / "crds").iterdir()))  # as `helm show crds` does
    assert len(list(yaml.safe_load_all(text))) == 3


@pytest.mark.parametrize(
    ("python", "semantic"), [("1.2.3", "1.2.3"), ("0.1.0.dev0", "0.1.0-dev.0"), ("1.2.3rc4", "1.2.3-rc.4")]
)
def test_versions_as_helm_wants_them(python: str, semantic: str) -> None:
    assert load_script(ROOT / "hack" / "chart.py").semantic(python) == semantic


def test_every_value_has_a_comment() -> None:
    values = list(load_script(ROOT / "hack" / "chart.py").values((CHART / "values.yaml").read_text()))
    assert len(values) > 50
    assert [path for path, _, comment in values if not comment] == []


def test_values_and_schema_have_the_same_names() -> None:
    assert dict(differences(VALUES, SCHEMA, ())) == {}


def differences(values: dict[str, Any], schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Names that only one has, below sections that the schema closes."""
    if schema.get("additionalProperties") is not False:
        return
    properties = schema["properties"]
    optional = FREE if not path else {"claims"} if path[-1] == "resources" else set()
    for name in (properties.keys() ^ values.keys()) - optional:
        yield ".".join((*path, name)), "only in the schema" if name in properties else "only in the values"
    for name, value in values.items():
        if isinstance(value, dict) and name in properties:
            yield from differences(value, properties[name], (*path, name))


def test_the_schema_leaves_open_only_what_kubernetes_checks() -> None:
    opened = sorted(".".join(path) for path, node in nodes(SCHEMA, ()) if node == {"type": "object"})
    assert opened == [
        "affinity",
        "brokerGroup.spec",
        "controllerCluster.spec",
        "extraEnv.[].valueFrom",
        "global",
        "nameServer.spec",
        "podSecurityContext",
        "securityContext",
    ]


def nodes(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from nodes(schema["items"], (*path, "[]"))


def test_the_operator_knows_every_variable_it_is_given() -> None:
    text = "".join(p.read_text() for p in (CHART / "templates").glob("*.yaml"))
    given = set(re.findall(r"name: ((?:OPERATOR|ROCKETMQ_HA)_\w+)", text))
    known = keys(OperatorKeys)
    assert given <= known
    not_given = {"HEALTH_HOST", "HEALTH_PORT", "METRICS_PORT", "LEASE_SECONDS", "HAND_OVER_SECONDS"}
    assert known - given == {f"OPERATOR_{name}" for name in not_given}  # extraEnv is there for these


def test_values_that_set_a_variable_have_its_default_and_stay_within_its_bounds() -> None:
    template = (CHART / "templates" / "060-Deployment-operator.yaml").read_text()
    paths = dict(re.findall(r"name: ([A-Z_]+)\n +value: {{ \.Values\.([\w.]+)", template))
    assert {"OPERATOR_WORKERS", "OPERATOR_RESYNC_SECONDS", "OPERATOR_LOG_LEVEL"} <= paths.keys()
    for row in rows(OperatorKeys):
        if row.key not in paths:
            continue
        value, schema = VALUES, SCHEMA
        for name in paths[row.key].split("."):
            value, schema = value[name], schema["properties"][name]
        assert value == row.value, row.key
        assert set(schema.get("enum", ())) == set(row.choices), row.key
        if row.most is not None:
            assert (row.least or 0) <= schema["minimum"] <= schema["maximum"] <= row.most, row.key


def test_rules_name_what_they_allow() -> None:
    text = (CHART / "templates" / "_rules.tpl").read_text()
    assert "*" not in re.sub(r"{{/\*.*?\*/}}", "", text, flags=re.DOTALL)
    for resource, verb in (("secrets", "list"), ("secrets", "watch"), ("pods/exec", "create")):
        assert not re.search(rf"resources: \[[^\]]*\b{resource}\b[^\]]*\]\n  verbs: \[[^\]]*\b{verb}\b", text)


def test_templates_are_numbered() -> None:
    names = [p.relative_to(CHART / "templates").name for p in (CHART / "templates").rglob("*.yaml")]
    assert [name for name in names if not re.match(r"\d{3}-[A-Z]\w+(-[a-z-]+)?\.yaml$", name)] == []
    assert len({name[:3] for name in names}) == len(names)


# files/check_install.py, which `helm test` runs in the operator's image


def test_the_script_needs_the_standard_library_only() -> None:
    import sys

    tree = ast.parse((CHART / "files" / "check_install.py").read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_script_knows_what_is_missing() -> None:
    script = load_script(CHART / "files" / "check_install.py")
    kinds = [yaml.safe_load(p.read_text())["spec"]["names"]["plural"] for p in (CHART / "crds").iterdir()]
    assert script.missing_kinds({"resources": [{"name": name} for name in kinds]}) is None
    assert "nameservers" in script.missing_kinds({"resources": [{"name": "brokergroups"}]})


def test_the_script_counts_ready_pods() -> None:
    script = load_script(CHART / "files" / "check_install.py")

    def deployment(ready: int, seen: int) -> dict[str, Any]:
        status = {"readyReplicas": ready, "observedGeneration": seen}
        return {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}

    assert script.unready(deployment(2, 2)) is None
    assert script.unready(deployment(1, 2)) == "1 of 2 are"
    assert script.unready(deployment(2, 1)) == "its newest version was not looked at yet"


def test_the_script_wants_a_lease_that_is_renewed() -> None:
    script = load_script(CHART / "files" / "check_install.py")

    def lease(holder: str | None, age: float) -> dict[str, Any]:
        renewed = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)
        stamp = renewed.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {"spec": {"holderIdentity": holder, "renewTime": stamp, "leaseDurationSeconds": 15}}

    assert script.lease_without_holder(lease("operator-0", 3)) is None
    assert script.lease_without_holder(lease(None, 3)) == "the Lease has no holder"
    assert "has not renewed it for 60 s" in script.lease_without_holder(lease("operator-0", 60))
