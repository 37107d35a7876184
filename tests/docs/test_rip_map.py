"""docs/rip-map.md: every test that it names exists, every promise that works names one, and its counts are true."""

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "rip-map.md").read_text()
ROW = re.compile(r"^\| (?P<promise>.*) \| (?P<status>works|differs|not yet) \| (?P<why>.*) \|$")
NAMED = re.compile(r"`?(?P<file>(?:[\w/]+/)?test_(?!differs_)\w+)(?:\.py)?`?(?:: (?P<names>\w+(?:, (?!test_)\w+)*))?")
FILES = {path: path.read_text() for folder in ("tests", "e2e") for path in (ROOT / folder).rglob("test_*.py")}


def _rows() -> dict[str, list[re.Match[str]]]:
    """By document."""
    found: dict[str, list[re.Match[str]]] = defaultdict(list)
    document = ""
    for line in PAGE[PAGE.index("# The design documents") :].splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ")
        elif document and (row := ROW.match(line)):
            found[document].append(row)
    return found


def _missing(text: str) -> list[str]:
    """What the tests that `text` names lack: a file, or a test in each file of that name."""
    missing = []
    for named in NAMED.finditer(text):
        files = [content for path, content in FILES.items() if path.as_posix().endswith(f"/{named['file']}.py")]
        if not files:
            missing.append(named[0])
        missing += [
            f"{named['file']}: {name}"
            for name in (named["names"] or "").split(", ")
            if name and not any(re.search(rf"def test_\w*{name}", content) for content in files)
        ]
    return missing


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if "test_" in line])
def test_the_tests_it_names_exist(line: str) -> None:
    assert _missing(line) == []


def test_what_works_names_a_test_and_the_rest_a_reason() -> None:
    for rows in _rows().values():
        for row in rows:
            assert NAMED.search(row["why"]) if row["status"] == "works" else row["why"].strip(), row[0]


def test_the_counts_are_true() -> None:
    table = PAGE.partition("<!-- counts: rip-map -->\n")[2].partition("<!-- end of counts -->")[0].splitlines()[2:]
    counts = {cells[0]: [int(cell) for cell in cells[1:]] for cells in (line[2:-2].split(" | ") for line in table)}
    assert counts.pop("all") == [sum(column) for column in zip(*counts.values(), strict=True)]
    for document, rows in _rows().items():
        now = Counter(row["status"] for row in rows)
        total, *first = counts[document][:5]
        assert total == len(rows) == sum(first), "every row of the first review is here"
        assert counts[document][5:] == [now["works"], now["differs"], now["not yet"]], document
