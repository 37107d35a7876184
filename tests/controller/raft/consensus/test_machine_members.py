"""Changes of the members at one machine: when they count, which messages follow, and what a restart finds."""

import msgspec
import pytest
from pysyncobj.node import Node
from structlog.testing import capture_logs

from rocketmq_controller.raft import (
    AddMember,
    ChangePendingError,
    MembershipError,
    NotLeaderError,
    QuorumAtRiskError,
    RaftError,
    RemoveMember,
    Role,
    configuration,
)
from rocketmq_controller.raft.consensus.pysyncobj_adapter import MEMBERS
from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.ports import Standing
from tests.controller.raft.raft_kit import STANDS, TIMINGS, Lone

D = AddMember("d", "hd", 4)


REMOVED = "this member was removed from the quorum: stop it and delete its store"


def leader(others: str = "bc") -> Lone:
    lone = Lone(others=others, readers=True)
    lone.lead()
    return lone


def change(lone: Lone, wanted: configuration.Change) -> list[object]:
    """The list fills with None or the error when the change is decided."""
    answers: list[object] = []
    lone.machine.change_members(wanted, lambda _value, error: answers.append(error))
    lone.tick()
    return answers


def committed(lone: Lone, wanted: configuration.Change, *acks: str) -> None:
    """Change, and have it committed by `acks`."""
    answers = change(lone, wanted)
    for name in acks:
        lone.ack(name, lone.machine.configuration.index + 1)
    assert answers == [None]


def with_learner(others: str = "bc") -> Lone:
    lone = leader(others)
    committed(lone, D, *others)
    lone.connect(Node("d"))
    lone.tick()
    return lone


def appended(lone: Lone, to: str) -> list[bytes]:
    """First bytes of the entries that were sent to a member since the last `take`."""
    sent = [message for name, message in lone.take(messages.Append) if name == to]
    return [command[:1] for message in sent for _, command in message.entries]


def test_a_learner_gets_the_log_and_never_counts() -> None:
    lone = with_learner()
    lone.machine.limits = msgspec.structs.replace(lone.machine.limits, promote_lag=0)
    answers: list[object] = []
    lone.machine.propose(b"x", lambda value, error: answers.append(error or value))
    lone.machine.propose(b"y", lambda value, error: answers.append(error or value))
    lone.tick()
    before = lone.machine.commit_index
    lone.ack("d", lone.machine.last_index)  # all but the last one: it stays a learner
    assert (lone.machine.match_index[Node("d")], lone.machine.commit_index, answers) == (before + 1, before, [])
    lone.ack("b", lone.machine.last_index + 1)
    assert answers == [1, 2]


def test_a_learners_confirmations_hold_no_lease() -> None:
    lone = with_learner()
    lone.machine.limits = msgspec.structs.replace(lone.machine.limits, promote_lag=0)
    for _ in range(int(TIMINGS.step_down / TIMINGS.heartbeat) + 2):
        lone.tick(TIMINGS.heartbeat)
        lone.ack("d", 2)
    assert not lone.machine.is_leader
    assert lone.machine.role is Role.FOLLOWER


def test_a_learner_that_has_caught_up_votes() -> None:
    lone = with_learner()
    assert lone.machine.configuration.learners == {"d"}
    lone.ack("d", lone.machine.last_index + 1)
    assert lone.machine.configuration.voters == {"a", "b", "c", "d"}
    assert lone.machine.is_changing
    index = lone.machine.last_index
    lone.ack("b", index + 1)
    assert lone.machine.commit_index < index  # two of four
    lone.ack("d", index + 1)
    assert lone.machine.commit_index == index


def test_a_learner_whose_store_does_not_count_waits() -> None:
    lone = with_learner()
    word = messages.Ack(lone.machine.term, True, lone.machine.last_index + 1, 0, lone.machine._last_stamp, False)
    lone.receive("d", word)
    assert lone.machine.configuration.learners == {"d"}


def test_a_learner_neither_stands_nor_is_made_to() -> None:
    lone = Lone("d", "abc")
    entry = MEMBERS + configuration.encode(
        configuration.Configuration(
            (*configuration.of_voters({"a": ("h", 1)}).members, configuration.Member("d", voter=False))
        )
    )
    lone.receive("a", messages.Append(1, 1, 0, 2, 1.0, ((1, entry),)))
    lone.take()
    lone.tick(20 * STANDS)
    assert lone.take(messages.PreVote) == []
    lone.receive("a", messages.TimeoutNow(1, 5.0))
    assert lone.take(messages.Vote) == []
    # but it votes: the candidate may know more of the members than it does
    lone.receive("a", messages.Vote(2, 9, 1, None))
    assert lone.take(messages.VoteReply) == [("a", messages.VoteReply(2, True))]


def test_one_change_at_a_time() -> None:
    lone = leader()
    change(lone, D)
    with pytest.raises(ChangePendingError, match="not committed yet"):
        change(lone, RemoveMember("c"))
    lone.ack("b", lone.machine.last_index + 1)
    with pytest.raises(ChangePendingError, match="d is not caught up"):
        change(lone, AddMember("e", "he", 5))
    committed(lone, RemoveMember("d"), "b")  # one that never comes up can go again


def test_a_leader_commits_something_of_its_own_first() -> None:
    """Else two leaders' changes could be committed by quorums that do not meet: the correction of 2015 to Raft,
    dissertation, section 4.1 (raft-dev, "bug in single-server membership changes")."""
    lone = Lone(readers=True)
    lone.tick(STANDS)
    lone.receive("b", messages.PreVoteReply(0, 1, True))
    lone.receive("b", messages.VoteReply(1, True))
    assert lone.machine.role is Role.LEADER
    with pytest.raises(ChangePendingError, match="nothing of its own"):
        change(lone, D)
    lone.ack("b", lone.machine.last_index + 1)
    with pytest.raises(ChangePendingError, match="not committed yet"):  # the first configuration
        change(lone, D)
    lone.ack("b", lone.machine.last_index + 1)
    assert change(lone, D) == []


def members_of(lone: Lone) -> list[bytes]:
    return [command for command, _, _ in lone.log.entries if command[:1] == MEMBERS]


@pytest.mark.parametrize("others", ["", "bc", "bcde"])
def test_a_leader_puts_the_first_configuration_into_a_log_that_has_none(others: str) -> None:
    lone = leader(others)
    assert members_of(lone) == [MEMBERS + configuration.encode(configuration.of_ids(["a", *others]))]
    assert lone.machine.configuration.index == 3
    assert not lone.machine.is_changing
    lone.restart()
    lone.lead()
    assert len(members_of(lone)) == 1


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_log_of_an_older_release_gets_the_first_configuration(snapshot: bool) -> None:
    lone = Lone()
    lone.lead()
    lone.machine.propose(b"x", lambda _value, _error: None)
    lone.tick()
    lone.ack("b", lone.machine.last_index + 1)
    if snapshot:
        lone.machine.limits = msgspec.structs.replace(lone.machine.limits, keep_after_compaction=0)
        lone.machine.compact()
        lone.tick()
        assert lone.machine.first_index > 1
    assert members_of(lone) == []
    lone.readers = True
    lone.restart()
    assert lone.machine.configuration.voters == set("abc")
    lone.lead()
    assert members_of(lone) == [MEMBERS + configuration.encode(configuration.of_ids("abc"))]
    lone.restart()
    assert lone.machine.configuration.index == lone.machine.last_index


def old_word(lone: Lone, *, voter: bool = True) -> messages.Introduction:
    """Of a release that knows no configurations."""
    return messages.Introduction(lone.machine.term, bytes(16), voter, False, None, lone.machine.last_index)


def test_no_configuration_is_put_into_a_log_that_a_member_of_an_older_release_has_to_read() -> None:
    """It would end at such an entry. Once it runs this release it says so, and keeps that word when it goes down."""
    lone = Lone()
    lone.lead()
    first = configuration.encode(configuration.of_ids("abc"))
    newer = msgspec.structs.replace(old_word(lone), members=first)
    for name, word in (("b", newer), ("c", old_word(lone))):
        lone.receive(name, word)
        assert members_of(lone) == []
    with pytest.raises(MembershipError, match="c may run a release that cannot read changes"):
        change(lone, D)
    lone.post._onNodeDisconnected(Node("b"))
    lone.receive("c", newer)
    lone.tick()
    assert members_of(lone) == [MEMBERS + first]


def test_the_first_change_also_has_the_members_addresses() -> None:
    lone = leader()
    lone.machine.configurations.first = configuration.of_voters({name: ("h" + name, 1) for name in "abc"})
    assert lone.machine.configuration.addresses() == {}
    change(lone, D)
    assert lone.machine.configuration.addresses() == {"a": ("ha", 1), "b": ("hb", 1), "c": ("hc", 1), "d": ("hd", 4)}


def test_a_store_with_other_configured_members_is_admitted_when_the_log_has_the_members() -> None:
    """Until then its majorities and those of the others need not share a member."""
    lone = Lone(others="bcd")
    lone.lead()
    told = configuration.encode(configuration.of_ids("abcdef"))
    new = messages.Introduction(0, None, False, True, None, 1, 0, told)
    lone.connect(Node("d"), introduced=False)
    lone.receive("d", new)

    def follow() -> list[str]:
        for _ in range(4):
            for name in "bc":
                lone.ack(name, lone.machine.last_index + 1)
            answer = messages.Ack(lone.machine.term, True, lone.machine.last_index + 1, 0, 0.0, counts=False)
            lone.receive("d", answer)
        return [name for name, _ in lone.take(messages.Admit)]

    assert follow() == []  # b and c could not read the entry
    for name in "bc":
        lone.receive(
            name, msgspec.structs.replace(old_word(lone), members=configuration.encode(lone.machine.configuration))
        )
    assert set(follow()) == {"d"}
    (entry,) = [index for command, index, _ in lone.log.entries if command[:1] == MEMBERS]
    assert entry == lone.machine.configuration.index


def test_a_store_that_lost_the_entry_again_is_admitted_behind_the_leaders_own() -> None:
    """An earlier leader had sent it one that was never committed."""
    lone = Lone(readers=True)
    lone.tick(STANDS)
    lone.receive("b", messages.PreVoteReply(0, 1, True))
    lone.receive("b", messages.VoteReply(1, True))
    first, told = (configuration.encode(configuration.of_ids(ids)) for ids in ("abc", "abcde"))
    lone.receive("c", messages.Introduction(1, bytes(16), False, False, None, 9, 9, first))
    stamp = lone.machine._last_stamp
    lone.receive("c", messages.Ack(1, True, 2, 0, stamp, counts=False))
    marker = lone.machine.last_index
    lone.receive("c", messages.Introduction(1, bytes(16), False, False, None, 1, 0, told))
    lone.ack("b", marker + 1)
    assert lone.machine.configuration.index == marker + 1
    lone.take()
    lone.receive("c", messages.Ack(1, True, marker + 1, 0, lone.machine._last_stamp, counts=False))
    assert lone.take(messages.Admit) == []
    lone.ack("b", lone.machine.last_index + 1)
    lone.receive("c", messages.Ack(1, True, lone.machine.last_index + 1, 0, lone.machine._last_stamp, counts=False))
    assert [name for name, _ in lone.take(messages.Admit)] == ["c"]


def test_a_store_with_the_same_configured_members_waits_for_no_entry() -> None:
    lone = Lone(others="bcd")
    lone.lead()
    told = configuration.encode(configuration.of_ids("abcd"))
    lone.connect(Node("d"), introduced=False)
    lone.receive("d", messages.Introduction(0, None, False, True, None, 1, 0, told))
    for _ in range(3):
        lone.ack("b", lone.machine.last_index + 1)
        lone.ack("c", lone.machine.last_index + 1)
        lone.receive("d", messages.Ack(lone.machine.term, True, lone.machine.last_index + 1, 0, 0.0, counts=False))
    assert members_of(lone) == []
    assert "d" in [name for name, _ in lone.take(messages.Admit)]


def test_a_store_counts_in_a_lineage_only() -> None:
    """An introduction without one makes no one a member of a quorum, whatever its sender's later messages say."""
    lone = Lone(introduced=False)
    lone.log.standing = Standing()
    new = messages.Introduction(0, None, False, True, None, 1, 0, b"")
    lone.receive("b", new)
    lone.append("b", term=1, prev=(1, 0), entries=[(1, b"n")])
    lone.receive("b", messages.Admit(1, 2))
    assert lone.log.standing == Standing()
    lone.receive("b", msgspec.structs.replace(new, lineage=bytes(16), voter=True))
    lone.append("b", term=1, prev=(2, 1), entries=[])
    lone.receive("b", messages.Admit(1, 2))
    assert lone.log.standing == Standing(bytes(16), voter=True)


def test_a_follower_refuses_and_names_the_leader() -> None:
    lone = Lone()
    lone.append("b", term=1, prev=(1, 0), entries=[])
    with pytest.raises(NotLeaderError, match="leader: b"):
        change(lone, D)


def test_the_last_live_quorum_is_not_broken_up() -> None:
    lone = leader()
    lone.post._onNodeDisconnected(Node("c"))
    with pytest.raises(QuorumAtRiskError, match="only a of a, c is answering and caught up, 2 are needed"):
        change(lone, RemoveMember("b"))
    committed(lone, RemoveMember("c"), "b")  # the dead one may go


def test_a_member_that_does_not_answer_makes_up_no_majority() -> None:
    """A host without power says nothing: its connection ends seconds later."""
    lone = leader()
    end = lone.now + 2 * TIMINGS.election_min
    while lone.now < end:
        lone.tick(TIMINGS.heartbeat)
        lone.ack("b", lone.machine.last_index + 1)
    with pytest.raises(QuorumAtRiskError, match="only a of a, c is answering and caught up"):
        change(lone, RemoveMember("b"))
    lone.ack("c", lone.machine.last_index + 1)
    assert change(lone, RemoveMember("b")) == []


def test_leadership_lost_leaves_the_outcome_open() -> None:
    lone = leader()
    answers = change(lone, D)
    lone.append("b", term=5, prev=(1, 0), entries=[])
    (error,) = answers
    assert isinstance(error, RaftError)


def test_an_entry_that_is_cut_no_longer_counts() -> None:
    lone = leader()
    change(lone, RemoveMember("c"))
    index = lone.machine.configuration.index
    assert lone.machine.majority() == 2
    assert lone.machine.voters == {Node("b")}
    lone.append("b", term=5, prev=(index - 1, lone.machine.term), entries=[(5, b"x")])
    assert lone.machine.configuration.voters == {"a", "b", "c"}
    assert lone.machine.voters == {Node("b"), Node("c")}
    lone.restart()
    assert lone.machine.configuration.voters == {"a", "b", "c"}


def test_a_removed_member_stays_connected_until_that_is_committed_and_then_gets_the_entry() -> None:
    lone = leader()
    lone.take()
    change(lone, RemoveMember("c"))
    assert appended(lone, "c") == []  # its log must not be longer than that of those who stay
    assert Node("c") in lone.machine.peers
    lone.ack("b", lone.machine.last_index + 1)
    assert appended(lone, "c") == [MEMBERS]
    assert Node("c") not in lone.machine.peers
    lone.receive("c", messages.Vote(9, 9, 9, None))
    assert (lone.take(), lone.machine.term) == ([], 1)  # who is out cannot disturb


def test_a_leader_that_removes_itself_does_not_count_and_hands_over() -> None:
    lone = leader()
    change(lone, RemoveMember("a"))
    index = lone.machine.last_index
    lone.ack("b", index + 1)
    assert (lone.machine.commit_index < index, lone.machine.role) == (True, Role.LEADER)
    lone.ack("c", index + 1)
    assert lone.machine.commit_index == index
    lone.tick()
    ((name, word),) = lone.take(messages.TimeoutNow)
    assert word.term == lone.machine.term
    lone.receive(name, messages.Vote(2, index, 1, word.stamp))
    assert lone.machine.role is Role.FOLLOWER
    assert lone.machine.status().removed
    lone.take()
    lone.tick(20 * STANDS)
    assert lone.take(messages.PreVote) == []


def test_a_leader_that_removes_itself_can_be_elected_until_that_is_committed() -> None:
    """It may be the only one whose log is long enough (Raft, dissertation, figure 4.6)."""
    lone = leader("b")
    change(lone, RemoveMember("a"))
    lone.restart()
    assert lone.machine.configuration.voters == {"b"}
    lone.tick(TIMINGS.election_min)
    lone.tick(STANDS)
    term = lone.machine.term
    lone.receive("b", messages.PreVoteReply(term, term + 1, True))
    lone.receive("b", messages.VoteReply(term + 1, True))
    assert lone.machine.role is Role.LEADER


def test_a_single_member_takes_a_second_one_in() -> None:
    lone = leader("")
    committed(lone, D)
    lone.connect(Node("d"))
    lone.tick()
    lone.ack("d", lone.machine.last_index + 1)
    assert lone.machine.configuration.voters == {"a", "d"}
    assert lone.machine.role is Role.LEADER
    lone.ack("d", lone.machine.last_index + 1)
    assert lone.machine.is_leader


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_members_survive_a_restart(snapshot: bool) -> None:
    lone = leader()
    committed(lone, D, "b")
    if snapshot:
        lone.machine.propose(b"x", lambda _value, _error: None)
        lone.tick()
        lone.ack("b", lone.machine.last_index + 1)
        lone.machine.limits = msgspec.structs.replace(lone.machine.limits, keep_after_compaction=0)
        lone.machine.compact()
        lone.tick()
        assert lone.machine.first_index > lone.machine.configuration.index
    lone.restart()
    assert lone.machine.configuration.learners == {"d"}
    assert lone.machine.configuration.get("d") == configuration.Member("d", "hd", 4, voter=False)
    assert Node("d") in lone.machine.peers


def test_a_snapshot_brings_the_members_along() -> None:
    made = configuration.changed(configuration.of_voters(dict.fromkeys("abc", ("h", 1))), D, 5)
    lone = Lone()
    state = lone.machine._state_machine.capture()()
    from rocketmq_controller.raft.consensus.snapshots import digest_of

    chunk = messages.SnapshotChunk(
        1, 1.0, 9, 1, len(state), 0, digest_of(state), state, 0.4, b"", 5, configuration.encode(made)
    )
    lone.receive("b", chunk)
    assert lone.machine.configuration == made
    lone.restart()
    assert lone.machine.configuration == made


@pytest.mark.parametrize("command", [MEMBERS, MEMBERS + b"\x01\x90", b"\x02", b"\x03"])
def test_entries_that_are_no_configuration_are_a_breach_of_protocol(command: bytes) -> None:
    lone = Lone()
    with pytest.raises(WireError):
        lone.receive("b", messages.Append(1, 1, 0, 1, 1.0, ((1, command),)))
    assert lone.machine.last_index == 1
    assert lone.machine.configuration.index == 0


def test_without_a_leader_a_member_listens_to_those_its_file_names() -> None:
    """While it was away, all that it knew were replaced."""
    lone = Lone()
    lone.hints = "xy"
    lone.start()
    lone.tick()
    assert [node.id for node in lone.machine.peers] == ["b", "c", "x", "y"]
    lone.connect(Node("x"))
    lone.append("x", term=3, prev=(1, 0), entries=[])
    lone.tick()
    assert [node.id for node in lone.machine.peers] == ["b", "c", "x"]
    lone.append("x", term=3, prev=(1, 0), entries=[(3, b"c")])
    assert lone.machine.last_index == 2


def test_a_member_that_is_added_is_not_told_to_delete_its_store() -> None:
    """Until its log reaches the entry that adds it, it is in no configuration that it knows."""
    lone = Lone("d", "abc")
    lone.log.set_standing(Standing(bytes(16)))
    of_others, of_all = configuration.of_ids("abc"), configuration.of_ids("abcd")
    before, after = (MEMBERS + configuration.encode(held) for held in (of_others, of_all))
    with capture_logs() as lines:
        lone.receive("a", messages.Append(1, 1, 0, 2, 1.0, ((1, before),)))
        lone.tick()
    assert lone.machine.configuration.ids == of_others.ids
    assert REMOVED not in [line["event"] for line in lines]
    with capture_logs() as lines:
        lone.receive("a", messages.Append(1, 2, 1, 3, 2.0, ((1, after),)))
        lone.tick()
        lone.receive("a", messages.Append(1, 3, 1, 4, 3.0, ((1, before),)))
        lone.tick()
    assert REMOVED in [line["event"] for line in lines]
