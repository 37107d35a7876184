"""The table of which a topic or a group goes at once, against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain import pairs
from rocketmq_broker.domain.pairs import Pairs
from rocketmq_formats.steps import finish

NAMES = st.sampled_from("ABC")
WHAT = st.sampled_from(["put", "remove", "topic", "group", "sweep", "step"])


class Value:
    """Known by identity."""


@given(st.lists(st.tuples(WHAT, NAMES, NAMES), max_size=40), st.integers(1, 3))
def test_what_is_removed_is_not_found_and_freed_once(steps: list[tuple[str, str, str]], size: int) -> None:
    model: dict[tuple[str, str], Value] = {}
    made: list[Value] = []
    freed: list[Value] = []
    table = Pairs[Value](lambda _topic, _group, value: freed.append(value))
    pairs_slice, pairs.SLICE = pairs.SLICE, size  # type: ignore[misc]
    try:
        sweep = table.sweep()
        for what, topic, group in steps:
            if what == "put" and (topic, group) not in model:
                made.append(Value())
                model[topic, group] = made[-1]
                table.put(topic, group, made[-1])
            elif what == "remove":
                assert table.remove(topic, group) == (model.pop((topic, group), None) is not None)
            elif what == "topic":
                table.remove_topic(topic)
                model = {key: value for key, value in model.items() if key[0] != topic}
            elif what == "group":
                table.remove_group(group)
                model = {key: value for key, value in model.items() if key[1] != group}
            elif what == "sweep":
                finish(table.sweep())
            elif what == "step" and next(sweep, "over") == "over":
                sweep = table.sweep()
            for name in "ABC":
                assert [table.get(name, other) for other in "ABC"] == [model.get((name, other)) for other in "ABC"]
                assert set(table.groups_of(name)) == {other for first, other in model if first == name}
                assert set(table.topics_of(name)) == {first for first, other in model if other == name}
            assert not set(freed) & set(model.values())
        finish(table.sweep())
        assert sorted(map(id, freed)) == sorted(id(value) for value in made if value not in model.values())
        assert set(table.groups()) == {group for _, group in model}
        assert table._by_topic.keys() == {topic for topic, _ in model}
    finally:
        pairs.SLICE = pairs_slice  # type: ignore[misc]


class NotWalked(dict[str, object]):
    """Of a topic or group with a million values."""

    def walked(self, *_: object) -> None:
        raise AssertionError("a step over a million values")

    __iter__ = keys = values = items = walked  # type: ignore[assignment]


def test_a_removal_passes_over_nothing() -> None:
    table = Pairs[Value]()
    for topic, group in ("TG", "TH", "UG"):
        table.put(topic, group, Value())
    for parts in (table._by_topic, table._by_group):
        for name, part in parts.items():
            parts[name] = NotWalked(part)  # type: ignore[assignment]
    assert table.remove_topic("T")
    assert table.remove_group("G")
    assert not table.remove_topic("T")
    assert [table.get(*pair) for pair in ("TG", "TH", "UG")] == [None, None, None]


def test_a_sweep_frees_a_portion_at_a_time() -> None:
    freed: list[str] = []
    table = Pairs[Value](lambda _topic, group, _value: freed.append(group))
    for number in range(2 * pairs.SLICE + 5):
        table.put("T", f"G{number}", Value())
    table.remove_topic("T")
    sizes = [len(freed) for _ in table.sweep()]
    assert sizes == [pairs.SLICE, 2 * pairs.SLICE, 2 * pairs.SLICE + 5]
    assert not table.to_sweep
