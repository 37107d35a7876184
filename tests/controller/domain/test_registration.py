"""getNextBrokerId, applyBrokerId, registerBroker (1012, 1013, 1003), as in docs/protocol.md."""

import msgspec
import pytest
from msgspec.structs import replace

from rocketmq_controller.domain import events
from rocketmq_controller.domain.model import MAX_BROKER_ID, BrokerGroup, BrokerId, BrokerLiveInfo, MasterEpoch
from rocketmq_controller.domain.requests.cleaning import clean_broker_data
from rocketmq_controller.domain.requests.elect_master import elect_master
from rocketmq_controller.domain.requests.queries import get_replica_info
from rocketmq_controller.domain.requests.registration import (
    MAX_REPLICAS,
    apply_broker_id,
    get_next_broker_id,
    register_broker,
)
from rocketmq_controller.domain.room import MEMBERS_PER_GROUP, Room, Tally
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from tests.controller.domain.domain_kit import (
    CLEAN,
    StaticView,
    address,
    apply_id,
    clean,
    elect,
    fresh_group,
    make_group,
    only_event,
    register,
    settle,
    settled,
    sync_set,
    tombstone,
)

HASH = "must not contain #, brokers could not keep their identity: "
NO_MASTER = RegisterBrokerToControllerResponseHeader(cluster_name="C", broker_name="broker-a")
MASTER = RegisterBrokerToControllerResponseHeader(
    cluster_name="C",
    broker_name="broker-a",
    master_broker_id=1,
    master_address=address(1),
    master_epoch=4,
    sync_state_set_epoch=7,
)


def next_id(cluster: str = "C", name: str = "broker-a") -> GetNextBrokerIdRequestHeader:
    return GetNextBrokerIdRequestHeader(cluster_name=cluster, broker_name=name)


# 1012


@pytest.mark.parametrize(
    ("group", "expected"), [(None, 1), (make_group(), 4), (make_group(next_id=9), 9), (fresh_group(1), 2)]
)
def test_next_id(group: BrokerGroup | None, expected: int) -> None:
    decision = get_next_broker_id(group, next_id())
    assert (decision.code, decision.remark, decision.events) == (ResponseCode.SUCCESS, None, ())
    assert decision.header == GetNextBrokerIdResponseHeader(
        cluster_name="C", broker_name="broker-a", next_broker_id=expected
    )


def test_differs_from_5_3_3_next_id_continues_after_a_full_clean() -> None:
    """Java says 1 again, and two brokers have been broker-a:1 (IdentityForever)."""
    header = get_next_broker_id(tombstone(), next_id()).header
    assert isinstance(header, GetNextBrokerIdResponseHeader)
    assert header.next_broker_id == 4


@pytest.mark.parametrize(
    ("cluster", "name", "remark"),
    [("C#", "broker-a", f"clusterName {HASH}C#"), ("C", "#broker", f"brokerName {HASH}#broker")],
)
def test_differs_from_5_3_3_names_with_a_hash_are_refused(cluster: str, name: str, remark: str) -> None:
    """Java gives an id; the broker writes `C##broker-a#1` and cannot read its identity at the next start."""
    asked = get_next_broker_id(None, next_id(cluster, name))
    assert (asked.code, asked.remark) == (ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    assert asked.header == GetNextBrokerIdResponseHeader(cluster_name=cluster, broker_name=name)
    applied = apply_broker_id(None, apply_id(1, cluster=cluster, name=name))
    assert (applied.code, applied.remark) == (ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    registered = register_broker(None, register(1, cluster=cluster, name=name), StaticView())
    assert (registered.code, registered.remark) == (ResponseCode.CONTROLLER_INVALID_REQUEST, remark)


def test_differs_from_5_3_3_a_broker_of_another_cluster_is_refused() -> None:
    """Java gives it an id, and it becomes a slave in sync of a group that is not its own."""
    remark = "brokerName broker-a is a group of cluster C here, not of Other: correct brokerClusterName or brokerName"
    group = make_group()
    for decision in (
        get_next_broker_id(group, next_id("Other")),
        apply_broker_id(group, apply_id(4, cluster="Other")),
        register_broker(group, register(2, cluster="Other"), StaticView()),
    ):
        assert (decision.code, decision.remark) == (ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
        assert decision.events == ()
    assert get_next_broker_id(tombstone(), next_id("Other")).code is ResponseCode.SUCCESS


# 1013


@pytest.mark.parametrize(
    ("group", "request_header", "code", "remark"),
    [
        (None, apply_id(1, "a#b;1"), 2005, f"registerCheckCode {HASH}a#b;1"),
        (None, apply_id(9, ";1"), 2005, "registerCheckCode does not begin with an address"),
        (
            None,
            apply_id(2),
            2014,
            "Broker-set: broker-a hasn't been registered in controller, but broker try to apply brokerId: 2",
        ),
        (
            None,
            apply_id(0),
            2014,
            "Broker-set: broker-a hasn't been registered in controller, but broker try to apply brokerId: 0",
        ),
        (make_group(), apply_id(3, "10.0.0.9:1;9"), 2014, "Fail to apply brokerId: 3 in broker-set: broker-a"),
    ],
)
def test_apply_refusals(
    group: BrokerGroup | None, request_header: ApplyBrokerIdRequestHeader, code: int, remark: str
) -> None:
    decision = apply_broker_id(group, request_header)
    assert (decision.code, decision.remark) == (ResponseCode(code), remark)
    assert decision.header == ApplyBrokerIdResponseHeader(cluster_name="C", broker_name="broker-a")
    assert decision.events == ()


@pytest.mark.parametrize(("group", "broker_id"), [(None, 1), (make_group(), 4)])
def test_apply_assigns(group: BrokerGroup | None, broker_id: int) -> None:
    """The address is what the check code says before its first semicolon."""
    decision = apply_broker_id(group, apply_id(broker_id, "10.0.0.9:10911;1763712345678;x"))
    assert (decision.code, decision.remark) == (ResponseCode.SUCCESS, None)
    assert decision.header == ApplyBrokerIdResponseHeader(cluster_name="C", broker_name="broker-a")
    assert only_event(decision) == events.ApplyBrokerId(
        "broker-a", "C", "10.0.0.9:10911", BrokerId(broker_id), "10.0.0.9:10911;1763712345678;x"
    )
    after = settled(group, decision)
    assert after.replicas[BrokerId(broker_id)].address == "10.0.0.9:10911"
    assert after.next_broker_id == broker_id + 1


def test_apply_again_with_the_same_check_code_changes_nothing() -> None:
    """The answer was lost, the broker asks again with what it wrote down."""
    decision = apply_broker_id(make_group(), apply_id(2))
    assert (decision.code, decision.events) == (ResponseCode.SUCCESS, ())


def test_who_begins_anew_hears_which_ids_had_its_address() -> None:
    """Its volume was emptied: the id that it had before stays a member."""
    applied = apply_id(4, f"{address(2)};99")
    decision = apply_broker_id(make_group(), applied)
    header = ApplyBrokerIdResponseHeader(cluster_name="C", broker_name="broker-a", former_broker_ids="2")
    assert decision.header == header
    again = settled(make_group(), decision)
    assert apply_broker_id(again, applied).header == header, "also if the answer was lost"
    assert apply_broker_id(again, apply_id(5, f"{address(2)};100")).header == replace(header, former_broker_ids="2;4")


def test_of_two_brokers_with_the_same_next_id_one_gets_it() -> None:
    group = settled(make_group(), apply_broker_id(make_group(), apply_id(4, "x:1;1")))
    assert apply_broker_id(group, apply_id(4, "y:1;1")).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    assert apply_broker_id(group, apply_id(5, "y:1;1")).code == ResponseCode.SUCCESS


def test_groups_are_bounded_and_known_ones_grow_on() -> None:
    """Anybody may ask for ids, and what has been given is remembered forever."""
    full = apply_broker_id(None, apply_id(1), room=Room(groups=10, max_groups=10))
    assert (full.code, full.events) == (ResponseCode.SYSTEM_BUSY, ())
    assert full.remark is not None
    assert "maxBrokerGroups" in full.remark
    assert apply_broker_id(None, apply_id(1), room=Room(groups=9, max_groups=10)).code == ResponseCode.SUCCESS
    for group in (make_group(), tombstone()):
        room = Room(groups=10, max_groups=10)
        assert apply_broker_id(group, apply_id(4), room=room).code == ResponseCode.SUCCESS


def test_members_of_a_group_are_bounded() -> None:
    ids = tuple(range(1, MAX_REPLICAS + 1))
    full = apply_broker_id(make_group(ids=ids), apply_id(MAX_REPLICAS + 1))
    assert (full.code, full.events) == (ResponseCode.SYSTEM_BUSY, ())
    assert apply_broker_id(make_group(ids=ids), apply_id(MAX_REPLICAS)).code == ResponseCode.SUCCESS
    fewer = make_group(ids=ids[1:], in_sync=(2,), master=2)
    assert apply_broker_id(fewer, apply_id(MAX_REPLICAS + 1)).code == ResponseCode.SUCCESS


def test_one_host_leaves_room_for_groups_to_others() -> None:
    """A host that registers names gets half of the places, the next one half of the rest, and so on."""
    state: dict[str, BrokerGroup] = {}

    def registered(host: str, name: str) -> bool:
        room = Room.of(host, 100, Tally.of(state))
        decision = apply_broker_id(None, apply_id(1, name=name), room=room, host=host)
        if decision.code == ResponseCode.SUCCESS:
            state[name] = settled(None, decision)
        return decision.code == ResponseCode.SUCCESS

    assert [registered("stranger", f"s{number}") for number in range(60)].count(True) == 50
    assert [registered("10.0.0.1", f"h{number}") for number in range(60)].count(True) == 25
    assert registered("10.0.0.2", "another")
    assert not registered("stranger", "one-more")


def test_one_host_leaves_places_in_a_group_to_others() -> None:
    """A stranger that takes ids of a group would else keep its next replicas out."""
    group = make_group()
    for number in range(4, MAX_REPLICAS):
        decision = apply_broker_id(group, apply_id(number), host="stranger")
        if decision.code != ResponseCode.SUCCESS:
            break
        group = settled(group, decision)
    assert decision.code == ResponseCode.SYSTEM_BUSY
    assert "clean those that are gone" in (decision.remark or "")
    assert len(group.replicas) == 3 + (MAX_REPLICAS - 3) // 2
    next_id = group.next_broker_id
    assert apply_broker_id(group, apply_id(next_id), host="10.0.0.4").code == ResponseCode.SUCCESS
    cleaned = settled(group, clean_broker_data(group, clean("4"), StaticView()))
    assert apply_broker_id(cleaned, apply_id(next_id), host="stranger").code == ResponseCode.SUCCESS


def test_members_of_all_groups_are_bounded_by_host_too() -> None:
    """The groups of one host's share with the most members that each may have would fill a controller's memory."""
    most = 1000 * MEMBERS_PER_GROUP
    share = Room(max_groups=1000, members=most // 2, members_of_host=most // 2)
    for group, broker_id in ((None, 1), (make_group(), 4)):
        decision = apply_broker_id(group, apply_id(broker_id), room=share)
        assert (decision.code, decision.events) == (ResponseCode.SYSTEM_BUSY, ())
        assert "maxBrokerGroups" in (decision.remark or "")
        others = replace(share, members_of_host=0)
        assert apply_broker_id(group, apply_id(broker_id), room=others).code == ResponseCode.SUCCESS
    few = Room(max_groups=1, members=50, members_of_host=50)
    assert apply_broker_id(None, apply_id(1), room=few).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "group", [make_group(ids=(1, 3), in_sync=(1, 3)), make_group(ids=(1,), in_sync=(1,), next_id=4)]
)
def test_differs_from_5_3_3_a_cleaned_id_is_never_given_again(group: BrokerGroup) -> None:
    """Java accepts any unassigned number; the cleaned broker may still run, or its disk come back (IdentityForever)."""
    decision = apply_broker_id(group, apply_id(2))
    assert (decision.code, decision.remark) == (
        ResponseCode.CONTROLLER_BROKER_ID_INVALID,
        "Fail to apply brokerId: 2 in broker-set: broker-a",
    )


@pytest.mark.parametrize("broker_id", [5, 7, MAX_BROKER_ID - 1])
def test_differs_from_5_3_3_only_the_next_id_is_given(broker_id: int) -> None:
    """Java takes any number and adds one: after 7 it offers 5, 6, and then 7, which is refused forever. Numbers
    skipped here would be lost: one request could use up all that a group will ever have."""
    decision = apply_broker_id(make_group(), apply_id(broker_id))
    assert (decision.code, decision.remark, decision.events) == (
        ResponseCode.CONTROLLER_BROKER_ID_INVALID,
        f"Fail to apply brokerId: {broker_id} in broker-set: broker-a",
        (),
    )
    assert apply_broker_id(tombstone(), apply_id(broker_id)).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID


@pytest.mark.parametrize("broker_id", [0, -1, -(2**63), MAX_BROKER_ID])
def test_differs_from_5_3_3_impossible_ids_are_refused(broker_id: int) -> None:
    """Java accepts 0 and negative numbers, which elsewhere mean master and no broker; 2^63-1 has no successor."""
    next_id = MAX_BROKER_ID if broker_id == MAX_BROKER_ID else 0
    decision = apply_broker_id(make_group(next_id=next_id), apply_id(broker_id))
    assert decision.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID


def test_differs_from_5_3_3_ids_and_epochs_continue_after_a_full_clean() -> None:
    """Java begins at id 1 and epoch 1: a broker that kept running would refuse the new master, and not be refused."""
    assert apply_broker_id(tombstone(), apply_id(1)).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
    again = settled(tombstone(), apply_broker_id(tombstone(), apply_id(4, cluster="D")))
    assert (again.cluster_name, set(again.replicas), again.next_broker_id) == ("D", {4}, 5)
    elected = settled(
        again, elect_master(again, msgspec.structs.replace(elect(4), cluster_name="D"), StaticView(), CLEAN)
    )
    assert (elected.master_epoch, elected.sync_state_set_epoch) == (5, 9)


# 1003


@pytest.mark.parametrize(
    ("group", "request_header", "code", "remark"),
    [
        (None, register(9, "1#2"), 2005, f"brokerAddress {HASH}1#2"),
        (None, register(1), 2010, "Broker-set: broker-a hasn't been registered in controller"),
        (tombstone(), register(1), 2010, "Broker-set: broker-a hasn't been registered in controller"),
        (make_group(), register(9), 2010, "BrokerId: 9 hasn't been registered in broker-set: broker-a"),
    ],
)
def test_register_refusals(
    group: BrokerGroup | None, request_header: RegisterBrokerToControllerRequestHeader, code: int, remark: str
) -> None:
    """A failure's header still says cluster and name."""
    decision = register_broker(group, request_header, StaticView({1}))
    assert (decision.code, decision.remark) == (ResponseCode(code), remark)
    assert decision.header == NO_MASTER
    assert (decision.body, decision.events) == (None, ())


@pytest.mark.parametrize(
    ("group", "alive", "unheard", "header"),
    [
        (make_group(), {1}, set[int](), MASTER),
        (make_group(), {2}, set[int](), NO_MASTER),
        (make_group(), set[int](), {1}, MASTER),  # differs from 5.3.3: a new leader does not call it dead yet
        (make_group(master=None), {1, 2}, set[int](), NO_MASTER),
    ],
)
def test_register_names_a_living_master(
    group: BrokerGroup, alive: set[int], unheard: set[int], header: RegisterBrokerToControllerResponseHeader
) -> None:
    decision = register_broker(group, register(2), StaticView(alive, frozenset(unheard)))
    assert (decision.code, decision.remark, decision.events) == (ResponseCode.SUCCESS, None, ())
    assert decision.header == header
    assert decision.body == sync_set(1, 2, 3)


def test_register_before_the_first_election() -> None:
    decision = register_broker(fresh_group(), register(2), StaticView({1, 2, 3}))
    assert (decision.code, decision.header) == (ResponseCode.SUCCESS, NO_MASTER)
    assert decision.body == sync_set(epoch=0)


def test_register_from_another_address_moves_the_replica_and_nothing_else() -> None:
    group = make_group()
    decision = register_broker(group, register(2, "10.9.9.9:1"), StaticView({1}))
    assert only_event(decision) == events.UpdateBrokerAddress("broker-a", BrokerId(2), "10.9.9.9:1")
    after = settled(group, decision)
    assert after.address_of(BrokerId(2)) == "10.9.9.9:1"
    assert after.replicas[BrokerId(2)].register_check_code == f"{address(2)};2"
    assert (after.master_broker_id, after.master_epoch, after.sync_state_set, after.sync_state_set_epoch) == (
        group.master_broker_id,
        group.master_epoch,
        group.sync_state_set,
        group.sync_state_set_epoch,
    )


@pytest.mark.parametrize(
    "view",
    [
        StaticView({1: BrokerLiveInfo(connection_id=5)}),  # its old connection is not closed yet
        StaticView({2}),  # it is
        StaticView({2}, unheard=frozenset({1})),
    ],
)
def test_differs_from_5_3_3_restarted_master_must_be_elected_again(view: StaticView) -> None:
    """Java may answer with its own old epoch, and the new process begins that epoch a second time at another offset.

    Here its role becomes vacant in the same epoch, and an election follows, won by the longest log.
    """
    group = make_group(in_sync=(1, 2))
    decision = register_broker(group, register(1), view, connection_id=6)
    assert (decision.code, decision.header) == (ResponseCode.SUCCESS, NO_MASTER)
    assert only_event(decision) == events.MasterRestarted("broker-a", BrokerId(1), MasterEpoch(4))
    vacant = settled(group, decision)
    assert (vacant.master_broker_id, vacant.master_epoch, set(vacant.sync_state_set)) == (None, 4, {1, 2})

    back = StaticView({1: BrokerLiveInfo(4, 900), 2: BrokerLiveInfo(4, 1000)})
    better = settled(vacant, elect_master(vacant, elect(1), back, CLEAN))
    assert (better.master_broker_id, better.master_epoch) == (2, 5)
    alone = settled(vacant, elect_master(vacant, elect(1), StaticView({1}), CLEAN))
    assert (alone.master_broker_id, alone.master_epoch) == (1, 5)


def test_master_that_registers_again_over_its_own_connection_keeps_its_role() -> None:
    """The same process: Java's answer."""
    view = StaticView({1: BrokerLiveInfo(connection_id=5)})
    decision = register_broker(make_group(), register(1), view, connection_id=5)
    assert (decision.header, decision.events) == (MASTER, ())


def test_restarted_master_at_another_address_makes_both_events() -> None:
    group = make_group()
    decision = register_broker(group, register(1, "10.9.9.9:1"), StaticView({2, 3}))
    assert [type(event) for event in decision.events] == [events.UpdateBrokerAddress, events.MasterRestarted]
    after = settled(group, decision)
    assert (after.address_of(BrokerId(1)), after.master_broker_id) == ("10.9.9.9:1", None)


def test_brokers_of_a_cleaned_group_are_strangers() -> None:
    """After a full clean they get Java's codes; their identity file has to go before they may come back."""
    gone = settle(make_group(), clean_broker_data(make_group(), clean(forced=True), StaticView()))
    assert get_replica_info(gone).code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    assert register_broker(gone, register(1), StaticView()).code == (
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    )
