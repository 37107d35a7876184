"""The table of consumer offsets: what concerns one topic or one group does not pass over all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_formats.steps import finish

NAMES = st.integers(0, 3)


def test_a_topic_or_group_is_found_and_removed_without_the_others() -> None:
    table = ConsumerOffsets()
    for topic in "TU":
        for group in "GH":
            table.commit(group, topic, 0, 5)
    assert (table.topics_of("G"), table.groups_of("U")) == (["T", "U"], ["G", "H"])
    table.remove(topics={"T"}, groups={"H"})
    assert (table.topics_of("G"), table.groups_of("U")) == (["U"], ["G"])
    assert finish(table.texts()) == {"U@G": b"0:5"}
    assert len(table) == 1


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
        pairs = {tuple(key.split("@")) for key in table.raw_keys() if table.has(*key.split("@")[::-1])}
        for number in range(4):
            assert {(f"T{number}", found) for found in table.groups_of(f"T{number}")} == {
                pair for pair in pairs if pair[0] == f"T{number}"
            }
            assert {(found, f"G{number}") for found in table.topics_of(f"G{number}")} == {
                pair for pair in pairs if pair[1] == f"G{number}"
            }
    assert set(finish(table.texts())) == set(table.raw_keys())
    assert len(table) == len(table.raw_keys())


def test_between_the_steps_of_a_write_nothing_is_half_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic can have a million groups. What the file gets is from before or from after."""
    monkeypatch.setattr("rocketmq_broker.domain.pairs.SLICE", 10)
    table = ConsumerOffsets()
    for number in range(55):
        table.commit(f"G{number}", "T", 0, 5)
        table.pulled(f"G{number}", "T", 0, 5)
    before = finish(table.texts())
    assert len(before) == 55
    table.remove(topics={"T"})
    table.forget_pulls(topics={"T"})
    assert table.commit("G7", "T", 0, 1), "the topic was made again"
    steps, there = 0, {"G7"}
    for _ in table.texts():
        assert set(table.groups_of("T")) == there
        assert (table.find("G8", "T", 0), table.pull_offset("G8", "T", 0)) == (None, None)
        steps += 1
        if steps == 3:
            assert table.commit("G50", "T", 0, 9)
            there.add("G50")
        if steps == 5:
            table.remove(groups={"G7"})
            there.remove("G7")
    assert steps >= 12
    assert finish(table.texts()) == {"T@G50": b"0:9"}
    assert (len(table), table.raw_keys()) == (1, ["T@G50"])


def test_pull_offsets_are_bounded_while_removed_ones_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_broker.domain.tables.offsets.MAX_PULL_OFFSETS", 20)
    monkeypatch.setattr("rocketmq_broker.domain.pairs.SLICE", 5)
    table = ConsumerOffsets()
    for number in range(20):
        table.pulled(f"G{number}", "T", 0, 5)
    table.forget_pulls(topics={"T"})
    freeing = table.texts()
    next(freeing)
    for number in range(6):  # five have been freed
        table.pulled(f"G{number}", "U", 0, 5)
    assert [table.pull_offset(f"G{number}", "U", 0) for number in (4, 5)] == [None, 5]
    finish(freeing)
    for number in range(20, 39):
        table.pulled(f"G{number}", "U", 0, 5)
    assert table.pull_offset("G5", "U", 0) == 5
    table.pulled("New", "U", 0, 5)
    assert table.pull_offset("G5", "U", 0) is None


def test_a_slave_gets_a_removal_as_one_name_with_the_first_part() -> None:
    master, slave = ConsumerOffsets(), ConsumerOffsets()
    for number in range(55):
        master.commit(f"G{number}", "T", 0, 5)
        slave.commit(f"G{number}", "T", 0, 5)
    held = master.changes
    master.commit("G1", "T", 0, 6)
    master.commit("G1", "U", 0, 6)
    master.remove(topics={"T"})
    master.commit("G2", "T", 0, 7)
    first = master.changed_since(held, 1)
    assert (first.keys, first.removed, first.until < master.changes) == ([], ["T@"], True)
    finish(slave.take_changes({}, first.removed, ends=False))
    assert slave.groups_of("T") == [], "a slave that becomes master now has all of the removal, or nothing of it"
    held = first.until
    while held < master.changes:
        part = master.changed_since(held, 1)
        finish(slave.take_changes({key: {0: 7} for key in part.keys}, part.removed, ends=part.until == master.changes))
        held = part.until
    assert (slave.groups_of("T"), slave.topics_of("G1")) == (["G2"], ["U"])


def test_a_slave_removes_what_its_master_lacks_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_broker.domain.tables.offsets.SLICE", 10)
    table = ConsumerOffsets()
    for number in range(55):
        table.commit(f"G{number}", "T", 0, 5)
    left = []
    for _ in table.take_changes({"T@G54": {0: 8}}, (), begins=True):
        left.append(len(table))
        assert table.copying, "who ends here has half of a copy"
    assert left == [45, 35, 25, 15, 5]
    assert (len(table), table.copying, table.find("G54", "T", 0)) == (1, False, 8)
