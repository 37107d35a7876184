"""The files that may have tests with the marks of a phase: `python -m tests.gate.marked together` prints those of
`make together`, `python -m tests.gate.marked long` those of `make units-long`.

To collect all tests takes half a minute in each worker, and these files are a sixth of them. tests/conftest.py refuses
a marked test in a file that would not be found.
"""

import functools
import re
import sys
from pathlib import Path

SIGNS = {
    "together": re.compile(r"mark\.(?:processes|interop|java)\b|\bengine\b"),
    "long": re.compile(r"mark\.long\b"),
}
"""The marks, and the fixture whose users are marked by tests/conftest.py."""
LONG_FOLDER = ("tests", "sim")
LONG_FILES = frozenset(("test_crash_points.py", "test_model.py", "test_stateful.py"))
"""Their tests compute for seconds, like all of the folder; tests/conftest.py marks them."""


@functools.cache
def may_have(file: Path, which: str) -> bool:
    if which == "long" and is_long(file):
        return True
    return SIGNS[which].search(file.read_text()) is not None


def is_long(file: Path) -> bool:
    """Whether all tests of this file are long."""
    return file.name in LONG_FILES or any(parent.parts[-2:] == LONG_FOLDER for parent in file.parents)


def files(folder: Path, which: str) -> list[str]:
    """Their paths, as `folder` begins."""
    return sorted(str(file) for file in folder.rglob("test_*.py") if may_have(file, which))


if __name__ == "__main__":
    print(*files(Path("tests"), sys.argv[1]))
