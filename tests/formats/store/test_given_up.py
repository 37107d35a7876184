"""The note of acknowledged messages that are lost: its text, what counts as lost, and what a newer master brings
back."""

import pytest

from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.given_up import (
    MAX_ENTRIES,
    GivenUp,
    GivenUpError,
    GivenUpNotes,
    Missing,
    decode_given_up,
    encode_given_up,
)

LOSS = GivenUp(start=900, end=1000, epoch=5, at_millis=1_790_000_000_000)
SHORT = Missing(end=1000, epoch=4, since=300)


def table(*starts: tuple[int, int]) -> EpochList:
    return EpochList.of(starts)


def test_the_text() -> None:
    text = (
        b'{"givenUp":[{"start":900,"end":1000,"epoch":5,"atMillis":1790000000000}],'
        b'"missing":{"end":1000,"epoch":4,"since":300}}\n'
    )
    notes = GivenUpNotes(given_up=(LOSS,), missing=SHORT)
    assert encode_given_up(notes) == text
    assert decode_given_up(text) == notes
    assert decode_given_up(b"{}") == GivenUpNotes()
    assert str(LOSS) == (
        "the acknowledged messages from 900 to 1000 were given up when epoch 5 began without them, noted"
        " 2026-09-21T14:13:20Z"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"givenUp":[{"start":900}]}',
        b'{"givenUp":[{"start":9,"end":9,"epoch":5,"atMillis":1}]}',
        b'{"givenUp":[{"start":-1,"end":9,"epoch":5,"atMillis":1}]}',
        b'{"givenUp":[{"start":1,"end":9,"epoch":-2,"atMillis":1}]}',
        b'{"missing":{"end":"x"}}',
        encode_given_up(GivenUpNotes(given_up=(LOSS,) * (MAX_ENTRIES + 1))),
        b" " * (1 << 20),
    ],
)
def test_a_damaged_text(data: bytes) -> None:
    with pytest.raises(GivenUpError):
        decode_given_up(data)


@pytest.mark.parametrize(
    ("epochs", "end", "loss"),
    [
        (table((4, 300), (5, 900)), 900, (900, 5)),
        (table((4, 300), (5, 900)), 2000, (900, 5)),  # newer messages are there
        (table((4, 300), (6, 950), (7, 2000)), 3000, (950, 6)),
        (table((4, 900)), 900, (900, 4)),  # the master began its epoch again, from its end
        (table((4, 300)), 920, (920, 5)),  # no bytes of the master's epoch yet
        (table((4, 300)), 1000, None),
        (table((4, 300), (5, 1000)), 1000, None),
        (table((4, 300), (5, 1200)), 2000, None),
    ],
)
def test_what_a_master_lacks_of_what_was_acknowledged(
    epochs: EpochList, end: int, loss: tuple[int, int] | None
) -> None:
    found = SHORT.given_up(epochs, end, 5, 7)
    assert found == (None if loss is None else GivenUp(start=loss[0], end=1000, epoch=loss[1], at_millis=7))


def test_without_known_epochs_only_a_shorter_log_is_a_loss() -> None:
    """Its epoch file was lost too: all that the master has seems new."""
    short, epochs = Missing(end=1000, epoch=-1, since=-1), table((1, 0), (4, 300))
    assert short.given_up(epochs, 1000, 4, 7) is None
    assert short.given_up(epochs, 900, 4, 7) == GivenUp(start=900, end=1000, epoch=4, at_millis=7)


@pytest.mark.parametrize(
    ("epochs", "end", "start"),
    [
        (table((4, 300), (5, 900)), 900, 900),
        (table((4, 300), (5, 900)), 2000, 900),
        (table((4, 300), (8, 900)), 2000, 900),  # the epoch that began without them had no message of its own
        (table((4, 300), (6, 1000)), 2000, None),  # a member that had them came back and was elected
        (table((4, 300), (6, 960)), 2000, 960),  # one that had a part
        (table((4, 300)), 940, 940),  # copied again up to here
        (table((9, 5000)), 9000, 900),  # that part of the table has expired
        (table(), 0, 900),
    ],
)
def test_what_a_newer_master_has_is_not_lost(epochs: EpochList, end: int, start: int | None) -> None:
    left = LOSS.left(epochs, end)
    assert (None if left is None else (left.start, left.end, left.epoch)) == (
        None if start is None else (start, 1000, 5)
    )


def test_the_newest_losses_are_kept() -> None:
    notes = GivenUpNotes(missing=SHORT)
    for number in range(MAX_ENTRIES + 3):
        notes = notes.settled(GivenUp(start=number, end=1000, epoch=5, at_millis=1))
    assert [one.start for one in notes.given_up] == list(range(3, MAX_ENTRIES + 3))
    assert notes.missing is None
    assert notes.settled(None) == notes
