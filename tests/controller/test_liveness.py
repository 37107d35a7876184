"""The heartbeat table: who is alive, when silence means death, and what a new leader may not conclude."""

import pytest

from rocketmq_controller.domain import decide, liveness
from rocketmq_controller.domain.liveness import BrokerKey, HeartbeatTable
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from tests.controller.domain_kit import CLEAN, make_group

NAME = "broker-a"


def beat(broker_id: int | None = 1, cluster: str = "C", **fields: int) -> BrokerHeartbeatRequestHeader:
    return BrokerHeartbeatRequestHeader(
        cluster_name=cluster, broker_addr=f"10.0.0.{broker_id}:1", broker_name=NAME, broker_id=broker_id, **fields
    )


def key(broker_id: int = 1) -> BrokerKey:
    return BrokerKey("C", NAME, broker_id)


def beating(table: HeartbeatTable, *, period: float, until: float, connection_id: int = 1, **fields: int) -> None:
    """Heartbeats of broker 1 from 0 to `until`."""
    beats = int(until / period)
    for number in range(beats + 1):
        table.on_heartbeat(beat(1, "C", **fields), connection_id, number * period)


def test_heartbeat_makes_alive_and_is_remembered() -> None:
    table = HeartbeatTable()
    assert not table.view(0.0).alive(NAME, 1)
    heard = table.on_heartbeat(beat(epoch=3, max_offset=70, confirm_offset=60, election_priority=5), 8, 0.0)
    assert (heard.came_alive, heard.refused) == (True, None)
    view = table.view(0.5)
    assert view.alive(NAME, 1)
    info = view.info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.election_priority, info.connection_id) == (3, 70, 5, 8)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert (entry.address, entry.confirm_offset) == ("10.0.0.1:1", 60)
    assert not table.on_heartbeat(beat(), 8, 1.0).came_alive
    assert [entry.key for entry in table.living(1.0)] == [key()]


def test_missing_fields_are_javas_defaults() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(beat(), 1, 0.0)
    info = table.view(0.0).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.election_priority) == (-1, -1, 2**31 - 1)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert entry.declared_timeout == 10.0


def test_heartbeat_without_id_is_refused() -> None:
    refused = HeartbeatTable().on_heartbeat(beat(None), 1, 0.0).refused
    assert refused is not None
    assert (refused.code, refused.remark) == (ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")


@pytest.mark.parametrize(
    ("period", "declared", "limit"),
    [
        (1.0, 10_000, 3.0),  # the default broker: three missed heartbeats
        (0.2, 10_000, 3.0),  # never less than brokerSuspectTimeoutMs
        (2.0, 10_000, 6.0),  # three of its own heartbeats
        (5.0, 10_000, 10.0),  # but no more than it declared itself
        (1.0, 2_000, 2.0),
    ],
)
def test_differs_from_5_3_3_suspected_after_three_missed_heartbeats(period: float, declared: int, limit: float) -> None:
    """Java waits for the declared time-out (10 s) and the next of its scans."""
    table = HeartbeatTable()
    beating(table, period=period, until=10 * period, heartbeat_timeout_mills=declared)
    last = 10 * period
    assert table.expired(last + limit - 0.01) == ()
    assert table.view(last + limit - 0.01).alive(NAME, 1)
    assert not table.view(last + limit + 0.01).alive(NAME, 1)
    assert table.expired(last + limit + 0.01) == (key(),)


def test_declared_time_out_counts_until_the_interval_is_known() -> None:
    """A broker that beats each 5 s must not be suspected after its first heartbeat."""
    table = HeartbeatTable()
    table.on_heartbeat(beat(), 1, 0.0)
    assert table.expired(9.9) == ()
    assert table.expired(10.1) == (key(),)


def test_suspect_timeout_is_a_setting() -> None:
    table = HeartbeatTable(suspect_timeout=1.0)
    beating(table, period=0.25, until=5)
    assert table.view(5.9).alive(NAME, 1)
    assert not table.view(6.1).alive(NAME, 1)


@pytest.mark.parametrize("late", [0.05, 2.9])
def test_one_odd_interval_does_not_move_the_limit(late: float) -> None:
    """A pause of the broker's garbage collector, or two heartbeats at once."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.on_heartbeat(beat(), 1, 5 + late)
    assert table.view(5 + late + 2.9).alive(NAME, 1)
    assert not table.view(5 + late + 3.1).alive(NAME, 1)


def test_silence_is_reported_once_until_it_beats_again() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    assert table.expired(9.0) == (key(),)
    assert table.expired(10.0) == ()
    assert table.on_heartbeat(beat(), 1, 11.0).came_alive
    assert table.view(11.0).alive(NAME, 1)
    assert table.expired(22.0) == (key(),)


def test_closed_connection_is_death_at_once() -> None:
    table = HeartbeatTable()
    for broker_id in (2, 1):
        table.on_heartbeat(beat(broker_id), 7, 0.0)
    table.on_heartbeat(beat(3), 8, 0.0)
    assert table.on_connection_closed(7, 0.1) == (key(1), key(2))
    view = table.view(0.1)
    assert [view.alive(NAME, broker_id) for broker_id in (1, 2, 3)] == [False, False, True]
    assert view.info(NAME, 1) is None
    assert table.on_connection_closed(7, 0.2) == ()
    assert table.on_connection_closed(99, 0.2) == ()
    assert table.expired(0.3) == (), "it was reported already"


def test_differs_from_5_3_3_heartbeat_over_a_new_connection_moves_the_entry() -> None:
    """Java keeps the old channel: when that is closed at last, a broker that has long reconnected is declared dead."""
    table = HeartbeatTable()
    table.on_heartbeat(beat(), 1, 0.0)
    table.on_heartbeat(beat(), 2, 1.0)
    assert table.on_connection_closed(1, 1.5) == ()
    assert table.view(1.5).alive(NAME, 1)
    assert table.on_connection_closed(2, 1.6) == (key(),)


def test_differs_from_5_3_3_the_latest_report_counts() -> None:
    """Java keeps the larger offset, so a broker that was truncated is elected for data it no longer has."""
    table = HeartbeatTable()
    table.on_heartbeat(beat(epoch=3, max_offset=900), 1, 0.0)
    table.on_heartbeat(beat(epoch=3, max_offset=100), 1, 1.0)
    info = table.view(1.0).info(NAME, 1)
    assert info is not None
    assert info.max_offset == 100


def test_what_the_dead_said_is_void() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(beat(epoch=3, max_offset=900), 1, 0.0)
    table.on_connection_closed(1, 1.0)
    table.on_heartbeat(beat(), 2, 2.0)
    info = table.view(2.0).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset) == (-1, -1)


def test_touch_shows_life_and_keeps_the_report() -> None:
    """A broker's own electMaster may overtake the heartbeat that announces it; in Java that costs it 5 s."""
    table = HeartbeatTable()
    table.touch(key(), 4, 0.0)
    assert table.view(0.0).alive(NAME, 1)
    table.on_heartbeat(beat(epoch=2, max_offset=50), 4, 0.1)
    table.touch(key(), 4, 0.2)
    info = table.view(0.2).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset) == (2, 50)


def test_touch_over_another_connection_voids_the_report() -> None:
    """Restarted, perhaps with less of a log: it must not be elected for what it had before."""
    table = HeartbeatTable()
    table.on_heartbeat(beat(epoch=2, max_offset=900, confirm_offset=900), 4, 0.0)
    table.touch(key(), 5, 0.2)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert (entry.epoch, entry.max_offset, entry.confirm_offset, entry.connection_id) == (-1, -1, -1, 5)


def test_registration_over_another_connection_ends_the_life_before() -> None:
    """A lease, a stall or a half-open connection may have made the old life outlast its end; whether the new one is to
    be elected, it says itself: one that lost its log does not."""
    table = HeartbeatTable()
    for broker_id in (1, 2):
        table.on_heartbeat(beat(broker_id, epoch=2, max_offset=900, write_lease_millis=2400), broker_id, 0.0)
    assert table.on_connection_closed(1, 0.1) == ()
    table.on_registered(NAME, 1, 11)
    table.on_registered(NAME, 2, 2)
    table.on_registered(NAME, 3, 3)
    view = table.view(0.2)
    assert [view.alive(NAME, broker_id) for broker_id in (1, 2, 3)] == [False, True, False]
    assert table.expired(11.0) == (key(2),)
    assert table.on_heartbeat(beat(1, max_offset=800), 11, 11.1).came_alive
    info = table.view(3.1).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.connection_id) == (-1, 800, 11)


def test_heartbeat_over_another_connection_says_all_anew() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(beat(epoch=2, max_offset=900), 1, 0.0)
    table.on_heartbeat(beat(epoch=2), 2, 0.2)
    info = table.view(0.2).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset) == (2, -1)


def test_grace_covers_only_those_never_heard_of() -> None:
    """A new leader: 1 was never heard, 2's connection closed, 3 fell silent: only 1 gets the benefit of the doubt."""
    table = HeartbeatTable()
    table.on_heartbeat(beat(2), 2, 0.0)
    table.on_heartbeat(beat(3), 3, 0.0)
    table.on_connection_closed(2, 15.0)
    assert table.expired(15.0) == (key(3),)
    assert not table.view(15.0).unheard(NAME, 1)
    table.start_grace(0.0, 20.0)
    assert [table.view(19.9).unheard(NAME, broker_id) for broker_id in (1, 2, 3)] == [True, False, False]
    assert not table.view(19.9).alive(NAME, 1)
    assert not table.view(20.0).unheard(NAME, 1)


def test_election_waits_for_the_grace_period_unless_the_connection_closed() -> None:
    table, state = HeartbeatTable(), {NAME: make_group()}
    table.start_grace(0.0, 5.0)
    table.on_heartbeat(beat(2), 2, 0.0)
    assert decide.groups_needing_election(state, table.view(1.0), CLEAN) == ()
    assert decide.groups_needing_election(state, table.view(5.0), CLEAN) == (NAME,)

    table.on_heartbeat(beat(1), 1, 1.0)
    assert decide.groups_needing_election(state, table.view(1.5), CLEAN) == ()
    table.on_connection_closed(1, 2.0)
    assert decide.groups_needing_election(state, table.view(2.0), CLEAN) == (NAME,)


def test_stall_of_the_controller_itself_is_no_silence_of_the_brokers() -> None:
    """After 30 s stopped the heartbeats wait in the socket buffers: nobody is dead before they are read."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.forgive_stall(35.0)
    assert table.expired(35.0) == ()
    table.on_heartbeat(beat(), 1, 35.1)
    assert table.view(38.0).alive(NAME, 1)
    assert table.expired(38.2) == (key(),)


def test_brokers_not_heard_since_a_stall_have_the_time_to_find_this_controller_again() -> None:
    """A whole machine was held up: brokers have given up on it, and look for it every 3 s."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.forgive_stall(35.0)
    assert table.expired(35.0 + liveness.DEFAULT_GRACE) == ()
    assert table.expired(35.1 + liveness.DEFAULT_GRACE) == (key(),)


def test_connection_closed_by_a_stall_is_silence_and_no_death() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.forgive_stall(10.0)
    table.on_heartbeat(beat(1, epoch=3), 1, 10.0)
    assert table.on_connection_closed(1, 10.1) == ()
    info = table.view(12.9).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.connection_id) == (3, None)
    assert table.expired(13.1) == (key(),), "nobody came back"


def test_broker_that_comes_back_after_a_stall_was_never_away() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.forgive_stall(10.0)
    assert table.on_connection_closed(1, 10.0) == ()
    assert table.view(11.0).alive(NAME, 1)
    assert table.on_heartbeat(beat(), 2, 11.0).came_alive, "now it can be elected again"
    assert table.on_connection_closed(2, 10.0 + liveness.DEFAULT_GRACE) == (key(),), "from now on it counts again"


def test_heartbeats_that_had_waited_say_nothing_of_the_pace() -> None:
    """Read all at once after a stall; taken for its pace, the broker would be suspected after one late heartbeat."""
    table = HeartbeatTable()
    beating(table, period=2.0, until=10)
    table.forgive_stall(20.0)
    for number in range(6):
        table.on_heartbeat(beat(), 1, 20.0 + number / 1000)
    table.on_heartbeat(beat(), 1, 20.5)
    assert table.view(26.4).alive(NAME, 1)
    assert not table.view(26.6).alive(NAME, 1)
    beating_on = [22.5 + 4.0 * number for number in range(4)]
    for now in beating_on:
        table.on_heartbeat(beat(), 1, now)
    assert table.view(beating_on[-1] + 9.9).alive(NAME, 1), "its new pace is learned"


def test_stall_does_not_raise_the_dead() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.expired(9.0)
    table.forgive_stall(9.5)
    assert not table.view(9.5).alive(NAME, 1)


def test_table_is_bounded_and_gives_up_the_dead_first() -> None:
    table = HeartbeatTable(max_entries=3)
    for broker_id in (1, 2, 3):
        table.on_heartbeat(beat(broker_id), broker_id, 0.0)
    refused = table.on_heartbeat(beat(4), 4, 1.0).refused
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert not table.view(1.0).alive(NAME, 4)
    assert table.on_heartbeat(beat(3), 3, 1.0).refused is None, "those inside stay"
    table.on_connection_closed(2, 2.0)
    assert table.on_heartbeat(beat(4), 4, 2.0).refused is None
    assert len(table) == 3


def test_the_dead_are_forgotten_in_the_end() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(beat(1), 1, 0.0)
    table.on_heartbeat(beat(2), 2, 0.0)
    table.on_connection_closed(1, 1.0)
    table.expired(11.0)
    assert len(table) == 2
    table.expired(11.0 + liveness.FORGET_AFTER)
    assert len(table) == 0
    assert table.on_connection_closed(2, 700.0) == ()


def test_one_entry_per_name_and_id() -> None:
    """The replicated state is keyed by brokerName alone, so the table is too; the cluster is what was said last."""
    table = HeartbeatTable()
    table.on_heartbeat(beat(cluster="C"), 1, 0.0)
    table.on_heartbeat(beat(cluster="D"), 2, 1.0)
    assert [entry.key.cluster_name for entry in table.living(1.0)] == ["D"]


@pytest.mark.parametrize("declared", [-(2**63), 2**63 - 1])
def test_absurd_declared_time_outs_are_bounded(declared: int) -> None:
    table = HeartbeatTable()
    table.on_heartbeat(beat(1, "C", heartbeat_timeout_mills=declared), 1, 0.0)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert 0 <= entry.limit <= 86_400


def test_closed_connection_of_a_lease_holder_is_death_only_when_the_lease_has_ended() -> None:
    table = HeartbeatTable()
    beating(table, period=0.5, until=10.0, write_lease_millis=2400)
    assert table.on_connection_closed(1, 10.2) == ()
    assert table.view(12.3).alive(NAME, 1)
    assert table.expired(12.3) == ()
    assert not table.view(12.5).alive(NAME, 1)
    assert table.expired(12.5) == (key(1),)


def test_nobody_is_elected_whose_connection_has_closed() -> None:
    """A lease keeps others from taking its place, but what came back since, perhaps without its log, is another life.
    A controller that led not yet when it registered knows no more than that."""
    table, group = HeartbeatTable(), make_group(master=None)
    beating(table, period=0.5, until=10.0, write_lease_millis=2400)
    table.on_connection_closed(1, 10.2)
    assert table.view(10.3).alive(NAME, 1)
    assert not decide.needs_election(group, table.view(10.3), CLEAN)
    assert table.on_heartbeat(beat(1), 11, 10.4).came_alive
    assert decide.needs_election(group, table.view(10.4), CLEAN)


def test_lease_given_back_is_no_lease() -> None:
    table = HeartbeatTable()
    beating(table, period=0.5, until=10.0, write_lease_millis=2400)
    table.on_heartbeat(beat(write_lease_millis=0), 1, 10.1)
    assert table.on_connection_closed(1, 10.2) == (key(1),)


def test_broker_without_lease_is_dead_at_once() -> None:
    table = HeartbeatTable()
    beating(table, period=0.5, until=10.0)
    assert table.on_connection_closed(1, 10.2) == (key(1),)


def test_nobody_is_suspected_before_the_lease_ends() -> None:
    """The suspect timeout may be configured shorter than the lease of a broker."""
    table = HeartbeatTable(suspect_timeout=1.0)
    beating(table, period=0.1, until=10.0, write_lease_millis=2400)
    assert table.expired(12.3) == ()
    assert table.expired(12.5) == (key(1),)


def test_new_leader_waits_for_a_lease_that_its_predecessor_may_have_prolonged() -> None:
    table, state = HeartbeatTable(), {NAME: make_group()}
    for broker_id in (1, 2):
        table.on_heartbeat(beat(broker_id, write_lease_millis=2400), broker_id, 0.0)
    assert table.expired(11.0) == (key(1), key(2))
    table.on_heartbeat(beat(2), 2, 19.0)
    table.start_grace(20.0)
    assert decide.groups_needing_election(state, table.view(22.3), CLEAN) == ()
    table.on_heartbeat(beat(2), 2, 22.4)
    assert decide.groups_needing_election(state, table.view(22.5), CLEAN) == (NAME,)


def test_new_leader_waits_for_a_lease_that_only_its_predecessor_was_told_of() -> None:
    """Heard as a slave that would take a lease as master; it became master, and its connection to us closed."""
    table, state = HeartbeatTable(), {NAME: make_group()}
    table.on_heartbeat(beat(1, write_lease_millis=0), 1, 0.0)
    table.on_heartbeat(beat(2, write_lease_millis=0), 2, 0.0)
    assert table.on_connection_closed(1, 1.0) == (key(1),)
    table.start_grace(1.0)
    table.on_heartbeat(beat(2, write_lease_millis=0), 2, 5.9)
    assert decide.groups_needing_election(state, table.view(5.9), CLEAN) == ()
    assert decide.groups_needing_election(state, table.view(6.0), CLEAN) == (NAME,)


def test_new_leader_knows_nothing_of_a_broker_that_only_asked_for_an_election() -> None:
    table, state = HeartbeatTable(), {NAME: make_group()}
    table.touch(key(), 1, 0.0)
    table.on_heartbeat(beat(2), 2, 0.0)
    table.on_connection_closed(1, 1.0)
    table.start_grace(1.0)
    table.on_heartbeat(beat(2), 2, 5.9)
    assert decide.groups_needing_election(state, table.view(5.9), CLEAN) == ()


def test_the_lease_that_is_left() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(beat(1, write_lease_millis=2400), 1, 0.0)
    table.on_heartbeat(beat(2), 2, 0.0)
    infos = [table.view(now).info(NAME, broker_id) for broker_id, now in ((1, 0.4), (1, 2.4), (2, 0.4))]
    assert [info and info.lease for info in infos] == [2.0, 0.0, 0.0]
