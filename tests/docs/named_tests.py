"""Tests that pages of docs/ name, and whether they exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`?(?P<file>(?:[\w/]+/)?test_(?!differs_)\w+)(?:\.py)?`?(?:: (?P<names>\w+(?:, (?!test_)\w+)*))?")
FILES = {path: path.read_text() for folder in ("tests", "e2e") for path in (ROOT / folder).rglob("test_*.py")}


def missing(text: str) -> list[str]:
    """What the tests that `text` names lack: a file, or a test in each file of that name."""
    absent = []
    for named in NAMED.finditer(text):
        files = [content for path, content in FILES.items() if path.as_posix().endswith(f"/{named['file']}.py")]
        if not files:
            absent.append(named[0])
        absent += [
            f"{named['file']}: {name}"
            for name in (named["names"] or "").split(", ")
            if name and not any(re.search(rf"def test_\w*{name}", content) for content in files)
        ]
    return absent
