"""Writes the tables of docs/configuration.md, docs/operator.md and docs/java-keys.md from the declarations of the keys;
`--check` fails when they are out of date (make check).
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.declare import Settings
from rocketmq_settings.java_keys import verdict
from rocketmq_settings.name_server import NameServerKeys
from rocketmq_settings.operator import OperatorKeys
from rocketmq_settings.replica import ReplicaKeys
from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_settings.table import Row, keys, rows
from rocketmq_settings.verify import VerifyKeys

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "configuration.md", DOCS / "operator.md", DOCS / "java-keys.md")
JAVA_KEYS = DOCS.parent / "tests" / "golden" / "keys" / "java_keys.json"
TABLES: dict[str, type[Settings]] = {
    "replica": ReplicaKeys,
    "broker": BrokerKeys,
    "sidecar": SidecarKeys,
    "controller": ControllerKeys,
    "name server": NameServerKeys,
    "verification": VerifyKeys,
    "operator": OperatorKeys,
}
WITHOUT_EFFECT = "Accepted because Java's files contain them, and without effect here:"
MARKS = re.compile(r"(<!-- keys: (.+?) -->\n).*?(<!-- end of keys -->)", re.DOTALL)
JAVA_MARKS = re.compile(r"(<!-- Java keys: (.+?) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def table(name: str) -> str:
    """The keys of one process, without what its part of a replica shares with the other: those that it uses, the ones
    of them that are equal on all replicas, and those that it only accepts."""
    spec = TABLES[name]
    shared = keys(ReplicaKeys) if issubclass(spec, ReplicaKeys) and spec is not ReplicaKeys else frozenset()
    own = [row for row in rows(spec) if row.key not in shared]
    parts = [_used([row for row in own if not row.without_effect], "variable" if spec is OperatorKeys else "key")]
    if equal := [f"`{row.key}`" for row in own if row.group_wide]:
        parts.append(f"Equal on all replicas: {', '.join(equal)}.\n")
    if idle := [(row.key, row.meaning) for row in own if row.without_effect]:
        parts.append(f"{WITHOUT_EFFECT}\n\n{_lines([('key', 'why it has no effect'), *idle])}")
    return "\n".join(parts)


def _used(own: list[Row], name: str) -> str:
    changes = any(row.change for row in own)
    head = [name, "default", "values", *(["a change takes effect"] if changes else []), "meaning"]
    return _lines(
        [
            head,
            *(
                [
                    row.key,
                    _default(row),
                    _values(row),
                    *([row.change or "not by a tool"] if changes else []),
                    row.meaning,
                ]
                for row in own
            ),
        ]
    )


def _lines(table: Iterable[Sequence[str]]) -> str:
    head, *cells = table
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *cells))


def _default(row: Row) -> str:
    if row.default is not None:
        return row.default
    if isinstance(row.value, bool):
        return str(row.value).lower()
    if row.value == "":
        return "none"
    value = _number(row.value) if isinstance(row.value, float) else str(row.value)
    return f"{value} {row.unit}" if row.unit else value


def _values(row: Row) -> str:
    if row.choices:
        return ", ".join(sorted(choice for choice in row.choices if choice))
    if isinstance(row.value, bool):
        return "true, false"
    return _bounds(row) + ("; 0 counts as 1" if row.zero_is_one else "")


def _bounds(row: Row) -> str:
    if row.least is not None:
        return (
            f"{_number(row.least)} to {_number(row.most)}" if row.most is not None else f"{_number(row.least)} and more"
        )
    if row.most is not None:
        return f"up to {_number(row.most)}"
    return "number" if isinstance(row.value, int | float) else "text"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def java_table(name: str) -> str:
    """The verdicts on the keys of one of Java's classes."""
    lines = ["| key | Java's default | verdict | by, or why not |", "| --- | --- | --- | --- |"]
    for owner, key, _type, default in json.loads(JAVA_KEYS.read_text()):
        if owner == name:
            found = verdict(owner, key)
            text = found.text
            if found.honoured is not None and _default(found.honoured) != _java_default(found.honoured, default):
                text = f"{text}; default here: {_default(found.honoured)}"
            lines.append(f"| {key} | {default or ''} | {found.kind} | {text.replace('|', '&#124;')} |")
    return "".join(f"{line}\n" for line in lines)


def _java_default(row: Row, default: str | None) -> str | None:
    return f"{default} {row.unit}" if default is not None and row.unit else default


def written(page: str) -> str:
    """The page with its tables replaced."""
    page = JAVA_MARKS.sub(lambda found: found[1] + java_table(found[2]) + found[3], page)
    return MARKS.sub(lambda found: found[1] + table(found[2]) + found[3], page)


def main(arguments: Iterable[str]) -> int:
    """0: done, or nothing to do; 1: `--check` found a difference."""
    pages = {page: page.read_text() for page in PAGES}
    stale = {page: made for page, text in pages.items() if (made := written(text)) != text}
    if "--check" in arguments:
        for page in stale:
            print(f"{page.name} does not fit the declared keys: run hack/configuration.py", file=sys.stderr)
        return 1 if stale else 0
    for page, text in stale.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
