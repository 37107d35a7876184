"""The repairs of PySyncObj's elections, one test each: durable votes, leases, stickiness, hand-over."""

import math

import pytest
from pysyncobj.node import Node

from rocketmq_controller.raft import InvariantViolationError, NotLeaderError, Role, TransferError
from rocketmq_controller.raft.configuration import reached_by_majority
from rocketmq_controller.raft.network import messages
from tests.controller.raft.raft_kit import STANDS, TIMINGS, Lone, Trio

LEASE = TIMINGS.lease_share * TIMINGS.election_min


@pytest.fixture
def idle() -> Lone:
    """Started long enough ago to be bound to no leader, and not long enough to be a candidate."""
    lone = Lone()
    lone.tick(TIMINGS.election_min)
    lone.machine.election_deadline = math.inf
    return lone


def vote(term: int, *, last: tuple[int, int] = (1, 0), transfer: float | None = None) -> messages.Vote:
    return messages.Vote(term, last[0], last[1], transfer)


# 3. Term and vote are on disk before a vote or a candidacy leaves the node.


def test_a_vote_is_on_disk_before_it_leaves(idle: Lone) -> None:
    idle.post.before_send = lambda: (
        pytest.fail("sent first") if (idle.log.term, idle.log.voted_for) != (5, "b") else None
    )
    idle.receive("b", vote(5))
    assert idle.take() == [("b", messages.VoteReply(5, True))]


def test_a_candidacy_is_on_disk_before_it_leaves(idle: Lone) -> None:
    idle.tick(0)
    idle.machine.election_deadline = idle.now
    idle.tick(0)
    idle.take()
    idle.post.before_send = lambda: (
        pytest.fail("sent first") if (idle.log.term, idle.log.voted_for) != (1, "a") else None
    )
    idle.receive("b", messages.PreVoteReply(0, 1, True))
    assert [message.term for _, message in idle.take(messages.Vote)] == [1, 1]


def test_a_vote_survives_a_restart(idle: Lone) -> None:
    idle.receive("b", vote(5))
    idle.restart()
    idle.tick(TIMINGS.election_min)
    idle.receive("c", vote(5))
    assert idle.take(messages.VoteReply) == [("c", messages.VoteReply(5, False))]


# 4. Votes are counted once per voter and term; a vote whose answer got lost is given again.


def test_a_vote_asked_for_again_is_granted_again(idle: Lone) -> None:
    for _ in range(2):
        idle.receive("b", vote(5))
    assert idle.take() == [("b", messages.VoteReply(5, True))] * 2


def test_a_second_candidate_of_the_term_gets_nothing(idle: Lone) -> None:
    idle.receive("b", vote(5))
    idle.receive("c", vote(5))
    assert idle.take()[-1] == ("c", messages.VoteReply(5, False))


def candidate(others: str) -> Lone:
    lone = Lone("a", others)
    lone.tick(STANDS)
    for other in others[: (len(others) + 1) // 2]:
        lone.receive(other, messages.PreVoteReply(0, 1, True))
    assert lone.machine.role is Role.CANDIDATE
    return lone


def test_votes_are_counted_once_per_voter() -> None:
    lone = candidate("bcde")
    for _ in range(3):
        lone.receive("b", messages.VoteReply(1, True))
    assert lone.machine.role is Role.CANDIDATE
    lone.receive("c", messages.VoteReply(1, True))
    assert lone.machine.role is Role.LEADER


def test_a_vote_of_another_term_does_not_count() -> None:
    lone = candidate("bc")
    lone.receive("b", messages.VoteReply(0, True))
    assert lone.machine.role is Role.CANDIDATE


def test_a_candidate_with_an_older_log_gets_no_vote(idle: Lone) -> None:
    idle.append("b", term=3, prev=(1, 0), entries=[(3, b"x")])
    idle.tick(TIMINGS.election_min)
    idle.machine.election_deadline = math.inf
    idle.take()
    idle.receive("c", vote(9, last=(7, 2)))
    assert idle.take(messages.VoteReply) == [("c", messages.VoteReply(9, False))]


def test_two_leaders_of_one_term_stop_the_process(idle: Lone) -> None:
    idle.append("b", term=3, prev=(1, 0), entries=[])
    with pytest.raises(InvariantViolationError, match="two leaders"):
        idle.append("c", term=3, prev=(1, 0), entries=[])


# 5. Leader lease.


def test_the_lease_counts_from_when_the_leader_asked() -> None:
    lone = Lone()
    lone.lead()
    lone.tick(TIMINGS.heartbeat)
    stamp, asked = lone.machine._last_stamp, lone.now
    lone.now += 0.05
    lone.ack("b", 3, stamp=stamp)
    lone.now = asked + LEASE - 0.001
    assert lone.machine.is_leader
    lone.now = asked + LEASE + 0.001
    assert not lone.machine.is_leader


def test_a_leader_that_was_stopped_notices_before_it_answers() -> None:
    lone = Lone()
    lone.lead()
    lone.now += 10  # SIGSTOP, SIGCONT: no message, no tick
    assert not lone.machine.is_leader


def test_a_leader_steps_down_soon_after_it_lost_the_majority() -> None:
    trio = Trio()
    trio.run(1.5)
    old = trio.leader
    trio.blocked = {(old.name, other) for other in old.others} | {(other, old.name) for other in old.others}
    trio.run(TIMINGS.step_down + 0.05)
    assert old.machine.role is not Role.LEADER


def test_an_echo_of_the_future_is_not_believed() -> None:
    lone = Lone()
    lone.lead()
    lone.ack("b", 3, stamp=lone.now + 1e9)
    lone.now += 1
    assert not lone.machine.is_leader


def test_a_closed_connection_takes_its_confirmation_with_it() -> None:
    """Its other end may vote for others as soon as it sees the end."""
    lone = Lone()
    lone.lead()
    for node in lone.machine.peers:
        lone.post._onNodeDisconnected(node)
    assert not lone.machine.is_leader


def test_a_leader_serves_only_after_an_entry_of_its_own_term() -> None:
    lone = Lone()
    lone.tick(STANDS)
    lone.receive("b", messages.PreVoteReply(0, 1, True))
    lone.receive("b", messages.VoteReply(1, True))
    lone.ack("b", 2)
    assert (lone.machine.role, lone.machine.lease_holds(lone.now), lone.machine.is_leader) == (Role.LEADER, True, False)
    lone.ack("b", 3)
    assert lone.machine.is_leader


# 6. Pre-vote and stickiness.


def test_a_member_with_a_live_leader_votes_for_no_other(idle: Lone) -> None:
    idle.append("b", term=3, prev=(1, 0), entries=[])
    idle.tick(TIMINGS.election_min - 0.01)
    idle.take()
    idle.receive("c", messages.PreVote(9, 50, 3))
    idle.receive("c", vote(9, last=(50, 3)))
    assert idle.take() == [("c", messages.PreVoteReply(3, 9, False)), ("c", messages.VoteReply(3, False))]
    assert idle.machine.term == 3


def test_a_member_that_just_started_may_have_promised_to_a_leader_before() -> None:
    lone = Lone(term=3)
    lone.receive("c", vote(9))
    assert lone.take(messages.VoteReply) == [("c", messages.VoteReply(3, False))]


def test_a_goodbye_of_the_leader_releases_the_member(idle: Lone) -> None:
    idle.append("b", term=3, prev=(1, 0), entries=[], stamp=10.0)
    idle.receive("b", messages.Goodbye(3, 11.0))
    idle.take()
    idle.receive("c", messages.PreVote(4, 1, 0))
    assert idle.take() == [("c", messages.PreVoteReply(3, 4, True))]
    assert idle.machine.next_deadline() <= idle.now + TIMINGS.election_min / 2


@pytest.mark.parametrize(
    ("sender", "term", "stamp"), [("c", 3, 11.0), ("b", 2, 11.0), ("b", 3, 9.0)], ids=["other", "older", "overtaken"]
)
def test_another_goodbye_releases_no_member(idle: Lone, sender: str, term: int, stamp: float) -> None:
    idle.append("b", term=3, prev=(1, 0), entries=[], stamp=10.0)
    idle.receive(sender, messages.Goodbye(term, stamp))
    idle.take()
    idle.receive("c", messages.PreVote(4, 1, 0))
    assert idle.take() == [("c", messages.PreVoteReply(3, 4, False))]


def test_a_cut_connection_releases_no_member_before_its_time(idle: Lone) -> None:
    """A firewall's reset looks like the end of the leader's process, and the leader holds its lease meanwhile."""
    idle.append("b", term=3, prev=(1, 0), entries=[])
    idle.post._onNodeDisconnected(Node("b"))
    idle.take()
    idle.receive("c", messages.PreVote(4, 1, 0))
    idle.receive("c", vote(4))
    assert not any(message.granted for _, message in idle.take())
    assert idle.machine.next_deadline() <= idle.now + 1.5 * TIMINGS.election_min
    idle.tick(TIMINGS.election_min)
    idle.take()
    idle.receive("c", messages.PreVote(4, 1, 0))
    assert idle.take(messages.PreVoteReply) == [("c", messages.PreVoteReply(3, 4, True))]


def test_a_leader_that_sent_goodbye_has_no_lease() -> None:
    lone = Lone()
    lone.lead()
    lone.machine.goodbye()
    (to_b, goodbye), _ = lone.take(messages.Goodbye)
    assert (to_b, goodbye.stamp) == ("b", lone.machine._last_stamp)
    assert not lone.machine.is_leader


# Members that differ in their time-outs.


def test_a_member_is_bound_for_as_long_as_the_leader_asks(idle: Lone) -> None:
    idle.receive("b", messages.Append(3, 1, 0, 0, 1.0, (), 4.0))
    idle.tick(3.9)
    idle.take()
    idle.receive("c", vote(4))
    assert idle.take(messages.VoteReply) == [("c", messages.VoteReply(3, False))]
    assert idle.machine.role is Role.FOLLOWER
    idle.tick(0.2)
    idle.receive("c", vote(4))
    assert idle.take(messages.VoteReply) == [("c", messages.VoteReply(4, True))]


def test_a_member_that_asks_for_less_than_its_own_time_out_is_promised_that(idle: Lone) -> None:
    idle.receive("b", messages.Append(3, 1, 0, 0, 1.0, (), 0.01))
    idle.tick(TIMINGS.election_min - 0.01)
    assert idle.machine.is_bound()


def test_a_promise_outlives_the_process(idle: Lone) -> None:
    idle.receive("b", messages.Append(3, 1, 0, 0, 1.0, (), 4.0))
    idle.restart()
    idle.tick(3.9)
    idle.take()
    idle.receive("c", vote(4))
    idle.receive("c", vote(4, transfer=99.0))
    assert not any(message.granted for _, message in idle.take(messages.VoteReply))


def test_a_long_promise_is_forgotten_once_it_has_run_out(idle: Lone) -> None:
    idle.receive("b", messages.Append(3, 1, 0, 0, 1.0, (), 4.0))
    for _ in range(50):
        idle.tick(0.1)
        idle.receive("b", messages.Append(3, 1, 0, 0, 1.0, (), TIMINGS.election_min))
    assert idle.log.promised == TIMINGS.election_min


def test_every_message_that_asks_for_a_confirmation_asks_for_a_promise() -> None:
    lone = Lone()
    lone.lead()
    lone.tick(TIMINGS.heartbeat)
    assert {message.promise for _, message in lone.take(messages.Append)} == {TIMINGS.election_min}


def test_terms_do_not_grow_in_a_minority() -> None:
    trio = Trio()
    trio.run(1.5)
    term = trio.leader.machine.term
    cut = trio.at[trio.leader.others[0]]
    trio.blocked = {(cut.name, other) for other in cut.others} | {(other, cut.name) for other in cut.others}
    trio.run(5)
    assert cut.machine.term == term


@pytest.mark.parametrize("deaf", [True, False], ids=["hears nothing", "is not heard"])
def test_a_one_way_partition_of_a_follower_does_not_depose_a_good_leader(deaf: bool) -> None:
    trio = Trio()
    trio.run(1.5)
    leader, term = trio.leader.name, trio.leader.machine.term
    cut = trio.leader.others[0]
    trio.blocked = {(other, cut) if deaf else (cut, other) for other in trio.at if other != cut}
    trio.run(5)
    trio.blocked = set()
    trio.run(2)
    assert (trio.leader.name, trio.leader.machine.term) == (leader, term)


def test_a_member_with_a_newer_term_makes_the_leader_catch_up() -> None:
    """Pre-vote does not rule out newer terms altogether; unanswered, such a member would be lost to the quorum."""
    lone = Lone()
    lone.lead()
    lone.receive("b", messages.Ack(7, False, 0, 0, 1.0))
    assert (lone.machine.role, lone.machine.term) == (Role.FOLLOWER, 7)


def test_an_old_leader_gets_the_newer_term(idle: Lone) -> None:
    idle.receive("b", vote(5))
    idle.take()
    idle.append("c", term=3, prev=(1, 0), entries=[(3, b"x")])
    assert idle.take() == [("c", messages.Ack(5, False, 0, 0, 1.0))]
    assert idle.commands == []


# 10. Hand-over.


def test_leadership_is_handed_over_under_load() -> None:
    trio = Trio()
    trio.run(1.5)
    old = trio.leader
    target = old.others[1]
    answers = trio.propose(100)
    old.machine.transfer(target)
    with pytest.raises(NotLeaderError):
        old.machine.propose(b"late", lambda *_: None)
    trio.settle()
    assert trio.leaders == [target]
    assert answers == list(range(1, 101))


def test_a_hand_over_without_a_successor_ends_within_an_election_timeout() -> None:
    trio = Trio()
    trio.run(1.5)
    old = trio.leader
    target = old.others[0]
    trio.down = {target}
    old.machine.transfer(target)
    trio.run(TIMINGS.step_down + 0.3)
    assert trio.leaders == [old.name]
    answers = trio.propose()
    trio.settle()
    assert answers == [1]


def test_a_leader_has_no_lease_while_it_hands_over() -> None:
    lone = Lone()
    lone.lead()
    lone.machine.transfer("b")
    lone.tick()
    assert [to for to, _ in lone.take(messages.TimeoutNow)] == ["b"]
    assert not lone.machine.is_leader
    lone.ack("c", 3)
    assert not lone.machine.is_leader


def test_a_late_hand_over_does_not_break_a_renewed_lease(idle: Lone) -> None:
    """The old leader continued, and we confirmed it after it had sent TimeoutNow: its target gets no vote of ours."""
    idle.append("b", term=3, prev=(1, 0), entries=[], stamp=10.0)
    idle.append("b", term=3, prev=(1, 0), entries=[], stamp=12.0)
    idle.take()
    idle.receive("c", vote(4, transfer=11.0))
    assert idle.take(messages.VoteReply) == [("c", messages.VoteReply(3, False))]
    idle.receive("c", vote(4, transfer=12.5))
    assert idle.take(messages.VoteReply) == [("c", messages.VoteReply(4, True))]


def test_a_stale_timeout_now_starts_no_election(idle: Lone) -> None:
    idle.append("b", term=3, prev=(1, 0), entries=[], stamp=12.0)
    idle.receive("b", messages.TimeoutNow(3, 11.0))
    idle.receive("c", messages.TimeoutNow(3, 13.0))
    assert idle.machine.role is Role.FOLLOWER


def test_a_hand_over_without_a_target_is_refused() -> None:
    lone = Lone()
    lone.lead()
    for node in lone.machine.peers:
        lone.post._onNodeDisconnected(node)
    with pytest.raises(TransferError):
        lone.machine.transfer(None)


# Reads.


def test_a_barrier_waits_for_a_majority_asked_after_it() -> None:
    lone = Lone()
    lone.lead()
    before = lone.machine._last_stamp
    passed: list[object] = []
    lone.machine.barrier(lambda value, error: passed.append(error))
    lone.tick()
    assert len(lone.take(messages.Append)) == 2
    lone.ack("b", 3, stamp=before)
    assert passed == []
    lone.ack("b", 3)
    assert passed == [None]


# 12. Quorums of 1, 3 and 5.


def test_a_single_member_leads_at_once_and_commits_alone() -> None:
    lone = Lone("a", "")
    lone.tick()
    answers: list[object] = []
    lone.machine.propose(b"x", lambda value, error: answers.append(error or value))
    lone.tick()
    assert (lone.machine.is_leader, answers) == (True, [1])
    lone.restart()
    lone.tick()
    assert (lone.machine.is_leader, lone.state.commands) == (True, [b"x"])


@pytest.mark.parametrize("names", ["abc", "abcde"])
def test_a_quorum_survives_the_loss_of_a_minority(names: str) -> None:
    trio = Trio(names)
    trio.run(2)
    lost = [trio.leader.name, *trio.leader.others[: len(names) // 2 - 1]]
    trio.down = set(lost)
    trio.run(3)
    answers = trio.propose(3)
    trio.settle()
    assert answers == [1, 2, 3]


@pytest.mark.parametrize("members", [1, 2, 3, 4, 5])
def test_majorities_against_a_recount(members: int) -> None:
    for own in range(4):
        for code in range(4 ** (members - 1)):
            others = [code // 4**place % 4 for place in range(members - 1)]
            best = max(value for value in range(4) if 2 * sum(reached >= value for reached in (own, *others)) > members)
            assert reached_by_majority([own, *others]) == best
