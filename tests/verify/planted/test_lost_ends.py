"""Ends of logs that were confirmed and are gone, in real files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.checks import witnesses
from rocketmq_verify.domain.findings import Kind
from rocketmq_verify.domain.planning.lineage import Lineage, lineage
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.work import Place, parse_place
from tests.verify.history.stores import save_all
from tests.verify.logs_kit import log
from tests.verify.planted.faults import SEGMENT, Group


def zeros(file: Path) -> None:
    file.write_bytes(bytes(SEGMENT))


HOW = pytest.mark.parametrize("damage", [zeros, Path.unlink])


def described(places: tuple[Place, ...]) -> Lineage:
    logs = [open_source(place.name, place.spec).describe() for place in places]
    return lineage(logs, logs)


def last_file(place: Place) -> Path:
    return max((Path(place.spec.removeprefix("files:")) / "commitlog").iterdir())


@HOW
def test_a_last_file_that_all_have_lost(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    made = Group().fill(100)
    places = save_all(made, tmp_path)
    assert described(places).findings == ()
    for place in places:
        damage(last_file(place))
    (found,) = described(places).findings
    assert (found.kind, found.replicas) == (Kind.LOST_CONFIRMED, ("a", "b", "c"))
    assert found.extent.end == made.master.confirm


@HOW
def test_a_last_file_that_one_has_lost(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    places = save_all(Group().fill(100), tmp_path)
    damage(last_file(places[1]))
    assert [(one.kind, one.replicas) for one in described(places).findings] == [(Kind.LOST_COPY, ("b",))]


def test_all_files_of_all(tmp_path: Path) -> None:
    places = save_all(Group().fill(100), tmp_path)
    for place in places:
        for file in last_file(place).parent.iterdir():
            file.unlink()
    assert [one.kind for one in described(places).findings] == [Kind.LOST_CONFIRMED]


@pytest.mark.parametrize(("number", "left"), [(1, 1000), (-1, 100)])
def test_a_file_that_was_cut_is_found_without_reading_it(tmp_path: Path, number: int, left: int) -> None:
    made = Group().fill(100)
    places = save_all(made, tmp_path)
    file = sorted(last_file(places[1]).parent.iterdir())[number]
    file.write_bytes(file.read_bytes()[:left])
    (found,) = described(places).findings
    start = int(file.name)
    assert (found.kind, found.replicas, found.segment) == (Kind.MISSING_SEGMENT, ("b",), start)
    assert found.extent == Extent(start + left, min(start + SEGMENT, made.master.end))


def test_the_log_that_is_checked_has_most_of_what_was_compared() -> None:
    places = tuple(parse_place(f"{name}=/data/{name}") for name in "abc")
    alone = log("a", end=9000)
    others = [log(name, end=12_000, begin=10_000) for name in "bc"]
    found = witnesses(places, lineage([alone, *others]), ())
    assert [place.name in "bc" for place in found] == [True, True, False]
