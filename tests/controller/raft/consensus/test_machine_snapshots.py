"""The repairs of PySyncObj's snapshots, and what a member makes of its disk when it starts."""

from pathlib import Path

import pytest

from rocketmq_controller.raft import ApplyError, Limits, StoreMismatchError
from rocketmq_controller.raft.consensus.snapshots import digest_of
from rocketmq_controller.raft.errors import WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.ports import Snapshot
from rocketmq_controller.raft.storage.storage_errors import StorageFailedError
from rocketmq_runtime.files.filesystem import DiskFullError
from tests.controller.raft.raft_kit import Lone, Trio
from tests.sim.commands import CommandList

SMALL = Limits(compact_after=10, keep_after_compaction=3, snapshot_chunk_bytes=64)


def state_of(count: int) -> bytes:
    state = CommandList()
    for index in range(2, count + 2):
        state.apply(index, b"x")
    return state.capture()()


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
        assert member.machine.snapshot_index == 23
        assert member.machine.first_index == 20


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
    """Found by the simulation: each newer snapshot restarted the transfer, and a slow follower never got one whole."""
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
    leader.connect(node)
    leader.tick()
    refused = messages.Ack(leader.machine.term, False, 2, leader.machine.last_index, leader.machine._last_stamp)
    leader.receive(away, refused)
    (sent,) = [m for _, m in leader.take(messages.SnapshotChunk)]
    answer = messages.SnapshotAck(leader.machine.term, sent.stamp, sent.index, len(sent.data))
    for _ in range(5):
        leader.receive(away, answer)
    assert [m.offset for _, m in leader.take(messages.SnapshotChunk)] == [len(sent.data)]


def test_a_snapshot_is_installed_only_whole_and_verified() -> None:
    lone = Lone()
    data = state_of(19)
    lone.receive("b", chunk(data, end=40))
    assert lone.take(messages.SnapshotAck)[0][1].next_offset == 40
    lone.receive("b", chunk(data, offset=40))
    assert lone.machine.last_applied == lone.machine.first_index == lone.machine.snapshot_index == 20
    assert len(lone.state.commands) == 19
    assert [m.next_index for _, m in lone.take(messages.Ack)] == [21]


def test_a_snapshot_damaged_on_the_way_is_asked_for_again() -> None:
    lone = Lone()
    data = state_of(19)
    lone.receive("b", chunk(data[:-1] + b"!", digest=digest_of(data)))
    assert lone.take(messages.SnapshotAck)[0][1].next_offset == 0
    assert lone.machine.last_applied == 1
    assert lone.snapshots.newest is None


def test_a_snapshot_beyond_the_bound_is_a_breach_of_protocol() -> None:
    lone = Lone(limits=Limits(max_snapshot_bytes=100))
    with pytest.raises(WireError):
        lone.receive("b", chunk(bytes(101)))


def test_an_installed_snapshot_keeps_the_suffix_that_fits() -> None:
    lone = Lone()
    lone.append(term=3, prev=(1, 0), entries=[(3, b"x")] * 25)
    lone.receive("b", chunk(state_of(19)))
    assert (lone.machine.first_index, lone.machine.last_index) == (20, 26)


def test_a_snapshot_the_state_machine_cannot_read_stops_the_process() -> None:
    lone = Lone()
    with pytest.raises(ApplyError, match="entry 20"):
        lone.receive("b", chunk(b"\xc1"))
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
    lone.log.forget(3)
    lone.log.sync()
    with pytest.raises(StoreMismatchError, match="begins at entry 3"):
        lone.restart()


def test_a_hole_between_snapshot_and_log_refuses_the_start() -> None:
    lone = Lone()
    lone.append(term=1, prev=(1, 0), entries=[(1, b"x")] * 9)
    lone.snapshots.save(Snapshot(2, 1, state_of(1)))
    lone.log.forget(6)
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
    leader.connect(node)
    leader.tick()
    stamp = leader.machine._last_stamp
    leader.receive(away, messages.Ack(leader.machine.term, False, 2, leader.machine.last_index, stamp))
    for _ in range(3):
        leader.tick(0.1)
    sizes = [len(m.data) for to, m in leader.take(messages.SnapshotChunk) if to == away]
    assert sizes[0] == 64
    assert set(sizes[1:]) == {0}


def test_a_snapshot_without_space_for_it_is_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk stops acknowledging and nothing more."""
    lone = Lone()
    full = True
    save = lone.snapshots.save

    def save_if_space(snapshot: Snapshot) -> None:
        if full:
            raise DiskFullError(Path("snapshot"), "no space left")
        save(snapshot)

    monkeypatch.setattr(lone.snapshots, "save", save_if_space)
    data = state_of(19)
    lone.receive("b", chunk(data))
    assert [message.next_offset for _, message in lone.take(messages.SnapshotAck)] == [0]
    assert (lone.machine.last_applied, lone.machine.commit_index, lone.commands) == (1, 1, [])
    full = False
    lone.receive("b", chunk(data))
    assert [message.next_index for _, message in lone.take(messages.Ack)] == [21]


# Encoding, decoding, writing and syncing happen beside the event loop.


def test_the_log_is_cut_when_the_snapshot_is_on_disk_and_not_before() -> None:
    lone = Lone(others="", limits=SMALL)
    lone.jobs_wait = True
    lone.tick(1.0)
    lone.tick()
    for number in range(20):
        lone.machine.propose(b"%d" % number, lambda *_: None)
        lone.tick()
    applied = lone.machine.last_applied
    assert applied > 20
    assert len(lone.jobs) == 1
    assert (lone.machine.snapshot_index, lone.machine.first_index) == (0, 1)
    lone.do_jobs()
    assert lone.snapshots.newest is not None
    assert (lone.machine.snapshot_index, lone.machine.first_index) == (0, 1)
    lone.jobs_wait = False
    lone.machine._compact_at = 1000
    lone.tick()
    index = lone.snapshots.newest.index
    assert index < applied
    assert lone.machine.snapshot_index == index
    assert lone.machine.first_index == index - 3
    # What was applied meanwhile is not in the state that was taken.
    copy = CommandList()
    copy.load(lone.snapshots.newest.data)()
    assert copy.indexes[-1] == index


def test_a_kill_while_a_snapshot_is_written_loses_nothing() -> None:
    lone = Lone(others="", limits=SMALL)
    lone.jobs_wait = True
    lone.tick(1.0)
    lone.tick()
    lone.jobs.clear()
    for number in range(30):
        lone.machine.propose(b"%d" % number, lambda *_: None)
        lone.tick()
    commands = list(lone.state.commands)
    (job,) = lone.jobs
    lone.restart()
    job()  # the snapshot was written, the process ended before it cut the log
    assert lone.snapshots.newest is not None
    lone.restart()
    lone.tick(1.0)
    lone.tick()
    assert lone.state.commands[: len(commands)] == commands


def test_a_snapshot_on_its_way_to_disk_is_answered_but_not_acknowledged() -> None:
    lone = Lone()
    lone.jobs_wait = True
    data = state_of(19)
    lone.receive("b", chunk(data))
    assert [m.next_offset for _, m in lone.take(messages.SnapshotAck)] == [len(data)]
    assert lone.machine.last_applied == 1
    # The leader asks again at once: to answer each time would be a loop as fast as the network.
    for _ in range(5):
        lone.receive("b", chunk(data, offset=len(data)))
    assert lone.take() == []
    lone.now += 0.1
    lone.receive("b", chunk(data, offset=len(data)))
    assert [m.next_offset for _, m in lone.take(messages.SnapshotAck)] == [len(data)]
    lone.do_jobs()
    assert lone.machine.last_applied == 1
    lone.tick()
    assert (lone.machine.last_applied, len(lone.state.commands)) == (20, 19)
    assert [m.next_index for _, m in lone.take(messages.Ack)] == [21]


def test_a_snapshot_that_comes_while_our_own_is_written_is_stored_after_it() -> None:
    lone = Lone(limits=SMALL)
    lone.jobs_wait = True
    lone.append(term=3, prev=(1, 0), entries=[(3, b"x")] * 11, commit=12)
    assert len(lone.jobs) == 1
    data = state_of(29)
    lone.receive("b", chunk(data, index=30, term=4, end=None))
    assert len(lone.jobs) == 1
    lone.do_jobs()
    lone.tick()
    assert lone.machine.snapshot_index == 12
    assert lone.machine.last_applied == 12
    lone.do_jobs()
    lone.tick()
    assert lone.machine.snapshot_index == lone.machine.last_applied == 30


def test_entries_that_overtook_a_snapshot_on_its_way_to_disk_stay() -> None:
    lone = Lone()
    lone.jobs_wait = True
    lone.append(term=3, prev=(1, 0), entries=[(3, b"x")] * 25)
    lone.receive("b", chunk(state_of(19)))
    lone.append(term=5, prev=(26, 3), entries=[], commit=26)
    assert len(lone.state.commands) == 25
    lone.do_jobs()
    lone.tick()
    assert lone.machine.snapshot_index == 20
    assert (lone.machine.last_applied, len(lone.state.commands)) == (26, 25)


def test_a_disk_that_fails_under_a_snapshot_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(snapshot: Snapshot) -> None:
        raise StorageFailedError(Path("snapshot"), "the file may have been replaced or not")

    lone = Lone()
    lone.jobs_wait = True
    monkeypatch.setattr(lone.snapshots, "save", save)
    lone.receive("b", chunk(state_of(19)))
    lone.do_jobs()
    with pytest.raises(StorageFailedError):
        lone.tick()
