"""docs/field-reports.md: every report has its source, a result, and a test that exists."""

import re

import pytest

from tests.docs.named_tests import NAMED, ROOT, missing

PAGE, KINDS_PAGE = (ROOT / "docs" / "field-reports.md").read_text().split("## Kinds of faults")
ROWS = [
    line[2:-2].split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| report |")
]
KINDS = [line[2:-2].split(" | ") for line in KINDS_PAGE.splitlines() if line.startswith("| ")][1:]
SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+")
RESULTS = ("held", "mended", "in part")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0].partition(":")[0]))
def test_a_report_has_a_source_a_result_and_a_test_that_exists(row: list[str]) -> None:
    source, _, result, tests = row

    assert SOURCE.match(source)
    assert result.startswith(RESULTS)
    assert NAMED.search(tests)
    assert missing(tests) == []


def test_no_report_is_there_twice() -> None:
    sources = SOURCE.findall(PAGE)
    assert len(sources) == len(set(sources))
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", KINDS, ids=lambda row: str(row[0]))
def test_a_kind_has_a_test_that_failed_and_one_sentence_in_each_cell(row: list[str]) -> None:
    _, failed, others, left = row

    assert NAMED.fullmatch(failed)
    assert NAMED.search(others)
    assert missing(failed) == missing(others) == []
    for sentence in (others, left):
        assert sentence.endswith(".")
        assert ". " not in sentence


def test_the_table_of_kinds_is_there() -> None:
    assert len({row[0] for row in KINDS}) == len(KINDS) > 10
