"""The heartbeat table: who is alive, when silence means death, and what a new leader may not conclude."""

import msgspec
import pytest

from rocketmq_controller.domain import liveness
from rocketmq_controller.domain.broker_entry import BrokerKey, Origin
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.requests.elect_master import groups_needing_election, needs_election
from rocketmq_controller.domain.rivals import MAX_RIVALS
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    CLOCKS_DIFFER,
    LONGEST_WRITE_LEASE_MS,
    NEW_LEADER_WAITS_MS,
    BrokerHeartbeatRequestHeader,
)
from rocketmq_formats.remoting.headers import encode_header
from tests.controller.domain.domain_kit import CLEAN, make_group

NAME = "broker-a"


def heartbeat(broker_id: int | None = 1, cluster: str = "C", **fields: int) -> BrokerHeartbeatRequestHeader:
    return BrokerHeartbeatRequestHeader(
        cluster_name=cluster, broker_addr=f"10.0.0.{broker_id}:1", broker_name=NAME, broker_id=broker_id, **fields
    )


def key(broker_id: int = 1) -> BrokerKey:
    return BrokerKey("C", NAME, broker_id)


def beating(table: HeartbeatTable, *, period: float, until: float, connection_id: int = 1, **fields: int) -> None:
    """Heartbeats of broker 1 from 0 to `until`."""
    beats = int(until / period)
    for number in range(beats + 1):
        table.on_heartbeat(heartbeat(1, "C", **fields), connection_id, number * period)


def test_heartbeat_makes_a_broker_alive_and_is_stored() -> None:
    table = HeartbeatTable()
    assert not table.view(0.0).alive(NAME, 1)
    heard = table.on_heartbeat(heartbeat(epoch=3, max_offset=70, confirm_offset=60, election_priority=5), 8, 0.0)
    assert (heard.came_alive, heard.refused) == (True, None)
    view = table.view(0.5)
    assert view.alive(NAME, 1)
    info = view.info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.election_priority, info.connection_id) == (3, 70, 5, 8)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert (entry.address, entry.confirm_offset) == ("10.0.0.1:1", 60)
    assert not table.on_heartbeat(heartbeat(), 8, 1.0).came_alive
    assert [entry.key for entry in table.living(1.0)] == [key()]


def test_missing_fields_are_javas_defaults() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(), 1, 0.0)
    info = table.view(0.0).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.election_priority) == (-1, -1, 2**31 - 1)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert entry.declared_timeout == 10.0


def test_heartbeat_without_id_is_refused() -> None:
    refused = HeartbeatTable().on_heartbeat(heartbeat(None), 1, 0.0).refused
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
    table.on_heartbeat(heartbeat(), 1, 0.0)
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
    table.on_heartbeat(heartbeat(), 1, 5 + late)
    assert table.view(5 + late + 2.9).alive(NAME, 1)
    assert not table.view(5 + late + 3.1).alive(NAME, 1)


def test_silence_is_reported_once_until_it_beats_again() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    assert table.expired(9.0) == (key(),)
    assert table.expired(10.0) == ()
    assert table.on_heartbeat(heartbeat(), 1, 11.0).came_alive
    assert table.view(11.0).alive(NAME, 1)
    assert table.expired(22.0) == (key(),)


def test_closed_connection_is_death_at_once() -> None:
    table = HeartbeatTable()
    for broker_id in (2, 1):
        table.on_heartbeat(heartbeat(broker_id), 7, 0.0)
    table.on_heartbeat(heartbeat(3), 8, 0.0)
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
    table.on_heartbeat(heartbeat(), 1, 0.0)
    table.on_heartbeat(heartbeat(), 2, 1.0)
    assert table.on_connection_closed(1, 1.5) == ()
    assert table.view(1.5).alive(NAME, 1)
    assert table.on_connection_closed(2, 1.6) == (key(),)


def test_differs_from_5_3_3_the_latest_report_counts() -> None:
    """Java keeps the larger offset, so a broker that was truncated is elected for data it no longer has."""
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(epoch=3, max_offset=900), 1, 0.0)
    table.on_heartbeat(heartbeat(epoch=3, max_offset=100), 1, 1.0)
    info = table.view(1.0).info(NAME, 1)
    assert info is not None
    assert info.max_offset == 100


def test_reports_of_dead_brokers_are_void() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(epoch=3, max_offset=900), 1, 0.0)
    table.on_connection_closed(1, 1.0)
    table.on_heartbeat(heartbeat(), 2, 2.0)
    info = table.view(2.0).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset) == (-1, -1)


def test_a_learner_is_one_for_as_long_as_its_connection_says_so() -> None:
    table = HeartbeatTable()

    def learner(now: float) -> bool:
        info = table.view(now).info(NAME, 1)
        assert info is not None
        return info.learner

    beat = msgspec.structs.replace(heartbeat(), is_learner=True)
    assert encode_header(beat)["isLearner"] == "true"
    table.on_heartbeat(beat, 1, 0.0)
    assert learner(0.0)
    table.on_connection_closed(1, 1.0)
    table.on_heartbeat(heartbeat(), 2, 2.0)
    assert not learner(2.0)


@pytest.mark.parametrize("field", ["is_learner", "unproven"])
def test_a_request_for_an_election_does_not_say_that_a_broker_may_be_elected(field: str) -> None:
    """1002 comes from anybody. Only a heartbeat makes a learner, or a log that may lack data, electable."""
    table = HeartbeatTable()
    table.on_heartbeat(msgspec.structs.replace(heartbeat(), **{field: True}), 1, 0.0)
    table.on_connection_closed(1, 1.0)
    table.touch(key(), 2, 2.0)
    info = table.view(2.0).info(NAME, 1)
    assert info is not None
    assert (info.learner, info.unproven) == (field == "is_learner", field == "unproven")
    assert table.on_heartbeat(heartbeat(max_offset=5), 2, 2.1).came_alive
    info = table.view(2.1).info(NAME, 1)
    assert info is not None
    assert (info.learner, info.unproven) == (False, False)


def test_touch_shows_life_and_keeps_the_report() -> None:
    """A broker's own electMaster may overtake the heartbeat that announces it; in Java that costs it 5 s."""
    table = HeartbeatTable()
    table.touch(key(), 4, 0.0)
    assert table.view(0.0).alive(NAME, 1)
    table.on_heartbeat(heartbeat(epoch=2, max_offset=50), 4, 0.1)
    table.touch(key(), 4, 0.2)
    info = table.view(0.2).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset) == (2, 50)


def test_touch_over_another_connection_voids_the_report() -> None:
    """Restarted, perhaps with less of a log: it must not be elected for what it had before."""
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(epoch=2, max_offset=900, confirm_offset=900), 4, 0.0)
    assert table.on_registered(NAME, 1, 5, 6.0)
    table.touch(key(), 5, 6.1)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert (entry.epoch, entry.max_offset, entry.confirm_offset, entry.connection_id) == (-1, -1, -1, 5)


def test_registration_over_another_connection_ends_the_life_before() -> None:
    """A lease, a stall or a half-open connection may have made the old life outlast its end; whether the new one is to
    be elected, it says itself: one that lost its log does not."""
    table = HeartbeatTable()
    for broker_id in (1, 2):
        table.on_heartbeat(heartbeat(broker_id, epoch=2, max_offset=900, write_lease_millis=2400), broker_id, 0.0)
    assert table.on_connection_closed(1, 0.1) == ()
    assert table.on_registered(NAME, 1, 11, 0.1)
    assert table.on_registered(NAME, 2, 2, 0.1)
    assert table.on_registered(NAME, 3, 3, 0.1)
    view = table.view(0.2)
    assert [view.alive(NAME, broker_id) for broker_id in (1, 2, 3)] == [False, True, False]
    assert table.expired(11.0) == (key(2),)
    assert table.on_heartbeat(heartbeat(1, max_offset=800), 11, 11.1).came_alive
    info = table.view(3.1).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.connection_id) == (-1, 800, 11)


def test_no_other_connection_registers_for_a_living_broker() -> None:
    """It would end the life, and the lease, of a broker that lives. A half-open connection is silent before long."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5, epoch=3)
    assert not table.on_registered(NAME, 1, 66, 5.1)
    info = table.view(5.1).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.connection_id) == (3, 1)
    assert table.on_registered(NAME, 1, 2, 6.5)
    assert not table.view(6.5).alive(NAME, 1)
    assert table.on_heartbeat(heartbeat(), 2, 6.6).came_alive


def test_heartbeat_over_another_connection_replaces_the_whole_report() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(epoch=2, max_offset=900), 1, 0.0)
    table.on_heartbeat(heartbeat(epoch=2), 2, 0.2)
    table.on_connection_closed(1, 0.3)
    info = table.view(0.3).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.connection_id) == (2, -1, 2)


@pytest.mark.parametrize("said", ["heartbeat", "electMaster", "both"])
def test_stranger_in_the_name_of_a_living_broker_that_hangs_up_ends_no_broker(said: str) -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5, epoch=3, max_offset=900)
    if said != "electMaster":
        lie = heartbeat(epoch=9, max_offset=2**40, election_priority=0, heartbeat_timeout_mills=1)
        assert table.on_heartbeat(lie, 66, 5.1) == liveness.HeartbeatResult()
    if said != "heartbeat":
        table.touch(key(), 66, 5.2)
        table.touch(key(), 66, 7.8)
    info = table.view(7.8).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.max_offset, info.election_priority, info.connection_id) == (3, 900, 2**31 - 1, 1)
    assert table.on_connection_closed(66, 7.8) == ()
    assert table.view(7.9).alive(NAME, 1)
    assert table.expired(8.1) == (key(),)


def test_broker_that_reconnects_is_not_declared_dead_for_its_half_open_connection() -> None:
    """The network lost the old connection's end: it stays open and silent."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    for now in (6.0, 7.0):
        table.on_heartbeat(heartbeat(max_offset=800), 2, now)
        assert table.expired(now) == ()
        assert table.view(now).alive(NAME, 1)
    info = table.view(7.0).info(NAME, 1)
    assert info is not None
    assert (info.max_offset, info.connection_id) == (800, 2), "after half of what it may be silent for"
    assert table.on_connection_closed(1, 7.5) == ()
    assert table.on_connection_closed(2, 7.6) == (key(),)


def test_stranger_that_was_first_and_is_silent_loses_the_entry_to_the_broker_soon() -> None:
    """After a restart of the controller anybody may be the first to beat, with whatever time-out."""
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(heartbeat_timeout_mills=86_400_000, max_offset=2**40), 66, 0.0)
    for now in (1.0, 2.0, 3.0, 4.0, 5.0):
        table.on_heartbeat(heartbeat(max_offset=800), 1, now)
    info = table.view(5.0).info(NAME, 1)
    assert info is not None
    assert (info.max_offset, info.connection_id) == (800, 1)
    assert table.on_connection_closed(66, 5.1) == ()


def test_stranger_that_takes_over_while_the_broker_pauses_and_hangs_up_ends_no_broker() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5, max_offset=900)
    table.on_heartbeat(heartbeat(max_offset=1), 66, 7.0)
    assert table.on_connection_closed(66, 7.1) == ()
    info = table.view(7.2).info(NAME, 1)
    assert info is not None
    assert (info.max_offset, info.connection_id) == (900, 1)
    assert table.expired(8.1) == (key(),), "it does not win time by it"
    assert table.on_connection_closed(1, 8.2) == ()
    assert len(table._connections) == 0


def test_one_heartbeat_does_not_keep_a_broker_alive_for_long() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(heartbeat_timeout_mills=86_400_000), 1, 0.0)
    assert table.view(59.9).alive(NAME, 1)
    assert table.expired(60.1) == (key(),)


def test_stranger_holds_up_the_death_of_a_broker_only_while_it_beats() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.on_heartbeat(heartbeat(), 66, 5.5)
    assert table.on_connection_closed(1, 6.0) == (), "it may have reconnected"
    assert table.on_connection_closed(66, 6.1) == (key(),)


def test_rivals_are_bounded_and_the_latest_is_kept() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    for stranger in range(100, 200):
        table.on_heartbeat(heartbeat(), stranger, 5.1)
    table.on_heartbeat(heartbeat(), 2, 5.2)
    assert len(table._connections) == 1 + MAX_RIVALS
    assert table.on_connection_closed(1, 5.3) == ()
    info = table.view(5.3).info(NAME, 1)
    assert info is not None
    assert info.connection_id == 2
    for stranger in range(100, 200):
        table.on_connection_closed(stranger, 5.4)
    assert table.on_connection_closed(2, 5.5) == (key(),)
    assert len(table._connections) == 0


def test_rival_gets_no_lease_and_ends_none() -> None:
    """What is answered with success extends the lease of a relaxed master: one connection alone may have it."""
    table = HeartbeatTable()
    beating(table, period=0.5, until=10.0, write_lease_millis=2400)
    refused = table.on_heartbeat(heartbeat(write_lease_millis=2400), 66, 10.1).refused
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    table.on_heartbeat(heartbeat(write_lease_millis=0), 66, 10.2)
    info = table.view(10.4).info(NAME, 1)
    assert info is not None
    assert info.lease == pytest.approx(2.0)
    assert table.on_connection_closed(1, 10.5) == ()
    assert table.on_connection_closed(66, 10.6) == ()
    assert table.view(12.3).alive(NAME, 1), "the lease lasts, whatever another connection said"
    assert table.expired(12.5) == (key(),)


def test_lease_is_bounded_by_what_a_sidecar_may_ask_for() -> None:
    """A day was believed once: a group whose master died had no failover for as long."""
    table = HeartbeatTable()
    asked = round(1000 * CLOCKS_DIFFER * LONGEST_WRITE_LEASE_MS / 1000)
    table.on_heartbeat(heartbeat(1, write_lease_millis=86_400_000), 1, 0.0)
    table.on_heartbeat(heartbeat(2, write_lease_millis=asked), 2, 0.0)
    infos = [table.view(0.0).info(NAME, broker_id) for broker_id in (1, 2)]
    assert [info and info.lease for info in infos] == [NEW_LEADER_WAITS_MS / 1000, asked / 1000]
    assert table.on_connection_closed(1, 0.1) == ()
    assert table.expired(5.1) == (key(),)


def test_grace_covers_only_brokers_without_a_heartbeat() -> None:
    """A new leader: 1 was never heard, 2's connection closed, 3 fell silent: only 1 gets the benefit of the doubt."""
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(2), 2, 0.0)
    table.on_heartbeat(heartbeat(3), 3, 0.0)
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
    table.on_heartbeat(heartbeat(2), 2, 0.0)
    assert groups_needing_election(state, table.view(1.0), CLEAN) == ()
    assert groups_needing_election(state, table.view(5.0), CLEAN) == (NAME,)

    table.on_heartbeat(heartbeat(1), 1, 1.0)
    assert groups_needing_election(state, table.view(1.5), CLEAN) == ()
    table.on_connection_closed(1, 2.0)
    assert groups_needing_election(state, table.view(2.0), CLEAN) == (NAME,)


def test_stall_of_the_controller_itself_is_no_silence_of_the_brokers() -> None:
    """After 30 s stopped the heartbeats wait in the socket buffers: no broker is dead before they are read."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.on_stall(35.0, 30.0)
    assert table.expired(35.0) == ()
    table.on_heartbeat(heartbeat(), 1, 35.1)
    assert table.view(38.0).alive(NAME, 1)
    assert table.expired(38.2) == (key(),)


def test_brokers_that_were_silent_since_a_stall_get_time_to_reconnect() -> None:
    """A whole machine was held up: brokers have given up on it, and look for it every 3 s."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.on_stall(35.0, 30.0)
    assert table.expired(35.0 + liveness.DEFAULT_GRACE) == ()
    assert table.expired(35.1 + liveness.DEFAULT_GRACE) == (key(),)


def test_connection_closed_by_a_stall_is_silence_and_no_death() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.on_stall(10.0, 5.0)
    table.on_heartbeat(heartbeat(1, epoch=3), 1, 10.0)
    assert table.on_connection_closed(1, 10.1) == ()
    info = table.view(12.9).info(NAME, 1)
    assert info is not None
    assert (info.epoch, info.connection_id) == (3, None)
    assert table.expired(13.1) == (key(),), "nobody came back"


def test_broker_that_comes_back_after_a_stall_was_never_away() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.on_stall(10.0, 5.0)
    assert table.on_connection_closed(1, 10.0) == ()
    assert table.view(11.0).alive(NAME, 1)
    assert table.on_heartbeat(heartbeat(), 2, 11.0).came_alive, "now it can be elected again"
    assert table.on_connection_closed(2, 10.0 + liveness.DEFAULT_GRACE) == (key(),), "from now on it counts again"


def test_heartbeats_that_had_waited_do_not_count_as_intervals() -> None:
    """Read all at once after a stall; taken for its pace, the broker would be suspected after one late heartbeat."""
    table = HeartbeatTable()
    beating(table, period=2.0, until=10)
    table.on_stall(20.0, 10.0)
    for number in range(6):
        table.on_heartbeat(heartbeat(), 1, 20.0 + number / 1000)
    table.on_heartbeat(heartbeat(), 1, 20.5)
    assert table.view(26.4).alive(NAME, 1)
    assert not table.view(26.6).alive(NAME, 1)
    beating_on = [22.5 + 4.0 * number for number in range(4)]
    for now in beating_on:
        table.on_heartbeat(heartbeat(), 1, now)
    assert table.view(beating_on[-1] + 9.9).alive(NAME, 1), "its new pace is learned"


def test_stall_does_not_raise_the_dead() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    table.expired(9.0)
    table.on_stall(9.5, 1.0)
    assert not table.view(9.5).alive(NAME, 1)


def test_a_dead_broker_is_found_out_between_stalls_that_do_not_end() -> None:
    """Two seconds of each three are stalls: what is left is listened to, and silence in it counts."""
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    for number in range(4):
        end = 8.0 + 3.0 * number
        table.on_stall(end, 2.0)
        assert table.expired(end + 0.9) == (), "up to four seconds of listening"
    table.on_stall(20.0, 2.0)
    assert table.expired(20.9) == ()
    table.on_stall(23.0, 2.0)
    assert table.expired(23.1) == (key(),)


def test_a_broker_that_sends_heartbeats_between_stalls_stays_alive() -> None:
    table = HeartbeatTable()
    beating(table, period=1.0, until=5)
    for number in range(30):
        end = 8.0 + 3.0 * number
        table.on_stall(end, 2.0)
        table.on_heartbeat(heartbeat(), 1, end + 0.1)
        assert table.expired(end + 0.9) == ()


def test_strangers_are_bounded_and_give_up_the_dead_first() -> None:
    table = HeartbeatTable(max_strangers=3)
    for broker_id in (1, 2, 3):
        table.on_heartbeat(heartbeat(broker_id), broker_id, 0.0, registered=False)
    refused = table.on_heartbeat(heartbeat(4), 4, 1.0, registered=False).refused
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert not table.view(1.0).alive(NAME, 4)
    assert table.on_heartbeat(heartbeat(3), 3, 1.0, registered=False).refused is None, "those inside stay"
    table.on_connection_closed(2, 2.0)
    assert table.on_heartbeat(heartbeat(4), 4, 2.0, registered=False).refused is None
    assert len(table) == 3


def test_strangers_take_no_room_from_registered_brokers() -> None:
    table = HeartbeatTable(max_strangers=3)
    for broker_id in (1, 2, 3):
        table.on_heartbeat(heartbeat(broker_id), broker_id, 0.0, registered=False)
    for broker_id in range(11, 31):
        assert table.on_heartbeat(heartbeat(broker_id), broker_id, 1.0).refused is None
    assert table.on_heartbeat(heartbeat(1), 1, 1.0).refused is None, "it has registered meanwhile"
    assert table.on_heartbeat(heartbeat(4), 4, 1.0, registered=False).refused is None


def test_the_dead_are_forgotten_in_the_end() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(1), 1, 0.0)
    table.on_heartbeat(heartbeat(2), 2, 0.0)
    table.on_connection_closed(1, 1.0)
    table.expired(11.0)
    assert len(table) == 2
    table.expired(11.0 + liveness.FORGET_AFTER)
    assert len(table) == 0
    assert table.on_connection_closed(2, 700.0) == ()


def test_one_entry_per_name_and_id() -> None:
    """The replicated state is keyed by brokerName alone, so the table is too; the cluster is what was said last."""
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(cluster="C"), 1, 0.0)
    table.on_connection_closed(1, 0.5)
    table.on_heartbeat(heartbeat(cluster="D"), 2, 1.0)
    assert [entry.key.cluster_name for entry in table.living(1.0)] == ["D"]


@pytest.mark.parametrize("declared", [-(2**63), 2**63 - 1])
def test_absurd_declared_time_outs_are_bounded(declared: int) -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(1, "C", heartbeat_timeout_mills=declared), 1, 0.0)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert 0 <= entry.limit <= 60


def test_closed_connection_of_a_lease_holder_is_death_only_when_the_lease_has_ended() -> None:
    table = HeartbeatTable()
    beating(table, period=0.5, until=10.0, write_lease_millis=2400)
    assert table.on_connection_closed(1, 10.2) == ()
    assert table.view(12.3).alive(NAME, 1)
    assert table.expired(12.3) == ()
    assert not table.view(12.5).alive(NAME, 1)
    assert table.expired(12.5) == (key(1),)


def test_a_broker_whose_connection_has_closed_is_not_elected() -> None:
    """A lease keeps others from taking its place, but what came back since, perhaps without its log, is another life.
    A controller that did not lead yet when it registered has only that information."""
    table, group = HeartbeatTable(), make_group(master=None)
    beating(table, period=0.5, until=10.0, write_lease_millis=2400)
    table.on_connection_closed(1, 10.2)
    assert table.view(10.3).alive(NAME, 1)
    assert not needs_election(group, table.view(10.3), CLEAN)
    assert table.on_heartbeat(heartbeat(1), 11, 10.4).came_alive
    assert needs_election(group, table.view(10.4), CLEAN)


def test_lease_given_back_is_no_lease() -> None:
    table = HeartbeatTable()
    beating(table, period=0.5, until=10.0, write_lease_millis=2400)
    table.on_heartbeat(heartbeat(write_lease_millis=0), 1, 10.1)
    assert table.on_connection_closed(1, 10.2) == (key(1),)


def test_broker_without_lease_is_dead_at_once() -> None:
    table = HeartbeatTable()
    beating(table, period=0.5, until=10.0)
    assert table.on_connection_closed(1, 10.2) == (key(1),)


def test_no_broker_is_suspected_before_its_lease_ends() -> None:
    """The suspect timeout may be configured shorter than the lease of a broker."""
    table = HeartbeatTable(suspect_timeout=1.0)
    beating(table, period=0.1, until=10.0, write_lease_millis=2400)
    assert table.expired(12.3) == ()
    assert table.expired(12.5) == (key(1),)


def test_new_leader_waits_for_a_lease_that_its_predecessor_may_have_prolonged() -> None:
    table, state = HeartbeatTable(), {NAME: make_group()}
    for broker_id in (1, 2):
        table.on_heartbeat(heartbeat(broker_id, write_lease_millis=2400), broker_id, 0.0)
    assert table.expired(11.0) == (key(1), key(2))
    table.on_heartbeat(heartbeat(2), 2, 19.0)
    table.start_grace(20.0)
    assert groups_needing_election(state, table.view(22.3), CLEAN) == ()
    table.on_heartbeat(heartbeat(2), 2, 22.4)
    assert groups_needing_election(state, table.view(22.5), CLEAN) == (NAME,)


def test_new_leader_waits_for_a_lease_that_only_its_predecessor_granted() -> None:
    """Heard as a slave that would take a lease as master; it became master, and its connection to us closed."""
    table, state = HeartbeatTable(), {NAME: make_group()}
    table.on_heartbeat(heartbeat(1, write_lease_millis=0), 1, 0.0)
    table.on_heartbeat(heartbeat(2, write_lease_millis=0), 2, 0.0)
    assert table.on_connection_closed(1, 1.0) == (key(1),)
    table.start_grace(1.0)
    table.on_heartbeat(heartbeat(2, write_lease_millis=0), 2, 5.9)
    assert groups_needing_election(state, table.view(5.9), CLEAN) == ()
    assert groups_needing_election(state, table.view(6.0), CLEAN) == (NAME,)


def test_new_leader_knows_nothing_of_a_broker_that_only_asked_for_an_election() -> None:
    table, state = HeartbeatTable(), {NAME: make_group()}
    table.touch(key(), 1, 0.0)
    table.on_heartbeat(heartbeat(2), 2, 0.0)
    table.on_connection_closed(1, 1.0)
    table.start_grace(1.0)
    table.on_heartbeat(heartbeat(2), 2, 5.9)
    assert groups_needing_election(state, table.view(5.9), CLEAN) == ()


def test_the_lease_that_is_left() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(1, write_lease_millis=2400), 1, 0.0)
    table.on_heartbeat(heartbeat(2), 2, 0.0)
    infos = [table.view(now).info(NAME, broker_id) for broker_id, now in ((1, 0.4), (1, 2.4), (2, 0.4))]
    assert [info and info.lease for info in infos] == [2.0, 0.0, 0.0]


def test_whether_a_broker_is_strict_is_of_its_present_connection() -> None:
    """It may have been started again with another durability."""
    table = HeartbeatTable()

    def strict() -> bool | None:
        info = table.view(1.0).info(NAME, 1)
        return None if info is None else info.strict

    table.on_heartbeat(heartbeat(strict_durability=True), 1, 1.0)
    assert strict() is True
    table.on_connection_closed(1, 1.0)
    table.touch(key(), 2, 1.0)
    assert strict() is False
    table.touch(key(), 2, 1.0, strict=True)  # electMaster says it as well, before the first heartbeat
    assert strict() is True
    table.on_heartbeat(heartbeat(), 2, 1.0)
    assert strict() is False


# A stranger on another host.

HOME = Origin("10.0.0.1", "10.0.0.1")
ELSEWHERE = Origin("10.6.6.6", "10.0.0.1")


def with_stranger(until: float, *, stranger_first: bool = False) -> HeartbeatTable:
    """The broker beats over connection 1 from its registered host, a stranger in its name over connection 2."""
    table = HeartbeatTable()
    for number in range(int(until) + 1):
        if stranger_first:
            table.on_heartbeat(heartbeat(max_offset=10**9), 2, number - 0.5, origin=ELSEWHERE)
        table.on_heartbeat(heartbeat(max_offset=7), 1, float(number), origin=HOME)
        table.on_heartbeat(heartbeat(max_offset=10**9), 2, number + 0.5, origin=ELSEWHERE)
    return table


def test_a_stranger_elsewhere_does_not_keep_a_broker_alive_whose_connection_closed() -> None:
    table = with_stranger(5)
    assert table.on_connection_closed(1, 6.0) == (key(),)
    for tenth in range(100):
        now = 6.0 + tenth / 10
        heard = table.on_heartbeat(heartbeat(max_offset=10**9), 2, now, origin=ELSEWHERE)
        assert heard.refused is not None
        assert heard.refused.code == ResponseCode.SYSTEM_BUSY
        assert not table.view(now).alive(NAME, 1)
        table.touch(key(), 2, now, origin=ELSEWHERE)
        assert not table.view(now).alive(NAME, 1)


def test_a_stranger_elsewhere_does_not_keep_a_silent_broker_alive() -> None:
    table = with_stranger(5)
    for tenth in range(1, 31):
        table.on_heartbeat(heartbeat(), 2, 5.0 + tenth / 10, origin=ELSEWHERE)
    assert table.expired(8.01) == (key(),)


@pytest.mark.parametrize("connection_id", [1, 3], ids=["the same connection", "another one"])
def test_the_broker_itself_comes_back(connection_id: int) -> None:
    table = with_stranger(5)
    if connection_id != 1:
        table.on_connection_closed(1, 6.0)
    else:
        table.expired(9.0)
    assert table.on_heartbeat(heartbeat(), connection_id, 10.0, origin=HOME).came_alive
    assert table.view(10.0).alive(NAME, 1)


def test_the_broker_takes_its_place_from_a_stranger_that_was_first() -> None:
    table = with_stranger(1, stranger_first=True)
    entry = table.entry(NAME, 1)
    assert entry is not None
    assert (entry.connection_id, entry.max_offset) == (1, 7)
    # The stranger's closed connection ends no broker, and the broker's own ends the broker.
    assert table.on_connection_closed(2, 2.0) == ()
    assert table.on_connection_closed(1, 2.1) == (key(),)


def test_heartbeats_are_accepted_from_a_newly_registered_address() -> None:
    table = with_stranger(5)
    table.on_connection_closed(1, 6.0)
    moved = Origin("10.0.0.9", "10.0.0.9")
    assert table.on_registered(NAME, 1, 3, 6.5, origin=Origin("10.0.0.9", "10.0.0.1"))
    assert table.on_heartbeat(heartbeat(), 3, 7.0, origin=moved).came_alive


def test_no_connection_is_at_home_where_a_name_is_registered() -> None:
    """Any connection may be the broker's: the newest word counts, as ever."""
    table = HeartbeatTable()
    for number in range(5):
        table.on_heartbeat(heartbeat(), 1, float(number), origin=Origin("10.0.0.1", ""))
        table.on_heartbeat(heartbeat(), 2, number + 0.5, origin=Origin("10.0.0.2", ""))
    assert table.on_connection_closed(1, 5.0) == ()
    assert table.view(5.0).alive(NAME, 1)


def test_heartbeats_through_address_translation_are_accepted() -> None:
    table = HeartbeatTable()
    nat = Origin("10.9.9.9", "10.0.0.1")
    assert table.on_heartbeat(heartbeat(), 1, 0.0, origin=nat).came_alive
    table.on_connection_closed(1, 20.0)
    assert table.on_heartbeat(heartbeat(), 2, 21.0, origin=nat).came_alive


@pytest.mark.parametrize(
    ("before", "after", "wakes"),
    [
        ({"max_offset": -1, "unproven": True}, {"max_offset": 70, "unproven": True}, True),
        ({"max_offset": 70, "unproven": True}, {"max_offset": 70}, True),
        ({"max_offset": 70}, {"max_offset": 80}, False),
        ({"max_offset": 70}, {"max_offset": 70, "unproven": True}, False),
    ],
)
def test_a_report_that_an_election_waited_for_wakes_it(
    before: dict[str, int], after: dict[str, int], wakes: bool
) -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(1, **before), 1, 0.0)
    assert table.on_heartbeat(heartbeat(1, **after), 1, 1.0).came_alive is wakes


def unproven(table: HeartbeatTable, now: float) -> bool:
    info = table.view(now).info(NAME, 1)
    assert info is not None
    return info.unproven


def test_a_sidecars_doubt_of_an_official_brokers_log_outlives_its_heartbeats() -> None:
    table = HeartbeatTable()
    assert not table.on_log_doubt(NAME, 1, HOME.host, 0.0, unproven=True)  # before the broker has started
    table.on_heartbeat(heartbeat(), 1, 1.0, origin=HOME)
    table.on_heartbeat(heartbeat(), 1, 2.0, origin=HOME)
    assert unproven(table, 2.0)
    assert table.on_log_doubt(NAME, 1, HOME.host, 3.0, unproven=False)  # there may be an election now
    assert not unproven(table, 3.0)
    assert not table.on_log_doubt(NAME, 1, HOME.host, 4.0, unproven=False)


def test_only_the_host_that_the_broker_speaks_from_can_doubt_its_log() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(), 1, 0.0, origin=HOME)
    table.on_log_doubt(NAME, 1, ELSEWHERE.host, 1.0, unproven=True)
    assert not unproven(table, 1.0)
    table.on_log_doubt(NAME, 1, HOME.host, 2.0, unproven=True)
    assert not table.on_log_doubt(NAME, 1, ELSEWHERE.host, 3.0, unproven=False)
    assert unproven(table, 3.0)


def test_a_broker_at_another_address_is_doubted_from_there() -> None:
    """A pod has another one after a restart, and its sidecar speaks before the broker has registered it."""
    table, moved = HeartbeatTable(), Origin("10.0.0.9", "10.0.0.1")
    table.on_log_doubt(NAME, 1, moved.host, 0.0, unproven=True)
    table.touch(key(), 7, 1.0, origin=moved)
    assert unproven(table, 1.0)


def test_a_rival_that_takes_over_is_doubted_by_its_own_host() -> None:
    table = HeartbeatTable()
    table.on_heartbeat(heartbeat(), 1, 0.0, origin=Origin("10.0.0.2"))
    table.on_heartbeat(heartbeat(), 2, 0.1, origin=Origin("10.0.0.3"))
    table.on_log_doubt(NAME, 1, "10.0.0.3", 0.2, unproven=True)
    assert not unproven(table, 0.3)
    table.on_connection_closed(1, 0.4)
    assert unproven(table, 0.5)


def test_many_hosts_that_doubt_a_log_are_bounded_and_forgotten() -> None:
    table = HeartbeatTable()
    for number in range(100):
        table.on_log_doubt(NAME, 1, f"10.6.6.{number}", 0.0, unproven=True)
    table.on_log_doubt(NAME, 1, HOME.host, 1.0, unproven=True)
    assert len(table.doubts) == MAX_RIVALS
    table.on_heartbeat(heartbeat(), 1, 1.0, origin=HOME)
    assert unproven(table, 1.0)
    table.expired(liveness.FORGET_AFTER + 2)
    assert not table.doubts
