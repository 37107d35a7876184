"""The ends of queues in answers to COPY_TABLES: nothing in them is trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats import table_copies
from rocketmq_formats.errors import BodyError
from rocketmq_formats.table_copies import queue_ends_line, read_queue_ends

keys = st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.integers(0, 65_535))
lines = st.dictionaries(keys, st.integers(1, 2**62 - 1), max_size=10)


@given(st.lists(lines, max_size=5))
def test_ends_are_read_as_written(made: list[dict[tuple[str, int], int]]) -> None:
    body = b"".join(queue_ends_line((*key, end) for key, end in line.items()) for line in made)
    found = [{(topic, queue_id): end for topic, queue_id, end in line} for line in read_queue_ends(body)]
    assert found == made


@given(st.binary(max_size=60) | st.text('{}[]":,-T019.e\n', max_size=30).map(str.encode))
def test_whatever_comes_is_refused_or_within_bounds(body: bytes) -> None:
    try:
        for line in read_queue_ends(body):
            assert all(0 <= queue_id <= 65_535 and 0 < end < 2**62 for _, queue_id, end in line)
    except BodyError:
        pass


@pytest.mark.parametrize(
    "body",
    [
        b'{"T":{"1":7}}',
        b'{"T":{"1":0}}\n',
        b'{"T":{"1":4611686018427387904}}\n',
        b'{"T":{"-1":7}}\n',
        b'{"T":{"65536":7}}\n',
        b'{"T":{"1":"x"}}\n',
        b'{"T":7}\n',
        b"\n",
        b" " * 200_000 + b"{}\n",
    ],
)
def test_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        list(read_queue_ends(body))


def test_the_number_of_queues_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "MAX_QUEUE_ENDS", 3)
    line = queue_ends_line([("T", 1, 7), ("T", 2, 7)])
    assert list(read_queue_ends(line)) == [[("T", 1, 7), ("T", 2, 7)]]
    with pytest.raises(BodyError):
        list(read_queue_ends(line * 2))
