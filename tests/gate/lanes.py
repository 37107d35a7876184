"""Two lanes for tests that start processes: files with official brokers or Spark run one after the other, and our own
processes beside them. Two such files at once keep two cores at a load of thirty, at which everything is late.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

HEAVY = frozenset(("interop", "java"))
"""Marks of tests that start a JVM. One such test makes its whole file heavy."""


def heavy_file(folder: Path) -> Path:
    """Where a phase with lanes keeps the names of its heavy files."""
    return folder / "heavy.json"


def heavy_files(items: Iterable[pytest.Item]) -> list[str]:
    """The files as they are in node ids."""
    marked = (item for item in items if any(mark.name in HEAVY for mark in item.iter_markers()))
    return sorted({item.nodeid.partition("::")[0] for item in marked})


def save(file: Path, items: Sequence[pytest.Item]) -> None:
    """By each worker, which alone sees marks; all of them write the same."""
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name(f"{file.name}.{id(items)}")
    half.write_text(json.dumps(heavy_files(items)))
    half.replace(file)


class Lanes(LoadFileScheduling):
    """Deals out whole files: heavy ones to the first worker only, which takes light ones when no heavy one is left."""

    def __init__(self, config: pytest.Config, log: Any, file: Path) -> None:
        super().__init__(config, log)
        self._file = file

    def _assign_work_unit(self, node: Any) -> None:
        waiting = self._waiting(first=node is self.nodes[0])
        if waiting:
            self.workqueue.move_to_end(waiting[0], last=False)
            super()._assign_work_unit(node)
        else:
            node.shutdown()  # after what it still has

    def _waiting(self, *, first: bool) -> list[str]:
        heavy = frozenset(json.loads(self._file.read_text()))
        light = [file for file in self.workqueue if file not in heavy]
        return ([file for file in self.workqueue if file in heavy] or light) if first else light
