"""The repairs of PySyncObj's replication, one test each: what is cut, what is acknowledged and when, what counts as
committed."""

from pathlib import Path

import pytest

from rocketmq_controller.raft import (
    ApplyError,
    FatalRaftError,
    InvariantViolationError,
    Limits,
    NotLeaderError,
    OverloadedError,
    ProposalLostError,
    Role,
)
from rocketmq_controller.raft.errors import DivergedError, WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.storage.storage_errors import StorageFailedError
from rocketmq_runtime.files.filesystem import DiskFullError
from tests.controller.raft.raft_kit import TIMINGS, Lone, Trio


@pytest.fixture
def follower() -> Lone:
    """Holds entries 2..4 of term 1, synced and acknowledged."""
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[(1, b"two"), (1, b"three"), (1, b"four")])
    lone.take()
    return lone


# 1. A follower cuts its log only where an entry of another term conflicts.


def test_an_overlapping_append_cuts_nothing(follower: Lone) -> None:
    follower.append(term=1, prev=(1, 0), entries=[(1, b"two")])
    assert follower.commands == [b"two", b"three", b"four"]


def test_a_late_heartbeat_from_before_the_entries_truncates_nothing(follower: Lone) -> None:
    follower.append(term=1, prev=(1, 0), entries=[])
    assert follower.commands == [b"two", b"three", b"four"]


def test_a_repeated_append_adds_nothing_twice(follower: Lone) -> None:
    follower.append(term=1, prev=(2, 1), entries=[(1, b"three"), (1, b"four"), (1, b"five")])
    assert follower.commands == [b"two", b"three", b"four", b"five"]


def test_a_conflicting_entry_cuts_itself_and_what_follows(follower: Lone) -> None:
    follower.append("c", term=3, prev=(2, 1), entries=[(2, b"other")])
    assert (follower.commands, follower.terms) == ([b"two", b"other"], [0, 1, 2])


def test_a_conflict_below_the_commit_index_stops_the_process(follower: Lone) -> None:
    follower.append(term=1, prev=(4, 1), entries=[], commit=3)
    with pytest.raises(InvariantViolationError, match="index 3"):
        follower.append("c", term=3, prev=(2, 1), entries=[(2, b"other")])
    assert follower.commands == [b"two", b"three", b"four"]


def test_a_leader_that_contradicts_a_committed_entry_stops_the_process(follower: Lone) -> None:
    follower.append(term=1, prev=(4, 1), entries=[], commit=3)
    with pytest.raises(InvariantViolationError, match="committed index 3"):
        follower.append("c", term=3, prev=(3, 2), entries=[])


def test_commit_index_never_covers_entries_the_leader_did_not_confirm(follower: Lone) -> None:
    """Entries 3 and 4 may be of a deposed leader: a heartbeat about entry 2 says nothing of them."""
    follower.append("c", term=2, prev=(2, 1), entries=[], commit=4)
    assert follower.machine.commit_index == 2


def test_a_gap_is_refused_with_where_to_continue(follower: Lone) -> None:
    follower.append(term=1, prev=(9, 1), entries=[(1, b"ten")])
    refusal = follower.take(messages.Ack)[-1][1]
    assert (refusal.success, refusal.rejected_prev, refusal.next_index) == (False, 9, 5)


def test_a_conflicting_term_is_skipped_in_one_step(follower: Lone) -> None:
    follower.append("c", term=5, prev=(4, 4), entries=[])
    refusal = follower.take(messages.Ack)[-1][1]
    assert (refusal.success, refusal.rejected_prev, refusal.next_index) == (False, 4, 2)


@pytest.mark.parametrize("kind", [b"", b"\x02pickled", b"\x03pickled"], ids=["empty", "membership", "version"])
def test_entries_of_pysyncobjs_pickled_kinds_are_refused(follower: Lone, kind: bytes) -> None:
    with pytest.raises(WireError):
        follower.receive("b", messages.Append(1, 4, 1, 0, 1.0, ((1, kind),)))
    assert len(follower.commands) == 3


# 2. Acknowledged means synced; one sync and one acknowledgement per turn.


def test_a_follower_acknowledges_after_its_sync_only() -> None:
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[(1, b"two")], tick=False)
    assert lone.take(messages.Ack) == []
    lone.post.before_send = lambda: pytest.fail("sent before the sync") if lone.log.durable_index < 2 else None
    lone.tick()
    assert [message.next_index for _, message in lone.take(messages.Ack)] == [3]


def test_messages_of_one_turn_share_one_sync_and_one_acknowledgement() -> None:
    lone = Lone()
    syncs = lone.log.syncs
    for index in range(1, 6):
        lone.append(term=1, prev=(index, min(index - 1, 1)), entries=[(1, b"x")], stamp=float(index), tick=False)
    lone.tick()
    acks = [message for _, message in lone.take(messages.Ack)]
    assert lone.log.syncs == syncs + 1
    assert [(ack.next_index, ack.stamp) for ack in acks] == [(7, 5.0)]


def test_a_follower_does_not_acknowledge_entries_the_leader_has_not_confirmed(follower: Lone) -> None:
    follower.append("c", term=2, prev=(2, 1), entries=[])
    assert follower.take(messages.Ack)[-1][1].next_index == 3


def test_a_leader_sends_entries_before_its_own_sync() -> None:
    lone = Lone()
    lone.lead()
    seen: list[int] = []
    lone.post.before_send = lambda: seen.append(lone.log.durable_index)
    lone.machine.propose(b"x", lambda *_: None)
    lone.tick()
    assert seen == [2, 2]
    assert lone.log.durable_index == 3


def test_a_leader_counts_itself_only_up_to_what_it_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = Lone()
    lone.lead()
    lone.machine.propose(b"x", lambda *_: None)
    monkeypatch.setattr(lone.log, "sync", lambda: None)
    lone.tick()
    lone.ack("b", 3)
    assert lone.machine.commit_index == 2
    lone.ack("b", 4)
    assert lone.machine.commit_index == 2  # on one disk of three
    lone.ack("c", 4)
    assert lone.machine.commit_index == 3  # on two, though not on the leader's


def test_proposals_of_one_turn_are_one_append_and_one_sync() -> None:
    lone = Lone()
    lone.lead()
    syncs = lone.log.syncs
    for _ in range(50):
        lone.machine.propose(b"x", lambda *_: None)
    lone.tick()
    assert lone.log.syncs == syncs + 1
    assert [len(message.entries) for _, message in lone.take(messages.Append)] == [50, 50]


# 4. Acknowledgements carry their term.


def test_an_acknowledgement_of_another_term_counts_for_nothing() -> None:
    lone = Lone()
    lone.lead()
    lone.machine.propose(b"x", lambda *_: None)
    lone.tick()
    lone.ack("b", 4, term=lone.machine.term - 1)
    assert lone.machine.commit_index == 2


def test_a_leader_commits_old_entries_only_below_one_of_its_own_term() -> None:
    """Raft, figure 8: an entry of an older term on a majority may still be overwritten."""
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[(1, b"old")])
    lone.tick(1.0)
    lone.receive("b", messages.PreVoteReply(1, 2, True))
    lone.receive("b", messages.VoteReply(2, True))
    lone.ack("b", 3)
    assert lone.machine.commit_index == 1
    lone.ack("b", 4)
    assert lone.machine.commit_index == 3


def test_an_acknowledgement_beyond_the_log_is_a_breach_of_protocol() -> None:
    lone = Lone()
    lone.lead()
    with pytest.raises(WireError):
        lone.ack("b", 1000)


# 7. An exception while applying is fatal, and what was applied before it stays applied.


def test_an_exception_while_applying_stops_the_process() -> None:
    lone = Lone()
    lone.lead()

    def fail(index: int, command: bytes) -> object:
        if command == b"bad":
            raise KeyError("broker-a")
        return applied(index, command)

    applied, lone.state.apply = lone.state.apply, fail
    for command in (b"good", b"bad", b"later"):
        lone.machine.propose(command, lambda *_: None)
    lone.tick()
    with pytest.raises(ApplyError, match=r"entry 4.*broker-a"):
        lone.ack("b", 6)
    assert lone.machine.last_applied == 3


def test_last_applied_advances_over_first_entries_and_commands_alike() -> None:
    trio = Trio()
    trio.run(1.5)
    answers = trio.propose(3)
    trio.settle()
    assert answers == [1, 2, 3]
    assert trio.leader.machine.last_applied == trio.leader.machine.last_index == 6  # 1, the term's, the members', 3


# 9. Nothing is forwarded, and what waits is bounded.


def test_a_follower_refuses_commands_and_names_the_leader() -> None:
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[])
    with pytest.raises(NotLeaderError) as caught:
        lone.machine.propose(b"x", lambda *_: None)
    assert caught.value.leader_id == "b"


def test_too_many_waiting_commands_are_refused() -> None:
    lone = Lone(limits=Limits(max_pending=2))
    lone.lead()
    answers: list[object] = []
    for _ in range(2):
        lone.machine.propose(b"x", lambda value, error: answers.append(error or value))
    with pytest.raises(OverloadedError):
        lone.machine.propose(b"x", lambda *_: None)
    lone.tick()
    lone.ack("b", 5)
    assert answers == [1, 2]
    lone.machine.propose(b"x", lambda *_: None)


def test_commands_of_a_deposed_leader_are_answered_as_unknown() -> None:
    lone = Lone()
    lone.lead()
    answers: list[object] = []
    lone.machine.propose(b"x", lambda value, error: answers.append(error or value))
    lone.tick()
    lone.append("b", term=9, prev=(2, 1), entries=[(9, b"other")])
    assert [type(answer) for answer in answers] == [ProposalLostError]


def test_commands_that_never_reached_the_log_are_answered_as_refused() -> None:
    lone = Lone()
    lone.lead()
    answers: list[object] = []
    lone.machine.propose(b"x", lambda value, error: answers.append(error or value))
    lone.append("b", term=9, prev=(2, 1), entries=[])
    assert [type(answer) for answer in answers] == [NotLeaderError]


# Sending


def test_entries_under_way_are_not_sent_again_by_an_acknowledgement() -> None:
    lone = Lone()
    lone.lead()
    for _ in range(2):
        lone.machine.propose(b"x", lambda *_: None)
        lone.tick()
    lone.take()
    lone.ack("b", 4)
    assert [m for to, m in lone.take(messages.Append) if to == "b" and m.entries] == []


def test_a_lost_append_is_sent_again_after_the_next_heartbeat() -> None:
    trio = Trio()
    trio.run(1.5)
    leader = trio.leader
    trio.blocked = {(leader.name, other) for other in leader.others}
    answers = trio.propose()
    trio.settle()
    trio.blocked = set()
    trio.run(0.2)
    assert answers == [1]


def test_a_refusal_is_heeded_once_however_often_it_comes() -> None:
    """Found by the simulation: in a network that repeats and reorders, each heeded refusal opened another window of
    Appends."""
    lone = Lone()
    lone.lead()
    for _ in range(5):
        lone.machine.propose(b"x", lambda *_: None)
        lone.tick()
    stamp = lone.machine._last_stamp
    lone.take()
    refusal = messages.Ack(lone.machine.term, False, 3, 4, stamp)
    lone.receive("b", refusal)
    assert len(lone.take(messages.Append)) == 1
    lone.ack("b", 8)
    lone.take()
    for _ in range(10):
        lone.receive("b", messages.Ack(lone.machine.term, False, 3, 12, stamp))
    assert lone.take(messages.Append) == []


def test_a_member_that_comes_back_empty_is_filled_again() -> None:
    trio = Trio()
    trio.run(1.5)
    trio.propose(5)
    trio.settle()
    leader = trio.leader
    other = trio.at[leader.others[0]]
    other.log = type(other.log)()
    other.log.term = leader.machine.term
    other.start()
    node = next(node for node in leader.machine.peers if node.id == other.name)
    leader.post._onNodeDisconnected(node)
    leader.post._onNodeConnected(node)
    trio.run(0.5)
    assert other.state.commands == leader.state.commands


# Disks.


def test_a_full_disk_holds_acknowledgements_back_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = Lone()
    sync = lone.log.sync
    monkeypatch.setattr(lone.log, "sync", _full)
    lone.append(term=1, prev=(1, 0), entries=[(1, b"two")])
    assert [m.next_index for _, m in lone.take(messages.Ack)] == [2]
    monkeypatch.setattr(lone.log, "sync", sync)
    lone.append(term=1, prev=(2, 1), entries=[])
    assert [m.next_index for _, m in lone.take(messages.Ack)] == [3]


def test_a_leader_with_a_full_disk_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = Lone()
    lone.lead()
    lone.machine.propose(b"x", lambda *_: None)
    monkeypatch.setattr(lone.log, "sync", _full)
    lone.tick()
    assert lone.machine.role is Role.FOLLOWER
    lone.take()
    lone.tick(10)
    assert lone.take(messages.PreVote) == []


def test_a_failed_sync_stops_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = Lone()

    def fail() -> None:
        raise StorageFailedError(Path("journal"), "cannot sync")

    monkeypatch.setattr(lone.log, "sync", fail)
    with pytest.raises(FatalRaftError):
        lone.append(term=1, prev=(1, 0), entries=[(1, b"two")])
    assert lone.take(messages.Ack) == []


def _full() -> None:
    raise DiskFullError(Path("journal"), "no space left")


def test_a_probe_is_not_sent_again_just_because_time_went_by() -> None:
    lone = Lone()
    lone.tick(1.0)
    lone.receive("b", messages.PreVoteReply(0, 1, True))
    lone.receive("b", messages.VoteReply(1, True))
    for _ in range(3):
        lone.tick(TIMINGS.heartbeat)
    assert [len(m.entries) for to, m in lone.take(messages.Append) if to == "b"] == [1, 0, 0, 0]


# The log's own timer.


def test_the_logs_timer_runs_about_once_a_second(follower: Lone) -> None:
    for _ in range(100):
        follower.append(term=1, prev=(4, 1), entries=[])
        follower.tick(0.05)
    assert follower.log.timer_calls == pytest.approx(5, abs=1)


# The rolling hash.


def test_a_log_that_differs_in_bytes_only_ends_the_process() -> None:
    """As after a majority that had lost its disks wrote the same term again."""
    leader, follower = Lone("a", "bc"), Lone("b", "ac")
    leader.lead()
    leader.machine.propose(b"one", lambda *_: None)
    leader.tick()
    entries = [(1, b"\x01"), (1, b"\x00another")]
    follower.receive("a", messages.Append(1, 1, 0, 0, 1.0, tuple(entries)))
    leader.ack("b", leader.machine.last_index + 1)
    leader.tick(TIMINGS.heartbeat)
    (heartbeat,) = (message for to, message in leader.take(messages.Append) if to == "b" and not message.entries)
    assert (heartbeat.prev_index, heartbeat.prev_term) == (3, 1)
    with pytest.raises(DivergedError, match="entry 3"):
        follower.receive("a", heartbeat)


def test_the_hash_follows_cuts_snapshots_and_restarts() -> None:
    trio = Trio(limits=Limits(compact_after=10, keep_after_compaction=3))
    trio.run(1.5)
    for number in range(5):
        trio.propose(7)
        trio.run(0.2)
        trio.at[trio.leader.others[number % 2]].restart()
        for member in trio.at.values():
            for node in member.machine.peers:
                member.post._onNodeDisconnected(node)
                member.post._onNodeConnected(node)
        trio.run(1)
    found = {member.machine.chain.at(member.machine.last_index, member.log) for member in trio.at.values()}
    assert len(found) == 1
    assert found != {b""}
