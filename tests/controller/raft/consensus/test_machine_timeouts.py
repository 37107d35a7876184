"""A member that is held up asks for more patience, and does not blame others for its own delay."""

import math

import msgspec
import pytest

from rocketmq_controller.raft import Role
from rocketmq_controller.raft.network import messages
from tests.controller.raft.raft_kit import STANDS, TIMINGS, Lone, Trio

APPEND = messages.Append(3, 1, 0, 0, 1.0, (), TIMINGS.election_min)


def leader() -> Lone:
    lone = Lone()
    lone.lead()
    lone.tick(TIMINGS.heartbeat)
    lone.take()
    return lone


def asked(lone: Lone) -> float:
    """What the next heartbeat asks for."""
    lone.take()
    lone.tick(TIMINGS.heartbeat)
    (promise,) = {message.promise for _, message in lone.take(messages.Append)}
    return promise


def test_a_leader_that_was_held_up_asks_for_longer_and_a_minute_later_for_less() -> None:
    lone = leader()
    assert asked(lone) == TIMINGS.election_min
    lone.now += 0.5
    lone.tick()
    assert 0.5 < asked(lone) < 1.5
    for _ in range(round(70 / TIMINGS.heartbeat)):
        lone.tick(TIMINGS.heartbeat)
        lone.ack("b", 3)
    assert asked(lone) == TIMINGS.election_min


def test_a_majority_that_confirms_late_is_given_more_time() -> None:
    lone = leader()
    for _ in range(15):
        lone.tick(TIMINGS.heartbeat)
    lone.ack("b", 3)
    assert asked(lone) > 0.5


def test_an_outage_is_no_measure() -> None:
    lone = leader()
    lone.now += TIMINGS.election_limit + 1
    lone.tick()
    assert lone.machine.asking == TIMINGS.election_min


def test_a_lease_counts_on_the_promise_and_not_on_the_question() -> None:
    lone = leader()
    began = lone.now
    lone.ack("b", 3)
    lone.machine.record_delay(1.0)
    lone.now = began + TIMINGS.lease_share * TIMINGS.election_min + 0.001
    assert lone.machine.asking > 1.0
    assert not lone.machine.is_leader


def test_a_follower_reports_its_promise() -> None:
    lone = Lone(term=3)
    lone.receive("b", messages.Append(3, 1, 0, 0, 1.0, (), 2.0))
    lone.receive("b", messages.Append(3, 1, 0, 0, 2.0, (), 0.01))
    assert [ack.promise for _, ack in lone.take(messages.Ack)] == [2.0, TIMINGS.election_min]


def test_a_follower_that_was_held_up_reads_before_it_stands() -> None:
    lone = Lone(term=3)
    lone.receive("b", APPEND)
    lone.take()
    lone.now += 1.0
    lone.tick()
    assert lone.take(messages.PreVote) == []
    lone.tick(TIMINGS.heartbeat)
    assert len(lone.take(messages.PreVote)) == 2


def test_a_follower_that_is_always_held_up_stands_all_the_same() -> None:
    lone = Lone(term=3)
    lone.receive("b", APPEND)
    lone.take()
    for _ in range(2):
        lone.now += 1.0
        lone.tick()
    assert len(lone.take(messages.PreVote)) == 2


def test_a_pre_vote_is_answered_after_what_arrived_with_it() -> None:
    lone = Lone(term=3)
    lone.tick(STANDS)
    lone.machine.election_deadline = math.inf
    lone.take()
    lone.receive("c", messages.PreVote(4, 9, 3), tick=False)
    lone.receive("b", APPEND)
    assert lone.take(messages.PreVoteReply) == [("c", messages.PreVoteReply(3, 4, False))]


def test_a_leader_grants_no_pre_vote_before_it_steps_down() -> None:
    lone = leader()
    lone.tick(TIMINGS.step_down / 2)
    assert not lone.machine.is_leader
    lone.take()
    lone.receive("c", messages.PreVote(2, 9, 1))
    assert lone.take(messages.PreVoteReply) == [("c", messages.PreVoteReply(1, 2, False))]
    lone.tick(TIMINGS.step_down)
    assert lone.machine.role is Role.FOLLOWER


@pytest.mark.parametrize(("name", "others"), [("a", "bc"), ("b", "ac"), ("c", "ab")])
def test_members_stand_one_after_the_other(name: str, others: str) -> None:
    lone = Lone(name, others)
    turn = sorted("abc").index(name)
    waits = [lone.machine.until_our_turn() for _ in range(100)]
    step = TIMINGS.election_min / 4
    assert turn * step <= min(waits) <= max(waits) < (turn + 1) * step


def test_an_idle_quorum_ticks_once_for_each_heartbeat() -> None:
    trio = Trio()
    trio.run(2 * STANDS + 1)
    (leader,) = trio.leaders
    beats = 100
    ticks, heard = trio.drive(beats * TIMINGS.heartbeat, (0.0001, 0.0003, 0.002, 0.0007, 0.004))
    assert set(heard) == set("abc")
    assert ticks.pop(leader) <= beats + 2
    assert heard[leader] == sum(heard[other] for other in ticks) <= 2 * (beats + 2)
    assert max(ticks.values()) <= 5, "followers only answer, but for what is due each second"
    assert trio.leaders == [leader]


@pytest.mark.parametrize(
    "news",
    [
        messages.Append(3, 1, 0, 1, 2.0, ((3, b"\0x"),), TIMINGS.election_min),
        messages.Append(3, 1, 0, 1, 2.0, (), 2.0),
        messages.Append(4, 1, 0, 1, 2.0, (), TIMINGS.election_min),
        messages.Append(3, 9, 3, 1, 2.0, (), TIMINGS.election_min),
        messages.PreVote(4, 9, 3),
    ],
    ids=["entries", "another promise", "another term", "a gap", "question"],
)
def test_a_follower_ticks_after_what_is_more_than_a_heartbeat(news: messages.AnyMessage) -> None:
    lone = Lone(term=3)
    beat = messages.Append(3, 1, 0, 1, 1.0, (), TIMINGS.election_min)
    lone.receive("b", beat)
    lone.take()
    lone.now += 0.01
    assert not lone.machine.receive("b", msgspec.structs.replace(beat, stamp=1.5))
    assert [ack.stamp for _, ack in lone.take(messages.Ack)] == [1.5]
    assert lone.machine.receive("b", news)


def test_a_follower_that_only_answers_notices_stalls_and_its_leaders_silence() -> None:
    lone = Lone(term=3)
    for number in range(10):
        lone.machine.receive("b", messages.Append(3, 1, 0, 1, 1.0 + number, (), TIMINGS.election_min))
        if not number:
            lone.machine.tick()
        lone.now += TIMINGS.heartbeat
    lone.now += 0.3
    assert not lone.machine.receive("b", messages.Append(3, 1, 0, 1, 20.0, (), TIMINGS.election_min))
    assert lone.machine.asking > TIMINGS.election_min
    lone.take()
    lone.tick(lone.machine.election_deadline - lone.now)
    assert len(lone.take(messages.PreVote)) == 2


def test_heartbeats_that_fell_out_of_step_are_sent_together_again() -> None:
    lone = leader()
    node = lone.machine.peers[0]
    lone.machine.progress[node].sent_at -= TIMINGS.heartbeat / 3
    lone.now = lone.machine.next_deadline()
    lone.tick()
    assert [to for to, _ in lone.take(messages.Append)] == ["b", "c"]


def test_an_answer_that_a_caller_waits_for_asks_for_a_tick() -> None:
    lone = leader()

    def answer(next_index: int) -> bool:
        machine = lone.machine
        ack = messages.Ack(machine.term, True, next_index, 0, machine._last_stamp, promise=TIMINGS.election_min)
        return machine.receive("b", ack)

    assert not answer(3)
    done: list[object] = []
    lone.machine.barrier(lambda _, error: done.append(error))
    lone.tick()
    assert answer(3)
    lone.tick()
    assert done == [None]
    assert not answer(3)
    lone.machine.propose(b"x", lambda _, error: done.append(error))
    lone.tick()
    assert answer(4)
    lone.tick()
    assert done == [None, None]
    assert not answer(4)
    lone.machine.transfer("c")
    assert answer(4)
