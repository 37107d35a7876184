"""What a run prints of promises."""

import pytest

from benchmarks import report


@pytest.mark.parametrize(
    ("figure", "ours", "java", "missed"),
    [
        ("acting_killed", [0.2, 0.9, 5.0], [0.1], False),
        ("acting_killed", [0.2, 1.1, 1.2], [9.0], True),
        ("masters_lost", [1.0], [2.1], False),
        ("masters_lost", [1.0], [1.9], True),
        ("heartbeat_per_second", [9.0], [10.0], True),
        ("heartbeat_per_second", [9.0], [], False),
        ("fetch_in_sync", [99.0], [1.0], False),
    ],
)
def test_a_median_that_misses_its_promise_is_reported(
    figure: str, ours: list[float], java: list[float], missed: bool
) -> None:
    table, told = report.table({"ours": {figure: ours}, "java": {figure: java}})
    assert told == ([figure] if missed else [])
    assert len(table.splitlines()) == 3
