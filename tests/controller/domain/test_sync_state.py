"""alterSyncStateSet (1001), check by check as in docs/protocol.md."""

import msgspec
import pytest

from rocketmq_controller.domain import events
from rocketmq_controller.domain.model import MAX_EPOCH, BrokerGroup, BrokerId, SyncStateSetEpoch
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    SyncStateSet,
)
from tests.controller.domain.domain_kit import (
    StaticView,
    alter,
    fresh_group,
    make_group,
    only_event,
    settled,
    sync_set,
    tombstone,
)

REJECTING = "Rejecting alter syncStateSet request because "
EQUAL = "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"

# Each case fails its own check and, where that is possible, all the checks after it: so the order is pinned as well.
REFUSALS = [
    (None, alter(master=9, epoch=9), sync_set(9, epoch=9), 2013, "Broker metadata is not existed"),
    (tombstone(), alter(master=9, epoch=9), sync_set(epoch=9), 2013, "Broker metadata is not existed"),
    (make_group(in_sync=(1, 2)), alter(master=2, epoch=3), sync_set(1, 2, epoch=6), 2013, EQUAL),
    (fresh_group(), alter(epoch=0), sync_set(epoch=0), 2013, EQUAL),
    (
        make_group(),
        alter(master=2, epoch=3),
        sync_set(2, 9, epoch=6),
        2002,
        REJECTING + "the current leader is:{1}, not {2}",
    ),
    (
        fresh_group(),
        alter(master=1, epoch=3),
        sync_set(9, epoch=6),
        2002,
        REJECTING + "the current leader is:{null}, not {1}",
    ),
    (make_group(), alter(epoch=3), sync_set(9, epoch=6), 2000, REJECTING + "the current master epoch is:{4}, not {3}"),
    (make_group(), alter(epoch=5), sync_set(9, epoch=6), 2000, REJECTING + "the current master epoch is:{4}, not {5}"),
    (make_group(), alter(), sync_set(9, epoch=6), 2001, REJECTING + "the current syncStateSet epoch is:{7}, not {6}"),
    (make_group(), alter(), sync_set(9), 2003, REJECTING + "the replicas {9} don't exist"),
    (make_group(in_sync=(1, 2)), alter(), sync_set(3), 2006, REJECTING + "the replicas {3} don't alive"),
    (make_group(in_sync=(1, 2)), alter(), sync_set(1, 3, 9), 2006, REJECTING + "the replicas {3} don't alive"),
    (
        make_group(),
        alter(),
        sync_set(2),
        2013,
        REJECTING + "the newSyncStateSet don't contains origin leader {1}",
    ),
    (make_group(), alter(), sync_set(), 2013, REJECTING + "the newSyncStateSet don't contains origin leader {1}"),
]


@pytest.mark.parametrize(("group", "request_header", "body", "code", "remark"), REFUSALS)
def test_refusals_in_check_order(
    group: BrokerGroup | None,
    request_header: AlterSyncStateSetRequestHeader,
    body: SyncStateSet,
    code: int,
    remark: str,
) -> None:
    """Replica 3 is dead throughout; a failure's header says epoch 0."""
    decision = alter_sync_state_set(group, request_header, body, StaticView({1, 2}))
    assert (decision.code, decision.remark) == (ResponseCode(code), remark)
    assert decision.header == AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=0)
    assert decision.body is None
    assert decision.events == ()


def test_success_moves_set_and_epoch() -> None:
    group = make_group()
    decision = alter_sync_state_set(group, alter(), sync_set(1, 2), StaticView({1, 2}))
    assert (decision.code, decision.remark) == (ResponseCode.SUCCESS, None)
    assert decision.header == AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=8)
    assert decision.body == sync_set(1, 2, epoch=8)
    assert only_event(decision) == events.AlterSyncStateSet(
        "broker-a", frozenset({BrokerId(1), BrokerId(2)}), SyncStateSetEpoch(8)
    )
    after = settled(group, decision)
    assert (set(after.sync_state_set), after.sync_state_set_epoch) == ({1, 2}, 8)
    assert (after.master_broker_id, after.master_epoch) == (1, 4)


def test_same_request_twice_is_refused_as_equal() -> None:
    """A master whose answer was lost asks again and learns nothing bad."""
    group = make_group()
    once = settled(group, alter_sync_state_set(group, alter(), sync_set(1, 2), StaticView({1, 2})))
    again = alter_sync_state_set(once, alter(), sync_set(1, 2), StaticView({1, 2}))
    assert (again.code, again.remark) == (ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, EQUAL)


def test_master_of_an_older_epoch_that_sends_the_present_set_gets_2013() -> None:
    """As in Java: the equality check precedes the checks of epochs."""
    decision = alter_sync_state_set(make_group(), alter(epoch=3), sync_set(1, 2, 3, epoch=5), StaticView())
    assert decision.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED


def test_differs_from_5_3_3_replica_without_a_heartbeat_counts_as_alive() -> None:
    """Java's new leader answers 2006 for a replica whose heartbeat it has not got yet."""
    view = StaticView({1}, unheard=frozenset({2}))
    group = make_group(in_sync=(1,))
    assert alter_sync_state_set(group, alter(), sync_set(1, 2), view).code == ResponseCode.SUCCESS


def test_differs_from_5_3_3_epoch_overflow_is_refused() -> None:
    """Java's int wraps to a negative epoch, which every broker would take for an old one."""
    group = make_group(set_epoch=MAX_EPOCH)
    decision = alter_sync_state_set(group, alter(), sync_set(1, epoch=MAX_EPOCH), StaticView({1}))
    assert decision.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    assert decision.remark == REJECTING + "the syncStateSet epoch has reached 2147483647"
    assert decision.events == ()


@pytest.mark.parametrize("strict", [True, False])
def test_differs_from_5_3_3_a_member_that_stays_need_not_be_alive(strict: bool) -> None:
    """3 replicates, or is away and has everything acknowledged; its heartbeats are lost. Who joins has to be alive."""
    group = msgspec.structs.replace(make_group(ids=(1, 2, 3, 4)), strict=strict)
    leaves = alter_sync_state_set(group, alter(), sync_set(1, 3), StaticView({1, 2}))
    assert settled(group, leaves).sync_state_set == {1, 3}
    joins = alter_sync_state_set(group, alter(), sync_set(1, 2, 3, 4), StaticView({1, 2, 4}))
    assert settled(group, joins).sync_state_set == {1, 2, 3, 4}
    refused = alter_sync_state_set(group, alter(), sync_set(1, 2, 3, 4), StaticView({1, 2, 3}))
    assert refused.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE


def test_a_relaxed_master_that_is_dead_cannot_leave_itself_alone_in_the_set() -> None:
    """No one could be elected."""
    decision = alter_sync_state_set(make_group(), alter(), sync_set(1), StaticView({2, 3}))
    assert decision.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE


def test_differs_from_5_3_3_the_present_set_can_get_a_new_epoch() -> None:
    """A master that cannot know whether an earlier request is still on its way makes it void. No one else can."""
    group = make_group(in_sync=(1, 2))
    renew = msgspec.structs.replace(alter(), renew_epoch=True)
    decision = alter_sync_state_set(group, renew, sync_set(1, 2), StaticView({1}))
    assert decision.body == sync_set(1, 2, epoch=8)
    after = settled(group, decision)
    assert (set(after.sync_state_set), after.sync_state_set_epoch) == ({1, 2}, 8)
    refused = [
        alter_sync_state_set(after, renew, sync_set(1, 2), StaticView({1})),
        alter_sync_state_set(after, alter(), sync_set(1, 2, 3), StaticView({1, 2, 3})),
        alter_sync_state_set(
            group, msgspec.structs.replace(renew, master_epoch=3), sync_set(1, 2), StaticView({1, 2, 3})
        ),
        alter_sync_state_set(group, msgspec.structs.replace(renew, master_broker_id=2), sync_set(1, 2), StaticView()),
    ]
    assert [int(one.code) for one in refused] == [2001, 2001, 2000, 2002]
    assert [one.events for one in refused] == [()] * 4
