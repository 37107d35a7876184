"""The table of consumer offsets: what concerns one topic or one group does not pass over all others."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_formats.steps import finish

NAMES = st.integers(0, 3)


class NotWalked(dict[str, dict[int, int]]):
    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a step over a million keys")


def test_a_topic_or_group_is_found_and_removed_without_the_others() -> None:
    table = ConsumerOffsets()
    for topic in "TU":
        for group in "GH":
            table.commit(group, topic, 0, 5)
    table._table = NotWalked(table._table)
    assert (table.topics_of("G"), table.groups_of("U")) == (["T", "U"], ["G", "H"])
    finish(table.remove(topics={"T"}, groups={"H"}))
    assert (table.topics_of("G"), table.groups_of("U"), len(table)) == (["U"], ["G"], 1)


@given(st.lists(st.tuples(NAMES, NAMES, st.sampled_from(["commit", "topic", "group", "both"])), max_size=30))
def test_topics_and_groups_are_those_of_the_keys(steps: list[tuple[int, int, str]]) -> None:
    table = ConsumerOffsets()
    for topic, group, what in steps:
        if what == "commit":
            table.commit(f"G{group}", f"T{topic}", 0, 1)
        else:
            topics = {f"T{topic}"} if what != "group" else set()
            finish(table.remove(topics=topics, groups={f"G{group}"} if what != "topic" else set()))
            assert not [name for name in topics if table.groups_of(name)]
        pairs = {tuple(key.split("@")) for key in table.raw_keys()}
        for number in range(4):
            assert {(f"T{number}", found) for found in table.groups_of(f"T{number}")} == {
                pair for pair in pairs if pair[0] == f"T{number}"
            }
            assert {(found, f"G{number}") for found in table.topics_of(f"G{number}")} == {
                pair for pair in pairs if pair[1] == f"G{number}"
            }
    assert len(table) == len(table.raw_keys())


def filled(groups: int) -> ConsumerOffsets:
    table = ConsumerOffsets()
    for group in range(groups):
        table.commit(f"G{group}", "T", 0, 5)
    return table


def test_many_groups_lose_a_topic_in_steps_and_what_is_committed_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic can have a million groups: four seconds at once."""
    monkeypatch.setattr("rocketmq_broker.domain.tables.offsets.SLICE", 10)
    table = filled(55)
    removal = table.remove(topics={"T"})
    table.commit("G7", "T", 0, 6)
    table.commit("New", "T", 0, 1)
    left = []
    for _ in removal:
        left.append(len(table))
        if len(left) == 2:
            table.commit("G3", "T", 0, 9)
            table.commit("G50", "T", 0, 9)
    assert left == [56 - 9, 56 - 19, 56 - 27, 56 - 37, 56 - 47]
    assert set(table.groups_of("T")) == {"G7", "New", "G3", "G50"}
    assert [table.find(group, "T", 0) for group in ("G7", "New", "G3", "G50")] == [6, 1, 9, 9]


def test_a_slave_removes_what_its_master_lacks_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_broker.domain.tables.offsets.SLICE", 10)
    table = filled(55)
    taken = table.take_changes({"T@G54": {0: 8}}, (), begins=True)
    left = []
    for _ in taken:
        left.append(len(table))
        assert table.copying, "who ends here has half of a copy"
    assert left == [45, 35, 25, 15, 5, 1]
    assert (table.copying, table.find("G54", "T", 0)) == (False, 8)
