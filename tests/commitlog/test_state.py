"""What a replica's files say about its log: whole, torn, damaged, cut, and while its owner writes."""

import os
from pathlib import Path

import pytest

from rocketmq_commitlog import log_end
from rocketmq_commitlog.errors import NotALogError, SmallFileError
from rocketmq_commitlog.state import LogPaths, LogState, read_state
from rocketmq_formats.broker_identity import BrokerIdentity, encode_identity
from rocketmq_formats.store.epoch_file import EpochList, encode_epochs
from rocketmq_formats.store.given_up import FILE_NAME, GivenUp, GivenUpNotes, encode_given_up
from rocketmq_formats.store.segment_names import segment_name
from tests.commitlog.kit import SEGMENT, Log, record, save_small
from tests.paths import GOLDEN_FILES
from tests.records import make_blank

GOLDEN = GOLDEN_FILES / "store"


def state(root: Path) -> LogState:
    return read_state(LogPaths.of(root), sleep=lambda _: None)


def poke(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / segment_name(offset - offset % SEGMENT)).open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


def flip(root: Path, written: Log, offset: int) -> None:
    poke(root, offset, bytes([written.data[offset - written.start] ^ 0x55]))


@pytest.fixture
def written() -> Log:
    return Log(SEGMENT).fill(4)


@pytest.mark.parametrize("name", ["", "commitlog"])
def test_everything_that_is_known(tmp_path: Path, written: Log, name: str) -> None:
    root = save_small(written.save(tmp_path), confirmed=written.records[-2], epochs=((1, SEGMENT), (3, 9000)))
    (root / ".broker.meta").write_bytes(encode_identity(BrokerIdentity("C", "a", 7)))
    save_small(root, broker_id=2)
    assert state(root / name) == LogState(
        broker_id=7,
        group="C/a",
        min_offset=SEGMENT,
        confirm_offset=written.records[-2],
        max_offset=written.end,
        segment_size=SEGMENT,
        segments=tuple(SEGMENT * n for n in range(1, 5)),
        epochs=EpochList.of([(1, SEGMENT), (3, 9000)]),
    )


@pytest.mark.parametrize(
    ("name", "broker_id", "confirmed", "end", "epochs"),
    [("alone", None, 2507, 2507, []), ("controlled", 1, 10530, 10760, [(1, 0), (5, 10530)])],
)
def test_stores_of_java(
    name: str, broker_id: int | None, confirmed: int, end: int, epochs: list[tuple[int, int]]
) -> None:
    found = state(GOLDEN / name)
    assert (found.broker_id, found.confirm_offset, found.max_offset) == (broker_id, confirmed, end)
    assert found.epochs.starts() == epochs


# Where the log ends


@pytest.mark.parametrize("spare", [0, 3])
def test_nothing_noted(tmp_path: Path, written: Log, spare: int) -> None:
    found = state(written.save(tmp_path, spare=spare))
    assert found.max_offset == found.confirm_offset == written.end
    assert (found.broker_id, found.epochs) == (None, EpochList())


def test_confirmed_at_every_place(tmp_path: Path, written: Log) -> None:
    """Whatever is noted, record's start or not, leads to the same end."""
    written.save(tmp_path)
    for confirmed in range(written.start, written.end + 1, 7):
        found = state(save_small(tmp_path, confirmed=confirmed))
        assert (found.confirm_offset, found.max_offset) == (confirmed, written.end), confirmed


@pytest.mark.parametrize("confirmed", [1, SEGMENT - 1])
def test_confirmed_before_the_first_file(tmp_path: Path, written: Log, confirmed: int) -> None:
    found = state(save_small(written.save(tmp_path), confirmed=confirmed))
    assert (found.confirm_offset, found.max_offset) == (SEGMENT, written.end)


def test_windows_smaller_than_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_end, "WINDOW", 64)
    monkeypatch.setattr(log_end, "_ZEROS", bytes(64))
    written = Log().put(*[b"x" * 1000] * 20)
    written.save(tmp_path, spare=1)
    for confirmed in (0, written.records[9], written.records[9] + 500, written.end):
        assert state(save_small(tmp_path, confirmed=confirmed)).max_offset == written.end


def test_the_end_is_a_blank(tmp_path: Path) -> None:
    written = Log().fill(1)
    written.data += make_blank(SEGMENT - written.end)
    for confirmed in (0, written.records[-1], SEGMENT):
        assert state(save_small(written.save(tmp_path), confirmed=confirmed)).max_offset == SEGMENT
        assert state(save_small(written.save(tmp_path, spare=1), confirmed=confirmed)).max_offset == SEGMENT


@pytest.mark.parametrize("arrived", [1, 8, 36, 90, 91, 92, 93, 97, 98, 99, 100, 103])
def test_a_record_that_has_not_arrived_whole(tmp_path: Path, arrived: int) -> None:
    """A slave's end, before the last bytes came: the file has zeros there."""
    written = Log().fill(1)
    last = record(written.end, b"hello", properties=b"KEYS\x01k\x02")
    assert len(last) == 104
    whole = written.end
    for confirmed in (0, written.records[-1], whole):
        written.data[whole:] = last[:arrived]
        found = state(save_small(written.save(tmp_path), confirmed=confirmed))
        assert found.max_offset == whole
        written.data[whole:] = last
        assert state(written.save(tmp_path)).max_offset == whole + len(last)
    # what is confirmed of it counts, whole or not (its first bytes are zeros anyway)
    arrived = max(arrived, 4)
    written.data[whole:] = last[:arrived]
    assert state(save_small(written.save(tmp_path), confirmed=whole + arrived)).max_offset == whole + arrived


def test_records_left_behind_a_cut_are_none(tmp_path: Path) -> None:
    """Java does not zero what it cuts; shorter records follow, and behind them stand parts of longer ones."""
    old, new = Log().put(*[b"o" * 200] * 10), Log().put(*[b"o" * 200] * 3)
    new.put(b"n" * 33, b"n" * 44)
    end = new.end
    new.data += old.data[len(new.data) :]
    for confirmed in (0, new.records[2], end):
        assert state(save_small(new.save(tmp_path), confirmed=confirmed)).max_offset == end


def test_a_record_with_another_offset_ends_the_log(tmp_path: Path) -> None:
    written = Log().fill(1)
    end = written.end
    written.data += record(end + SEGMENT)
    assert state(written.save(tmp_path)).max_offset == end


@pytest.mark.parametrize("size", [-1, 0, 35, 90, SEGMENT, 2**31 - 1])
def test_a_size_that_cannot_be_ends_the_log(tmp_path: Path, size: int) -> None:
    written = Log().fill(1)
    end = written.end
    written.data += size.to_bytes(4, signed=True) + record(end)[4:]
    assert state(written.save(tmp_path)).max_offset == end


# Damage


def test_one_flipped_byte_hides_nothing_that_is_confirmed(tmp_path: Path, written: Log) -> None:
    """The end is never less than what is confirmed, so that the damaged record is compared."""
    save_small(written.save(tmp_path), confirmed=written.end)
    for offset in range(written.records[-3], written.end):
        flip(tmp_path, written, offset)
        assert state(tmp_path).max_offset == written.end, offset
        poke(tmp_path, offset, written.data[offset - SEGMENT : offset - SEGMENT + 1])


def test_one_flipped_byte_around_the_confirm_offset(tmp_path: Path, written: Log) -> None:
    confirmed = written.records[-4]
    save_small(written.save(tmp_path), confirmed=confirmed)
    for offset in range(written.records[-6], confirmed):
        flip(tmp_path, written, offset)
        assert state(tmp_path).max_offset == written.end, offset
        poke(tmp_path, offset, written.data[offset - SEGMENT : offset - SEGMENT + 1])


def test_a_damaged_head_of_the_last_file(tmp_path: Path, written: Log) -> None:
    written.save(tmp_path, spare=1)
    flip(tmp_path, written, 4 * SEGMENT + 4)
    assert state(tmp_path).max_offset == written.end


def test_confirmed_bytes_that_are_lost(tmp_path: Path) -> None:
    """Zeros, or no file, where something was confirmed: the end is where it is, and what was noted shows the loss."""
    written = Log().fill(2)
    root = save_small(written.save(tmp_path), confirmed=written.end)
    end = written.records[-3]
    poke(root, end, bytes(written.end - end))
    assert (state(root).max_offset, state(root).confirm_offset) == (end, written.end)
    (root / "commitlog" / segment_name(SEGMENT)).unlink()
    assert (state(root).max_offset, state(root).confirm_offset) == (SEGMENT, written.end)


def test_files_that_were_cut_or_are_missing(tmp_path: Path, written: Log) -> None:
    root = save_small(written.save(tmp_path), confirmed=written.end)
    os.truncate(root / "commitlog" / segment_name(4 * SEGMENT), 50)
    assert state(root).max_offset == written.end
    (root / "commitlog" / segment_name(3 * SEGMENT)).unlink()
    assert state(root).max_offset == written.end
    assert state(root).segments == (SEGMENT, 2 * SEGMENT, 4 * SEGMENT)


@pytest.mark.parametrize("files", [0, 2])
def test_an_empty_log(tmp_path: Path, files: int) -> None:
    (tmp_path / "commitlog").mkdir()
    if files:
        Log(SEGMENT).save(tmp_path, spare=files - 1)
    found = state(tmp_path)
    assert found.min_offset == found.max_offset == found.confirm_offset == (SEGMENT if files else 0)
    assert len(found.segments) == files


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(NotALogError, match="commitlog"):
        state(tmp_path)


# Small files


def test_the_backup_of_a_damaged_epoch_file(tmp_path: Path, written: Log) -> None:
    root = save_small(written.save(tmp_path), epochs=((1, 0), (2, 10)))
    (root / "epochFileCheckpoint").write_bytes(b"2\n7\n1-0\n2-10\n")
    with pytest.raises(SmallFileError, match="rebuild"):
        state(root)
    (root / "epochFileCheckpoint.bak").write_bytes(encode_epochs(EpochList.of([(1, 0)])))
    assert state(root).epochs.starts() == [(1, 0)]


def test_an_epoch_file_that_is_just_being_written(tmp_path: Path, written: Log) -> None:
    root = save_small(written.save(tmp_path))
    path, text = root / "epochFileCheckpoint", encode_epochs(EpochList.of([(1, 0), (2, 10)]))
    path.write_bytes(text[:5])

    def written_meanwhile(_: float) -> None:
        path.write_bytes(text)

    found = read_state(LogPaths.of(root), sleep=written_meanwhile)
    assert found.epochs.starts() == [(1, 0), (2, 10)]


def test_an_epoch_that_begins_meanwhile(tmp_path: Path, written: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the new epoch goes with the new epochs."""
    root = save_small(written.save(tmp_path), epochs=((1, 0),), confirmed=written.end)
    before = written.end

    def becomes_master(*arguments: object) -> int:
        if written.end == before:
            save_small(root, epochs=((1, 0), (2, before)))
            written.put(b"of the new epoch").save(root)
            return before
        return real(*arguments)  # type: ignore[arg-type]

    real = log_end.find_end
    monkeypatch.setattr("rocketmq_commitlog.state.find_end", becomes_master)
    found = state(root)
    assert (found.epochs.starts(), found.max_offset) == ([(1, 0), (2, before)], written.end)


@pytest.mark.parametrize("text", [b"", b"x" * 39, (-1).to_bytes(8, signed=True) * 5])
def test_a_checkpoint_without_a_meaning(tmp_path: Path, written: Log, text: bytes) -> None:
    root = written.save(tmp_path)
    (root / "checkpoint").write_bytes(text)
    assert state(root).confirm_offset == written.end


def test_an_identity_without_a_meaning(tmp_path: Path, written: Log) -> None:
    root = written.save(tmp_path)
    (root / "brokerIdentity").write_bytes(b"?")
    assert state(root).broker_id is None


def test_what_is_noted_as_given_up(tmp_path: Path, written: Log) -> None:
    start = written.start
    root = save_small(written.save(tmp_path), epochs=((1, start), (5, start + 100)), confirmed=written.end)
    assert state(root).given_up == ()
    lost = GivenUp(start=start + 100, end=start + 200, epoch=5, at_millis=7)
    back = GivenUp(start=start + 50, end=start + 80, epoch=3, at_millis=6)
    (root / FILE_NAME).write_bytes(encode_given_up(GivenUpNotes(given_up=(back, lost))))
    assert state(root).given_up == (lost,), "an older epoch has the other one"
    (root / FILE_NAME).write_bytes(b"{")
    with pytest.raises(SmallFileError, match="read what it says of lost messages, then delete it"):
        state(root)
