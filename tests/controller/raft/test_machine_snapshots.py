"""The repairs of PySyncObj's snapshots, and what a member makes of its disk when it starts."""

import pytest

from rocketmq_controller.raft import ApplyError, Limits, StoreMismatchError, messages
from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.snapshots import digest_of
from rocketmq_controller.raft.stores import Snapshot
from tests.controller.raft.raft_kit import Lone, Trio
from tests.sim.commands import CommandList

SMALL = Limits(compact_after=10, keep_after_compaction=3, snapshot_chunk_bytes=64)


def state_of(count: int) -> bytes:
    state = CommandList()
    for index in range(2, count + 2):
        state.apply(index, b"x")
    return state.snapshot()


def chunk(
    data: bytes, *, index: int = 20, term: int = 3, digest: bytes | None = None, offset: int = 0, end: int | None = None
) -> messages.SnapshotChunk:
    return messages.SnapshotChunk(5, 1.0, index, term, len(data), offset, digest or digest_of(data), data[offset:end])


def test_the_log_is_cut_behind_a_snapshot() -> None:
    trio = Trio(limits=SMALL)
    trio.run(1.5)
    trio.propose(20)
    trio.run(0.3)
    for member in trio.at.values():
        assert member.machine.snapshot_index == 22
        assert member.machine.first_index == 19


def test_a_far_off_follower_gets_snapshot_and_suffix() -> None:
    trio = Trio(limits=SMALL)
    trio.run(1.5)
    away = trio.at[trio.leader.others[0]]
    trio.down = {away.name}
    for _ in range(4):
        trio.propose(20)
        trio.settle()
    trio.propose(3)
    trio.settle()
    trio.down = set()
    trio.run(1)
    assert away.state.commands == trio.leader.state.commands
    assert len(away.state.commands) == 83


def test_a_snapshot_goes_to_its_end_although_newer_ones_are_made() -> None:
    """Found by the simulation: each newer snapshot began the transfer anew, and a slow follower never got one whole."""
    trio = Trio(limits=SMALL)
    trio.run(1.5)
    away = trio.at[trio.leader.others[0]]
    trio.down = {away.name}
    trio.propose(60)
    trio.settle()
    trio.down = set()
    for _ in range(40):
        trio.propose(10)
        for _ in range(3):
            for member in trio.at.values():
                member.tick()
            trio.deliver()
        trio.set_time(trio.now + 0.01)
    trio.run(1)
    assert away.state.commands == trio.leader.state.commands


def test_doubled_answers_to_a_chunk_ask_for_the_next_one_once() -> None:
    """Found by the simulation: each doubled answer doubled the rest of the transfer."""
    trio = Trio(limits=SMALL)
    trio.run(1.5)
    leader = trio.leader
    away = leader.others[0]
    trio.down = {away}
    trio.propose(60)
    trio.settle()
    node = next(node for node in leader.machine.peers if node.id == away)
    leader.post._onNodeDisconnected(node)
    leader.post._onNodeConnected(node)
    leader.tick()
    refused = messages.Ack(leader.machine.term, False, 2, leader.machine.last_index, leader.machine._last_stamp)
    leader.hear(away, refused)
    (sent,) = [m for _, m in leader.take(messages.SnapshotChunk)]
    answer = messages.SnapshotAck(leader.machine.term, sent.stamp, sent.index, len(sent.data))
    for _ in range(5):
        leader.hear(away, answer)
    assert [m.offset for _, m in leader.take(messages.SnapshotChunk)] == [len(sent.data)]


def test_a_snapshot_is_installed_only_whole_and_verified() -> None:
    lone = Lone()
    data = state_of(19)
    lone.hear("b", chunk(data, end=40))
    assert lone.take(messages.SnapshotAck)[0][1].next_offset == 40
    lone.hear("b", chunk(data, offset=40))
    assert lone.machine.last_applied == lone.machine.first_index == lone.machine.snapshot_index == 20
    assert len(lone.state.commands) == 19
    assert [m.next_index for _, m in lone.take(messages.Ack)] == [21]


def test_a_snapshot_damaged_on_the_way_is_asked_for_again() -> None:
    lone = Lone()
    data = state_of(19)
    lone.hear("b", chunk(data[:-1] + b"!", digest=digest_of(data)))
    assert lone.take(messages.SnapshotAck)[0][1].next_offset == 0
    assert lone.machine.last_applied == 1
    assert lone.snapshots.newest is None


def test_a_snapshot_beyond_the_bound_is_a_breach_of_protocol() -> None:
    lone = Lone(limits=Limits(max_snapshot_bytes=100))
    with pytest.raises(WireError):
        lone.hear("b", chunk(bytes(101)))


def test_an_installed_snapshot_keeps_the_suffix_that_fits() -> None:
    lone = Lone()
    lone.append(term=3, prev=(1, 0), entries=[(3, b"x")] * 25)
    lone.hear("b", chunk(state_of(19)))
    assert (lone.machine.first_index, lone.machine.last_index) == (20, 26)


def test_a_snapshot_the_state_machine_cannot_read_stops_the_process() -> None:
    lone = Lone()
    with pytest.raises(ApplyError, match="entry 20"):
        lone.hear("b", chunk(b"\xc1"))
    assert lone.snapshots.newest is None


def test_commit_and_state_survive_a_restart_after_compaction() -> None:
    trio = Trio(limits=SMALL)
    trio.run(1.5)
    trio.propose(25)
    trio.run(0.3)
    member = trio.at["a"]
    before = list(member.state.commands)
    member.restart()
    assert member.state.commands == before[: len(member.state.commands)]
    assert member.machine.commit_index == member.machine.last_applied == member.machine.snapshot_index
    trio.run(2)
    assert member.state.commands == before


# What is on disk has to belong together.


def test_a_log_without_its_beginning_and_without_snapshot_refuses_the_start() -> None:
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[(1, b"x")] * 5)
    lone.log.deleteEntriesTo(2)
    lone.log.sync()
    with pytest.raises(StoreMismatchError, match="begins at entry 3"):
        lone.restart()


def test_a_hole_between_snapshot_and_log_refuses_the_start() -> None:
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[(1, b"x")] * 9)
    lone.snapshots.save(Snapshot(2, 1, state_of(1)))
    lone.log.deleteEntriesTo(5)
    lone.log.sync()
    with pytest.raises(StoreMismatchError, match="snapshot ends at 2"):
        lone.restart()


def test_a_vote_file_older_than_the_log_refuses_the_start() -> None:
    lone = Lone()
    lone.append(term=3, prev=(1, 0), entries=[(3, b"x")])
    lone.log.term = 2
    with pytest.raises(StoreMismatchError, match="term"):
        lone.restart()


@pytest.mark.parametrize("entries", [0, 5], ids=["tail never synced", "another leader's tail"])
def test_a_crash_between_snapshot_and_cut_is_finished_at_the_start(entries: int) -> None:
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[(1, b"x")] * entries)
    lone.log.term = 3
    lone.snapshots.save(Snapshot(4, 3, state_of(3)))
    lone.restart()
    assert (lone.machine.first_index, lone.machine.last_index, lone.machine.last_term) == (4, 4, 3)


def test_a_chunk_is_not_sent_again_just_because_time_went_by() -> None:
    """On a slow link that would fill the line with repetitions; an empty chunk asks how far the follower got."""
    trio = Trio(limits=SMALL)
    trio.run(1.5)
    leader, away = trio.leader, trio.leader.others[0]
    trio.down = {away}
    trio.propose(60)
    trio.settle()
    trio.run(0.01)
    node = next(node for node in leader.machine.peers if node.id == away)
    leader.post._onNodeDisconnected(node)
    leader.post._onNodeConnected(node)
    leader.tick()
    stamp = leader.machine._last_stamp
    leader.hear(away, messages.Ack(leader.machine.term, False, 2, leader.machine.last_index, stamp))
    for _ in range(3):
        leader.tick(0.1)
    sizes = [len(m.data) for to, m in leader.take(messages.SnapshotChunk) if to == away]
    assert sizes[0] == 64
    assert set(sizes[1:]) == {0}
