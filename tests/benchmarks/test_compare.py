"""Two commits beside each other."""

import pytest

from benchmarks import report


@pytest.mark.parametrize(
    ("figure", "base", "here", "worse"),
    [
        ("alter_per_second", 100.0, 95.1, False),
        ("alter_per_second", 100.0, 94.9, True),
        ("alter_per_second", 100.0, 200.0, False),
        ("alter_median", 1.0, 1.049, False),
        ("alter_median", 1.0, 1.051, True),
        ("alter_median", 1.0, 0.5, False),
        ("sends_all_16", 100.0, 90.0, True),
        ("gap_lost", 0.0, 0.0, False),
        ("gap_lost", 0.0, 1.0, True),
    ],
)
def test_a_median_that_is_worse_is_reported(figure: str, base: float, here: float, worse: bool) -> None:
    spread = [base / 10, base, base * 10]
    table, told = report.comparison({figure: spread}, {figure: [here, here / 10, here * 10]}, 5.0)
    assert told == ([figure] if worse else [])
    assert len(table.splitlines()) == 3


def test_what_one_commit_does_not_measure_is_left_out() -> None:
    table, told = report.comparison({"alter_median": [1.0]}, {"alter_per_second": [1.0]}, 5.0)
    assert (len(table.splitlines()), told) == (2, [])
