"""When delayed messages are due: never early, whichever replica knows what, and in time if anybody saw them come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain.consuming.arrivals import GRAINS, SENT_GRAINS, Ages, Arrivals
from rocketmq_formats.store.config_files import ConfigFileError, decode_ages, encode_ages

HOUR = 3_600_000


def test_a_message_is_due_its_delay_after_it_came() -> None:
    arrivals = Arrivals(500)
    arrivals.observe(0, steady=70)
    arrivals.observe(1, steady=80)
    assert arrivals.due_in(0, 1000, steady=80) == 500
    assert arrivals.due_in(0, 1000, steady=270) == 310
    assert arrivals.due_in(0, 1000, steady=580) == arrivals.due_in(0, 1000, steady=9000) == 0


def test_no_wall_clock_moves_a_message_that_was_seen_to_come() -> None:
    for jump in (HOUR, -HOUR):
        arrivals = Arrivals(10_000)
        arrivals.observe(1, steady=0)
        arrivals.wall_clock(5 * HOUR + jump, 1000)
        arrivals.observe(2, steady=4000)
        for stored in (5 * HOUR, 5 * HOUR + jump):
            assert arrivals.due_in(0, stored, steady=4000) == 6000
            assert arrivals.due_in(1, stored, steady=4000) == 10_000
            assert arrivals.due_in(1, stored, steady=14_000) == 0


def test_a_wall_clock_decides_for_messages_of_unknown_arrival() -> None:
    arrivals = Arrivals(10_000)
    arrivals.found(2, steady=0)
    arrivals.found(4, steady=50)
    arrivals.wall_clock(100_000, 0)
    arrivals.wall_clock(900_000, 20)
    assert arrivals.due_in(0, 20_000, steady=0) == 0, "long due"
    assert arrivals.due_in(1, 95_000, steady=0) == 5000
    assert arrivals.due_in(1, 95_000, steady=3000) == 2000
    assert arrivals.due_in(3, 900_000, steady=0) == 10_000, "its clock was ahead of ours"
    assert arrivals.due_in(3, 900_000, steady=10_000) == 0


def test_the_masters_arrival_times_replace_a_slaves_unknown_ones() -> None:
    master, slave = Arrivals(10_000), Arrivals(10_000)
    master.found(3, steady=1000)
    master.observe(5, steady=4000)
    master.observe(6, steady=9000)
    slave.found(5, steady=70)
    slave.merge(master.ages(9000), steady=80)
    assert slave.due_in(4, 0, steady=80) == 5000
    slave.observe(6, steady=90)
    assert slave.due_in(5, 0, steady=90) == 9990, "as the master said, before it was here"
    slave.wall_clock(100_000, 80)
    assert slave.due_in(4, 91_000, steady=80) == 5000, "somebody saw it come"
    assert slave.due_in(2, 91_000, steady=80) == 1000, "nobody did"
    assert slave.due_in(2, 99_000, steady=80) == 2000, "but it was there when the master looked"


def test_other_messages_may_come_where_the_queue_was_cut() -> None:
    arrivals = Arrivals(10_000)
    arrivals.observe(5, steady=100)
    arrivals.merge([(0, 90), (9, 50)], steady=100)
    arrivals.cut(3)
    arrivals.observe(9, steady=4000)
    assert arrivals.due_in(2, 0, steady=4000) == 10_000 - 3950
    assert arrivals.due_in(3, 0, steady=4000) == arrivals.due_in(8, 0, steady=4000) == 10_000


def test_what_is_remembered_is_bounded_and_still_exact_enough() -> None:
    delay = 2 * HOUR
    arrivals = Arrivals(delay)
    for number in range(100_000):
        arrivals.observe(number + 1, steady=number * 1000)
    assert len(arrivals._arrivals) <= 2 * GRAINS + 2
    now = 99_999_000
    for offset in range(92_801, 100_000, 100):
        assert arrivals.due_in(offset, 0, steady=now) - (offset * 1000 + delay - now) in range(delay // GRAINS + 1)
    told = Arrivals(delay)
    told.merge(arrivals.ages(now), steady=now)
    assert len(arrivals.ages(now)) <= 2 * SENT_GRAINS + 2
    for offset in range(92_801, 100_000, 100):
        assert told.due_in(offset, 0, steady=now) - (offset * 1000 + delay - now) in range(delay // SENT_GRAINS + 1)


steps = st.lists(st.tuples(st.sampled_from("smtrk"), st.integers(0, 7), st.integers(0, 400)), max_size=60)


@given(steps)
def test_no_message_is_early_in_any_order_of_merges_and_restarts(steps: list[tuple[str, int, int]]) -> None:
    delay, now = 1000, 0
    came: list[int] = []
    replicas = [Arrivals(delay), Arrivals(delay)]
    skew = (0, 12_345)  # steady clocks begin anywhere
    for act, count, pause in steps:
        now += pause
        which = count % 2
        match act:
            case "s":  # a message comes; one replica sees it at once, the other one later
                came += [now] * count
                replicas[which].observe(len(came), now + skew[which])
            case "m":
                replicas[which].observe(len(came), now + skew[which])
            case "t":
                replicas[which].merge(replicas[1 - which].ages(now + skew[1 - which]), now + skew[which])
            case "r":
                replicas[which] = Arrivals(delay)
                replicas[which].found(len(came), now + skew[which])
            case _:
                keep = max(len(came) - count, 0)
                del came[keep:]
                for arrivals in replicas:
                    arrivals.cut(keep)
        for arrivals, ahead in zip(replicas, skew, strict=True):
            for offset, at in enumerate(came):
                assert at + delay - now <= arrivals.due_in(offset, 0, now + ahead) <= delay


def test_ages_survive_the_wire() -> None:
    ages: dict[int, Ages] = {1: [], 18: [(3, 900), (5, 900), (8, 0)]}
    assert decode_ages(encode_ages(ages)) == ages


@pytest.mark.parametrize(
    "text", ["x", "1;", "1:-2", "1:2,", "1:2;3:1", "5:1,5:0", "5:1,6:2", "1:1234567890123456789", "1:1," * 300]
)
def test_ages_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigFileError):
        decode_ages({"1": text})
    with pytest.raises(ConfigFileError):
        decode_ages({text: "1:1"})


def test_too_many_levels_are_refused() -> None:
    with pytest.raises(ConfigFileError):
        decode_ages({str(level): "1:1" for level in range(257)})
