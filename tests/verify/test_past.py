"""Whole runs with a ledger: what changed the same in all replicas, and one replica against the past."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from rocketmq_verify import job
from rocketmq_verify.domain.findings import Kind, Severity
from rocketmq_verify.domain.inquiry.ledger import MOST_CELLS, Cell, Ledger
from rocketmq_verify.domain.inquiry.narrow import Requests
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.verdict import EXIT_CONTINUES, Result
from rocketmq_verify.engine.session import Engine, SessionOptions
from rocketmq_verify.history.folders import HistoryError, LocalFolder
from rocketmq_verify.history.rows import LONGEST_FILE, LedgerRow, decode, encode, ledger_row
from rocketmq_verify.history.rows import Group as HistoryGroup
from rocketmq_verify.past import MADE_AGAIN, Past
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.report import json_report, text_report
from rocketmq_verify.run import EngineKind, LedgerReport, Request, Run
from rocketmq_verify.sources.source import SourceOptions
from rocketmq_verify.sources.work import Place
from tests.ports import free_ports
from tests.verify.history.stores import save_all
from tests.verify.planted.faults import CHUNK, SEGMENT, Group, Message

SPARK = (pytest.mark.processes, pytest.mark.java, pytest.mark.timeout(300))
CELL = 2 * CHUNK
GROUP = HistoryGroup("C", "a")
"""As the stores say it."""
FIRST_MS = 1_700_000_000_000
"""Of the first run; messages of `Group` are from 1970."""
DAY_MS = 86_400_000


class Runs:
    """Runs a day apart, each of which saves the stores first."""

    def __init__(self, root: Path, engine: Engine, kind: EngineKind) -> None:
        self._root, self._engine, self._kind = root, engine, kind
        self.history = root / "history"
        self.number = 0

    @property
    def now_ms(self) -> int:
        return FIRST_MS + self.number * DAY_MS

    def places(self, group: Group, *names: str) -> tuple[Place, ...]:
        saved = save_all(group, self._root / f"stores-{self.number}")
        return tuple(place for place in saved if not names or place.name in names)

    def __call__(self, group: Group, /, *names: str, **changes: object) -> Run:
        """`names`: replicas that are read; all without them."""
        self.number += 1
        asked = Request(
            group=GROUP,
            places=self.places(group, *names),
            chunk_size=CHUNK,
            cell_size=CELL,
            engine=self._kind,
            history_path=str(self.history),
            full=True,
        )
        return job.run(
            msgspec.structs.replace(asked, **changes), self._engine, NoProgress(), now_ms=lambda: self.now_ms
        )

    def file(self, group: Group, path: Path, /, *names: str, **changes: object) -> Run:
        """With a ledger in a file, and no history."""
        return self(group, *names, history_path="", ledger_path=str(path), **changes)

    def ledgers(self) -> list[Path]:
        return sorted((self.history / "C" / "a" / "ledger").iterdir())


@pytest.fixture(params=[EngineKind.LOCAL, pytest.param(EngineKind.SPARK, marks=SPARK)])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runs]:
    """In each way to read and compare."""
    own = Engine(SessionOptions())
    engine: Engine = own if request.param is EngineKind.LOCAL else request.getfixturevalue("engine")
    yield Runs(tmp_path, engine, request.param)
    own.stop()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runs]:
    """Without Spark."""
    engine = Engine(SessionOptions())
    yield Runs(tmp_path, engine, EngineKind.LOCAL)
    engine.stop()


def ledger(done: Run) -> LedgerReport:
    assert done.ledger is not None
    return done.ledger


def cells(group: Group) -> int:
    return group.master.confirm // CELL


def flip_alike(group: Group, message: Message, *names: str) -> None:
    """A letter of its properties: no checksum has it."""
    for replica in group.replicas:
        if not names or replica.name in names:
            replica.flip(message.body_start + message.body_length + 25)


def test_a_change_that_is_alike_in_all_replicas_is_found(both: Runs) -> None:
    group = Group().fill(60)
    first = both(group)
    assert first.verdict.result is Result.ALIGNED
    assert (ledger(first).cells, ledger(first).entered, ledger(first).confirmed) == (cells(group), cells(group), 0)
    again = both(group)
    assert again.verdict.result is Result.ALIGNED
    assert (ledger(again).confirmed, ledger(again).entered) == (cells(group), 0)
    assert ledger(again).oldest_ms == FIRST_MS + DAY_MS
    message = group.messages[30]
    flip_alike(group, message)
    for full in (True, False):  # what is found stays suspect
        found = both(group, full=full)
        (finding,) = found.findings
        assert (finding.kind, finding.replicas) == (Kind.CHANGED_SINCE, ("a", "b", "c"))
        assert finding.extent.start == message.offset - message.offset % CELL
        assert finding.extent.length == CELL
        assert finding.record is not None
        inside = [one for one in group.messages if one.offset >= finding.extent.start]
        assert finding.record.queue_offset == inside[0].queue_offset
        assert "not what they were at 2023-11-16 22:13:20 UTC" in finding.detail
        assert "first read at 2023-11-15 22:13:20 UTC, the same in all of them" in finding.detail
        assert found.verdict.exit_code == 1
        assert found.verdict.aligned_up_to == finding.extent.start
    flip_alike(group, message)
    assert both(group, full=False).verdict.result is Result.ALIGNED


def test_both_engines_have_one_ledger(both: Runs, run: Runs) -> None:
    group = Group().fill(60)
    flip_alike(group, group.messages[7], "b")
    written = both(group)
    assert written.verdict.exit_code == 1
    run.number = both.number
    read = run(group)
    assert ledger(read).confirmed == ledger(written).entered == cells(group) - 1
    assert (ledger(read).changed, ledger(read).entered) == (0, 0)


def test_without_a_ledger_it_is_aligned(run: Runs) -> None:
    """Why there is one."""
    group = Group().fill(60)
    run(group, history_path="")
    flip_alike(group, group.messages[30])
    done = run(group, history_path="")
    assert (done.verdict.result, done.ledger) == (Result.ALIGNED, None)


@pytest.mark.parametrize("leg", [1, SEGMENT, 1 << 40])
@pytest.mark.parametrize("cell", [CHUNK, CELL, 2 * SEGMENT])
def test_legs_and_the_size_of_cells_do_not_matter(run: Runs, leg: int, cell: int) -> None:
    group = Group().fill(120)
    run(group, cell_size=cell, first_leg=leg)
    flip_alike(group, group.messages[50])
    done = run(group, cell_size=cell, first_leg=SEGMENT + 1 - leg if leg <= SEGMENT else 1)
    at = group.messages[50].body_start
    (finding,) = done.findings
    assert (finding.kind, finding.extent.start) == (Kind.CHANGED_SINCE, at - at % cell)
    assert (ledger(done).changed, ledger(done).confirmed) == (1, group.master.confirm // cell - 1)


def test_changes_beside_each_other_are_one_finding_and_there_are_not_many(run: Runs) -> None:
    group = Group().fill(900)
    run(group)
    for number, message in enumerate(group.messages):
        if number % 40 < 20:
            flip_alike(group, message)
    done = run(group)
    found = [one for one in done.findings if one.kind is Kind.CHANGED_SINCE]
    assert len(found) == 17
    assert "more places up to offset" in found[-1].detail
    assert sum(one.extent.length for one in found[:-1]) > 20 * CELL


def test_a_cell_is_entered_when_it_is_complete(run: Runs) -> None:
    group = Group().fill(5)
    end = 0
    for _ in range(12):
        done = run(group, full=False, reread_ms=365 * DAY_MS)
        assert done.verdict.result is Result.ALIGNED
        assert ledger(done).cells == cells(group)
        assert ledger(done).entered == cells(group) - end
        assert ledger(done).changed == 0
        # of the cell that is complete now, what was read before is read again
        assert done.verdict.compared_bytes <= done.verdict.new_bytes + CELL
        end = cells(group)
        group.fill(4)
    flip_alike(group, group.messages[0])
    assert [one.kind for one in run(group).findings] == [Kind.CHANGED_SINCE]


def test_bytes_that_are_damaged_or_not_compared_are_not_entered(run: Runs) -> None:
    group = Group(strict=False).fill(60)
    flip_alike(group, group.messages[0], "b")
    for replica in group.replicas:
        replica.flip(group.messages[40].body_start)
    for _ in range(30):
        group.put(700)  # only the master has these: they are checked by themselves
    done = run(group)
    assert done.verdict.counts["corruptRecord"] == done.verdict.counts["badStructure"] == 1
    bad = {
        at
        for one in done.findings
        if one.severity is Severity.MISMATCH
        for at in range(one.extent.start // CELL, (one.extent.end - 1) // CELL + 1)
    }
    assert ledger(done).cells == cells(group) - len(bad)
    group.sync()
    done = run(group)
    assert (ledger(done).confirmed, ledger(done).entered) == (cells(group) - len(bad), 0)


def test_what_expired_leaves_the_ledger(run: Runs) -> None:
    group = Group().fill(120)
    run(group)
    for replica in group.replicas[:2]:
        group.expire(replica)
    assert ledger(run(group)).cells == cells(group)
    group.expire(group.replicas[2], 2)
    done = run(group)
    assert (done.verdict.result, ledger(done).cells) == (Result.ALIGNED, cells(group) - SEGMENT // CELL)
    assert (ledger(done).changed, ledger(done).entered) == (0, 0)


def test_a_replica_that_lags_is_compared_when_it_has_the_cell(run: Runs) -> None:
    group = Group(strict=False).fill(20)
    for _ in range(40):
        group.put(700)
    group.copy(group["b"])
    group.copy(group["c"], 5000)
    assert ledger(run(group)).cells == group.master.confirm // CELL
    group.sync()
    group["c"].flip(group.messages[50].body_start)
    done = run(group)
    assert [(one.kind, one.replicas) for one in done.findings] == [(Kind.CORRUPT_RECORD, ("c",))]


def test_one_replica_alone_is_compared_with_the_past(both: Runs, tmp_path: Path) -> None:
    group, file = Group().fill(60), tmp_path / "ledger"
    assert both.file(group, file).verdict.result is Result.ALIGNED
    done = both.file(group, file, "b")
    end = group.master.confirm
    assert (done.verdict.result, done.verdict.exit_code, done.findings) == (Result.ALIGNED, 0, ())
    rest = end - end // CELL * CELL
    assert done.verdict.summary == (
        f"b is what it was, {end - rest} bytes from 0 to {end - rest}; {rest} bytes are not in the ledger"
    )
    flip_alike(group, group.messages[30], "b")
    done = both.file(group, file, "b")
    (finding,) = done.findings
    assert (finding.kind, finding.replicas, done.verdict.exit_code) == (Kind.CHANGED_SINCE, ("b",), 1)


def test_one_replica_alone_without_a_past(run: Runs, tmp_path: Path) -> None:
    group, file = Group().fill(60), tmp_path / "ledger"
    done = run.file(group, file, "a")
    assert done.verdict.exit_code == 3
    assert done.verdict.summary.endswith(
        "1 replica could be read; a comparison needs two, and the ledger had nothing of it"
    )
    assert ledger(done).entered == cells(group)
    assert run.file(group, file, "a").verdict.exit_code == 0
    no_structure = run.file(group, tmp_path / "other", "a", structure=False)
    assert ledger(no_structure).entered == 0


def test_an_archive_has_a_part_of_the_log(run: Runs, tmp_path: Path) -> None:
    """Its end is an earlier one, its beginning a later one; nothing leaves the ledger for that."""
    group, file = Group().fill(60), tmp_path / "ledger"
    archive = Group().fill(60)
    archive.expire(archive["a"])
    group.fill(60)
    run.file(group, file)
    done = run.file(archive, file, "a")
    assert done.verdict.result is Result.ALIGNED
    assert ledger(done).cells == cells(group)
    assert ledger(done).confirmed == archive["a"].confirm // CELL - SEGMENT // CELL


def test_a_copy_of_the_ledger_of_a_history_is_a_file(run: Runs, tmp_path: Path) -> None:
    group = Group().fill(60)
    run(group)
    file = tmp_path / "copy"
    file.write_bytes(run.ledgers()[-1].read_bytes())
    assert run.file(group, file, "c", group=HistoryGroup("", "")).verdict.exit_code == 0
    (row,) = decode(file.read_bytes(), LedgerRow, GROUP)
    assert row.cells[0].copies == 3
    with pytest.raises(HistoryError, match="the ledger of C/a, another group than C/broker-b"):
        run.file(group, file, "c", group=HistoryGroup("C", "broker-b"))


def test_a_majority_that_changed_is_wrong(run: Runs) -> None:
    group = Group().fill(60)
    run(group)
    message = group.messages[30]
    flip_alike(group, message, "a", "b")
    done = run(group)
    assert done.verdict.exit_code == 1
    (found,) = done.findings
    assert (found.kind, found.replicas, found.extent.start) == (Kind.CORRUPT_RECORD, ("a", "b"), message.offset)
    assert found.detail.endswith("is damaged in a and b and right in c")
    assert {copy.replica: copy.right for copy in found.copies} == {"a": False, "b": False, "c": True}
    assert {copy.reason for copy in found.copies} == {
        "body CRC right, not as an earlier run read it",
        "body CRC right, as an earlier run read it",
    }
    assert (ledger(done).confirmed, ledger(done).changed) == (cells(group), 1)


def test_a_majority_that_changed_is_wrong_also_where_tables_are_late(run: Runs) -> None:
    """A slave gets the entry of an elected master when it connects again; its bytes are those of the ledger before."""
    group = Group().fill(30)
    group.elect(group["b"])
    group.fill(30)
    del group["a"].epochs[1:]
    run(group)
    message = group.messages[45]
    flip_alike(group, message, "b", "c")
    done = run(group)
    (copies,) = [one.copies for one in done.findings if one.kind is Kind.CORRUPT_RECORD]
    assert [(copy.replica, copy.right) for copy in copies] == [("a", True), ("b", False), ("c", False)]


def test_all_changed_and_each_in_another_way(run: Runs) -> None:
    group = Group().fill(60)
    run(group)
    message = group.messages[30]
    flip_alike(group, message)
    flip_alike(group, group.messages[31], "a")
    done = run(group)
    assert done.verdict.exit_code == 1
    assert Kind.CHANGED_SINCE in {one.kind for one in done.findings}
    assert {name for one in done.findings for name in one.replicas} == {"a", "b", "c"}


def cut(group: Group, number: int, clock: int | None = None) -> int:
    """The messages from this one on are lost in all replicas, and b is elected; `clock`: its time."""
    at = group.messages[number].offset
    group.messages = group.messages[:number]
    for replica in group.replicas:
        replica.truncate(at)
        del replica.data[at:]
    group.clock = clock or group.clock
    group.connected.clear()
    group.elect(group["b"])
    return at


@pytest.mark.parametrize("late", [0, 3 * 365 * DAY_MS])
def test_a_log_that_was_cut_and_written_anew(run: Runs, late: int) -> None:
    """Whatever the clock of the new master is."""
    group = Group(2, strict=False).fill(60)
    run(group)
    at = cut(group, 40, run.now_ms + 1000 - late)
    group.fill(25, 600)
    done = run(group)
    (finding,) = done.findings
    assert (finding.kind, finding.replicas) == (Kind.REPLACED_SINCE, ("a", "b"))
    assert finding.extent.start == at - at % CELL
    assert "were written again since in a and b: confirmed messages may be lost" in finding.detail
    assert done.verdict.exit_code == 3
    assert run(group).verdict.result is Result.ALIGNED


def test_what_was_written_again_is_told_by_the_next_run_if_it_was_not_certain(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(2, strict=False).fill(60)
    run(group)
    cut(group, 40)
    group.fill(25, 600)
    with monkeypatch.context() as patched:
        patched.setattr(job, "still_true", lambda *_: ())
        assert run(group).findings == ()
    assert [one.kind for one in run(group, full=False).findings] == [Kind.REPLACED_SINCE]


def test_a_clock_that_is_ahead_makes_no_later_history(run: Runs) -> None:
    """A change in what was stored "after" the last run is damage."""
    group = Group()
    group.clock = run.now_ms + DAY_MS + 3_600_000
    group.fill(60)
    run(group)
    flip_alike(group, group.messages[30])
    for _ in range(2):
        done = run(group)
        assert [one.kind for one in done.findings] == [Kind.CHANGED_SINCE]


def test_a_tail_that_all_lost_after_an_election_is_told_once(run: Runs) -> None:
    """Their own notes know nothing of it."""
    group = Group(2, strict=False).fill(60)
    run(group)
    before = cells(group)
    at = cut(group, 30)
    group.sync()
    done = run(group)
    (finding,) = done.findings
    assert (finding.kind, finding.replicas) == (Kind.REPLACED_SINCE, ("a", "b"))
    assert (finding.extent.start, finding.extent.end) == (at, before * CELL)
    assert finding.detail.endswith(
        "when a run confirmed them, are in no replica any more: a later election cut them off"
    )
    assert done.verdict.exit_code == 3
    again = run(group)
    assert (again.verdict.result, ledger(again).cells) == (Result.ALIGNED, at // CELL)


def test_what_is_told_once_is_not_hidden_by_another_attempt(run: Runs) -> None:
    group = Group(2).fill(60)
    run(group)
    cut(group, 30)
    group.sync()
    group["b"].flip(group.messages[1].body_start)
    for kinds, code in (({Kind.CORRUPT_RECORD, Kind.REPLACED_SINCE}, 1), ({Kind.CORRUPT_RECORD}, EXIT_CONTINUES)):
        done = run(group, time_budget=1e-9, first_leg=1)
        assert done.later_bytes
        assert ({finding.kind for finding in done.findings}, done.verdict.exit_code) == (kinds, code)


def test_a_tail_that_all_lost_without_an_election_is_a_mismatch(run: Runs) -> None:
    """For example volumes that were set back to snapshots, notes and all."""
    group = Group().fill(60)
    run(group)
    at = group.messages[30].offset
    group.messages = group.messages[:30]
    for replica in group.replicas:
        replica.truncate(at)
        del replica.data[at:]
    for full in (True, False):
        done = run(group, full=full)
        (finding,) = done.findings
        assert (finding.kind, finding.replicas, finding.extent.start) == (Kind.LOST_CONFIRMED, ("a", "b", "c"), at)
        assert done.verdict.exit_code == 1
        assert ledger(done).cells == cells(Group().fill(60))


def test_copies_that_are_older_than_the_ledger_lost_nothing(run: Runs, tmp_path: Path) -> None:
    group, file = Group().fill(60), tmp_path / "ledger"
    old = Group().fill(40)
    run.file(group, file)
    done = run.file(old, file)
    assert (done.verdict.result, ledger(done).cells) == (Result.ALIGNED, cells(group))


@pytest.mark.parametrize("length", [90, 2])
def test_a_log_that_was_made_again_is_told_once_and_begins_a_ledger(run: Runs, length: int) -> None:
    group = Group().fill(60)
    run(group)
    other = Group()
    other.clock = run.now_ms + 1000
    done = run(other.fill(length, 500))
    (finding,) = done.findings
    assert (finding.kind, finding.replicas) == (Kind.REPLACED_SINCE, ("a", "b", "c"))
    assert (finding.extent.start, finding.extent.end) == (0, cells(group) * CELL)
    assert "was made again since: what was confirmed before is lost, unless the group was made again" in finding.detail
    assert done.verdict.exit_code == 3
    assert MADE_AGAIN in ledger(done).notes
    assert ledger(done).cells == cells(other)
    again = run(other)
    assert (again.verdict.result, ledger(again).confirmed, ledger(again).notes) == (Result.ALIGNED, cells(other), ())


def test_a_group_that_is_empty_is_told_once(run: Runs) -> None:
    group, empty = Group().fill(60), Group()
    run(group)
    done = run(empty)
    (finding,) = done.findings
    assert (finding.kind, finding.extent.end) == (Kind.REPLACED_SINCE, cells(group) * CELL)
    assert "all logs are empty; what was confirmed is lost, unless the group was made again" in finding.detail
    assert done.verdict.exit_code == 3
    again = run(empty)
    assert (again.verdict.exit_code, ledger(again).cells) == (0, 0)


def test_a_former_master_that_has_the_old_bytes_makes_no_alarm(run: Runs) -> None:
    """It drops them when it connects. The others took another history, which is told."""
    group = Group(3, strict=False).fill(60)
    run(group)
    old = bytes(group["a"].data), group["a"].end, group["a"].confirm, list(group["a"].epochs)
    at = cut(group, 40)
    group.copy(group["c"])
    for _ in range(25):
        group.put(600)
    group.copy(group["c"])
    group["a"].data[:], group["a"].end, group["a"].confirm, group["a"].epochs = old
    done = run(group)
    assert not [one for one in done.findings if one.severity is Severity.MISMATCH]
    (finding,) = [one for one in done.findings if one.kind is Kind.REPLACED_SINCE]
    assert (finding.replicas, finding.extent.start) == (("b", "c"), at - at % CELL)
    assert Kind.STALE_TAIL in {one.kind for one in done.findings}
    group.sync()
    for _ in range(2):
        done = run(group)
        assert (done.verdict.exit_code, done.findings) == (0, ())
    assert ledger(done).confirmed == cells(group)


def test_a_wrong_archive_takes_nothing_out_of_the_ledger(run: Runs, tmp_path: Path) -> None:
    group, file = Group().fill(60), tmp_path / "ledger"
    run.file(group, file)
    other = Group()
    other.clock = run.now_ms + 1000
    other.fill(60)
    done = run.file(other, file, "a")
    assert {one.kind for one in done.findings} == {Kind.CHANGED_SINCE}
    assert done.verdict.exit_code == 1
    done = run.file(group, file, "b")
    assert (done.verdict.exit_code, ledger(done).confirmed) == (0, cells(group))


def test_one_that_could_be_read_of_several_takes_nothing_out_of_the_ledger(run: Runs, tmp_path: Path) -> None:
    group, file = Group(2, strict=False).fill(60), tmp_path / "ledger"
    run.file(group, file)
    cut(group, 40)
    for _ in range(25):
        group.put(600)
    run.number += 1
    (place,) = run.places(group, "b")
    away = Place(ReplicaName("a"), f"sidecar:127.0.0.1:{free_ports(1)[0]}")
    run.number += 1
    done = run.file(group, file, places=(away, place), options=SourceOptions(patience=0.1))
    assert done.verdict.exit_code == 3
    assert Kind.REPLACED_SINCE in {one.kind for one in done.findings}
    assert ledger(done).cells == cells(Group(2).fill(60))


def test_an_archive_of_another_group_is_refused(run: Runs, tmp_path: Path) -> None:
    """By what the stores say of themselves, without --group."""
    group, file = Group().fill(60), tmp_path / "ledger"
    nameless = HistoryGroup("", "")
    done = run.file(group, file, group=nameless)
    (row,) = decode(file.read_bytes(), LedgerRow, None)
    assert done.verdict.exit_code == 0
    assert row.broker_name
    file.write_bytes(encode([msgspec.structs.replace(row, broker_name="other")], LedgerRow))
    with pytest.raises(HistoryError, match="/other, another group"):
        run.file(group, file, "a", group=nameless)


def test_unused_bytes_hide_no_change_that_is_alike(run: Runs) -> None:
    group = Group(2).fill(60)
    run(group)
    last = next(one for one, then in zip(group.messages, group.messages[1:], strict=False) if one.end != then.offset)
    group["b"].flip(last.end + 20)
    done = run(group)
    assert [one.kind for one in done.findings] == [Kind.UNUSED_BYTES]
    assert done.verdict.result is Result.ALIGNED
    flip_alike(group, last)
    done = run(group)
    assert {one.kind for one in done.findings} == {Kind.UNUSED_BYTES, Kind.CHANGED_SINCE}


def test_one_replica_alone_with_a_hole_in_its_past(run: Runs, tmp_path: Path) -> None:
    """What differed when the ledger was written may be the wrong copy."""
    group, file = Group().fill(60), tmp_path / "ledger"
    message = group.messages[30]
    flip_alike(group, message, "b")
    assert run.file(group, file).verdict.exit_code == 1
    at = message.offset - message.offset % CELL
    for _ in range(2):
        done = run.file(group, file, "b")
        assert (done.verdict.exit_code, done.findings) == (3, ())
        assert f"the ledger had nothing of the bytes from {at} to {at + CELL}" in done.verdict.summary
    (found,) = run.file(group, file).findings
    assert (found.kind, found.replicas) == (Kind.CORRUPT_RECORD, ("b",))


def test_what_one_replica_alone_once_had_is_not_right_against_others(run: Runs, tmp_path: Path) -> None:
    group, file = Group().fill(60), tmp_path / "ledger"
    flip_alike(group, group.messages[30], "b")
    assert run.file(group, file, "b").verdict.exit_code == 3
    assert run.file(group, file, "b").verdict.exit_code == 0
    (found,) = run.file(group, file).findings
    assert (found.kind, found.replicas) == (Kind.CORRUPT_RECORD, ("b",))


def test_a_time_that_changed_is_no_later_history(run: Runs) -> None:
    group = Group().fill(60)
    run(group)
    for message in group.messages[25:35]:
        for replica in group.replicas:
            replica.flip(message.offset + 58, 5)  # of its storeTimestamp: the year 3084
    done = run(group)
    assert {one.kind for one in done.findings} == {Kind.CHANGED_SINCE}


def test_a_change_that_is_gone_at_the_second_read_is_read_again_by_the_next_run(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group().fill(60)
    run(group)
    message = group.messages[30]
    flip_alike(group, message)
    look = Past.take_digests

    def mended(self: Past, *arguments: Any) -> Requests[None]:
        yield from look(self, *arguments)
        flip_alike(group, message)
        for place in self._request.places:
            for start in range(0, group.master.end, SEGMENT):
                file = Path(place.spec.removeprefix("files:")) / "commitlog" / f"{start:020d}"
                data = bytes(group[place.name].data[start : start + SEGMENT])
                file.write_bytes(data.ljust(SEGMENT, b"\0"))

    monkeypatch.setattr(Past, "take_digests", mended)
    done = run(group)
    assert (done.verdict.result, done.findings) == (Result.ALIGNED, ())
    monkeypatch.undo()
    done = run(group, full=False, reread_ms=365 * DAY_MS)
    assert done.verdict.compared_bytes == CELL
    assert ledger(done).confirmed == 1


def test_chunks_have_the_ledgers_size(run: Runs) -> None:
    group = Group().fill(60)
    run(group)
    done = run(group, chunk_size=2 * CHUNK)
    assert ledger(done).confirmed == cells(group)
    assert ledger(done).notes == (f"chunks of {CHUNK} bytes, as the ledger has them",)


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: b"", lambda data: b"x" * 5000])
def test_a_damaged_ledger_is_told_and_not_used(run: Runs, tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    group, file = Group().fill(60), tmp_path / "ledger"
    run(group)
    run.file(group, file)
    (newest,) = run.ledgers()
    newest.write_bytes(spoil(newest.read_bytes()))
    done = run(group)
    assert done.verdict.result is Result.ALIGNED
    assert ledger(done).entered == cells(group)
    assert "is damaged and not used" in ledger(done).notes[0]
    bad = spoil(file.read_bytes())
    file.write_bytes(bad)
    done = run.file(group, file)
    assert done.verdict.result is Result.ALIGNED
    assert "is damaged, it is now " in ledger(done).notes[0]
    assert [one.read_bytes() for one in tmp_path.glob("ledger.*.unread")] == [bad]
    assert ledger(run.file(group, file)).confirmed == cells(group)


def test_any_byte_of_the_file_may_be_another(run: Runs, tmp_path: Path) -> None:
    group, file = Group().fill(20), tmp_path / "ledger"
    run.file(group, file)
    whole = file.read_bytes()
    for at in range(0, len(whole), max(len(whole) // 40, 1)):
        data = bytearray(whole)
        data[at] ^= 0x10
        file.write_bytes(data)
        done = run.file(group, file)
        assert done.verdict.result is Result.ALIGNED
        assert ledger(done).changed == 0


def test_an_older_ledger_takes_the_place_of_a_damaged_one(run: Runs) -> None:
    group = Group().fill(60)
    for _ in range(3):
        run(group)
    older, newest = run.ledgers()
    assert older < newest
    newest.write_bytes(b"")
    flip_alike(group, group.messages[30])
    assert [one.kind for one in run(group).findings] == [Kind.CHANGED_SINCE]


def test_a_ledger_that_cannot_be_read_now_is_not_replaced(run: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group().fill(60)
    run(group)
    whole = LocalFolder.read

    def failing(self: LocalFolder, folder: str, name: str, longest: int) -> bytes:
        if folder.endswith("ledger"):
            raise HistoryError("no answer")
        return whole(self, folder, name, longest)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFolder, "read", failing)
        done = run(group)
    assert done.verdict.result is Result.ALIGNED
    assert ledger(done).notes == ("the ledger cannot be read now and is not used: no answer",)
    assert len(run.ledgers()) == 1
    assert ledger(run(group)).confirmed == cells(group)


def test_a_ledger_that_cannot_be_kept_does_not_end_the_run(run: Runs, tmp_path: Path) -> None:
    done = run.file(Group().fill(60), tmp_path / "none" / "ledger")
    assert done.verdict.result is Result.ALIGNED
    assert "it is not kept: " in ledger(done).notes[0]


def test_a_full_ledger_is_told(run: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("past", "domain.inquiry.ledger"):
        monkeypatch.setattr(f"rocketmq_verify.{module}.MOST_CELLS", 3)
    done = run(Group().fill(60))
    assert (ledger(done).cells, ledger(done).notes) == (3, ("it is full: 3 cells",))


def test_a_full_ledger_fits_into_its_file() -> None:
    count, random = 1 << 12, Random(1)
    cells = tuple(
        Cell(at << 26, random.randbytes(16), 3, 4, FIRST_MS + random.randrange(DAY_MS), FIRST_MS + 2 * DAY_MS, 3)
        for at in range(count)
    )
    whole = Ledger(chunk_size=1 << 20, cell_size=1 << 26, segment_size=1 << 30, cells=cells)
    data = encode([ledger_row(GROUP, "run", 1, whole)], LedgerRow)
    assert decode(data, LedgerRow, GROUP)[0].ledger() == whole
    assert len(data) * (MOST_CELLS // count) < LONGEST_FILE // 2


def test_the_reports_tell_of_it(run: Runs) -> None:
    group = Group().fill(60)
    run(group)
    flip_alike(group, group.messages[30])
    done = run(group)
    text = text_report.text(done, plan=True)
    assert f"Ledger: {cells(group)} cells of 8.19 kB; {cells(group) - 1} are what they were, the oldest as at " in text
    assert "; 1 are not." in text
    assert "MISMATCH changedSince: the bytes from" in text
    assert "No copy is known to be right. Rebuild nothing" in text
    assert msgspec.json.decode(json_report.encode(done, plan=False))["ledger"]["changed"] == 1
