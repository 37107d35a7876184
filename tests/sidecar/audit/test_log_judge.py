"""Whose record is wrong: two records at the same place of two logs."""

import pytest

from rocketmq_sidecar.domain.replication.log_judge import Verdict, judge
from tests.records import make_record

PLACE, LEFT = 4096, 1 << 20
WHOLE = make_record(PLACE, b"body", topic=b"ledger", properties=b"KEYS\x01order-17\x02")
NAMES = WHOLE.index(b"ledger")


def changed(start: int, new: bytes) -> bytes:
    return WHOLE[:start] + new + WHOLE[start + len(new) :]


@pytest.mark.parametrize("start", [NAMES, NAMES + 3, len(WHOLE) - 9])
def test_zeros_in_the_names_are_what_a_power_cut_leaves(start: int) -> None:
    lost = changed(start, bytes(3))
    assert judge(lost, WHOLE, PLACE, LEFT) is Verdict.OURS
    assert judge(WHOLE, lost, PLACE, LEFT) is Verdict.DIVERGED, "a master does not find this by its own check"


@pytest.mark.parametrize(
    "other",
    [
        changed(NAMES, b"L"),
        changed(NAMES, b"\0E"),
        make_record(PLACE, b"body", topic=b"ledger", properties=b"KEYS\x01order-17\x02", queue_id=1),
        make_record(PLACE, b"BODY", topic=b"ledger", properties=b"KEYS\x01order-17\x02"),
    ],
)
def test_other_differences_are_left_to_an_operator(other: bytes) -> None:
    assert judge(other, WHOLE, PLACE, LEFT) is Verdict.DIVERGED
    assert judge(WHOLE, other, PLACE, LEFT) is Verdict.DIVERGED


def test_equal_and_damaged_records() -> None:
    damaged = changed(NAMES - 2, b"X")  # a byte of the body
    assert judge(WHOLE, WHOLE, PLACE, LEFT) is Verdict.EQUAL
    assert judge(damaged, WHOLE, PLACE, LEFT) is Verdict.OURS
    assert judge(WHOLE, damaged, PLACE, LEFT) is Verdict.THEIRS
    assert judge(damaged, damaged, PLACE, LEFT) is Verdict.BOTH
