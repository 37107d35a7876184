"""Which replica's log is checked, and what is left when one cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.checks import check_queues, check_structure
from rocketmq_verify.domain.inquiry.compare import Tally
from rocketmq_verify.domain.planning.chunks import plan
from rocketmq_verify.domain.planning.lineage import Lineage, lineage
from rocketmq_verify.engine.scanner import Errors, Queues
from rocketmq_verify.sources.source import UNSERVED, SourceOptions
from rocketmq_verify.sources.work import Place, Work, parse_place
from tests.verify.logs_kit import log

A, B = parse_place("a=sidecar:h:1"), parse_place("b=sidecar:h:2")
ALL = Extent(0, 1000)


class Refusing:
    """Finds every log sound, where it can check it."""

    def __init__(self, **errors: str) -> None:
        self._errors = errors
        self.asked: list[tuple[str, tuple[Extent, ...]]] = []

    def compare_digests(self, places: Sequence[Place], work: Work, lineage: Lineage) -> tuple[Tally, Errors]:
        raise NotImplementedError

    def structures(self, place: Place, work: Work) -> tuple[list[Structure], Errors]:
        extents = work.plan.pieces
        self.asked.append((place.name, extents))
        if place.name in self._errors:
            return [], {place.name: self._errors[place.name]}
        return [Structure(extent=one, first=one.start, next=one.end, records=1) for one in extents], {}

    def queues(self, place: Place, work: Work) -> tuple[Queues, Errors]:
        failed = {one.name: self._errors[one.name] for one in work.queues_of if one.name in self._errors}
        return Queues(units=1), failed


def test_another_replica_is_checked_where_one_cannot_be() -> None:
    of = lineage([log("a"), log("b")])
    work = Work.of(plan(of, [ALL], chunk_size=4096), of, SourceOptions())
    scanner = Refusing(a=UNSERVED)
    found = check_structure(scanner, (A, B), work, of, known=())
    assert scanner.asked == [("a", (ALL,)), ("b", (ALL,))]
    assert (found.unchecked, found.suspects) == ((), ())
    assert found.structure is not None
    assert found.structure.extent == ALL


@pytest.mark.parametrize(("why", "again"), [(UNSERVED, ()), ("no answer", (ALL,))])
def test_what_no_replica_could_check_is_told(why: str, again: tuple[Extent, ...]) -> None:
    """It is checked again by the next run, unless that would only read everything again and again."""
    of = lineage([log("a"), log("b")])
    work = Work.of(plan(of, [ALL], chunk_size=4096), of, SourceOptions())
    scanner = Refusing(a=why, b=why)
    found = check_structure(scanner, (A, B), work, of, known=())
    assert (found.unchecked, found.suspects, found.structure) == ((f"a: {why}", f"b: {why}"), again, None)
    queues = check_queues(scanner, (A, B), work, of, known=())
    assert (queues.unchecked, queues.suspects) == ((f"a: {why}", f"b: {why}"), again)


def test_bytes_that_one_replica_alone_has_are_checked_there() -> None:
    of = lineage([log("a", end=9000), log("b", begin=5000, end=9000)])
    work = Work.of(plan(of, [Extent(2000, 9000)], chunk_size=4096), of, SourceOptions())
    assert work.plan.alone == (Extent(2000, 5000),)
    scanner = Refusing()
    check_structure(scanner, (B, A), work, of, known=())
    assert scanner.asked == [("b", (Extent(5000, 9000),)), ("a", (Extent(2000, 5000),))]


def test_a_record_that_began_before_is_checked_too() -> None:
    """Files of 1000 bytes: none reaches over their borders."""
    of = lineage([log("a"), log("b")])
    work = Work.of(plan(of, [Extent(400, 1000)], chunk_size=4096), of, SourceOptions())
    scanner = Refusing()
    check_structure(scanner, (A, B), work, of, known=())
    assert scanner.asked == [("a", (Extent(0, 400), Extent(400, 1000)))]
