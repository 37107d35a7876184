"""Writes the generated parts of helm/rocketmq-ha; `--check` only compares (make chart, make check).

The CRDs are copies of crds/, version and appVersion are the distribution's, the table of values in the chart's README
is made of the comments in values.yaml. Tests take the values and their comments from here too.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "rocketmq-ha"
MARK = "---\n"
BEGIN, END = "<!-- values: made by `make chart` from values.yaml -->", "<!-- end of values -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if what is there differs from what would be made")
    check = parser.parse_args().check
    made = make()
    present = {path: path.read_text() for path in (*made, *(CHART / "crds").glob("*")) if path.exists()}
    stale = sorted(path for path in made.keys() | present.keys() if made.get(path) != present.get(path))
    for path in stale:
        name = path.relative_to(ROOT)
        if check:
            print(f"{name} is not what it is made from: run `make chart`", file=sys.stderr)
        elif path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path])
            print(name)
        else:
            path.unlink()
            print(f"{name} (gone)")
    return 1 if check and stale else 0


def make() -> dict[Path, str]:
    """Every file that is made, or partly made, by its path."""
    # `helm show crds` puts the files behind each other as they are: without the mark kubectl sees only the last one
    made = {CHART / "crds" / path.name: MARK + path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    made[CHART / "Chart.yaml"] = versioned((CHART / "Chart.yaml").read_text(), version())
    made[CHART / "README.md"] = with_table((CHART / "README.md").read_text())
    return made


def version() -> str:
    text = (ROOT / "libs" / "rocketmq_runtime" / "version.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found, "version.py has no __version__"
    return found[1]


def semantic(python_version: str) -> str:
    """The same version as Helm wants it: 1.2.3.dev4 is 1.2.3-dev.4, 1.2.3rc1 is 1.2.3-rc.1."""
    found = re.fullmatch(r"(\d+\.\d+\.\d+)(?:\.?(a|b|rc|dev)(\d+))?", python_version)
    assert found, f"{python_version}: expected X.Y.Z, X.Y.ZrcN or X.Y.Z.devN"
    return found[1] if found[2] is None else f"{found[1]}-{found[2]}.{found[3]}"


def versioned(chart: str, python_version: str) -> str:
    chart = re.sub(r"^version: .*$", f"version: {semantic(python_version)}", chart, flags=re.MULTILINE)
    return re.sub(r"^appVersion: .*$", f'appVersion: "{python_version}"', chart, flags=re.MULTILINE)


def with_table(readme: str) -> str:
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, default, comment in values((CHART / "values.yaml").read_text()):
        rows.append(f"| {path} | {default} | {comment} |")
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *rows, END]) + after


def values(text: str) -> Iterator[tuple[str, str, str]]:
    """Path, default as JSON-like text and comment of every value; a section with a comment is one value."""
    lines = text.splitlines()
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    yield from _values(root, lines, ())


def _values(node: yaml.MappingNode, lines: list[str], above: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        path = (*above, key.value)
        comment = _comment(lines, key.start_mark.line)
        if not comment and isinstance(value, yaml.MappingNode) and value.value:
            yield from _values(value, lines, path)
        else:
            yield ".".join(path), f"`{_flow(value)}`", comment


def _comment(lines: list[str], line: int) -> str:
    """The comment lines right above a line."""
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(found)


def _flow(node: yaml.Node) -> str:
    text: str = yaml.serialize(node, width=1000)
    value = yaml.safe_load(text)
    if isinstance(value, dict | list):
        dumped: str = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
        return dumped.strip()
    return '""' if value == "" else str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.exit(main())
