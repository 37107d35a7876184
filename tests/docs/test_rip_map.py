"""docs/rip-map.md: every test that it names exists, every promise that works names one, and its counts are true."""

import re
from collections import Counter, defaultdict

import pytest

from tests.docs.named_tests import NAMED, ROOT, missing

PAGE = (ROOT / "docs" / "rip-map.md").read_text()
ROW = re.compile(r"^\| (?P<promise>.*) \| (?P<status>works|differs|not yet) \| (?P<why>.*) \|$")


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


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if "test_" in line])
def test_the_tests_it_names_exist(line: str) -> None:
    assert missing(line) == []


def test_what_works_names_a_test_and_the_rest_a_reason() -> None:
    for rows in _rows().values():
        for row in rows:
            assert NAMED.search(row["why"]) if row["status"] == "works" else row["why"].strip(), row[0]


def test_only_upgrades_and_older_versions_are_not_there_yet() -> None:
    for rows in _rows().values():
        for row in rows:
            assert row["status"] != "not yet" or row["why"].startswith("upgrades"), row[0]


def test_the_counts_are_true() -> None:
    table = PAGE.partition("<!-- counts: rip-map -->\n")[2].partition("<!-- end of counts -->")[0].splitlines()[2:]
    counts = {cells[0]: [int(cell) for cell in cells[1:]] for cells in (line[2:-2].split(" | ") for line in table)}
    assert counts.pop("all") == [sum(column) for column in zip(*counts.values(), strict=True)]
    for document, rows in _rows().items():
        now = Counter(row["status"] for row in rows)
        total, *first = counts[document][:5]
        assert total == len(rows) == sum(first), "every row of the first review is here"
        assert counts[document][5:] == [now["works"], now["differs"], now["not yet"]], document
