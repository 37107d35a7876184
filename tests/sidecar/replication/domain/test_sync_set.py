"""Who is in sync, and what that makes of acknowledged and confirmed offsets."""

from __future__ import annotations

import pytest

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain.replication.confirm import AckRule, offsets
from rocketmq_sidecar.domain.replication.sync_set import SyncSet

STRICT = AckRule(strict=True)
HOLDERS = frozenset(range(2, 10))
"""Slaves that have everything that is acknowledged."""
ALL = AckRule(strict=False, all_ack_in_sync_state_set=True)


def some(epoch: int, *members: int) -> SyncStateSet:
    return SyncStateSet(sync_state_set=frozenset(members), sync_state_set_epoch=epoch)


def sync_set(*members: int) -> SyncSet:
    return SyncSet(1, some(5, *members), now=0.0)


def proposed(group: SyncSet) -> SyncStateSet:
    """What it proposes, on its way to the controllers."""
    wanted = group.propose(0.0, 15.0, HOLDERS)
    assert wanted is not None
    return group.proposed(wanted)


def test_members_leave_when_they_are_late_and_only_when_the_controllers_agree() -> None:
    group = sync_set(1, 2, 3)
    group.caught_up(2, 10.0)
    assert group.propose(15.0, 15.0, HOLDERS) is None
    assert group.propose(16.0, 15.0, HOLDERS) == {1, 2}
    assert (group.members, group.union, group.size) == ({1, 2, 3}, {1, 2, 3}, 3)
    assert group.adopt(some(6, 1, 2), 16.0)
    assert (group.members, group.union, group.size) == ({1, 2}, {1, 2}, 2)


def test_a_closed_connection_leaves_at_once_and_the_master_never() -> None:
    group = sync_set(1, 2)
    group.disconnected(2)
    assert group.propose(0.0, 15.0, HOLDERS) == {1}
    assert sync_set(2).propose(0.0, 15.0, HOLDERS) is None
    assert sync_set(2).members == {1, 2}


def test_both_sets_count_until_the_result_of_the_proposal_is_known() -> None:
    group = sync_set(1, 2)
    group.qualified(3)
    proposal = proposed(group)
    assert proposal == some(5, 1, 2, 3)
    assert (group.union, group.size) == ({1, 2, 3}, 3)
    group.disconnected(3)
    assert group.propose(0.0, 15.0, HOLDERS) is None
    assert group.union == {1, 2, 3}  # the controllers may have agreed to it
    assert group.proposal_refused(proposal)
    assert (group.union, group.size) == ({1, 2}, 2)


def test_a_refusal_does_not_concern_what_was_proposed_since() -> None:
    group = sync_set(1, 2)
    group.qualified(3)
    first, again = proposed(group), proposed(group)
    assert first == again
    assert not group.proposal_refused(first)
    assert group.union == {1, 2, 3}
    assert group.proposal_refused(again)
    assert group.union == {1, 2}
    assert not sync_set(1, 2).proposal_refused(again), "of an earlier mastership"


@pytest.mark.parametrize("strict", [True, False])
def test_members_that_are_dead_to_the_controllers_leave_for_the_slave_that_joins(strict: bool) -> None:
    """It qualified, and its tables are waited for without a break, so it keeps both."""
    group = SyncSet(1, some(5, 1, 2, 3), 0.0, strict=strict)
    group.acknowledged_epoch(2, 0.0)
    group.acknowledged_epoch(3, 0.0)
    group.qualified(4)
    group.copied(frozenset(group.joins.values()))
    joins = dict(group.joins)
    first = proposed(group)
    assert first == some(5, 1, 2, 3, 4)
    assert group.proposal_refused(first, dead=2)
    second = proposed(group)
    assert second == some(5, 1, 3, 4)
    assert group.union == {1, 2, 3, 4}, "2 may be elected until the controllers agree"
    assert group.proposal_refused(second, dead=3)
    third = proposed(group)
    assert third == some(5, 1, 4)
    assert group.joins == joins
    assert group.proposal_refused(third, dead=4)
    group.qualified(4)
    group.copied(frozenset(group.joins.values()))
    assert proposed(group) == first, "the others may live again"
    assert group.joins != joins


def test_a_dead_member_is_left_out_of_a_smaller_set_but_two_stay_in_a_strict_one() -> None:
    group = strict_set(1, 2, 3, 4)
    for member in (2, 3):
        group.acknowledged_epoch(member, 0.0)
    smaller = proposed(group)
    assert smaller == some(5, 1, 2, 3)
    assert group.proposal_refused(smaller, dead=2)
    smaller = proposed(group)
    assert smaller == some(5, 1, 3)
    assert group.proposal_refused(smaller, dead=3)
    assert proposed(group) == some(5, 1, 2, 3), "until one of them lives"


def test_a_member_that_was_dead_stays_when_nothing_has_to_change_any_longer() -> None:
    group = sync_set(1, 2)
    group.qualified(3)
    assert group.proposal_refused(proposed(group), dead=2)
    group.disconnected(3)
    assert group.propose(0.0, 15.0, HOLDERS) is None
    group.qualified(3)
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 2, 3}


def test_a_slave_that_lacks_what_was_acknowledged_since_it_qualified_waits() -> None:
    group = SyncSet(1, some(5, 1, 2), now=0.0, strict=True)
    group.acknowledged_epoch(2, 0.0)
    group.qualified(3)
    group.copied(frozenset(group.joins.values()))
    assert group.propose(0.0, 15.0, {2}) is None
    assert group.union == {1, 2}
    assert group.propose(0.0, 15.0, {2, 3}) == {1, 2, 3}


def test_a_proposal_accepted_while_another_one_is_under_way() -> None:
    group = sync_set(1)
    group.qualified(2)
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 2}
    group.qualified(3)
    assert group.propose(0.0, 15.0, {3}) == {1, 3}
    assert group.union == {1, 2, 3}
    assert group.adopt(some(6, 1, 2), 0.0)
    assert (group.members, group.union) == ({1, 2}, {1, 2})  # it named epoch 5, so it can no longer be agreed to
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 2, 3}


def test_who_left_before_the_controllers_agreed_is_not_waited_for() -> None:
    group = sync_set(1, 2)
    group.qualified(3)
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 2, 3}
    group.disconnected(2)
    assert group.adopt(some(6, 1, 2, 3), 0.0)
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 3}
    group.disconnected(3)
    assert group.propose(0.0, 15.0, HOLDERS) == {1}


def test_only_a_newer_set_counts() -> None:
    group = sync_set(1, 2)
    assert not group.adopt(some(5, 1, 2, 3), 0.0)
    assert not group.adopt(some(4, 1), 0.0)
    assert group.members == {1, 2}


def test_no_slave_is_late_because_the_master_slept() -> None:
    group = sync_set(1, 2)
    group.excuse_silence(100.0)
    assert group.propose(114.0, 15.0, HOLDERS) is None


def strict_set(*members: int) -> SyncSet:
    return SyncSet(1, some(5, *members), now=0.0, strict=True)


def test_a_strict_master_keeps_the_members_until_two_have_begun_its_epoch() -> None:
    group = strict_set(1, 2, 3)
    assert (group.propose(100.0, 15.0, HOLDERS), group.present) == (None, 1)
    assert group.awaits(3)
    group.acknowledged_epoch(3, 100.0)
    assert group.changed
    assert (group.propose(100.0, 15.0, HOLDERS), group.present) == ({1, 3}, 2)
    assert group.union == {1, 2, 3}  # 2 may be elected until the controllers agree
    assert not group.awaits(3)


def test_a_strict_master_that_is_alone_removes_no_member() -> None:
    group = strict_set(1, 2, 3)
    group.acknowledged_epoch(2, 0.0)
    group.acknowledged_epoch(3, 0.0)
    group.disconnected(2)
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 3}
    assert group.adopt(some(6, 1, 3), 0.0)
    group.disconnected(3)
    assert (group.propose(0.0, 15.0, HOLDERS), group.members, group.present) == (None, {1, 3}, 1)
    group.qualified(2)
    group.copied(set(group.joins.values()))
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 2}  # two again, and both have everything


def test_a_strict_master_proposes_no_slave_that_lacks_its_tables() -> None:
    group = strict_set(1, 2)
    group.acknowledged_epoch(2, 0.0)
    group.qualified(3)
    (join,) = group.joins.values()
    assert group.propose(0.0, 15.0, HOLDERS) is None
    group.copied({join})
    group.disconnected(3)
    group.qualified(3)
    group.copied({join})  # said of the connection before: what has it been since?
    assert group.propose(0.0, 15.0, HOLDERS) is None
    group.copied(set(group.joins.values()))
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 2, 3}
    assert group.adopt(some(6, 1, 2, 3), 0.0)
    assert not group.joins


def test_a_member_that_lost_what_it_acknowledged_is_given_up_by_a_strict_master_too() -> None:
    group = strict_set(1, 2, 3)
    group.lost_data(2)
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 3}  # 3 is away, but has everything
    group.acknowledged_epoch(2, 0.0)  # before the controllers agreed it had everything again
    assert group.propose(0.0, 15.0, HOLDERS) == {1, 2}
    alone = strict_set(1, 2)
    alone.lost_data(2)
    assert alone.propose(0.0, 15.0, HOLDERS) == {1}


@pytest.mark.parametrize(
    ("rule", "members", "acks", "acked", "confirmed"),
    [
        pytest.param(STRICT, (1, 2, 3), {2: 90, 3: 80}, 80, 80, id="strict: the last one"),
        pytest.param(STRICT, (1, 2), {2: 90, 3: 80}, 90, 90, id="strict: who is not in sync does not count"),
        pytest.param(STRICT, (1, 2, 3), {2: 90}, None, None, id="strict: one is not connected"),
        pytest.param(STRICT, (1, 2), {2: 0}, None, None, id="strict: one has nothing"),
        pytest.param(STRICT, (1,), {2: 90}, None, 100, id="strict: one copy is not enough, but it is the truth"),
        pytest.param(ALL, (1,), {}, 100, 100, id="allAck: alone"),
        pytest.param(ALL, (1, 2), {2: 90}, 90, 90, id="allAck: the last one"),
        pytest.param(AckRule(strict=False), (1, 2), {2: 90}, 100, 100, id="one copy"),
        pytest.param(AckRule(strict=False, in_sync_replicas=0), (1, 2), {}, 100, 100, id="none asked for"),
        pytest.param(AckRule(strict=False, in_sync_replicas=2), (1,), {2: 70, 3: 90}, 90, 100, id="any two"),
        pytest.param(AckRule(strict=False, in_sync_replicas=3), (1,), {2: 70, 3: 90}, 70, 100, id="any three"),
        pytest.param(AckRule(strict=False, in_sync_replicas=3), (1, 2), {2: 70}, None, 100, id="three of two"),
        pytest.param(
            AckRule(strict=False, in_sync_replicas=3, enable_auto_in_sync_replicas=True),
            (1, 2), {2: 70}, 70, 100, id="degraded to two",
        ),
        pytest.param(
            AckRule(strict=False, in_sync_replicas=3, min_in_sync_replicas=2, enable_auto_in_sync_replicas=True),
            (1,), {}, None, 100, id="degraded to no less than two",
        ),
    ],
)  # fmt: skip
def test_offsets(
    rule: AckRule, members: tuple[int, ...], acks: dict[int, int], acked: int | None, confirmed: int | None
) -> None:
    group = sync_set(*members)
    assert offsets(rule, group, 100, acks) == (acked, confirmed)
