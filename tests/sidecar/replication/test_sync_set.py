"""Who is in sync, and what that makes of acknowledged and confirmed offsets."""

from __future__ import annotations

import pytest

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain.confirm import AckRule, acked_offset, confirm_offset
from rocketmq_sidecar.domain.sync_set import SyncSet

STRICT = AckRule(strict=True)
ALL = AckRule(strict=False, all_ack_in_sync_state_set=True)


def some(epoch: int, *members: int) -> SyncStateSet:
    return SyncStateSet(sync_state_set=frozenset(members), sync_state_set_epoch=epoch)


def sync_set(*members: int) -> SyncSet:
    return SyncSet(1, some(5, *members), now=0.0)


def test_members_leave_when_they_are_late_and_only_when_the_controllers_agree() -> None:
    group = sync_set(1, 2, 3)
    group.caught_up(2, 10.0)
    assert group.wish(15.0, 15.0) is None
    assert group.wish(16.0, 15.0) == {1, 2}
    assert (group.members, group.union, group.size) == ({1, 2, 3}, {1, 2, 3}, 3)
    assert group.adopt(some(6, 1, 2), 16.0)
    assert (group.members, group.union, group.size) == ({1, 2}, {1, 2}, 2)


def test_a_closed_connection_leaves_at_once_and_the_master_never() -> None:
    group = sync_set(1, 2)
    group.left(2)
    assert group.wish(0.0, 15.0) == {1}
    assert sync_set(2).wish(0.0, 15.0) is None
    assert sync_set(2).members == {1, 2}


def test_both_sets_count_until_the_fate_of_the_wish_is_known() -> None:
    group = sync_set(1, 2)
    group.qualified(3)
    assert group.wish(0.0, 15.0) == {1, 2, 3}
    assert (group.union, group.size) == ({1, 2, 3}, 3)
    group.left(3)
    assert group.wish(0.0, 15.0) is None
    assert group.union == {1, 2, 3}  # the controllers may have agreed to it
    group.refused()
    assert (group.union, group.size) == ({1, 2}, 2)


def test_a_wish_granted_while_another_one_is_on_its_way() -> None:
    group = sync_set(1)
    group.qualified(2)
    assert group.wish(0.0, 15.0) == {1, 2}
    group.qualified(3)
    assert group.wish(0.0, 15.0) == {1, 2, 3}
    group.left(3)
    assert group.adopt(some(6, 1, 2), 0.0)
    assert (group.members, group.union) == ({1, 2}, {1, 2})  # it named epoch 5, nobody can agree to it any more
    assert group.wish(0.0, 15.0) is None


def test_who_left_before_the_controllers_agreed_is_not_waited_for() -> None:
    group = sync_set(1, 2)
    group.qualified(3)
    assert group.wish(0.0, 15.0) == {1, 2, 3}
    group.left(2)
    assert group.adopt(some(6, 1, 2, 3), 0.0)
    assert group.wish(0.0, 15.0) == {1, 3}
    group.left(3)
    assert group.wish(0.0, 15.0) == {1}


def test_only_a_newer_set_counts() -> None:
    group = sync_set(1, 2)
    assert not group.adopt(some(5, 1, 2, 3), 0.0)
    assert not group.adopt(some(4, 1), 0.0)
    assert group.members == {1, 2}


def test_nobody_is_late_because_we_slept() -> None:
    group = sync_set(1, 2)
    group.forgive(100.0)
    assert group.wish(114.0, 15.0) is None


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
    assert acked_offset(rule, group, 100, acks) == acked
    assert confirm_offset(rule, group, 100, acks) == confirmed
