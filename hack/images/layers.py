"""Splits the pinned packages into the layers of the images: `layers.py OUT [spark]` (the Dockerfile calls it).

Images whose extras need the same packages share the layers that hold them. Writes OUT/<layer>.txt, a requirements file
in pip's hash-checking mode, for each layer; with `spark` only the layer of the image with Spark, which is large, so
that the other builds need not wait for it. Runs inside the build: pip resolves once, within the pins, what all extras
need; each extra's closure is taken from that.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("broker", "sidecar", "controller", "namesrv", "operator", "demo")
SHARED = {
    "common": EXTRAS,
    "loop": ("broker", "sidecar", "controller", "namesrv", "demo"),
    "grpc": ("sidecar", "controller", "namesrv", "operator", "demo"),
    "grpc-server": ("sidecar", "controller", "namesrv", "demo"),
    "raft": ("controller", "namesrv", "demo"),
}
"""Layer to the extras that have it: everything that all of them need and no earlier layer of theirs holds. What an
image then still lacks goes to its own layer, rest-<extra>."""
SPARK = "verify"
SPARK_STANDS_ON = ("common", "grpc")
"""Layers, made for others, that the image with Spark has as well."""

Graph = dict[str, list[Requirement]]
"""Canonical name of a package to what it requires, markers included."""


def main() -> int:
    out, with_spark = Path(sys.argv[1]), "spark" in sys.argv[2:]
    pins = read_pins((ROOT / "constraints.txt").read_text())
    if with_spark:
        pins |= read_pins((ROOT / "constraints-verify.txt").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {extra: list(roots(project, extra)) for extra in (*EXTRAS, SPARK)[: len(EXTRAS) + with_spark]}
    graph = resolve(pins, sorted({str(root) for extra in wanted for root in wanted[extra]}))
    needed = {extra: closure(graph, wanted[extra]) for extra in wanted}

    layers: dict[str, set[str]] = {}
    for name, extras in SHARED.items():
        before = [layers[other] for other in layers if set(extras) <= set(SHARED[other])]
        layers[name] = set.intersection(*(needed[extra] for extra in extras)).difference(*before)
    for extra in EXTRAS:
        shared = [layers[name] for name, extras in SHARED.items() if extra in extras]
        layers[f"rest-{extra}"] = needed[extra].difference(*shared)
    if with_spark:
        layers = {"spark": needed[SPARK].difference(*(layers[name] for name in SPARK_STANDS_ON))}
    out.mkdir(parents=True, exist_ok=True)
    for name, packages in layers.items():
        (out / f"{name}.txt").write_text("".join(pins[package] for package in sorted(packages)))
        print(f"{name}: {' '.join(sorted(packages))}")
    return 0


def read_pins(text: str) -> dict[str, str]:
    """Canonical name to its `name==version --hash=...` lines."""
    found = re.finditer(r"^([A-Za-z0-9._-]+)==(?:.*\\\n)*.*\n", text, re.MULTILINE)
    return {canonicalize_name(match[1]): match[0] for match in found}


def roots(project: dict[str, object], extra: str) -> Iterator[Requirement]:
    """What the project and one of its extras require, extras of extras (`rocketmq-ha[...]`) taken apart."""
    optional = project["optional-dependencies"]
    dependencies = project["dependencies"]
    assert isinstance(optional, dict)
    assert isinstance(dependencies, list)
    for line in (*dependencies, *optional[extra]):
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) != project["name"]:
            yield requirement
        for inner in requirement.extras if canonicalize_name(requirement.name) == project["name"] else ():
            yield from roots(project, inner)


def resolve(pins: dict[str, str], requirements: list[str]) -> Graph:
    """Ask pip, within the pins; hashes are checked later, when these packages are fetched to be installed."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("".join(block.split(" ", 1)[0] + "\n" for block in pins.values()))
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), "--constraint", str(constraints), *requirements]
        subprocess.run(command, check=True)
        chosen = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {
        canonicalize_name(item["name"]): [Requirement(line) for line in item.get("requires_dist", ())]
        for item in chosen
    }


def closure(graph: Graph, wanted: Iterable[Requirement]) -> set[str]:
    """Names of all packages that these requirements pull in on this platform."""
    seen: set[tuple[str, str]] = set()
    todo = [(requirement, "") for requirement in wanted]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for chosen in {"", *requirement.extras}:
            if (name, chosen) not in seen:
                seen.add((name, chosen))
                todo += [(inner, chosen) for inner in graph[name]]
    return {name for name, _ in seen}


if __name__ == "__main__":
    sys.exit(main())
