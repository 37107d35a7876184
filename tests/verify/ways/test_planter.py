"""Random damage from a seed is found, and sound groups raise no alarm; `make plant` runs more."""

from __future__ import annotations

import pytest

from rocketmq_commitlog import queue_files
from tests.verify.ways.planter import plant, run, run_later
from tests.verify.ways.ways_kit import sidecars

CASES = 300
A_TEST = 50
APART = 1_000_000
"""More than any run has cases: seeds of different days do not overlap."""


@pytest.fixture
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(queue_files, "PAUSE", 0.0)
    return int(request.config.getoption("--hypothesis-seed", None) or 0) * APART


@pytest.mark.long
@pytest.mark.parametrize("part", range(CASES // A_TEST))
def test_files(seed: int, part: int) -> None:
    wrong = [why for number in range(A_TEST) if (why := run(seed + part * A_TEST + number, None))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("part", range(CASES // A_TEST))
def test_files_after_a_first_run(seed: int, part: int) -> None:
    wrong = [why for number in range(A_TEST) if (why := run_later(seed + part * A_TEST + number, None))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.processes
def test_through_sidecars(seed: int) -> None:
    with sidecars() as doors:
        wrong = [why for number in range(A_TEST) for one in (run, run_later) if (why := one(seed + number, doors))]
    assert not wrong, "\n".join(wrong)


def test_a_seed_repeats_its_case(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    stores = []
    for _ in range(2):
        root = tmp_path_factory.mktemp("stores")
        case = plant(seed + 3, root)
        stores.append((case.text, {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*0")}))
    assert stores[0] == stores[1]
