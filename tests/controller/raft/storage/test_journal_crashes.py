"""The journal under crashes, failing calls and flipped bits: what was synced is there, or the start is refused."""

import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rocketmq_controller.raft.ports import Entry
from rocketmq_controller.raft.storage.journal import Journal, JournalOptions
from rocketmq_controller.raft.storage.storage_errors import (
    DiskFullError,
    ForeignStoreError,
    JournalCorruptError,
    StorageError,
    StorageFailedError,
)
from tests.sim.disk import SimCrash, SimDisk

FOLDER = Path("/store")
STORE_ID = b"0123456789abcdef"
SMALL = JournalOptions(segment_bytes=300, zero_ahead_bytes=64)
Log = list[Entry]


class Votes:
    term = 0
    voted_for: str | None = None

    def save(self, term: int, voted_for: str | None) -> None:
        raise AssertionError


@dataclass
class Member:
    """A journal and what it may hold after a crash: a frame is there as a whole or not at all."""

    disk: SimDisk
    synced: Log = field(default_factory=list)
    attempted: list[Log] = field(default_factory=list)  # frames begun since then, not known to be durable
    begun: bool = False

    def open(self) -> None:
        self.journal = Journal(
            FOLDER, Votes(), store_id=STORE_ID, must_exist=self.begun, options=SMALL, filesystem=self.disk
        )
        self.begun = True
        found = self.journal[:]
        assert found in [self.synced, *self.attempted]
        assert self.journal.durable_index == self.journal.last_index
        assert self.journal.pending_bytes == 0
        self.synced, self.attempted = found, []  # what is reported once stays

    def sync(self) -> None:
        if self.journal.pending_bytes:
            self.attempted.append(self.journal[:])
        self.journal.sync()
        self.synced, self.attempted = self.journal[:], []

    def add(self, count: int = 1, *, term: int = 0, size: int = 10) -> None:
        for _ in range(count):
            last_term = self.journal[-1][2] if len(self.journal) else 1
            index = self.journal.last_index + 1
            self.journal.add(b"%06d" % index + b"x" * size, index, last_term + term)


def story(member: Member) -> None:
    """Appends, cuts, compaction, a new base, several segments."""
    member.open()
    for count in (1, 3, 2):
        member.add(count)
        member.sync()
    member.journal.set_commit_index(3)
    member.journal.cut(5)
    member.add(2, term=1)
    member.sync()
    member.journal.sync_mark()
    member.add(6)
    member.sync()
    member.add(5)
    member.sync()
    member.journal.forget(10)
    member.add()
    member.sync()
    member.add(3)
    member.journal.cut(15)
    member.journal.forget(12)
    member.sync()
    member.add(8)
    member.sync()
    member.journal.clear()
    member.journal.add(b"", 40, 5)
    member.add()
    member.sync()
    member.add(4)
    member.sync()
    member.journal.forget(43)
    member.sync()


def calls_of_the_story() -> int:
    member = Member(SimDisk())
    story(member)
    assert member.journal.position[0] >= 3
    return member.disk.calls


CALLS = calls_of_the_story()


@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_power_cut_in_every_call(call: int) -> None:
    for seed in range(6):
        rng = Random(seed)
        member = Member(SimDisk())
        member.disk.crash_at = call
        with pytest.raises(SimCrash):
            story(member)
        member.disk.crash(rng)
        # Recovery may be cut off too.
        member.disk.crash_at = member.disk.calls + rng.randint(1, 25)
        with contextlib.suppress(SimCrash):
            member.open()
        member.disk.crash(rng)
        member.open()
        member.add(2)
        member.sync()
        member.disk.crash(rng)
        member.open()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_failure_of_every_call(call: int, error: int) -> None:
    member = Member(SimDisk())
    member.disk.fail_call(call, error)
    durable = 0
    try:
        story(member)
    except DiskFullError:
        if hasattr(member, "journal"):
            durable = member.journal.durable_index
            with contextlib.suppress(StorageFailedError):
                member.sync()  # there is space again
                assert member.journal.durable_index == member.journal.last_index
    except StorageError:
        if hasattr(member, "journal"):
            durable = member.journal.durable_index
    assert durable <= max([0, *(log[-1][1] for log in [member.synced, *member.attempted] if log)])
    member.disk.kill()
    member.open()
    member.add(3)
    member.sync()
    member.disk.crash(Random(call))
    member.open()


def stories() -> list[SimDisk]:
    """Stores at different moments: one segment, several, after compaction and a new base."""
    disks = []
    for appends in ((2,), (3, 1, 2), (1, 4, 4, 4, 4, 1)):
        member = Member(SimDisk())
        member.open()
        for count in appends:
            member.add(count)
            member.sync()
        disks.append(member.disk)
    member = Member(SimDisk())
    story(member)
    return [*disks, member.disk]


def reopen(disk: SimDisk) -> Log:
    return Journal(FOLDER, Votes(), store_id=STORE_ID, must_exist=True, options=SMALL, filesystem=disk)[:]


def refusal(disk: SimDisk, expected: Log) -> StorageError | None:
    """How the store is refused; if it is not, it holds what it should."""
    try:
        found = reopen(disk)
    except StorageError as error:
        return error
    assert found == expected
    return None


@pytest.mark.parametrize("number", range(len(stories())))
def test_flipped_bits_are_refused_or_harmless(number: int) -> None:
    disk = stories()[number]
    expected = reopen(disk.copy())
    for path, data in disk.files().items():
        for offset in range(len(data)):
            damaged = disk.copy()
            damaged.flip_bit(path, offset, bit=offset % 8)
            error = refusal(damaged, expected)
            if error is None:
                assert path.suffix == ".mark" or not any(data[offset:]), "only proof and padding may change unnoticed"
            elif isinstance(error, JournalCorruptError):
                assert error.path == path
                assert error.offset <= offset
            else:
                assert isinstance(error, ForeignStoreError)


@pytest.mark.parametrize("number", range(len(stories())))
def test_without_the_mark_only_the_last_frame_is_unproven(number: int) -> None:
    disk = stories()[number]
    disk.unlink(FOLDER / "journal.mark")
    expected = reopen(disk.copy())
    last = max(disk.files())
    lost = set()
    for path, data in disk.files().items():
        for offset in range(len(data)):
            damaged = disk.copy()
            damaged.flip_bit(path, offset, bit=offset % 8)
            with contextlib.suppress(StorageError):
                if (found := reopen(damaged)) != expected:
                    assert path == last
                    lost.add(tuple(found))
    assert len(lost) <= 1, "every such flip loses the same last frame"


@pytest.mark.parametrize("number", range(len(stories())))
def test_files_cut_short_are_refused(number: int) -> None:
    disk = stories()[number]
    expected = reopen(disk.copy())
    for path, data in disk.files().items():
        for size in range(len(data) if path.suffix == ".log" else 0):
            damaged = disk.copy()
            damaged.truncate(damaged.open(path), size)
            error = refusal(damaged, expected)
            if error is None:
                assert not any(data[size:])
            else:
                assert isinstance(error, JournalCorruptError)
                assert error.path == path
                assert error.offset <= size


class JournalMachine(RuleBasedStateMachine):
    """Anything may happen in any order; after each restart the log is one that may be there."""

    @initialize()
    def begin(self) -> None:
        self.member = Member(SimDisk())
        self.member.open()
        self.expected: Log = []

    @property
    def journal(self) -> Journal:
        return self.member.journal

    def change(self, call: Callable[[], object]) -> None:
        try:
            call()
        except StorageFailedError:
            self.member.disk.kill()
            self.restart()
        except DiskFullError:
            pass

    def restart(self) -> None:
        self.member.disk.capacity = None
        self.member.open()
        self.expected = self.journal[:]

    @rule(count=st.integers(1, 5), term=st.integers(0, 1), size=st.integers(0, 120))
    def add(self, count: int, term: int, size: int) -> None:
        before = len(self.journal)
        self.member.add(count, term=term, size=size)
        self.expected += self.journal[before:]

    @rule()
    def sync(self) -> None:
        self.change(self.member.sync)

    @precondition(lambda self: len(self.journal) > 1)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(1, len(self.journal) - 1))
        if self.journal[position][1] <= self.journal.commit_index:
            with pytest.raises(ValueError, match="committed"):
                self.journal.cut(self.journal[position][1])
            return
        self.journal.cut(self.journal[position][1])
        del self.expected[position:]

    @precondition(lambda self: len(self.journal) > 1)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(1, len(self.journal) - 1))
        self.journal.forget(self.journal[position][1])
        del self.expected[:position]

    @rule(ahead=st.integers(1, 10))
    def new_base(self, ahead: int) -> None:
        index, term = self.journal.last_index + ahead, 9 + (self.journal[-1][2] if len(self.journal) else 0)
        self.journal.clear()
        self.journal.add(b"", index, term)
        self.expected = [(b"", index, term)]

    @rule(behind=st.integers(0, 5))
    def tick(self, behind: int) -> None:
        self.journal.set_commit_index(max(self.journal.last_index - behind, self.journal.commit_index))
        self.change(self.journal.sync_mark)

    @rule()
    def process_dies(self) -> None:
        self.member.disk.kill()
        self.restart()

    @rule(seed=st.integers(0, 2**32), ahead=st.integers(1, 30))
    def power_cut(self, seed: int, ahead: int) -> None:
        rng = Random(seed)
        disk = self.member.disk
        disk.crash_at = disk.calls + ahead
        with contextlib.suppress(SimCrash, DiskFullError, StorageFailedError):
            self.member.add(3)
            self.member.sync()
            self.member.add(3)
            self.member.sync()
        disk.crash(rng)
        self.restart()

    @rule(ahead=st.integers(1, 6), error=st.sampled_from([errno.EIO, errno.ENOSPC]))
    def failing_call(self, ahead: int, error: int) -> None:
        self.member.disk.fail_call(self.member.disk.calls + ahead, error)

    @rule(room=st.integers(0, 300))
    def disk_nearly_full(self, room: int) -> None:
        self.member.disk.capacity = sum(len(data) for data in self.member.disk.files().values()) + room

    @rule()
    def space_again(self) -> None:
        self.member.disk.capacity = None

    @invariant()
    def holds_what_was_put_in(self) -> None:
        if hasattr(self, "member"):
            assert self.journal[:] == self.expected
            durable = self.journal.durable_index
            assert durable <= self.journal.last_index
            on_disk = [entry for entry in self.member.synced if entry[1] <= durable]
            assert [entry for entry in self.expected if entry[1] <= durable] == [
                entry for entry in on_disk if entry[1] >= self.expected[0][1]
            ]


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=60, stateful_step_count=40)
