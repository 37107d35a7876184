"""Which copy is right, and why."""

from __future__ import annotations

import pytest

from rocketmq_formats.store.record_crc import reserve_record_crc, seal_record
from rocketmq_verify.domain.findings import Copy
from rocketmq_verify.domain.inquiry.judge import by_the_ledger, judge
from rocketmq_verify.domain.model import ReplicaName
from tests.records import make_blank, make_record

A, B, C = (ReplicaName(name) for name in "abc")
AT = 5000


def record(body: bytes = b"hello" * 20, properties: bytes = b"KEYS\x01k\x02", at: int = AT) -> bytes:
    return make_record(at, body, queue_id=1, queue_offset=7, properties=properties)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


GOOD = record()


def judged(*copies: bytes) -> list[tuple[bool | None, str]]:
    contents = {ReplicaName("abc"[index]): data for index, data in enumerate(copies)}
    return [(copy.right, copy.reason) for copy in judge(contents, AT, len(GOOD), len(GOOD))]


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (0, "its size field has"),
        (5, "its magic is wrong"),
        (9, "body CRC wrong"),
        (35, "its own offset field has 5001"),
        (87, "its lengths do not add up"),
        (100, "body CRC wrong"),
    ],
)
def test_a_copy_that_fails_its_own_check_is_wrong_in_any_company(at: int, reason: str) -> None:
    bad = flipped(GOOD, at)
    found = judged(bad, GOOD)
    assert found[1] == (True, "body CRC right")
    assert (found[0][0], reason in found[0][1]) == (False, True)
    assert [right for right, _ in judged(bad, bad, GOOD)] == [False, False, True]


def test_most_decide_where_nothing_is_checked() -> None:
    assert judged(GOOD, flipped(GOOD, 20), GOOD) == [
        (True, "body CRC right, and most replicas have this copy: a, c"),
        (False, "body CRC right, but most replicas have another copy"),
        (True, "body CRC right, and most replicas have this copy: a, c"),
    ]


def test_of_two_equal_witnesses_neither_wins() -> None:
    assert judged(GOOD, flipped(GOOD, 20)) == [
        (None, "body CRC right, but also in b, which differs: it is unknown which is right"),
        (None, "body CRC right, but also in a, which differs: it is unknown which is right"),
    ]
    # a third one that is broken is no help
    assert [right for right, _ in judged(GOOD, flipped(GOOD, 20), flipped(GOOD, 100))] == [None, None, False]
    assert [right for right, _ in judged(GOOD, flipped(GOOD, 20), flipped(GOOD, 21))] == [None, None, None]


def test_no_copy_is_right() -> None:
    assert [right for right, _ in judged(flipped(GOOD, 100), flipped(GOOD, 101))] == [False, False]
    assert judged(bytes(len(GOOD)), flipped(GOOD, 100))[0] == (False, "nothing but zeros")


def test_a_checksum_of_the_whole_record_beats_the_majority() -> None:
    sealed = seal_record(record(body=b"x" * 50, properties=reserve_record_crc(b"KEYS\x01k\x02")))
    bad = flipped(sealed, 20)
    contents = {A: bad, B: bad, C: sealed}
    found = judge(contents, AT, len(sealed), len(sealed))
    assert [(copy.right, copy.reason) for copy in found] == [
        (False, "record CRC wrong"),
        (False, "record CRC wrong"),
        (True, "record CRC right"),
    ]


def test_two_sound_records_of_different_sizes_are_both_possible() -> None:
    other = record(body=b"other" * 30)
    contents = {A: GOOD + bytes(200), B: other + bytes(200)}
    assert [copy.right for copy in judge(contents, AT, len(GOOD), len(GOOD))] == [None, None]


def test_blanks() -> None:
    good = make_blank(500)
    found = judge({A: good, B: flipped(good, 2)}, AT, 500, 500)
    assert (found[0].right, found[0].reason) == (True, "a blank of 500 bytes")
    assert found[1].right is False


def test_the_context_is_64_bytes_around_the_first_difference() -> None:
    found = judge({A: GOOD, B: flipped(GOOD, 90)}, AT, len(GOOD), len(GOOD))
    assert [copy.hex_offset for copy in found] == [AT + 74, AT + 74]
    assert found[0].hex == GOOD[74:138].hex()
    assert len(found[1].hex) == 128


def test_a_record_that_continues_beyond_the_confirm_offset() -> None:
    found = judge({A: GOOD[:60], B: flipped(GOOD, 20)[:60], C: GOOD}, AT, len(GOOD), 60)
    assert [copy.right for copy in found] == [True, False, True]


def by_ledger(
    contents: dict[ReplicaName, bytes], as_before: frozenset[ReplicaName], size: int = len(GOOD)
) -> tuple[Copy, ...]:
    old = by_the_ledger(contents, AT, size, size, as_before=as_before)
    return judge(contents, AT, size, size, old=old)


def test_what_an_earlier_run_read_is_right_against_a_majority() -> None:
    other = record(properties=b"KEYS\x01x\x02")
    contents = {A: other, B: other, C: GOOD}
    copies = by_ledger(contents, frozenset({C}))
    assert [(copy.right, copy.reason) for copy in copies] == [
        (False, "body CRC right, not as an earlier run read it"),
        (False, "body CRC right, not as an earlier run read it"),
        (True, "body CRC right, as an earlier run read it"),
    ]
    broken = [flipped(one, 100) for one in (other, GOOD)]
    copies = by_ledger({A: broken[0], B: broken[1]}, frozenset({B}))
    assert [copy.right for copy in copies] == [False, True]


def test_an_earlier_run_may_have_read_what_was_damaged() -> None:
    """All replicas had it so; then two were mended."""
    contents = {A: GOOD, B: GOOD, C: flipped(GOOD, 100)}
    copies = by_ledger(contents, frozenset({C}))
    assert [copy.right for copy in copies] == [True, True, False]
    sealed = seal_record(record(properties=reserve_record_crc(b"KEYS\x01k\x02")))
    contents = {A: sealed, B: flipped(sealed, 20)}
    copies = by_ledger(contents, frozenset({B}), size=len(sealed))
    assert [copy.right for copy in copies] == [True, False]


def test_a_ledger_that_knows_two_copies_decides_nothing() -> None:
    contents = {A: GOOD, B: record(properties=b"KEYS\x01x\x02")}
    for known in ({A, B}, set[ReplicaName]()):
        assert by_the_ledger(contents, AT, len(GOOD), len(GOOD), as_before=known) is None
    copies = by_ledger(contents, frozenset({A, B}))
    assert [copy.right for copy in copies] == [None, None]
