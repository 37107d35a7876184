"""Histories of runs: what is saved comes back, and nothing else does."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import fs
from structlog.testing import capture_logs

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.alignment import spans
from rocketmq_verify.domain.inquiry.ledger import Cell, Ledger
from rocketmq_verify.domain.inquiry.watermarks import Watermarks
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.history import store as history
from rocketmq_verify.history.arrow import ArrowFolder
from rocketmq_verify.history.folders import HistoryError, LocalFolder, path_part
from rocketmq_verify.history.open_folder import open_folder
from rocketmq_verify.history.rows import (
    FileError,
    LedgerRow,
    MarksRow,
    SpanRow,
    decode,
    encode,
    ledger_row,
    marks_row,
)
from rocketmq_verify.history.runs import Group, RunSummary, new_run_id
from rocketmq_verify.history.store import HistoryStore
from tests.verify.report.report_kit import GROUP, NOW, SEGMENT, figures, flipped, marks, plan, verdict


class Clock:
    """One millisecond later at each look."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now


def store(path: Path, now: int = NOW, keep_runs: int = 1000) -> HistoryStore:
    return HistoryStore(str(path), now_ms=Clock(now), keep_runs=keep_runs)


def save(of: HistoryStore, watermarks: Watermarks | None = None, run: str | None = None, *, bad: bool = False) -> str:
    run_id = run or new_run_id()
    said = verdict(findings=[flipped()] if bad else [])
    of.save(GROUP, run_id, said, watermarks=watermarks, spans=spans(said, plan()), figures=figures())
    return run_id


def files(path: Path, kind: str) -> list[Path]:
    return sorted((path / "DefaultCluster" / "broker-a" / kind).iterdir())


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    empty = store(tmp_path / "none")
    assert empty.load(GROUP) is None
    assert empty.last(GROUP, 10) == ()
    assert empty.ranges(GROUP, "a") == ()
    assert not (tmp_path / "none").exists()


def test_a_run_comes_back(tmp_path: Path) -> None:
    kept = marks(suspects=[(10, 20), (SEGMENT, 2 * SEGMENT)], full=NOW - 5)
    save(store(tmp_path), kept, "abc", bad=True)
    later = store(tmp_path)
    assert later.load(GROUP) == kept
    (row,) = later.last(GROUP, 10)
    said = verdict(findings=[flipped()])
    assert msgspec.json.decode(row.verdict, type=type(said)) == said
    assert (row.run_id, row.result, row.mismatches, row.aligned_up_to) == ("abc", "mismatch", 1, 8 * SEGMENT)
    assert [one.name for one in row.replicas] == ["broker-a-0", "broker-a-1", "broker-a-2"]
    assert row.bytes_per_second == 12 * SEGMENT
    assert later.ranges(GROUP, "abc") == spans(said, plan())


def test_groups_are_kept_apart(tmp_path: Path) -> None:
    of = store(tmp_path)
    save(of, marks())
    assert of.load(Group("DefaultCluster", "broker-b")) is None
    assert of.last(Group("", "broker-a"), 10) == ()


def test_runs_come_oldest_first(tmp_path: Path) -> None:
    of = store(tmp_path)
    runs = [save(of) for _ in range(7)]
    assert [row.run_id for row in of.last(GROUP, 3)] == runs[-3:]
    assert [row.run_id for row in of.last(GROUP, 100)] == runs
    assert of.last(GROUP, 0) == ()


def test_a_run_without_watermarks_leaves_those_of_before(tmp_path: Path) -> None:
    save(store(tmp_path), marks(100))
    save(store(tmp_path), None)
    assert store(tmp_path).load(GROUP) == marks(100)


def test_a_clock_that_went_back_does_not_hide_the_newest(tmp_path: Path) -> None:
    save(store(tmp_path, NOW + 10**9), marks(100))
    of = store(tmp_path, NOW)
    of.load(GROUP)
    save(of, marks(200))
    assert store(tmp_path).load(GROUP) == marks(200)


def test_what_a_run_beside_ours_suspects_is_not_lost(tmp_path: Path) -> None:
    save(store(tmp_path), marks(100, [(1, 2)]))
    one, other = store(tmp_path), store(tmp_path)
    one.load(GROUP)
    other.load(GROUP)
    save(one, marks(200, [(10, 20)]))
    save(other, marks(300, [(15, 30)]))
    found = store(tmp_path)
    # the first run's suspect was known to both, and settled
    assert found.load(GROUP) == marks(300, [(10, 30)])
    save(found, marks(400))
    assert store(tmp_path).load(GROUP) == marks(400)


def test_the_progress_of_a_run_is_one_file_until_it_is_saved(tmp_path: Path) -> None:
    save(store(tmp_path), marks(100))
    ours, beside = store(tmp_path, NOW + 10), store(tmp_path, NOW + 20)
    ours.load(GROUP)
    beside.load(GROUP)
    ours.save_progress(GROUP, "ours", marks(200))
    save(beside, marks(150, [(5, 9)]))
    for end in (300, 400):
        ours.save_progress(GROUP, "ours", marks(end, [(50, 60)]))
    assert len(files(tmp_path, "watermarks")) == 3
    # a run that begins now sees what the one beside suspects, too
    assert store(tmp_path).load(GROUP) == marks(400, [(5, 9), (50, 60)])
    save(ours, marks(500), "ours")
    assert len(files(tmp_path, "watermarks")) == 3
    assert store(tmp_path).load(GROUP) == marks(500, [(5, 9)])


def test_runs_that_save_at_once_are_all_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = set(pool.map(lambda end: save(store(tmp_path), marks(1000, [(end, end + 1)])), range(0, 80, 10)))
    found = store(tmp_path)
    assert {row.run_id for row in found.last(GROUP, 100)} == runs
    loaded = found.load(GROUP)
    assert loaded is not None
    assert loaded.suspects == tuple(Extent(at, at + 1) for at in range(0, 80, 10))


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "foreign", "folder", "other group"])
def test_a_file_that_cannot_be_trusted_is_skipped_and_logged(tmp_path: Path, damage: str) -> None:
    of = store(tmp_path)
    save(of, marks(100))
    save(of, marks(200))
    newest = files(tmp_path, "watermarks")[-1]
    data = newest.read_bytes()
    if damage == "cut":
        newest.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        newest.write_bytes(b"")
    elif damage == "flip":
        middle = data.index(b"\x28\xb5\x2f\xfd") + 12  # inside the first compressed page
        newest.write_bytes(data[:middle] + bytes((data[middle] ^ 0xFF,)) + data[middle + 1 :])
    elif damage == "foreign":
        newest.write_bytes(encode([marks_row(Group("x", "y"), "r", 1, "", marks(300))], MarksRow))
    elif damage == "folder":
        newest.unlink()
        newest.mkdir()
    else:
        newest.write_bytes(files(tmp_path, "runs")[-1].read_bytes())
    with capture_logs() as logs:
        assert store(tmp_path).load(GROUP) == marks(100)
    (line,) = logs
    assert line["log_level"] == "warning"
    assert newest.name in line["file"]


def test_foreign_names_are_not_read(tmp_path: Path) -> None:
    of = store(tmp_path)
    save(of, marks(100))
    folder = files(tmp_path, "watermarks")[0].parent
    (folder / "notes.parquet").write_bytes(b"hello")
    (folder / "999999999999999-abc.parquet.tmp").write_bytes(b"hello")
    with capture_logs() as logs:
        assert store(tmp_path).load(GROUP) == marks(100)
    assert logs == []


@pytest.mark.parametrize(
    "wrong",
    [
        marks(2**62, [(5, 5)]),
        marks(2**62, [(5, 9), (7, 12)]),
        marks(-1),
        Watermarks(replicas=marks().replicas * 2),
        Watermarks(replicas=(msgspec.structs.replace(marks().replicas[0], ages=(Aged(0, 9, 1), Aged(8, 12, 1))),)),
    ],
)
def test_watermarks_that_contradict_themselves_are_refused(wrong: Watermarks) -> None:
    data = encode([marks_row(GROUP, "r", NOW, "", wrong)], MarksRow)
    with pytest.raises(FileError):
        decode(data, MarksRow, GROUP)[0].watermarks()


@example(365636489, 1)  # in the footer: one column's values come from another one's page
@example(582478729, 1)
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_flipped_byte_gives_the_same_rows_or_an_error(place: int, flip: int) -> None:
    rows = [marks_row(GROUP, "r", NOW, "", marks(10**9, [(5, 9)]))]
    data = bytearray(encode(rows, MarksRow))
    data[place % len(data)] ^= flip
    try:
        found = decode(bytes(data), MarksRow, GROUP)
    except FileError:
        return
    assert found == rows


LEDGER = Ledger(
    chunk_size=1 << 20,
    cell_size=64 << 20,
    segment_size=1 << 30,
    cells=tuple(Cell(number * (64 << 20), bytes([number]) * 16, 1, 2, NOW, NOW + number, 3) for number in (0, 1, 7)),
)


def test_a_ledger_comes_back(tmp_path: Path) -> None:
    of = store(tmp_path)
    assert of.load_ledger(GROUP) == (None, "")
    for run in "abc":
        of.save_ledger(GROUP, run, LEDGER)
    assert store(tmp_path).load_ledger(GROUP) == (LEDGER, "")
    assert [file.name[16:17] for file in files(tmp_path, "ledger")] == ["b", "c"]
    assert of.load_ledger(Group("DefaultCluster", "broker-b")) == (None, "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_size": 3 << 20},
        {"cell_size": 65 << 19},
        {"chunk_size": 128 << 20, "cell_size": 128 << 20},
        {"segment_size": 0},
        {"cells": LEDGER.cells[::-1]},
        {"cells": LEDGER.cells[:1] * 2},
        {"cells": (msgspec.structs.replace(LEDGER.cells[0], start=1 << 20),)},
        {"cells": (msgspec.structs.replace(LEDGER.cells[0], digest=b"short"),)},
        {"cells": (msgspec.structs.replace(LEDGER.cells[0], last_ms=NOW - 1),)},
        {"cells": (msgspec.structs.replace(LEDGER.cells[0], copies=0),)},
    ],
)
def test_a_ledger_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    data = encode([ledger_row(GROUP, "r", NOW, msgspec.structs.replace(LEDGER, **wrong))], LedgerRow)
    with pytest.raises(FileError):
        decode(data, LedgerRow, GROUP)[0].ledger()


@given(st.binary(max_size=200))
def test_any_bytes_give_an_error(data: bytes) -> None:
    for kind in (RunSummary, MarksRow, SpanRow, LedgerRow):
        with pytest.raises(FileError):
            decode(data, kind, GROUP)


def test_old_runs_are_merged_and_the_oldest_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MERGE_AT", 8)
    monkeypatch.setattr(history, "KEEP_SINGLE", 3)
    monkeypatch.setattr(history, "KEEP_FEW", 4)
    of = store(tmp_path, keep_runs=12)
    runs = [save(of, marks(100 + at)) for at in range(30)]
    assert [row.run_id for row in of.last(GROUP, 1000)] == runs[-12:]
    assert len(files(tmp_path, "runs")) < 8
    assert len(files(tmp_path, "watermarks")) == 4
    assert len(files(tmp_path, "ranges")) == 4
    assert of.load(GROUP) == marks(129)
    assert [bool(row.verdict) for row in of.last(GROUP, 3)] == [True, True, True]


def test_rows_that_are_there_twice_after_a_crash_count_once(tmp_path: Path) -> None:
    of = store(tmp_path)
    runs = [save(of) for _ in range(4)]
    rows = of.last(GROUP, 4)
    name = files(tmp_path, "runs")[2].name[:15]
    (files(tmp_path, "runs")[0].parent / f"{name}-m1.parquet").write_bytes(encode(rows[:3], RunSummary))
    assert [row.run_id for row in of.last(GROUP, 100)] == runs


def test_a_folder_that_cannot_be_written_is_an_error_that_helps(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="cannot be listed"):
        save(store(tmp_path / "file"))


@given(st.text(max_size=16))
def test_names_from_outside_are_one_plain_part_of_a_path(name: str) -> None:
    part = path_part(name)
    assert part
    assert part not in {".", ".."}
    assert not set(part) & set("/\\:\0")
    assert part[0] not in "._"


@given(st.text(max_size=16), st.text(max_size=16))
def test_two_names_are_two_parts(one: str, other: str) -> None:
    assert (path_part(one) == path_part(other)) == (one == other)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(HistoryError, match="too long"):
        path_part("x" * 300)


def test_schemes_choose_the_client(tmp_path: Path) -> None:
    assert isinstance(open_folder(f"file://{tmp_path}"), LocalFolder)
    with pytest.raises(HistoryError, match="run with Spark"):
        open_folder("hdfs://name/x")
    asked: list[str] = []

    def hadoop(uri: str) -> LocalFolder:
        asked.append(uri)
        return LocalFolder(tmp_path)

    folder = open_folder("hdfs://name/x", hadoop)
    assert asked == []  # it would start Spark before anybody knows whether there is something to compare
    folder.write("a", "one", b"1")
    assert folder.names("a") == ["one"]
    assert folder.read("a", "one", 10) == b"1"
    folder.remove("a", "one")
    assert folder.names("a") == []
    assert asked == ["hdfs://name/x"]


def test_folders_of_pyarrow_do_as_ours(tmp_path: Path) -> None:
    folder = ArrowFolder(fs.LocalFileSystem(), str(tmp_path))
    assert folder.names("a/b") == []
    folder.write("a/b", "two", b"22")
    folder.write("a/b", "one", b"1" * 50)
    assert folder.names("a/b") == ["one", "two"]
    assert folder.read("a/b", "one", 10) == b"1" * 11
    folder.remove("a/b", "one")
    folder.remove("a/b", "one")
    assert folder.names("a/b") == ["two"]
    with pytest.raises(HistoryError, match="cannot be read"):
        folder.read("a/b", "one", 10)
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="cannot be written"):
        folder.write("file/x", "one", b"")


def test_a_run_that_cannot_be_read_just_now_is_not_merged_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MERGE_AT", 8)
    monkeypatch.setattr(history, "KEEP_SINGLE", 3)
    of = store(tmp_path)
    runs = [save(of) for _ in range(7)]
    unread = files(tmp_path, "runs")[1].name
    whole = LocalFolder.read

    def failing(self: LocalFolder, folder: str, name: str, longest: int) -> bytes:
        if name == unread:
            raise HistoryError("no answer")
        return whole(self, folder, name, longest)

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(LocalFolder, "read", failing)
        runs.append(save(of))
    assert any("old files of the history stay" in line["event"] for line in logs)
    assert [row.run_id for row in of.last(GROUP, 100)] == runs
    runs.append(save(of))
    assert [row.run_id for row in of.last(GROUP, 100)] == runs
    assert len(files(tmp_path, "runs")) == 4
