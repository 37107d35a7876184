"""Logs of a group whose epochs parted, lag, or begin elsewhere: what is a difference, and what only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Kind, Severity
from rocketmq_verify.domain.verdict import Result
from tests.verify.planted.faults import SEGMENT, Group, verify
from tests.verify.planted.planted_kit import deterministic, group, kinds, only, part


def old_master(*, strict: bool = False, known_strict: bool = False) -> Group:
    """`a` wrote ten messages that no slave copied; `b` is master now and wrote others in their place."""
    made = Group(3, strict=strict, known_strict=known_strict).fill(40)
    for _ in range(10):
        made.put(500)
    made.elect(made["b"])
    for _ in range(30):
        made.put(500)
    made.copy(made["c"])
    return made


def test_what_an_old_master_had_alone_is_a_stale_tail() -> None:
    made = old_master()
    point = made["b"].epochs[-1][1]
    run = verify(made.replicas)
    tail = next(one for one in run.findings if one.kind is Kind.STALE_TAIL)
    assert (tail.replicas, tail.extent) == (("a",), Extent(point, made["a"].end))
    assert {one.kind for one in run.findings} == {Kind.STALE_TAIL, Kind.LAGGING}
    assert run.verdict.exit_code == 0
    assert (run.verdict.aligned_up_to, run.verdict.epoch) == (made.master.end, 2)


@deterministic
@given(index=st.integers(0, 60), who=st.sampled_from("bc"), seed=st.integers(0, 1000))
def test_a_stale_tail_hides_no_damage_of_others(index: int, who: str, seed: int) -> None:
    made = old_master()
    message = made.messages[index]
    made[who].flip(part(made, index, "body", seed))
    run = verify(made.replicas)
    damaged = [one for one in run.findings if one.kind is Kind.CORRUPT_RECORD]
    assert [(one.replicas, one.extent) for one in damaged] == [((who,), Extent(message.offset, message.end))]
    assert [one.replicas for one in run.findings if one.kind is Kind.STALE_TAIL] == [("a",)]


@deterministic
@given(index=st.integers(0, 39), seed=st.integers(0, 1000))
def test_a_stale_tail_hides_no_damage_of_its_own_replica(index: int, seed: int) -> None:
    made = old_master()
    message = made.messages[index]
    made["a"].flip(part(made, index, "body", seed))
    run = verify(made.replicas)
    damaged = [one for one in run.findings if one.kind is Kind.CORRUPT_RECORD]
    assert [(one.replicas, one.extent) for one in damaged] == [(("a",), Extent(message.offset, message.end))]


def test_confirmed_messages_that_differ_in_a_strict_group_are_divergent_history() -> None:
    made = old_master(known_strict=True)
    made["a"].confirm = made["a"].end
    run = verify(made.replicas)
    found = [one for one in run.findings if one.severity is Severity.MISMATCH]
    assert [(one.kind, one.replicas) for one in found] == [(Kind.DIVERGENT_HISTORY, ("a", "b"))]
    assert found[0].extent == Extent(made["b"].epochs[-1][1], made["a"].end)
    assert found[0].record is not None


def test_a_slave_without_the_newest_epoch_is_still_compared() -> None:
    made = group()
    made.elect(made.master)  # again
    for _ in range(30):
        made.put(600)
    made.sync()
    assert made["a"].epochs != made["b"].epochs
    run = verify(made.replicas)
    assert run.findings == ()
    assert run.verdict.aligned_up_to == made.master.end
    message = made.messages[70]
    made["b"].flip(message.body_start)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas, found.extent.start) == (Kind.CORRUPT_RECORD, ("b",), message.offset)
    made["b"].flip(message.body_start)
    made["a"].flip(message.body_start)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas) == (Kind.CORRUPT_RECORD, ("a",))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_two_beginnings_of_one_epoch_are_divergent_history(index: int) -> None:
    made = group(messages=20)
    for name in ("b", "c"):
        made.elect(made[name])
        for _ in range(20):
            made.put(500)
        made.sync()
    wrong = made.replicas[index]
    epoch, start = wrong.epochs[1]
    wrong.epochs[1] = (epoch, start + 1000)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas) == (Kind.DIVERGENT_HISTORY, (wrong.name,))
    assert found.extent == Extent(start, start + 1000)
    assert f"{epoch}-{start} in" in found.detail
    assert f"{epoch}-{start + 1000} in {wrong.name}" in found.detail


def test_a_master_that_restarts_in_its_epoch_makes_no_contradiction() -> None:
    made = group(strict=False)
    made.elect(made["b"])
    for _ in range(5):
        made.put()
    made.sync()
    made.restart_master()
    for _ in range(5):
        made.put()
    run = verify(made.replicas)
    assert not [one for one in run.findings if one.severity is not Severity.INFORMATION]
    assert {one.kind for one in run.findings} == {Kind.LAGGING}


@deterministic
@given(behind=st.integers(1, 30))
def test_a_lagging_replica_is_reported_and_compared_up_to_its_end(behind: int) -> None:
    made = group(strict=False)
    for _ in range(behind):
        made.put()
    made.copy(made["b"])
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas) == (Kind.LAGGING, ("c",))
    assert found.extent == Extent(made["c"].end, made.master.end)
    assert run.verdict.aligned_up_to == made.master.end
    made["c"].flip(made.messages[-behind - 1].body_start)
    assert {one.kind for one in verify(made.replicas).findings} == {Kind.LAGGING, Kind.CORRUPT_RECORD}


def test_logs_of_two_groups_are_not_aligned() -> None:
    one, other = group(2), group(2)
    other.clock += 1
    strange = Group(1)
    strange.epoch = 7
    strange.clock = 77_777
    strange.master.epochs = [(7, 0)]
    for _ in range(60):
        strange.put(650)
    stranger = strange.master
    stranger.name = one["b"].name
    stranger.confirm = stranger.end
    run = verify([one["a"], stranger])
    assert run.verdict.result is not Result.ALIGNED
    assert Kind.DIVERGENT_HISTORY in kinds(run)


def test_a_log_that_was_filled_from_its_masters_last_files_is_compared_where_both_have_bytes() -> None:
    made = group(messages=120)
    made.expire(made["a"], 3)
    made.rebuild(made["c"])
    made.put()
    made.sync()
    assert made["c"].min == 3 * SEGMENT
    run = verify(made.replicas)
    assert run.findings == ()
    assert run.verdict.aligned_up_to == made.master.end


def test_replicas_without_epochs_are_compared_by_their_bytes() -> None:
    made = group(2, strict=False)
    for replica in made.replicas:
        replica.epochs = []
    assert verify(made.replicas).verdict.result is Result.ALIGNED
    made["b"].flip(made.messages[9].body_start)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas) == (Kind.CORRUPT_RECORD, ("b",))


@pytest.mark.parametrize(
    ("replicas", "wrong", "named"),
    [
        (3, {"b": [(9, 0)]}, ("b",)),
        (3, {"b": [(1, 0), (9, None)]}, ("b",)),
        (3, {"b": [(9, 0)], "c": [(9, 0)]}, ("a",)),
        (2, {"b": [(9, 0)]}, ("a", "b")),
    ],
)
def test_equal_bytes_under_two_epochs_are_told(
    replicas: int, wrong: dict[str, list[tuple[int, int | None]]], named: tuple[str, ...]
) -> None:
    """None: where the second epoch began."""
    made = Group(replicas).fill(30)
    made.elect(made["b"])
    made.fill(30)
    (_, (_, second)) = made.master.epochs
    for name, epochs in wrong.items():
        made[name].epochs = [(epoch, second if start is None else start) for epoch, start in epochs]
    run = verify(made.replicas)
    (found,) = run.findings
    assert (found.kind, found.replicas, run.verdict.exit_code) == (Kind.DIVERGENT_HISTORY, named, 1)
    assert "epoch tables contradict each other" in run.verdict.summary


def test_a_lagging_replica_hides_no_wrong_table() -> None:
    made = Group(3, strict=False).fill(30)
    made.elect(made["b"])
    for _ in range(30):
        made.put(500)
    made.copy(made["a"])
    (_, (_, second)) = made.master.epochs
    made["a"].epochs[-1] = (7, second)
    assert [one.replicas for one in verify(made.replicas).findings if one.severity is Severity.MISMATCH] == [("a", "b")]


@pytest.mark.parametrize("strict", [True, False])
def test_a_newer_master_that_lacks_what_two_others_confirmed_is_not_verified(strict: bool) -> None:
    made = Group(3, strict=strict).fill(40)
    rogue = made["c"]
    made.connected.discard("c")  # out of the SyncStateSet
    for _ in range(10):
        made.put(500)
    made.copy(made["b"])
    confirmed = made["b"].confirm
    assert confirmed > rogue.end
    made.elect(rogue)
    run = verify(made.replicas)
    (lost,) = [one for one in run.findings if one.severity is Severity.UNVERIFIED]
    assert (lost.kind, lost.replicas, lost.extent) == (Kind.LOST_COPY, ("c",), Extent(rogue.end, confirmed))
    assert run.verdict.exit_code == 3
    assert "a and b have noted" in run.verdict.summary
