"""electMaster (1002), as in docs/protocol.md, and the scan for dead masters."""

import msgspec
import pytest

from rocketmq_controller.domain import events
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import (
    MAX_EPOCH,
    BrokerGroup,
    BrokerId,
    BrokerLiveInfo,
    MasterEpoch,
    Options,
    SyncStateSetEpoch,
)
from rocketmq_controller.domain.requests.elect_master import elect_master, groups_needing_election
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    BrokerMemberGroup,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
)
from tests.controller.domain.domain_kit import (
    CLEAN,
    UNCLEAN,
    StaticView,
    address,
    elect,
    fresh_group,
    make_group,
    only_event,
    settled,
    tombstone,
)

FAILED = "Failed to elect a new master"
NOT_AVAILABLE = "Old master has down and failed to elect a new broker master"
LIVE = BrokerLiveInfo


@pytest.mark.parametrize(
    ("among", "winner"),
    [
        (None, 2),
        ("2,3", 3),
        ("3,2", 3),
        ("2", 2),
        ("3,4", 3),
        ("4", 2),
        ("", 2),
        ("x,-3,99999999999999999999", 2),
        ("2," * 100 + "3", 2),
    ],
)
def test_designated_among_several_the_preferred_one(among: str | None, winner: int) -> None:
    """4 is not in the set, 3 has the better priority; where none of them can be, it is broker_id as without."""
    group = make_group(in_sync=(1, 2, 3))
    view = StaticView({1: LIVE(), 2: LIVE(max_offset=9, election_priority=5), 3: LIVE(election_priority=1), 4: LIVE()})
    request = ElectMasterRequestHeader(
        broker_name=group.broker_name, broker_id=2, designate_elect=True, designate_among=among
    )
    assert elected(elect_master(group, request, view, CLEAN)) == winner


def elected(decision: Decision) -> int | None:
    """The new master's id, or None after a refusal."""
    header = decision.header
    assert isinstance(header, ElectMasterResponseHeader)
    assert (decision.code == ResponseCode.SUCCESS) == bool(decision.events)
    return header.master_broker_id


@pytest.mark.parametrize(
    ("group", "request_header", "alive", "code", "remark"),
    [
        (None, elect(1), {1}, 2010, "Broker hasn't been registered"),
        (tombstone(), elect(1), {1}, 2010, "Broker hasn't been registered"),
        (make_group(), elect(2), set[int](), 2012, FAILED),
        (make_group(in_sync=(1, 2)), elect(3), {3}, 2012, FAILED),
        (make_group(in_sync=(1, 2)), elect(3, designate=True), {1, 2, 3}, 2012, FAILED),
        (make_group(), elect(2, designate=True), {1, 3}, 2012, FAILED),
        (make_group(), elect(), set[int](), 2004, NOT_AVAILABLE),
        (make_group(in_sync=(1,)), elect(), {2, 3}, 2004, NOT_AVAILABLE),
        (make_group(), elect(-1, designate=True), {1, 2}, 2004, NOT_AVAILABLE),
    ],
)
def test_refusals(
    group: BrokerGroup | None, request_header: ElectMasterRequestHeader, alive: set[int], code: int, remark: str
) -> None:
    decision = elect_master(group, request_header, StaticView(alive), CLEAN)
    assert (decision.code, decision.remark) == (ResponseCode(code), remark)
    assert decision.header == ElectMasterResponseHeader()
    assert decision.body is None
    assert decision.events == ()


def test_success_answers_epochs_and_all_members() -> None:
    """The member group names every registered replica, alive or not."""
    group = make_group()
    decision = elect_master(group, elect(), StaticView({2}), CLEAN)
    assert (decision.code, decision.remark) == (ResponseCode.SUCCESS, None)
    assert decision.header == ElectMasterResponseHeader(
        master_broker_id=2, master_address=address(2), master_epoch=5, sync_state_set_epoch=8
    )
    assert decision.body == ElectMasterResponseBody(
        broker_member_group=BrokerMemberGroup(
            broker_addrs={1: address(1), 2: address(2), 3: address(3)}, broker_name="broker-a", cluster="C"
        ),
        sync_state_set=frozenset({2}),
    )
    alone = frozenset({BrokerId(2)})
    expected = events.ElectMaster("broker-a", BrokerId(2), MasterEpoch(5), SyncStateSetEpoch(8), alone, strict=False)
    assert only_event(decision) == expected
    after = settled(group, decision)
    assert (after.master_broker_id, after.master_epoch) == (2, 5)
    assert (set(after.sync_state_set), after.sync_state_set_epoch) == ({2}, 8)


@pytest.mark.parametrize("request_header", [elect(), elect(1), elect(2), elect(1, designate=True)])
def test_living_master_stays(request_header: ElectMasterRequestHeader) -> None:
    """2011 carries the present master, no member group, no event."""
    decision = elect_master(make_group(in_sync=(1, 2)), request_header, StaticView({1, 2, 3}), CLEAN)
    assert decision.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert decision.remark == "The old master 1 is still alive, not need to elect new master for broker broker-a"
    assert decision.header == ElectMasterResponseHeader(
        master_broker_id=1, master_address=address(1), master_epoch=4, sync_state_set_epoch=7
    )
    assert decision.body == ElectMasterResponseBody(sync_state_set=frozenset({1, 2}))
    assert decision.events == ()


def test_designated_member_replaces_living_master() -> None:
    assert elected(elect_master(make_group(), elect(3, designate=True), StaticView({1, 2, 3}), CLEAN)) == 3


@pytest.mark.parametrize(
    ("request_header", "alive", "master"),
    [
        (elect(), {2, 3}, 2),  # no member of the set {1} lives: all replicas, smallest id among equals
        (elect(3), {2, 3}, 2),  # who asks is not who is preferred
        (elect(3, designate=True), {1, 2, 3}, 3),  # by name even while the master lives
        (elect(3, designate=True), {3}, 3),
        (elect(2, designate=True), {1, 3}, None),
        (elect(), set[int](), None),
    ],
)
def test_unclean_election(request_header: ElectMasterRequestHeader, alive: set[int], master: int | None) -> None:
    decision = elect_master(make_group(in_sync=(1,)), request_header, StaticView(alive), UNCLEAN)
    assert elected(decision) == master
    if master is not None:
        settled(make_group(in_sync=(1,)), decision, UNCLEAN)


def test_unclean_election_prefers_the_sync_state_set() -> None:
    view = StaticView({2: LIVE(epoch=1, max_offset=1), 3: LIVE(epoch=9, max_offset=9)})
    assert elected(elect_master(make_group(in_sync=(1, 2)), elect(), view, UNCLEAN)) == 2


@pytest.mark.parametrize(
    ("request_header", "alive", "unheard", "master"),
    [
        (elect(3, designate=True), {3}, set[int](), 3),  # no member of the set {1, 2} lives
        (elect(), {3}, set[int](), 3),
        (elect(3, designate=True), {2, 3}, set[int](), None),  # 2 lives and has everything
        (elect(3, designate=True), {1, 3}, set[int](), None),  # unclean election by configuration would depose 1
        (elect(3, designate=True), {3}, {2}, None),  # 2 may live: not listened for long enough
        (elect(), {2, 3}, set[int](), 2),  # clean as ever
    ],
)
def test_last_resort_only_where_the_whole_sync_state_set_is_lost(
    request_header: ElectMasterRequestHeader, alive: set[int], unheard: set[int], master: int | None
) -> None:
    group, options = make_group(in_sync=(1, 2)), Options(last_resort=True)
    decision = elect_master(group, request_header, StaticView(alive, frozenset(unheard)), options)
    assert elected(decision) == master
    if master is not None:
        settled(group, decision, options)


def test_first_election_takes_the_broker_that_asks() -> None:
    decision = elect_master(fresh_group(), elect(3), StaticView({1, 2, 3}), CLEAN)
    assert elected(decision) == 3
    after = settled(fresh_group(), decision)
    assert (after.master_epoch, after.sync_state_set_epoch, set(after.sync_state_set)) == (1, 1, {3})


def test_differs_from_5_3_3_first_master_must_be_registered() -> None:
    """Java makes an id master that no broker has, and the group waits for it forever."""
    decision = elect_master(fresh_group(), elect(9), StaticView({9}), CLEAN)
    assert decision.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert decision.remark == "Failed to elect a new master: brokerId 9 is not registered in broker-set broker-a"


def test_differs_from_5_3_3_a_learner_is_not_elected_first_nor_by_name_nor_unclean() -> None:
    """Java elects the learner that asks first, and every replica with unclean election."""
    view = StaticView({2: BrokerLiveInfo(learner=True)})
    why = "brokers [2] are learners (asyncLearner=true), which are never elected: to have one elected"
    for group, request, options in (
        (fresh_group(), elect(2), CLEAN),
        (make_group(master=None, in_sync=(1,)), elect(2, designate=True), CLEAN),
        (make_group(master=None, in_sync=(1,)), elect(), UNCLEAN),
        (make_group(master=None, in_sync=(1,)), elect(), Options(last_resort=True)),
    ):
        decision = elect_master(group, request, view, options)
        assert not decision.events
        assert decision.remark is not None
        assert why in decision.remark
    elected = elect_master(fresh_group(), elect(1), view, CLEAN)
    assert only_event(elected)


def test_first_master_need_not_be_alive() -> None:
    """Its heartbeat is sent asynchronously just before and may arrive after the request."""
    assert elected(elect_master(fresh_group(), elect(2), StaticView(), CLEAN)) == 2


def test_differs_from_5_3_3_first_election_by_the_controller_burns_no_epoch() -> None:
    """Java answers 2004 as well, but makes masterEpoch 1 without a master and without a set: no broker can ever win."""
    decision = elect_master(fresh_group(), elect(), StaticView({1, 2, 3}), CLEAN)
    assert decision.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert decision.events == ()
    assert elected(elect_master(fresh_group(), elect(1), StaticView(), CLEAN)) == 1


def test_differs_from_5_3_3_failed_elections_burn_no_epoch() -> None:
    """Java commits masterEpoch +1 at each of three tries. The way back must not need that.

    A member of the set that returns gets no master (so it asks for an election), the scan finds the group, and its
    own request elects it; the old master that was merely silent is found alive again and nothing changes.
    """
    group = make_group(in_sync=(1, 2))
    for _ in range(3):
        assert elect_master(group, elect(), StaticView({3}), CLEAN).events == ()
    assert groups_needing_election({"broker-a": group}, StaticView({3}), CLEAN) == ()

    back = StaticView({2, 3})
    assert groups_needing_election({"broker-a": group}, back, CLEAN) == ("broker-a",)
    own_request = elect_master(group, elect(2), back, CLEAN)
    assert elected(own_request) == 2
    assert settled(group, own_request).master_epoch == 5

    heard_again = elect_master(group, elect(1), StaticView({1, 3}), CLEAN)
    assert heard_again.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST


def test_differs_from_5_3_3_first_election_means_an_empty_set() -> None:
    """Epochs outlive the cleaning of a whole set; Java asks for masterEpoch 0, which would never come again."""
    group = make_group(ids=(4,), master=None, in_sync=(), master_epoch=4, set_epoch=8)
    decision = elect_master(group, elect(4), StaticView(), CLEAN)
    assert elected(decision) == 4
    assert settled(group, decision).master_epoch == 5


@pytest.mark.parametrize(("broker_id", "code"), [(-1, 2004), (2, 2012)])
def test_differs_from_5_3_3_election_waits_for_a_master_without_a_heartbeat(broker_id: int, code: int) -> None:
    """A new leader that never heard the master does not know that it is dead; Java elects at once."""
    view = StaticView({2, 3}, unheard=frozenset({1}))
    decision = elect_master(make_group(), elect(broker_id), view, CLEAN)
    assert decision.code == ResponseCode(code)
    remark = "this controller has not listened for long enough to call master 1 dead"
    assert decision.remark == f"Failed to elect a new master: {remark}"
    assert groups_needing_election({"broker-a": make_group()}, view, CLEAN) == ()


def test_designation_waits_for_a_master_without_a_heartbeat_too() -> None:
    """It may acknowledge alone under a lease that the leader before let it have."""
    view = StaticView({2, 3}, unheard=frozenset({1}))
    decision = elect_master(make_group(), elect(3, designate=True), view, CLEAN)
    assert (decision.code, decision.events) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, ())
    assert elect_master(make_group(master=None), elect(3, designate=True), view, CLEAN).events


def test_no_replica_is_designated_while_the_master_may_acknowledge_alone() -> None:
    """durability=relaxed: what it acknowledged after the election would be lost."""
    view = StaticView({1: LIVE(lease=1.5), 2: LIVE(), 3: LIVE()})
    decision = elect_master(make_group(), elect(3, designate=True), view, UNCLEAN)
    assert (decision.code, decision.events) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, ())
    assert decision.remark == (
        "Failed to elect a new master: master 1 has a write lease (durability=relaxed) and may acknowledge alone for"
        " 1.5 s and longer while it lives: have its sidecar hand over (SidecarAdmin.HandOver), or stop it in order"
    )
    stays = elect_master(make_group(), elect(1, designate=True), view, CLEAN)
    assert stays.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    over = StaticView({1: LIVE(lease=0.0), 3: LIVE()})
    assert elected(elect_master(make_group(), elect(3, designate=True), over, CLEAN)) == 3


@pytest.mark.parametrize(("broker_id", "code"), [(-1, 2004), (2, 2012)])
@pytest.mark.parametrize(("master_epoch", "set_epoch"), [(MAX_EPOCH, 7), (4, MAX_EPOCH)])
def test_differs_from_5_3_3_epoch_overflow_is_refused(
    broker_id: int, code: int, master_epoch: int, set_epoch: int
) -> None:
    """Java's ints wrap and every other process refuses the new master by its epoch."""
    group = make_group(master_epoch=master_epoch, set_epoch=set_epoch)
    decision = elect_master(group, elect(broker_id), StaticView({2}), CLEAN)
    assert decision.code == ResponseCode(code)
    assert decision.remark is not None
    assert "an epoch has reached 2147483647" in decision.remark
    assert decision.events == ()


@pytest.mark.parametrize(
    ("group", "alive", "needed"),
    [
        (make_group(), {1, 2, 3}, False),
        (make_group(), {1}, False),
        (make_group(), {2}, True),
        (make_group(), set[int](), False),
        (make_group(in_sync=(1, 2)), {3}, False),
        (make_group(master=None), {2}, True),
        (fresh_group(), {1, 2, 3}, False),
        (tombstone(), {1, 2, 3}, False),
    ],
)
def test_scan_finds_groups_that_can_be_helped(group: BrokerGroup, alive: set[int], needed: bool) -> None:
    names = groups_needing_election({"broker-a": group}, StaticView(alive), CLEAN)
    assert names == (("broker-a",) if needed else ())


def test_dead_slave_never_causes_an_election() -> None:
    assert groups_needing_election({"broker-a": make_group()}, StaticView({1, 2}), UNCLEAN) == ()


def test_unclean_scan_counts_every_living_replica() -> None:
    group = make_group(in_sync=(1,))
    assert groups_needing_election({"broker-a": group}, StaticView({3}), UNCLEAN) == ("broker-a",)


STRICT = LIVE(strict=True)


@pytest.mark.parametrize(
    ("before", "winner", "members"),
    [
        pytest.param(True, STRICT, {1, 2, 3}, id="from strict to strict: all stay"),
        pytest.param(True, LIVE(), {2}, id="the new one may acknowledge without them"),
        pytest.param(False, STRICT, {2}, id="the last one may have acknowledged without them"),
    ],
)
def test_an_election_keeps_electable_copies(before: bool, winner: BrokerLiveInfo, members: set[int]) -> None:
    """KeepsElectable: 1 is dead and 3 is away for a moment; both have everything that strict masters acknowledged."""
    group = msgspec.structs.replace(make_group(), strict=before)
    decision = elect_master(group, elect(), StaticView({2: winner}), CLEAN)
    assert isinstance(decision.body, ElectMasterResponseBody)
    assert decision.body.sync_state_set == members
    after = settled(group, decision)
    assert (after.sync_state_set, after.strict) == (members, winner.strict)


def test_who_is_elected_from_outside_begins_alone() -> None:
    """The last resort gives up what the members have."""
    group = msgspec.structs.replace(make_group(in_sync=(1, 2)), strict=True)
    decision = elect_master(group, elect(), StaticView({3: STRICT}), UNCLEAN)
    assert settled(group, decision, UNCLEAN).sync_state_set == {3}


def test_the_third_is_electable_when_two_masters_die_one_after_the_other() -> None:
    group: BrokerGroup = msgspec.structs.replace(make_group(), strict=True)
    for survivors in ({2: STRICT, 3: STRICT}, {3: STRICT}):
        group = settled(group, elect_master(group, elect(), StaticView(survivors), CLEAN))
    assert (group.master_broker_id, group.sync_state_set) == (3, {1, 2, 3})


def test_the_first_master_declares_that_it_is_strict() -> None:
    after = settled(fresh_group(), elect_master(fresh_group(), elect(2), StaticView({2: STRICT}), CLEAN))
    assert (after.sync_state_set, after.strict) == ({2}, True)
