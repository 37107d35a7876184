"""The files that may have tests with the marks of `make together`: `python -m tests.gate.marked` prints them.

To collect all tests takes half a minute in each worker, and these files are a sixth of them. tests/conftest.py refuses
a marked test in a file that would not be found.
"""

import functools
import re
from pathlib import Path

SIGN = re.compile(r"mark\.(?:processes|interop|java)\b|\bengine\b")
"""The marks, and the fixture whose users are marked by tests/conftest.py."""


@functools.cache
def may_have(file: Path) -> bool:
    return SIGN.search(file.read_text()) is not None


def files(folder: Path) -> list[str]:
    """Their paths, as `folder` begins."""
    return sorted(str(file) for file in folder.rglob("test_*.py") if may_have(file))


if __name__ == "__main__":
    print(*files(Path("tests")))
