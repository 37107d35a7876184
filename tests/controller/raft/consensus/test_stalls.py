"""How delays become time-outs."""

import pytest

from rocketmq_controller.raft.consensus.stalls import BUCKET, SPAN, STEP, Stalls, election_timeout

LEAST, MOST, HEARTBEAT = 0.12, 3.0, 0.03


def timeout(stall: float) -> float:
    return election_timeout(LEAST, MOST, HEARTBEAT, stall)


def test_the_longest_delay_of_late_counts() -> None:
    stalls = Stalls()
    assert stalls.longest(0.0) == 0.0
    stalls.record(0.0, 0.5)
    stalls.record(1.0, 0.2)
    stalls.record(20.0, 0.3)
    assert stalls.longest(21.0) == 0.5
    assert stalls.longest(SPAN) == 0.3
    assert stalls.longest(SPAN + 20.0) == 0.0


def test_what_came_in_time_is_no_delay() -> None:
    stalls = Stalls()
    stalls.record(0.0, -0.1)
    stalls.record(0.0, 0.0)
    assert stalls.longest(0.0) == 0.0


def test_delays_all_the_time_take_bounded_memory_and_lose_none_of_late() -> None:
    stalls = Stalls()
    for number in range(100_000):
        stalls.record(number / 100, 2.0 if number == 95_000 else 0.1)
    assert stalls.longest(1000.0) == 2.0
    assert len(stalls._buckets) <= SPAN / BUCKET + 2


def test_an_idle_member_has_the_shortest_time_out() -> None:
    assert timeout(0.0) == timeout(0.04) == LEAST


@pytest.mark.parametrize("stall", [0.05, 0.09, 0.2, 0.5, 1.0, 1.5])
def test_a_time_out_outlasts_the_stall_and_the_heartbeats_around_it(stall: float) -> None:
    assert timeout(stall) > stall + 2 * HEARTBEAT
    assert timeout(stall) <= STEP * (1.5 * stall + 2 * HEARTBEAT) + 1e-9


def test_time_outs_have_a_limit_and_few_values() -> None:
    assert timeout(100.0) == MOST
    values = {timeout(number / 1000) for number in range(5000)}
    assert len(values) < 20
    assert min(values) == LEAST
    assert max(values) == MOST


def test_a_limit_below_the_least_is_the_least() -> None:
    assert election_timeout(10.0, 10.0, 2.0, 5.0) == 10.0
