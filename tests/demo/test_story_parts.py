"""The small judgements behind the summary."""

import pytest

from rocketmq_demo.engines.engine import DelayedResult
from rocketmq_demo.story.faults import FAULTS, fault_named
from rocketmq_demo.story.observer import GroupView, ReplicaView, changes, longest_gap


def view(master: int | None, epoch: int, *in_sync: int) -> GroupView:
    replicas = tuple(
        ReplicaView(broker_id=one, address=f"h:{one}", master=one == master, in_sync=one in in_sync, alive=True)
        for one in (1, 2)
    )
    return GroupView(master, epoch, epoch, replicas)


@pytest.mark.parametrize(
    ("times", "since", "until", "gap"),
    [
        ([], 0, 9, 0),
        ([1.0, 2.0, 5.0, 6.0], 0, 9, 3),
        ([1.0, 2.0, 5.0, 6.0], 5.5, 6, 1),
        ([1.0, 2.0, 5.0, 5.5], 3, 4, 3),
        ([1.0, 2.0], 1.5, 9, 7),
    ],
    ids=["nothing sent", "in the middle", "before the blow", "around the blow", "never resumed"],
)
def test_longest_gap(times: list[float], since: float, until: float, gap: float) -> None:
    assert longest_gap(times, since, until) == gap


def test_changes_in_words() -> None:
    assert changes(None, view(1, 1, 1)) == ["broker 1 is master, epoch 1", "in sync: 1"]
    assert changes(view(1, 1, 1), view(1, 1, 1)) == []
    assert changes(view(1, 1, 1), view(1, 1, 1, 2)) == ["in sync: 1, 2"]
    assert changes(view(1, 1, 1, 2), view(2, 2, 2)) == ["broker 2 is master, epoch 2", "in sync: 2"]
    assert changes(view(1, 1, 1), view(None, 1, 1)) == ["no master, epoch 1"]


def test_group_view_finds_by_address() -> None:
    group = view(1, 1, 1)
    found = group.by_address("h:2")
    assert found is not None
    assert found.broker_id == 2
    assert group.by_address("h:9") is None


@pytest.mark.parametrize("name", [*FAULTS, "kill-controllers-for-60s", "kill-controllers-for-300s"])
def test_faults_that_there_are(name: str) -> None:
    assert fault_named(name) is not None


@pytest.mark.parametrize(
    "name", ["", "kill-controllers-for-s", "kill-controllers-for-10000s", "kill-controllers-for-9sx"]
)
def test_faults_that_there_are_not(name: str) -> None:
    assert fault_named(name) is None


@pytest.mark.parametrize(
    ("delivered", "early", "problem"),
    [
        (20, 0, None),
        (19, 0, "19 of 20 delayed messages came without a master, 0 of them too early"),
        (20, 1, "20 of 20 delayed messages came without a master, 1 of them too early"),
    ],
)
def test_delayed_messages_that_stay_or_hurry_are_a_problem(delivered: int, early: int, problem: str | None) -> None:
    assert DelayedResult(sent=20, delivered=delivered, early=early).problem == problem


def test_topic_that_cannot_be_read_says_why() -> None:
    result = DelayedResult(sent=20, delivered=0, early=0, unread="no route")
    assert result.problem == "0 of 20 delayed messages came without a master, 0 of them too early: no route"
