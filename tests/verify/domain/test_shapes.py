"""Findings of consume queues: bounded, in the log's order, the named ones first."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueCheck, QueueFault, QueueReason
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.domain.shapes import MOST_NAMED, bad_queues
from rocketmq_verify.domain.verdict import in_order
from tests.verify.logs_kit import log

A = ReplicaName("a")


def findings(faults: Sequence[QueueFault], reported: Sequence[Extent] = ()) -> tuple[Finding, ...]:
    check = QueueCheck(units=1000, lag=0, faults=tuple(faults), fault_count=len(faults))
    seen = lineage([log("a", end=90_000), log("b", end=90_000)])
    return in_order(bad_queues([(A, "T", 3, Extent(5000, 90_000), check)], seen, reported))


def fault(number: int) -> QueueFault:
    return QueueFault(number, 6000 + 100 * number, QueueReason.NO_UNIT, "no unit has its number")


def test_a_fault_with_a_name_comes_before_those_that_were_only_counted() -> None:
    found = findings([fault(number) for number in range(MOST_NAMED + 84)])
    assert [one.record is not None for one in found] == [True] * MOST_NAMED + [False]
    assert found[-1].detail == "a: 84 more units of consume queues do not point to their messages, from offset 7600 on"


def test_a_gap_is_where_the_checked_bytes_are() -> None:
    (found,) = findings([QueueFault(7, None, QueueReason.GAP, "3 units are missing")])
    assert found.extent.start == 5000


def test_what_is_reported_with_the_right_copy_is_not_reported_again() -> None:
    assert len(findings([fault(1), fault(2)], [Extent(6050, 6150)])) == 1
