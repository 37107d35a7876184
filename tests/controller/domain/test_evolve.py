"""Applying: events decided on an older version of the group are void; invariants notice what must never be."""

import pytest

from rocketmq_controller.domain import events, evolve, invariants
from rocketmq_controller.domain.decision import Decision, superseded
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, MasterEpoch, Replica, SyncStateSetEpoch
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import AlterSyncStateSetResponseHeader
from tests.controller.domain.domain_kit import CLEAN, UNCLEAN, fresh_group, make_group, tombstone

NAME = "broker-a"


def ids(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, numbers))


def elected(master: int, *, epoch: int = 5, set_epoch: int = 8) -> events.ElectMaster:
    return events.ElectMaster(
        NAME, BrokerId(master), MasterEpoch(epoch), SyncStateSetEpoch(set_epoch), ids(master), strict=False
    )


def altered(*members: int, epoch: int = 8) -> events.AlterSyncStateSet:
    return events.AlterSyncStateSet(NAME, ids(*members), SyncStateSetEpoch(epoch))


def applied(broker_id: int, code: str = "a;1") -> events.ApplyBrokerId:
    return events.ApplyBrokerId(NAME, "C", "a", BrokerId(broker_id), code)


def cleaned(*members: int, epoch: int = 7) -> events.CleanBrokerData:
    return events.CleanBrokerData(NAME, ids(*members) or None, SyncStateSetEpoch(epoch))


@pytest.mark.parametrize(
    ("group", "event"),
    [
        (None, altered(1)),
        (tombstone(), elected(1)),
        (tombstone(), cleaned(epoch=8)),
        (make_group(), altered(1, epoch=7)),  # the set moved on
        (make_group(), altered(1, epoch=9)),
        (make_group(), altered(2)),  # without the master
        (make_group(master=None), altered(1)),
        (make_group(), altered(1, 9)),  # 9 was cleaned meanwhile
        (make_group(), elected(2, epoch=4)),  # another election came first
        (make_group(), elected(2, epoch=6)),
        (make_group(), elected(2, set_epoch=7)),  # 2 may have left the set meanwhile
        (make_group(), elected(9)),
        (make_group(), applied(3)),
        (None, applied(0)),
        (make_group(), cleaned(3, epoch=6)),
        (make_group(), events.UpdateBrokerAddress(NAME, BrokerId(9), "x:1")),
        (make_group(), events.UpdateBrokerAddress(NAME, BrokerId(1), "10.0.0.1:10911")),
        (make_group(), events.MasterRestarted(NAME, BrokerId(2), MasterEpoch(4))),
        (make_group(), events.MasterRestarted(NAME, BrokerId(1), MasterEpoch(3))),
        (make_group(master=None), events.MasterRestarted(NAME, BrokerId(1), MasterEpoch(4))),
    ],
)
def test_an_event_that_does_not_fit_is_void(group: BrokerGroup | None, event: events.Event) -> None:
    """The very same object comes back, so that the proposer can tell."""
    assert evolve.evolve(group, event) is group
    invariants.check_transition(group, event, group, CLEAN)


def test_every_event_applies_once() -> None:
    """A command that was proposed twice changes nothing the second time."""
    group = make_group()
    for event in (
        altered(1, 2),
        elected(2),
        applied(4),
        cleaned(3),
        events.UpdateBrokerAddress(NAME, BrokerId(1), "x:1"),
        events.MasterRestarted(NAME, BrokerId(1), MasterEpoch(4)),
    ):
        once = evolve.evolve(group, event)
        assert once is not group
        assert evolve.evolve(once, event) is once


def test_superseded_answer_asks_to_try_again() -> None:
    promised = Decision(ResponseCode.SUCCESS, None, AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=8))
    answer = superseded(promised)
    assert (answer.code, answer.header) == (ResponseCode.SYSTEM_ERROR, AlterSyncStateSetResponseHeader())
    assert answer.remark == "The broker set changed while the request was being committed, try again"
    assert superseded(Decision(ResponseCode.SUCCESS)).header is None


def build(**changes: object) -> BrokerGroup:
    fields: dict[str, object] = {name: getattr(make_group(), name) for name in BrokerGroup.__struct_fields__}
    return BrokerGroup(**(fields | changes))  # type: ignore[arg-type] # broken on purpose


@pytest.mark.parametrize(
    ("before", "after", "invariant"),
    [
        (make_group(), None, "IdentityForever"),
        (make_group(), make_group(master=2), "OneMasterPerEpoch"),
        (make_group(), make_group(master_epoch=3), "OneMasterPerEpoch"),
        (make_group(), make_group(master=None, master_epoch=5), "OneMasterPerEpoch"),
        (make_group(), make_group(master=2, in_sync=(2, 3), master_epoch=5, set_epoch=8), "KeepsElectable"),
        (
            build(strict=True),
            build(master_broker_id=2, sync_state_set=ids(2, 3), master_epoch=5, sync_state_set_epoch=8, strict=True),
            "KeepsElectable",
        ),
        (
            build(strict=True),
            build(master_broker_id=2, master_epoch=5, sync_state_set_epoch=8),
            "KeepsElectable",
        ),
        (
            make_group(in_sync=(1,)),
            make_group(master=2, in_sync=(2,), master_epoch=5, set_epoch=8),
            "MasterFromSyncSet",
        ),
        (make_group(), make_group(set_epoch=6), "GroupShape"),
        (make_group(), make_group(in_sync=(1,)), "GroupShape"),
        (make_group(next_id=9), make_group(), "IdentityForever"),
        (make_group(ids=(1, 3), in_sync=(1, 3)), make_group(in_sync=(1, 3)), "IdentityForever"),
        (
            make_group(),
            build(replicas={1: Replica(BrokerId(1), "a", "other;1")}, sync_state_set={1}, sync_state_set_epoch=8),
            "IdentityForever",
        ),
        (None, build(broker_name="other"), "GroupShape"),
        (None, build(sync_state_set=ids(1, 9)), "GroupShape"),
        (None, build(sync_state_set=ids(2)), "GroupShape"),
        (None, build(next_broker_id=3), "GroupShape"),
        (None, build(replicas={1: Replica(BrokerId(2), "a", "a;1")}, sync_state_set={1}), "GroupShape"),
        (None, build(master_epoch=2**31), "GroupShape"),
        (None, build(master_epoch=0), "GroupShape"),
        (None, build(sync_state_set_epoch=0), "GroupShape"),
    ],
)
def test_broken_invariants_are_named(before: BrokerGroup | None, after: BrokerGroup | None, invariant: str) -> None:
    """With both groups, the event and the options in the text."""
    with pytest.raises(invariants.InvariantViolation) as raised:
        invariants.check_transition(before, altered(1), after, CLEAN)
    assert raised.value.invariant == invariant


def test_unclean_election_is_the_only_way_past_the_sync_state_set() -> None:
    before, after = make_group(in_sync=(1,)), make_group(master=2, in_sync=(2,), master_epoch=5, set_epoch=8)
    invariants.check_transition(before, elected(2), after, UNCLEAN)
    first = make_group(master=3, in_sync=(3,), master_epoch=1, set_epoch=1)
    invariants.check_transition(fresh_group(), elected(3, epoch=1, set_epoch=1), first, CLEAN)


def test_history_remembers_across_members_and_cleaning() -> None:
    history = invariants.History()
    history.observe(make_group())
    history.observe(make_group())
    history.observe(tombstone())
    with pytest.raises(invariants.InvariantViolation, match=r"OneMasterPerEpoch: master 1 had this epoch before"):
        history.observe(make_group(master=2))
    with pytest.raises(invariants.InvariantViolation, match="IdentityForever: id 1 was given to"):
        history.observe(build(replicas={1: Replica(BrokerId(1), "a", "other;1")}))


def test_history_compares_members_at_the_same_index() -> None:
    history = invariants.History()
    history.observe_state(7, {NAME: make_group()})
    history.observe_state(7, {NAME: make_group(ids=(3, 2, 1))})
    history.observe_state(8, {NAME: make_group(master=None)})
    with pytest.raises(invariants.InvariantViolation, match="ReplayEqual: members differ after index 7"):
        history.observe_state(7, {NAME: make_group(master=None)})
