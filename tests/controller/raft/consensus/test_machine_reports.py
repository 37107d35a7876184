"""What a member remembers of the others, and what is known to be committed, outlive its process and its disk's
damage."""

import errno
from pathlib import Path
from random import Random

import msgspec
import pytest

from rocketmq_controller.raft.configuration import MAX_ID_BYTES, MAX_MEMBERS
from rocketmq_controller.raft.consensus.reports import Kept, Known
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.ports import MAX_REPORTS, Standing
from rocketmq_controller.raft.storage.reports_file import FILE_NAME
from rocketmq_controller.raft.storage.store import Store, open_store
from tests.controller.raft.raft_kit import STANDS, Lone
from tests.sim.disk import SimDisk

FOLDER = Path("/store")


def introduced(lone: Lone, peer: str = "b", **changed: object) -> list[tuple[str, messages.AnyMessage]]:
    """A new connection on which the peer says what it would with an undamaged store, except for `changed`."""
    node = next(node for node in lone.machine.peers if node.id == peer)
    lone.machine.on_disconnected(node)
    lone.connect(node, introduced=False)
    lone.take()
    machine = lone.machine
    word = messages.Introduction(machine.term, bytes(16), True, False, machine.voted_for, machine.last_index)
    lone.receive(peer, msgspec.structs.replace(word, **changed), tick=False)
    return lone.take(messages.SetBack)


@pytest.mark.parametrize(
    "changed", [{"durable": 1}, {"voted_for": None}, {"term": 0}], ids=["acknowledged", "voted", "term"]
)
def test_what_a_member_reported_is_remembered_after_a_restart(changed: dict[str, object]) -> None:
    lone = Lone()
    lone.lead()
    lone.machine.propose(b"x", lambda *_: None)
    lone.machine.tick()
    lone.ack("b", lone.machine.last_index + 1)
    lone.restart()
    assert not introduced(lone)
    assert introduced(lone, **changed)


def test_what_a_wiped_member_reported_is_not_held_against_it_after_a_restart() -> None:
    lone = Lone()
    lone.lead()
    introduced(lone, voter=False, durable=0, voted_for=None, term=0)
    lone.machine.tick()
    lone.restart()
    assert not introduced(lone, durable=1, voted_for=None)


def test_a_newer_term_does_not_hide_that_what_is_committed_is_gone() -> None:
    """A store that was set back may hear of it before the member that knows what it had."""
    lone = Lone()
    lone.lead()
    lone.machine.propose(b"x", lambda *_: None)
    lone.machine.tick()
    committed = lone.machine.last_index
    lone.ack("b", committed + 1)
    newer = lone.machine.term + 1
    assert introduced(lone, term=newer, voted_for=None, durable=committed - 1)
    assert not introduced(lone, term=newer, voted_for=None, durable=committed)


def test_entries_that_a_later_leader_may_have_cut_are_not_held_against_a_member() -> None:
    lone = Lone(others="bcde")
    lone.lead()
    committed = lone.machine.last_index
    lone.machine.propose(b"x", lambda *_: None)
    lone.machine.tick()
    lone.ack("b", committed + 2)
    assert lone.machine.commit_index == committed
    assert not introduced(lone, term=lone.machine.term + 1, voted_for=None, durable=committed)


def test_a_member_is_notified_until_it_waits() -> None:
    """The message may be lost. What the member acknowledges meanwhile is no proof that it has all that it had."""
    lone = Lone()
    lone.lead()
    assert introduced(lone, durable=1, voted_for="a")
    lone.ack("b", lone.machine.last_index + 1)
    lone.tick(1.0)
    assert [to for to, _ in lone.take(messages.SetBack)] == ["b"]
    lone.restart()
    assert introduced(lone, durable=1)
    lone.receive("b", messages.Introduction(lone.machine.term, bytes(16), False, False, None, 1))
    lone.tick(2.0)
    assert not lone.take(messages.SetBack)


@pytest.mark.parametrize("found_by", ["its files", "another member"])
def test_a_store_that_was_set_back_holds_nothing_against_the_others(found_by: str) -> None:
    """They may have waited since it was written, and then that would be the second store that waits."""
    lone = Lone()
    lone.lead()
    if found_by == "its files":
        lone.log.standing = Standing(bytes(16))
        lone.restart()
    else:
        lone.receive("c", messages.SetBack(lone.machine.term))
    assert not introduced(lone, voted_for=None)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("heard", ["append", "introduction", "snapshot"])
def test_a_log_that_ends_before_what_is_committed_is_not_elected(heard: str, restarts: bool) -> None:
    lone = Lone(term=1)
    if heard == "append":
        lone.append(term=1, prev=(8, 1), entries=[(1, b"x")], commit=9)
    elif heard == "introduction":
        introduced(lone, commit=9)
    else:
        lone.receive("b", messages.SnapshotChunk(1, 1.0, 9, 1, 10, 0, b"d", b"d"))
    lone.machine.tick()
    if restarts:
        lone.restart()
    lone.tick(3 * STANDS)
    assert not lone.take(messages.PreVote)
    lone.receive("c", messages.Vote(5, 8, 1, None))
    lone.receive("c", messages.Vote(6, 9, 1, None))
    answers = [(reply.term, reply.granted) for _, reply in lone.take(messages.VoteReply)]
    assert answers == [(5, False), (6, True)]


def test_an_operators_new_quorum_forgets_what_was_committed_in_the_old_one() -> None:
    lone = Lone(term=1)
    introduced(lone, commit=9)
    lone.machine.tick()
    lone.log.standing = Standing(b"another lineage.", voter=True)
    lone.introduced = False
    lone.restart()
    assert lone.machine.known_commit == 0


@pytest.mark.parametrize("reports", [b"\xc1", b"\x90", b"\x93\xc0\xa1x\x80"])
def test_reports_of_another_release_are_as_good_as_lost(reports: bytes) -> None:
    lone = Lone()
    lone.log.reports = reports
    lone.restart()
    lone.lead()


def test_reports_of_all_members_fit_the_file() -> None:
    most = 2**63 - 1
    known = Known(most, (most, most), most)
    kept = Kept(bytes(16), most, {str(n).rjust(MAX_ID_BYTES, "m"): known for n in range(MAX_MEMBERS)})
    assert len(msgspec.msgpack.encode(kept)) <= MAX_REPORTS


def opened(disk: SimDisk) -> Store:
    return open_store(FOLDER, "a", "bc", filesystem=disk, make_store_id=lambda: bytes(16))


def test_reports_outlive_the_process_at_once_and_the_machine_when_synced() -> None:
    found = set()
    for seed in range(20):
        disk = SimDisk()
        journal = opened(disk).journal
        journal.keep_reports(b"one", durable=True)
        journal.keep_reports(b"two", durable=False)
        disk.kill()
        journal = opened(disk).journal
        assert journal.reports == b"two"
        journal.sync_mark()
        journal.keep_reports(b"six", durable=False)
        disk.crash(Random(seed))
        found.add(opened(disk).journal.reports)
    assert found == {b"two", b"six"}


@pytest.mark.parametrize("size", [0, 3, 4100])
def test_damaged_reports_are_as_good_as_lost(size: int) -> None:
    disk = SimDisk()
    opened(disk).journal.keep_reports(b"one", durable=True)
    disk.kill()
    disk.truncate(handle := disk.open(FOLDER / FILE_NAME), size)
    disk.close(handle)
    assert opened(disk).journal.reports == b""


@pytest.mark.parametrize("call", range(1, 7))
def test_a_full_disk_keeps_the_older_reports(call: int) -> None:
    """Whatever of it meets the full disk: making the file, writing it in full, the reports, or the sync."""
    disk = SimDisk()
    journal = opened(disk).journal
    disk.fail_call(disk.calls + call, errno.ENOSPC)
    kept = journal.keep_reports(b"one", durable=True)
    disk.kill()
    journal = opened(disk).journal
    if kept:
        assert journal.reports == b"one"
    assert journal.keep_reports(b"two", durable=True)
    assert journal.reports == b"two"


@pytest.mark.parametrize("size", [0, 3, 4100])
def test_a_start_on_a_full_disk_needs_no_room_for_reports(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    opened(disk).journal.keep_reports(b"one", durable=True)
    disk.kill()
    disk.truncate(handle := disk.open(FOLDER / FILE_NAME), size)
    disk.close(handle)
    real = disk.pwrite

    def full(handle: int, data: bytes, offset: int) -> int:
        if disk._inode(handle) is disk._names[FOLDER / FILE_NAME]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data, offset)

    with monkeypatch.context() as disk_full:
        disk_full.setattr(disk, "pwrite", full)
        journal = opened(disk).journal
        assert not journal.keep_reports(b"two", durable=True)
    assert journal.keep_reports(b"two", durable=True)


def test_what_a_full_disk_did_not_take_is_written_later() -> None:
    lone = Lone()
    lone.machine.remember_commit(99)
    with pytest.MonkeyPatch.context() as full:
        full.setattr(lone.log, "keep_reports", lambda *_, **__: False)
        lone.machine.keep_reports()
    lone.machine.keep_reports()
    lone.restart()
    assert lone.machine.known_commit == 99
