"""Each machine alone: every state and event, positions, batches, flow control, refusals."""

from __future__ import annotations

import itertools

import pytest

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replication.frames import HAConnectionState as State
from rocketmq_formats.replication.frames import MasterHandshake, SlaveHandshake, TransferHeader
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.domain.replication import ha_master, ha_slave
from rocketmq_sidecar.domain.replication.confirm import AckRule
from rocketmq_sidecar.domain.replication.ha_master import Batch, FlowControl, MasterSession, PositionError
from rocketmq_sidecar.domain.replication.ha_slave import (
    FutureEpochError,
    OffsetError,
    PastEpochError,
    Record,
    SlaveSession,
    Wait,
)
from rocketmq_sidecar.domain.replication.mastership import Mastership, StaleEpochError, begun, begun_alone
from rocketmq_sidecar.domain.replication.sync_set import SyncSet
from rocketmq_sidecar.domain.replication.truncate import ReplicationError

EPOCHS = EpochList.of([(1, 0), (3, 900)])


def mastership(
    end: int = 1200, begin: int = 0, file_size: int = 1024, batch_size: int = 100, *, sync_flush: bool = False
) -> Mastership:
    return Mastership(
        epoch=3,
        epochs=EPOCHS,
        max_offset=end,
        min_offset=begin,
        confirm=0,
        sync_set=SyncSet(1, SyncStateSet(sync_state_set=frozenset({1, 2}), sync_state_set_epoch=1), 0.0),
        rule=AckRule(strict=True),
        file_size=file_size,
        batch_size=batch_size,
        sync_flush=sync_flush,
    )


def served(master: Mastership, ack: int, limit: int | None = None, **flags: bool) -> MasterSession:
    session = MasterSession(master, FlowControl(limit))
    assert session.on_handshake(SlaveHandshake(2, **flags))
    session.on_ack(ack, 0.0)
    return session


def batches(session: MasterSession, now: float = 0.0) -> list[Batch]:
    return list(iter(lambda: session.next_batch(now), None))


@pytest.mark.parametrize("machine", [ha_master, ha_slave])
def test_what_no_table_allows_is_refused_and_changes_nothing(machine: object) -> None:
    table, events = machine.TRANSITIONS, machine.Event  # type: ignore[attr-defined]  # both modules have them
    for state, event in itertools.product(State, events):
        if machine is ha_master:
            session: MasterSession | SlaveSession = MasterSession(mastership(), FlowControl(None))
        else:
            session = slave()
        session.state = state
        if (state, event) in table:
            session._move(event)
            assert session.state is table[state, event]
        else:
            with pytest.raises(FrameError):
                session._move(event)
            assert session.state is state
    assert {state for state, _ in table} | set(table.values()) == set(State)


# the master


def test_batches_end_with_the_epoch_and_with_the_file() -> None:
    session = served(mastership(batch_size=2000), 850)
    assert batches(session) == [Batch(850, 50, 1, 0), Batch(900, 124, 3, 900), Batch(1024, 176, 3, 900)]


def test_a_slave_behind_gets_larger_batches() -> None:
    session = served(mastership(end=5_000_000, file_size=1 << 30, batch_size=100), 950)
    first = session.next_batch(0.0)
    assert first == Batch(950, ha_master.BATCH_BEHIND, 3, 900)
    session.position = 5_000_000 - 70
    assert session.next_batch(0.0) == Batch(5_000_000 - 70, 70, 3, 900)


def test_where_the_first_byte_is() -> None:
    assert served(mastership(), 0).position == 0
    assert served(mastership(end=5000, begin=2048), 0).position == 2048
    assert served(mastership(end=5000, begin=2048), 0, sync_from_last_file=True).position == 4096
    assert served(mastership(end=5000, begin=2048), 3000, sync_from_last_file=True).position == 3000
    assert served(mastership(end=0), 0).position == 0


def test_positions_that_cannot_be() -> None:
    with pytest.raises(PositionError, match="after this master's end"):
        served(mastership(), 1201)
    with pytest.raises(PositionError, match="rebuilt"):
        served(mastership(end=5000, begin=2048), 2000)
    session = served(mastership(), 0)
    session.next_batch(0.0)
    with pytest.raises(PositionError, match="was sent nothing"):
        session.on_ack(901, 0.0)


def test_an_acknowledgement_that_goes_back_has_no_effect() -> None:
    session = served(mastership(), 900)
    session.on_ack(100, 0.0)
    session.on_ack(-1, 0.0)
    assert session.ack == 900


def test_a_repeated_handshake_is_not_answered_and_not_allowed_later() -> None:
    session = MasterSession(mastership(), FlowControl(None))
    assert session.on_handshake(SlaveHandshake(2))
    assert not session.on_handshake(SlaveHandshake(2))
    with pytest.raises(FrameError, match="as broker 3"):
        session.on_handshake(SlaveHandshake(3))
    session.on_ack(0, 0.0)
    with pytest.raises(FrameError, match="TRANSFER"):
        session.on_handshake(SlaveHandshake(2))


def test_flow_control() -> None:
    session = served(mastership(batch_size=2000), 0, limit=500)
    assert [batch.size for batch in batches(session, 10.0)] == [500]
    assert session.throttled
    assert session.throttled_until() == 11.0
    assert batches(session, 10.9) == []
    assert session.heartbeat() == Batch(500, 0, 1, 0)
    assert [batch.size for batch in batches(session, 11.0)] == [400, 100]


def test_when_a_slave_counts_as_caught_up() -> None:
    master = mastership()
    session = served(master, 900)
    session.next_batch(20.0)
    master.max_offset = 2000
    session.on_ack(1000, 21.0)
    assert master.propose(22.0, 15.0) == {1}  # never had all there was
    master = mastership()
    session = served(master, 900)
    batches(session, 20.0)
    master.max_offset = 2000
    session.on_ack(1200, 30.0)  # all there was at 20
    assert master.propose(35.0, 15.0) is None
    assert master.propose(36.0, 15.0) == {1}


def test_a_member_that_comes_back_with_less_than_was_promised_leaves_at_once() -> None:
    # A power cut: its old connection may look alive for long, and it could be elected meanwhile.
    master = mastership()
    served(master, 1200)
    assert master.recompute()
    again = served(master, 1100)
    assert master.propose(0.0, 15.0) == {1}
    batches(again, 1.0)
    again.on_ack(1200, 1.0)
    assert master.propose(1.0, 15.0) is None


@pytest.mark.parametrize(("record_end", "wish"), [(1300, None), (1200, {1}), (None, {1})])
def test_a_part_of_a_record_is_no_loss(record_end: int | None, wish: set[int] | None) -> None:
    # A slave had acknowledged the first part of a record, and cut it off when it was elected.
    master = mastership()
    master.sync_set = SyncSet(
        1, SyncStateSet(sync_state_set=frozenset({1, 2}), sync_state_set_epoch=1), 0.0, strict=True
    )
    master._record_end = lambda offset: record_end if offset == 1100 else None
    master.confirm = 1200
    served(master, 1100)
    assert master.propose(0.0, 15.0) == wish


def test_a_learner_never_becomes_a_member() -> None:
    master = mastership()
    master.sync_set.disconnected(2)
    session = served(master, 1200, async_learner=True)
    session.review(1.0)
    assert master.propose(1.0, 15.0) == {1}
    assert master.acks == {2: 1200}


def test_a_slave_whose_admission_was_refused_is_proposed_again_without_a_new_message() -> None:
    master = mastership()
    master.sync_set.disconnected(2)
    session = served(master, 1200)
    assert master.adopt(SyncStateSet(sync_state_set=frozenset({1}), sync_state_set_epoch=50), 0.0)
    for now in (0.0, 1.0):
        session.review(now)
        wanted = master.propose(now, 15.0)
        assert wanted == {1, 2}
        proposal = master.sync_set.proposed(wanted)
        assert master.sync_set.proposal_refused(proposal)  # the controllers have not heard it yet
    master.acked = 1300  # acknowledged by others meanwhile: it does not have what it must
    session.review(2.0)
    assert master.propose(2.0, 15.0) is None


def test_with_sync_flush_the_master_itself_counts_with_what_is_on_its_disk() -> None:
    master = mastership(sync_flush=True)
    served(master, 1200)
    assert not master.recompute()
    master.flushed = 1000
    assert master.recompute()
    assert (master.acked, master.confirm) == (1000, 1000)
    master.flushed = 1300
    master.recompute()
    assert (master.acked, master.confirm) == (1200, 1200)


def test_beginning_an_epoch() -> None:
    assert begun(EPOCHS, 4, 1200).starts() == [(1, 0), (3, 900), (4, 1200)]
    assert begun(EPOCHS, 4, 900).starts() == [(1, 0), (4, 900)]  # no bytes of 3
    assert begun(EPOCHS, 3, 1200).starts() == [(1, 0), (3, 900)]  # a restart within it
    assert begun(EPOCHS, 4, 800).starts() == [(1, 0), (4, 800)]
    assert begun(EpochList(), 1, 500).starts() == [(1, 500)]
    with pytest.raises(StaleEpochError, match="controllers lose"):
        begun(EPOCHS, 2, 1200)


YEAR_2020 = 1_577_836_800


def test_each_beginning_without_controllers_has_an_epoch_of_its_own() -> None:
    now = YEAR_2020 + 200_000_000.9
    assert begun_alone(EPOCHS, 1200, now).starts() == [(1, 0), (3, 900), (200_000_000, 1200)]
    once = begun_alone(EpochList(), 0, now)
    assert once.starts() == [(200_000_000, 0)]
    assert begun_alone(once, 500, now).starts() == [(200_000_000, 0), (200_000_001, 500)], "in the same second"
    assert begun_alone(once, 500, now - 3600).starts()[-1] == (200_000_001, 500), "the clock was set back"
    assert begun_alone(once, 0, now).starts() == [(200_000_001, 0)], "no bytes of the first"
    for clock in (0.0, YEAR_2020, YEAR_2020 + 2.0**31):
        with pytest.raises(ReplicationError, match="clock is wrong"):
            begun_alone(EPOCHS, 1200, clock)


# the slave


def slave(end: int = 1200, epochs: EpochList = EPOCHS, followed: int | None = 3) -> SlaveSession:
    return SlaveSession(
        SlaveHandshake(2),
        followed_epoch=followed,
        epochs=epochs,
        min_offset=0,
        max_offset=end,
        confirm_offset=0,
        file_size=1024,
    )


def aligned(end: int = 1200, epochs: EpochList = EPOCHS, followed: int | None = 3) -> SlaveSession:
    session = slave(end, epochs, followed)
    session.on_connected()
    action = session.on_handshake(MasterHandshake(5000, 3, EPOCHS))
    assert action is not None
    session.on_aligned(action)
    return session


def test_a_master_from_the_future_is_not_followed() -> None:
    session = slave(followed=2)
    session.on_connected()
    with pytest.raises(FutureEpochError):
        session.on_handshake(MasterHandshake(5000, 3, EPOCHS))


def test_without_controllers_any_epoch_is_followed() -> None:
    session = aligned(followed=None)
    assert not session.on_followed(1)
    record = session.on_header(TransferHeader(10, 1200, 9, 1200, 0))
    assert isinstance(record, Record)
    assert record.epochs.starts() == [(1, 0), (3, 900), (9, 1200)]


def test_a_master_that_has_not_begun_its_epoch_is_not_followed() -> None:
    session = slave(followed=4)
    session.on_connected()
    with pytest.raises(PastEpochError, match="still in epoch 3, it was elected for 4"):
        session.on_handshake(MasterHandshake(5000, 3, EPOCHS))


def test_an_epoch_from_the_future_is_waited_for() -> None:
    session = aligned()
    header = TransferHeader(10, 1200, 4, 1200, 1100)
    assert session.on_header(header) == Wait(4)
    assert session.state is State.SUSPEND
    assert not session.on_followed(3)
    assert session.on_followed(4)
    assert isinstance(session.on_header(header), Record)


def test_a_repeated_answer_is_tolerated() -> None:
    session = aligned()
    assert session.on_handshake(MasterHandshake(5000, 3, EPOCHS)) is None
    assert session.state is State.TRANSFER


def test_the_epoch_is_recorded_before_its_bytes() -> None:
    session = aligned(epochs=EpochList.of([(1, 0)]), end=900)
    header = TransferHeader(10, 900, 3, 900, 905)
    action = session.on_header(header)
    assert isinstance(action, Record)
    assert action.epochs.starts() == [(1, 0), (3, 900)]
    session.on_recorded(action, 900)
    assert session.on_header(header) is None
    session.on_body(10)
    assert (session.max_offset, session.confirm_offset) == (910, 905)
    assert session.on_header(TransferHeader(0, 910, 3, 900, 5000)) is None
    assert session.confirm_offset == 910


def test_java_gives_the_last_batch_of_an_epoch_the_next_ones_number() -> None:
    session = aligned(epochs=EpochList.of([(1, 0)]), end=850)
    header = TransferHeader(50, 850, 3, 900, 0)
    action = session.on_header(header)
    assert isinstance(action, Record)
    session.on_recorded(action, 850)
    assert session.on_header(header) is None
    session.on_body(50)
    assert session.on_header(TransferHeader(10, 900, 3, 900, 0)) is None


def test_a_log_begins_where_a_file_begins() -> None:
    session = aligned(end=0, epochs=EpochList())
    with pytest.raises(OffsetError, match="middle of a file"):
        session.on_header(TransferHeader(10, 100, 1, 0, 0))
    assert session.on_header(TransferHeader(0, -1, 1, 0, 0)) is None
    assert session.on_header(TransferHeader(0, 4096, 1, 0, 0)) is None
    header = TransferHeader(10, 4096, 3, 900, 0)
    action = session.on_header(header)
    assert isinstance(action, Record)
    assert action.begin
    session.on_recorded(action, 4096)
    assert session.on_header(header) is None
    session.on_body(10)
    assert session.max_offset == 4106
    assert session.epochs.starts() == [(3, 900)]


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (TransferHeader(10, 1190, 3, 900, 0), "ends at 1200"),
        (TransferHeader(0, 1210, 3, 900, 0), "ends at 1200"),
        (TransferHeader(849, 1200, 3, 900, 0), "mappedFileSizeCommitLog"),
        (TransferHeader(10, 1200, 2, 900, 0), "before this log's end"),
        (TransferHeader(10, 1200, 3, 901, 0), "before this log's end"),
        (TransferHeader(10, 1200, 3, 1205, 0), "spans epoch"),
    ],
)
def test_batches_that_do_not_continue_the_log(header: TransferHeader, problem: str) -> None:
    session = aligned()
    with pytest.raises(FrameError, match=problem):
        session.on_header(header)
    assert session.max_offset == 1200


def test_a_file_size_that_differs_is_noticed_in_the_stream_too() -> None:
    session = aligned()
    assert session.on_header(TransferHeader(10, 1200, 3, 900, 0)) is None
    session.on_body(10)
    with pytest.raises(OffsetError, match="mappedFileSizeCommitLog"):
        session.on_header(TransferHeader(1000, 1210, 3, 900, 0))
