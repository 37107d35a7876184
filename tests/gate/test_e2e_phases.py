"""The gate runs `make e2e` in two parts (`.ci/run`). A test that neither of them names would never run there."""

import re

from tests.paths import ROOT

PHASES = ("e2e-chart", "e2e-stories")


def named(phase: str) -> list[str]:
    """What the recipe of `phase` names of e2e/."""
    recipe = re.search(rf"^{phase}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    return [word for word in recipe[1].split() if word.startswith("e2e/")]


def test_each_file_of_e2e_is_in_one_of_them() -> None:
    paths = [ROOT / name for phase in PHASES for name in named(phase)]
    run = [file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    assert sorted(run) == sorted((ROOT / "e2e").rglob("test_*.py"))
