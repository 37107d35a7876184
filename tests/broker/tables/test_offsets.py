"""The table of consumer offsets: what concerns one topic or one group does not pass over all others."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain.tables.offsets import ConsumerOffsets

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
    table.remove(topics={"T"}, groups={"H"})
    assert (table.topics_of("G"), table.groups_of("U"), len(table)) == (["U"], ["G"], 1)


@given(st.lists(st.tuples(NAMES, NAMES, st.sampled_from(["commit", "topic", "group", "both"])), max_size=30))
def test_topics_and_groups_are_those_of_the_keys(steps: list[tuple[int, int, str]]) -> None:
    table = ConsumerOffsets()
    for topic, group, what in steps:
        if what == "commit":
            table.commit(f"G{group}", f"T{topic}", 0, 1)
        else:
            topics = {f"T{topic}"} if what != "group" else set()
            table.remove(topics=topics, groups={f"G{group}"} if what != "topic" else set())
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
