"""Writes the tables of docs/configuration.md and docs/operator.md from the declarations of the keys; `--check` fails
when they are out of date (make check).
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.declare import Settings
from rocketmq_settings.name_server import NameServerKeys
from rocketmq_settings.operator import OperatorKeys
from rocketmq_settings.replica import ReplicaKeys
from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_settings.table import Row, keys, rows
from rocketmq_settings.verify import VerifyKeys

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "configuration.md", DOCS / "operator.md")
TABLES: dict[str, type[Settings]] = {
    "replica": ReplicaKeys,
    "broker": BrokerKeys,
    "sidecar": SidecarKeys,
    "controller": ControllerKeys,
    "name server": NameServerKeys,
    "verification": VerifyKeys,
    "operator": OperatorKeys,
}
MARKS = re.compile(r"(<!-- keys: (.+?) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def table(name: str) -> str:
    """The table of one process, without what its part of a replica shares with the other."""
    spec = TABLES[name]
    shared = keys(ReplicaKeys) if issubclass(spec, ReplicaKeys) and spec is not ReplicaKeys else frozenset()
    own = [row for row in rows(spec) if row.key not in shared]
    changes = any(row.change for row in own)
    head = [
        "variable" if spec is OperatorKeys else "key",
        "default",
        "values",
        *(["a change takes effect"] if changes else []),
        "meaning",
    ]
    lines = [head, ["---"] * len(head)]
    for row in own:
        change = [row.change or "not by a tool"] if changes else []
        lines.append([row.key, _default(row), _values(row), *change, _meaning(row)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


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
        return ", ".join(sorted(row.choices))
    if isinstance(row.value, bool):
        return "true, false"
    if row.least is not None:
        return (
            f"{_number(row.least)} to {_number(row.most)}" if row.most is not None else f"{_number(row.least)} and more"
        )
    if row.most is not None:
        return f"up to {_number(row.most)}"
    return "number" if isinstance(row.value, int | float) else "text"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _meaning(row: Row) -> str:
    if row.without_effect:
        return f"No effect, accepted because Java's files contain it. {row.meaning}"
    return f"{row.meaning} Equal on all replicas." if row.group_wide else row.meaning


def written(page: str) -> str:
    """The page with its tables replaced."""
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
