"""cleanBrokerData (1011), as in docs/protocol.md."""

import pytest

from rocketmq_controller.domain import events
from rocketmq_controller.domain.model import MAX_EPOCH, BrokerGroup, BrokerId, SyncStateSetEpoch
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_controller.domain.requests.cleaning import clean_broker_data
from rocketmq_controller.domain.requests.elect_master import groups_needing_election
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import CleanControllerBrokerDataRequestHeader
from tests.controller.domain.domain_kit import (
    CLEAN,
    UNCLEAN,
    StaticView,
    alter,
    clean,
    fresh_group,
    make_group,
    only_event,
    settled,
    sync_set,
    tombstone,
)

NOT_EXISTED = "Broker broker-a is not existed,clean broker data failure."
STILL_ALIVE = "Broker broker-a is still alive, clean up failure"
FORMAT = "Please set the option <brokerControllerIdsToClean> according to the format, exception: For input string: "
IS_MASTER = (
    "Broker [broker-a,  1] is the master, clean up failure;"
    " elect another one first, or clean living brokers (isCleanLivingBroker)"
)
NOBODY_LEFT = (
    "Broker broker-a: no member of the syncStateSet would remain, clean up failure; let another replica join it"
    " or become master first (enableElectUncleanMaster), or clean the whole set"
)


@pytest.mark.parametrize(
    ("group", "request_header", "remark"),
    [
        (make_group(), clean(), STILL_ALIVE),
        (make_group(), clean("  "), STILL_ALIVE),
        (None, clean("x;3"), FORMAT + '"x"'),
        (make_group(), clean("2;;3"), FORMAT + '""'),
        (make_group(), clean("2; 3"), FORMAT + '" 3"'),
        (make_group(), clean("9223372036854775808"), FORMAT + '"9223372036854775808"'),
        (make_group(), clean("\u0662"), FORMAT + '"\u0662"'),
        (None, clean("2;3"), "Broker [broker-a,  3] is still alive, clean up failure"),
        (make_group(), clean("2;3"), "Broker [broker-a,  3] is still alive, clean up failure"),
        (None, clean("2"), NOT_EXISTED),
        (None, clean(), NOT_EXISTED),
        (None, clean(forced=True), NOT_EXISTED),
        (tombstone(), clean("2", forced=True), NOT_EXISTED),
        (make_group(in_sync=(1, 2)), clean("1;2"), NOBODY_LEFT),
        (make_group(), clean("1"), IS_MASTER),
    ],
)
def test_refusals_in_check_order(
    group: BrokerGroup | None, request_header: CleanControllerBrokerDataRequestHeader, remark: str
) -> None:
    """Only 3 lives."""
    decision = clean_broker_data(group, request_header, StaticView({3}))
    assert (decision.code, decision.remark) == (ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)
    assert (decision.header, decision.body, decision.events) == (None, None, ())


def test_clean_of_a_dead_slave() -> None:
    group = make_group()
    decision = clean_broker_data(group, clean("3;"), StaticView({1, 2}))
    assert (decision.code, decision.remark, decision.header, decision.body) == (ResponseCode.SUCCESS, None, None, None)
    assert only_event(decision) == events.CleanBrokerData("broker-a", frozenset({BrokerId(3)}), SyncStateSetEpoch(7))
    after = settled(group, decision)
    assert (set(after.replicas), after.next_broker_id) == ({1, 2}, 4)
    assert (after.master_broker_id, after.master_epoch, set(after.sync_state_set)) == (1, 4, {1, 2})


def test_clean_of_unknown_ids_does_nothing() -> None:
    decision = clean_broker_data(make_group(), clean("9"), StaticView())
    assert (decision.code, decision.events) == (ResponseCode.SUCCESS, ())


def test_differs_from_5_3_3_a_shrunken_set_has_a_new_epoch() -> None:
    """Java removes the id under the same epoch: the master never learns, and its own shrink is refused as equal."""
    group = make_group()
    after = settled(group, clean_broker_data(group, clean("3"), StaticView({1, 2})))
    assert after.sync_state_set_epoch == 8
    outdated = alter_sync_state_set(after, alter(), sync_set(1), StaticView({1, 2}))
    assert outdated.code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    bystander = make_group(in_sync=(1, 2))
    untouched = settled(bystander, clean_broker_data(bystander, clean("3"), StaticView()))
    assert untouched.sync_state_set_epoch == 7


def test_differs_from_5_3_3_living_brokers_are_cleaned_by_their_ids() -> None:
    """Java never reads the list when isCleanLivingBroker is set, and removes the whole set."""
    group = make_group()
    decision = clean_broker_data(group, clean("3", forced=True), StaticView({1, 2, 3}))
    assert set(settled(group, decision).replicas) == {1, 2}
    unreadable = clean_broker_data(group, clean("x", forced=True), StaticView({1, 2, 3}))
    assert unreadable.remark == FORMAT + '"x"'


@pytest.mark.parametrize("alive", [{2}, {1}])
def test_differs_from_5_3_3_whole_set_is_refused_while_anybody_lives(alive: set[int]) -> None:
    """Java asks for a recorded master only, so it removes living slaves, and refuses sets that are dead entirely."""
    for group in (make_group(), make_group(master=None), fresh_group()):
        assert clean_broker_data(group, clean(), StaticView(alive)).remark == STILL_ALIVE
        decision = clean_broker_data(group, clean(), StaticView())
        assert decision.code == ResponseCode.SUCCESS
        assert settled(group, decision).replicas == {}


def test_differs_from_5_3_3_brokers_without_a_heartbeat_are_not_cleaned_as_dead() -> None:
    """A controller that leads since a moment ago cannot tell; Java's can neither, and deletes."""
    view = StaticView(unheard=frozenset({2, 3}))
    assert clean_broker_data(make_group(), clean(), view).remark == STILL_ALIVE
    assert clean_broker_data(make_group(), clean("3"), view).code != ResponseCode.SUCCESS


def test_differs_from_5_3_3_dead_master_is_not_cleaned_by_its_id() -> None:
    """Java leaves masterBrokerId of a member that does not exist. Elect another one first, or force."""
    refused = clean_broker_data(make_group(), clean("1"), StaticView())
    assert refused.remark == IS_MASTER


def test_differs_from_5_3_3_forced_clean_of_the_master_vacates_its_role() -> None:
    """The epoch stays, the set continues without it, and the next scan elects one of the set."""
    group = make_group(in_sync=(1, 2))
    after = settled(group, clean_broker_data(group, clean("1", forced=True), StaticView({1, 2, 3})))
    assert (after.master_broker_id, after.master_epoch) == (None, 4)
    assert (set(after.sync_state_set), after.sync_state_set_epoch) == ({2}, 8)
    assert groups_needing_election({"broker-a": after}, StaticView({1, 2, 3}), CLEAN) == ("broker-a",)
    refused = alter_sync_state_set(after, alter(), sync_set(1, 2), StaticView({1, 2}))
    assert refused.code == ResponseCode.CONTROLLER_INVALID_MASTER


@pytest.mark.parametrize("forced", [False, True])
def test_differs_from_5_3_3_the_sync_state_set_is_never_emptied_silently(forced: bool) -> None:
    """Java drops the sync record, after which the rest is an unknown set. The ways out are in the remark."""
    group = make_group(in_sync=(1,))
    decision = clean_broker_data(group, clean("1", forced=forced), StaticView())
    assert (decision.code, decision.remark) == (ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, NOBODY_LEFT)


def test_members_without_any_election_may_be_cleaned() -> None:
    group = fresh_group()
    after = settled(group, clean_broker_data(group, clean("1;2"), StaticView()))
    assert (set(after.replicas), after.sync_state_set_epoch) == ({3}, 0)


@pytest.mark.parametrize("request_header", [clean(forced=True), clean("3;2;1", forced=True), clean("1;2;3")])
def test_differs_from_5_3_3_cleaning_everybody_leaves_a_tombstone(
    request_header: CleanControllerBrokerDataRequestHeader,
) -> None:
    """IdentityForever and OneMasterPerEpoch survive; to everybody else it is an unknown set."""
    group = make_group()
    decision = clean_broker_data(group, request_header, StaticView())
    assert only_event(decision) == events.CleanBrokerData("broker-a", None, SyncStateSetEpoch(7))
    after = settled(group, decision)
    assert after == tombstone()
    assert clean_broker_data(after, clean(forced=True), StaticView()).remark == NOT_EXISTED
    assert groups_needing_election({"broker-a": after}, StaticView({1, 2, 3}), UNCLEAN) == ()


def test_differs_from_5_3_3_epoch_overflow_is_refused() -> None:
    group = make_group(set_epoch=MAX_EPOCH)
    decision = clean_broker_data(group, clean("3"), StaticView())
    assert decision.remark == "Broker broker-a cannot be cleaned, its syncStateSetEpoch has reached 2147483647"
