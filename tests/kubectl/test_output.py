"""Tables, ages and sizes."""

from datetime import UTC, datetime

import pytest

from rocketmq_kubectl import output
from rocketmq_kubectl.output import Form


def test_a_table_is_aligned_and_one_line_per_row() -> None:
    rows = [("a", None, True), ("long name", [1, 2], "two\nlines\x1b[31m")]
    assert output.table(("NAME", "IDS", "X"), rows) == (
        "NAME        IDS   X\na           -     yes\nlong name   1,2   two lines?[31m\n"
    )


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (194, "3m14s"),
        (3600, "60m"),
        (5 * 3600, "5h"),
        (9 * 86400, "9d"),
    ],
)
def test_durations_as_kubectl_shows_them(seconds: float, shown: str) -> None:
    assert output.duration(seconds) == shown


def test_age_of_nothing() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert [output.age(text, now) for text in (None, "", "soon")] == [None, None, None]
    assert output.age("2025-12-31T23:59:30", now) == "30s"


@pytest.mark.parametrize(
    ("count", "shown"), [(None, None), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 * 2**30, "200 GiB")]
)
def test_sizes(count: int | None, shown: str | None) -> None:
    assert output.size(count) == shown


def test_forms() -> None:
    document = {"b": [1, None], "a": "ä"}
    assert output.render(Form.JSON, "t", document) == '{"b":[1,null],"a":"ä"}\n'
    assert output.render(Form.YAML, "t", document) == "b:\n- 1\n- null\na: ä\n"
    assert output.render(Form.WIDE, "t", document) == "t"
