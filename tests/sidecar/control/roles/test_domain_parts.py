"""Lease, leader, mandate and request slots, each by itself."""

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader, SyncStateSet
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers.group_state import GroupState, MasterAnswer
from rocketmq_sidecar.domain.controllers.leader import LeaderFinder
from rocketmq_sidecar.domain.controllers.lease import MAX_HEARD, NEVER, Lease
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot

# Lease


def test_lease_counts_from_the_newest_heartbeat_that_was_confirmed_since() -> None:
    lease = Lease(2.4)
    assert lease.until(1) == NEVER
    lease.on_acknowledged(10.0)
    assert lease.until(1) == NEVER, "nobody said that we are master"
    lease.on_confirmed(1, 11.0)
    assert lease.until(1) == 12.4
    for sent_at in (13.0, 12.0, 14.0):
        lease.on_acknowledged(sent_at)
        assert lease.until(1) == 12.4, "another may have been elected before this heartbeat"
    lease.on_confirmed(1, 13.5)
    assert lease.until(1) == 15.4
    lease.on_confirmed(1, 14.0)
    assert lease.until(1) == 16.4
    lease.on_acknowledged(13.9)
    assert lease.until(1) == 16.4


def test_heartbeats_without_a_confirmation_are_bounded() -> None:
    lease = Lease(2.4)
    for at in range(1000):
        lease.on_acknowledged(float(at))
    assert len(lease._heard) == MAX_HEARD
    lease.on_confirmed(1, 999.0)
    assert lease.until(1) == 1001.4
    assert lease._heard == [999.0]


def test_heartbeats_alone_do_not_extend() -> None:
    lease = Lease(2.4)
    lease.on_confirmed(1, 10.0)
    for at in range(10, 100):
        lease.on_acknowledged(float(at))
        assert lease.until(1) == 12.4


def test_lease_is_of_one_epoch() -> None:
    lease = Lease(2.4)
    lease.on_acknowledged(10.0)
    lease.on_confirmed(1, 10.0)
    lease.on_confirmed(2, 10.5)
    assert (lease.until(1), lease.until(2)) == (NEVER, 12.4)
    lease.on_confirmed(1, 99.0)
    assert lease.until(2) == 12.4, "an old epoch is nothing"


def test_new_leading_controller_takes_nothing_back_and_has_to_speak_itself() -> None:
    lease = Lease(2.4)
    lease.on_acknowledged(10.0)
    lease.on_confirmed(1, 10.0)
    lease.on_leader_changed()
    assert lease.until(1) == 12.4
    lease.on_acknowledged(11.0)
    assert lease.until(1) == 12.4
    lease.on_confirmed(1, 11.0)
    assert lease.until(1) == 13.4


def test_denied_lease_is_over() -> None:
    lease = Lease(2.4)
    lease.on_acknowledged(10.0)
    lease.on_confirmed(1, 10.0)
    lease.on_denied()
    assert lease.until(1) == NEVER


# Leader


def answer(finder: LeaderFinder, ask: Request, leader: str | None, *, is_leader: bool = False) -> None:
    finder.on_answer(ask, GetMetaDataResponseHeader(controller_leader_address=leader, is_leader=is_leader))


def test_all_are_asked_at_once_and_the_first_name_counts() -> None:
    finder = LeaderFinder(("a:1", "b:1", "c:1"), interval=0.1)
    asks = finder.requests(0.0)
    assert [ask.address for ask in asks] == ["a:1", "b:1", "c:1"]
    answer(finder, asks[0], "b:1")
    assert finder.leader == "b:1"
    assert finder.requests(1.0) == ()


def test_no_answers_are_not_asked_again_while_under_way() -> None:
    finder = LeaderFinder(("a:1", "b:1"), interval=0.1)
    asks = finder.requests(0.0)
    assert finder.requests(0.05) == ()
    answer(finder, asks[0], None)
    assert [ask.address for ask in finder.requests(0.1)] == ["a:1"]


def test_leader_that_hangs_counts_only_from_itself() -> None:
    finder = LeaderFinder(("a:1", "b:1"), interval=0.1)
    one, two = finder.requests(0.0)
    finder.suspect("a:1")
    answer(finder, two, "a:1")
    assert finder.leader is None
    answer(finder, one, "a:1", is_leader=True)
    assert finder.leader == "a:1"


def test_leader_by_another_name_than_the_configured_ones_is_taken_by_the_configured_one_if_it_answers() -> None:
    finder = LeaderFinder(("a:1", "b:1"), interval=0.1)
    one, two = finder.requests(0.0)
    answer(finder, two, "10.0.0.1:1")
    assert finder.leader is None
    answer(finder, one, "10.0.0.1:1", is_leader=True)
    assert (finder.leader, finder.addresses) == ("a:1", ("a:1", "b:1"))


def test_a_leader_under_an_unknown_name_is_taken_if_it_answers_there() -> None:
    finder = LeaderFinder(("a:1",), interval=0.1)
    (one,) = finder.requests(0.0)
    answer(finder, one, "b:1")
    (there,) = finder.requests(0.01)
    assert (there.address, finder.leader) == ("b:1", None)
    answer(finder, there, "b:1", is_leader=True)
    assert (finder.leader, finder.addresses) == ("b:1", ("a:1", "b:1"))


def test_a_said_address_that_leads_nowhere_delays_nothing() -> None:
    finder = LeaderFinder(("a:1", "b:1"), interval=0.1)
    one, two = finder.requests(0.0)
    answer(finder, two, "nowhere:1")
    assert finder.requests(0.05) == ()  # a:1 may be the leader
    answer(finder, one, None)
    assert [ask.address for ask in finder.requests(0.06)] == ["nowhere:1"]  # which never answers
    one, two = finder.requests(0.1)
    answer(finder, two, "nowhere:1")
    answer(finder, one, "nowhere:1", is_leader=True)
    assert (finder.leader, finder.addresses) == ("a:1", ("a:1", "b:1"))


def test_a_controller_that_hangs_leaves_a_said_address_waiting_for_one_round() -> None:
    finder = LeaderFinder(("a:1", "b:1"), interval=0.1)
    _, two = finder.requests(0.0)
    answer(finder, two, "c:1")
    assert [ask.address for ask in finder.requests(0.1)] == ["b:1", "c:1"]


def test_a_configured_address_that_denies_to_lead_leads_only_by_its_own_word() -> None:
    """Port mappings: the leader calls itself a:1, which is another controller from here."""
    finder = LeaderFinder(("a:1", "b:1"), interval=0.1)
    one, two = finder.requests(0.0)
    answer(finder, one, "a:1")
    assert finder.leader == "a:1"
    answer(finder, two, "a:1", is_leader=True)
    finder.not_leader("a:1")
    one, two = finder.requests(0.1)
    answer(finder, one, "a:1")
    assert finder.leader is None
    answer(finder, two, "a:1", is_leader=True)
    assert finder.leader == "b:1"
    finder.not_leader("b:1")
    one, two = finder.requests(0.2)
    answer(finder, one, "a:1", is_leader=True)
    assert finder.leader == "a:1"


def test_a_leader_of_another_group_of_controllers_is_refused_with_both_names() -> None:
    def led(ask: Request, group: str | None) -> None:
        header = GetMetaDataResponseHeader(group=group, controller_leader_address=ask.address, is_leader=True)
        finder.on_answer(ask, header)

    finder = LeaderFinder(("a:1", "b:1"), interval=0.1)
    one, _ = finder.requests(0.0)
    led(one, "ours")
    finder.reset()
    one, two = finder.requests(1.0)
    led(one, "theirs")
    assert finder.leader is None
    assert (finder.foreign or "").startswith("a:1 is of the controllers' group theirs, not of ours: ")
    led(two, "ours")
    assert (finder.leader, finder.foreign) == ("b:1", None)
    finder.reset()
    one, _ = finder.requests(2.0)
    led(one, None)
    assert finder.leader == "a:1", "it does not say"


# Mandate


def view(epoch: int | None, master: int | None, set_epoch: int = 1) -> MasterAnswer:
    agreed = SyncStateSet(sync_state_set=frozenset({1}), sync_state_set_epoch=set_epoch)
    address = None if master is None else f"10.0.0.{master}:1"
    return MasterAnswer(RequestCode.CONTROLLER_GET_REPLICA_INFO, epoch, master, address, agreed)


def test_older_epoch_never_counts() -> None:
    group = GroupState()
    assert group.update(view(3, 1))
    assert not group.update(view(2, 2))
    assert not group.update(view(2, None))
    assert (group.master_epoch, group.master_id) == (3, 1)


def test_answer_without_an_epoch_means_that_no_master_lives() -> None:
    group = GroupState()
    group.update(view(3, 1))
    group.forget()
    assert group.update(view(None, None))
    assert group.vacant
    assert group.master_epoch == 3


def test_one_master_per_epoch() -> None:
    group = GroupState()
    group.update(view(3, 1))
    assert not group.update(view(3, 2))
    assert group.master_id == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, 1, 2]), st.integers(0, 5))))
def test_epochs_only_grow(views: list[tuple[int, int | None, int]]) -> None:
    group, newest = GroupState(), 0
    for epoch, master, set_epoch in views:
        group.update(view(epoch, master, set_epoch))
        newest = max(newest, epoch)
        assert group.master_epoch == newest


# Request slots


def test_pauses_grow_and_end_with_success() -> None:
    lane = RequestSlot(patience=1.0, retry=0.1, retry_most=0.3)
    pauses = []
    for _ in range(4):
        lane.refused(0.0)
        pauses.append(lane.not_before)
    assert pauses == [0.1, 0.2, 0.3, 0.3]
    lane.succeeded()
    lane.refused(0.0)
    assert lane.not_before == 0.1


def test_answer_that_comes_too_late_is_not_taken() -> None:
    lane = RequestSlot(patience=1.0, retry=0.1, retry_most=0.3)
    ask = Request("a:1", RequestCode.CONTROLLER_GET_REPLICA_INFO, 0.0)
    lane.pending = ask
    assert lane.overdue(0.9) is None
    assert lane.overdue(1.0) is ask
    assert not lane.take(ask)
    assert lane.free(1.0)
