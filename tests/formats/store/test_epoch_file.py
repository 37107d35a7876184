"""The epoch file and the rules of its list."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.store.epoch_file import (
    MAX_ENTRIES,
    NO_END,
    EpochFileError,
    EpochList,
    EpochOrderError,
    decode_epochs,
    encode_epochs,
)

TEXT = b"2\n773307083\n7-7000\n8-8000\n"  # the example in rocketmq-all-5.3.3: CheckpointFile.java
TWO = EpochList.of([(7, 7000), (8, 8000)])


@st.composite
def lists(draw: st.DrawFn) -> EpochList:
    epochs = sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=8)))
    starts = sorted(draw(st.sets(st.integers(0, NO_END - 1), min_size=len(epochs), max_size=len(epochs))))
    return EpochList.of(zip(epochs, starts, strict=True))


def ranges(epochs: EpochList) -> list[tuple[int, int, int]]:
    return [(entry.epoch, entry.start_offset, entry.end_offset) for entry in epochs.entries]


def test_the_text_is_javas() -> None:
    assert encode_epochs(TWO) == TEXT
    assert decode_epochs(TEXT) == TWO


def test_an_entry_ends_where_the_next_starts() -> None:
    assert ranges(TWO) == [(7, 7000, 8000), (8, 8000, NO_END)]
    assert ranges(EpochList()) == []


@given(lists())
def test_a_list_survives_its_text(epochs: EpochList) -> None:
    if epochs.entries:
        assert decode_epochs(encode_epochs(epochs)) == epochs


def test_an_empty_list_is_not_written() -> None:
    with pytest.raises(EpochFileError):
        encode_epochs(EpochList())


def test_checksum_0_is_not_checked() -> None:
    assert decode_epochs(b"2\n0\n7-7000\n8-8000\n") == TWO


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0\n0\n",
        b"2\n773307083\n7-7000\n8-8001\n",
        b"1\n773307083\n7-7000\n8-8000\n",
        b"3\n0\n7-7000\n8-8000\n",
        b"2\n773307083\n7-7000\n8-8000",
        b"2\r\n773307083\r\n7-7000\r\n8-8000\r\n",
        b"two\n0\n7-7000\n8-8000\n",
        b"2\n0\n7-7000\n8-x\n",
        b"2\n0\n7-7000\n-8-8000\n",
        b"2\n0\n8-7000\n7-8000\n",
        b"2\n0\n7-7000\n8-7000\n",
        b"2\n0\n7-7000\n7-8000\n",
        b"1\n0\n2147483648-1\n",
        b"1\n0\n1-9223372036854775807\n",
        b"\0" * 64,
        b"1001\n0\n" + b"".join(b"%d-%d\n" % (n, n) for n in range(1001)),
        b"1" * 70_000,
    ],
)
def test_a_text_that_cannot_be_trusted_is_refused(text: bytes) -> None:
    with pytest.raises(EpochFileError):
        decode_epochs(text)


@given(st.binary(max_size=80) | st.text("0123456789-\n", max_size=60).map(str.encode))
def test_arbitrary_bytes_are_epochs_or_an_epoch_file_error(data: bytes) -> None:
    with contextlib.suppress(EpochFileError):
        assert decode_epochs(data).entries


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_found(at: int, bit: int) -> None:
    damaged = bytearray(TEXT)
    damaged[at] ^= 1 << bit
    with contextlib.suppress(EpochFileError):
        assert decode_epochs(bytes(damaged)) == TWO


@pytest.mark.parametrize(
    ("epoch", "start", "admitted"),
    [(9, 8001, True), (9, 8000, False), (8, 8001, False), (7, 9000, False), (9, 7999, False), (100, NO_END, False)],
)
def test_an_entry_is_appended_if_both_numbers_grow(epoch: int, start: int, admitted: bool) -> None:
    assert TWO.admits(epoch, start) is admitted
    if admitted:
        assert ranges(TWO.append(epoch, start)) == [(7, 7000, 8000), (8, 8000, start), (epoch, start, NO_END)]
    else:
        with pytest.raises(EpochOrderError):
            TWO.append(epoch, start)


def test_the_first_entry_may_be_anything() -> None:
    assert ranges(EpochList().append(3, 0)) == [(3, 0, NO_END)]
    assert not EpochList().admits(-1, 0)
    assert not EpochList().admits(1, -1)
    assert not EpochList().admits(2**31, 0)


def test_no_more_entries_are_kept_than_a_handshake_carries() -> None:
    full = EpochList.of((n, n) for n in range(MAX_ENTRIES))
    more = full.append(5000, 5000)
    assert len(more.entries) == MAX_ENTRIES
    assert (more.entries[0].epoch, more.last_epoch) == (1, 5000)
    with pytest.raises(EpochOrderError):
        EpochList.of((n, n) for n in range(MAX_ENTRIES + 1))


@given(lists(), st.integers(0, NO_END))
def test_cutting_the_log_forgets_what_starts_there_or_later(epochs: EpochList, offset: int) -> None:
    left = epochs.truncate_suffix(offset)
    assert left.starts() == [pair for pair in epochs.starts() if pair[1] < offset]
    assert not left.entries or left.entries[-1].end_offset == NO_END


@given(lists(), st.integers(0, NO_END - 1))
def test_deleting_files_forgets_what_ended_there_or_earlier(epochs: EpochList, offset: int) -> None:
    left = epochs.truncate_prefix(offset)
    assert list(left.entries) == [entry for entry in epochs.entries if entry.end_offset > offset]
    assert left.last_epoch == epochs.last_epoch


@given(lists(), st.integers(-1, NO_END - 1))
def test_an_offset_is_in_the_entry_whose_range_holds_it(epochs: EpochList, offset: int) -> None:
    holding = [entry for entry in epochs.entries if entry.start_offset <= offset < entry.end_offset]
    found = epochs.entry_at(offset)
    assert ([found] if found else []) == holding


def test_entries_are_found_by_epoch() -> None:
    assert [entry and entry.epoch for entry in map(TWO.find, (6, 7, 8, 9))] == [None, 7, 8, None]
    assert [entry and entry.epoch for entry in map(TWO.after, (-1, 6, 7, 8))] == [7, 7, 8, None]
    assert (TWO.last_epoch, EpochList().last_epoch) == (8, -1)


def test_a_list_reads_well_in_a_log() -> None:
    assert (str(TWO), str(EpochList())) == ("7-7000 8-8000", "no epochs")
