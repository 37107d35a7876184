"""Makes docs/crd-reference.md out of crds/*.yaml; `--check` only compares (make docs, make check).

What users read, the API server checks and `kubectl explain` prints is then one text.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "crd-reference.md"
KINDS = ("brokergroups", "controllerclusters", "nameservers")
EXAMPLES = ("brokergroup", "brokergroup-apache", "brokergroup-production", "controller-embedded")

Schema = dict[str, Any]  # YAML

HEAD = """\
<!-- Made by hack/crd_reference.py from crds/*.yaml: do not edit, run `make docs` -->
# The resources

Three kinds of the API group `rocketmq-ha.io`, version `v1alpha1`, all namespaced. `kubectl get rocketmq` lists them
all, `kubectl explain brokergroup.spec` prints this page's tables where you work. What a rule forbids is refused when it
is written, with the rule's message; what only the cluster can know (a controller that does not exist, a volume that
cannot grow) shows in `status.conditions`.
"""

ANNOTATIONS = {
    "rocketmq-ha.io/restartedAt": (
        "a new value restarts the replicas one by one, the master last (`kubectl rocketmq restart`)"
    ),
    "rocketmq-ha.io/rebuild": (
        "names a pod: its volumes are emptied and filled again from the others, then the annotation goes"
        " (`kubectl rocketmq rebuild`). Refused with a condition for the master, and while nobody else in sync lives"
    ),
}
"""On a BrokerGroup."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if what is there differs from what would be made")
    made = page()
    if parser.parse_args().check:
        if not TARGET.exists() or TARGET.read_text() != made:
            print(f"{TARGET.relative_to(ROOT)} is not what crds/ make: run `make docs`", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(made)
    return 0


def page() -> str:
    """The whole file."""
    crds = [yaml.safe_load((ROOT / "crds" / f"{name}.yaml").read_text()) for name in KINDS]
    parts = [HEAD, *(kind(crd) for crd in crds)]
    return "\n".join(parts)


def kind(crd: Schema) -> str:
    """The chapter of one kind."""
    names = crd["spec"]["names"]
    [version] = crd["spec"]["versions"]
    root: Schema = version["schema"]["openAPIV3Schema"]
    spec, status = root["properties"]["spec"], root["properties"]["status"]
    head = f"`kubectl get {names['singular']}`, short `{names['shortNames'][0]}`.{_scale(version)}"
    lines = [
        f"## {names['kind']}",
        root["description"],
        "",
        f"{head} {_examples(names['kind'])}",
        "",
        "### spec",
        *table(spec, "", ("field", "type", "default", "meaning")),
        "",
        "### Rules",
        "| where | refused with |",
        "|---|---|",
        *(
            f"| `{path or 'metadata.name'}` | {_cell(rule['message'])} |"
            for path, rule in rules(root)
            if not _reserved(rule)
        ),
        "",
        "Keys that `spec.config` may not set:",
        ", ".join(f"`{name}`{_instead(rule)}" for name, rule in reserved(spec)) + ".",
        "",
        "### status",
        *table(status, "", ("field", "type", "", "meaning")),
        "",
        "### Columns",
        "| column | shown | value | meaning |",
        "|---|---|---|---|",
        *(_column(column) for column in version["additionalPrinterColumns"]),
        "",
        *(annotations() if names["kind"] == "BrokerGroup" else ()),
    ]
    return "\n".join(lines)


def annotations() -> Iterator[str]:
    """What no schema can say."""
    yield from ("### Annotations", "| annotation | what the operator does |", "|---|---|")
    yield from (f"| `{name}` | {meaning} |" for name, meaning in ANNOTATIONS.items())
    yield ""
    yield "Pods carry the labels `rocketmq-ha.io/group`, `rocketmq-ha.io/role` (master, slave or none) and"
    yield "`rocketmq-ha.io/broker-id`; volumes carry the annotation `rocketmq-ha.io/broker-id`."
    yield ""


def table(schema: Schema, path: str, heads: tuple[str, str, str, str]) -> list[str]:
    """One line per field below `schema`, nested ones by their path; the column without a head is left out."""
    shown = [head for head in heads if head]
    lines = [f"| {' | '.join(shown)} |", "|---" * len(shown) + "|"]
    for name, field, needed in fields(schema, path):
        cells = [_code(name), type_of(field), _default(field, needed=needed), _cell(field["description"])]
        lines.append("| " + " | ".join(cell for cell, head in zip(cells, heads, strict=True) if head) + " |")
    return lines


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Every field with its path, and whether it must be set where its parent is."""
    for name, field in schema["properties"].items():
        where = f"{path}.{name}" if path else name
        yield where, field, name in schema.get("required", ())
        items: Schema = field.get("items", {})
        if "properties" in field:
            yield from fields(field, where)
        elif "properties" in items:
            yield from fields(items, f"{where}[]")


def type_of(field: Schema) -> str:
    """What a value looks like, with its bounds."""
    kind_of = str(field.get("type"))
    sized = any("quantity(" in rule["rule"] for rule in field.get("x-kubernetes-validations", ()))
    if "enum" in field:
        kind_of = " \\| ".join(str(value) for value in field["enum"])
    elif sized or field.get("x-kubernetes-int-or-string"):
        kind_of = "quantity"
    elif kind_of == "array":
        kind_of = f"list of {type_of(field['items'])}"
    elif "additionalProperties" in field:
        kind_of = f"map of {type_of(field['additionalProperties'])}"
    elif field.get("format") == "date-time":
        kind_of = "time"
    return kind_of + _bounds(field)


def _bounds(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if low is None and high is None:
        return ""
    if high is None or high == 2**31 - 1:
        return f" ≥ {low}"
    return f" {low}..{high}"


def rules(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every CEL rule with the path of its field."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path + rule.get("fieldPath", ""), rule
    for name, field in schema.get("properties", {}).items():
        yield from rules(field, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[]")


def reserved(spec: Schema) -> Iterator[tuple[str, Schema]]:
    """Keys of spec.config that are refused, with their rules."""
    for rule in spec["properties"]["config"]["x-kubernetes-validations"]:
        if _reserved(rule):
            yield rule["rule"].split("'")[1], rule


def _reserved(rule: Schema) -> bool:
    return re.fullmatch(r"!\('\w+' in self\)", rule["rule"]) is not None


def _instead(rule: Schema) -> str:
    found = re.search(r": (?:set|use) (.*) instead$", rule["message"])
    return f" ({_fields_as_code(found[1])})" if found else ""


def _fields_as_code(text: str) -> str:
    return re.sub(r"\bspec\.[A-Za-z.]+", lambda found: f"`{found[0]}`", text)


def _default(field: Schema, *, needed: bool) -> str:
    if needed:
        return "required"
    default = field.get("default")
    return "" if default is None or isinstance(default, dict) else _code(json.dumps(default).strip('"'))


def _column(column: Schema) -> str:
    shown = "with `-o wide`" if column.get("priority") else "always"
    return f"| {column['name']} | {shown} | {_code(column['jsonPath'])} | {_cell(column.get('description', ''))} |"


def _scale(version: Schema) -> str:
    return " Can be scaled with `kubectl scale`." if "scale" in version["subresources"] else ""


def _examples(kind_name: str) -> str:
    """Which files of examples/ have one."""
    links = [
        f"[{name}.yaml](../examples/{name}.yaml)"
        for name in EXAMPLES
        if any(doc["kind"] == kind_name for doc in yaml.safe_load_all((ROOT / "examples" / f"{name}.yaml").read_text()))
    ]
    return f"Examples: {', '.join(links)}."


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())
