"""What tables say can be compared: RIP-44's examples, and everything that only looks like a contradiction."""

from __future__ import annotations

import msgspec
import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_verify.domain.findings import Kind
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning.lineage import SegmentSizeError, lineage, other_sizes
from rocketmq_verify.domain.planning.points import consistent_point, settled
from tests.verify.logs_kit import log

A, B, C = (ReplicaName(name) for name in "abc")


@pytest.mark.parametrize(
    ("ours", "end", "theirs", "their_end", "expected"),
    [
        pytest.param([(0, 0)], 1000, [(0, 0), (1, 900)], 1200, 900, id="1"),
        pytest.param([(0, 0)], 900, [(0, 0), (1, 1000)], 1000, 900, id="2"),
        pytest.param([(0, 0), (1, 900)], 1200, [(0, 0), (1, 900)], 1500, 1200, id="3"),
        pytest.param([(0, 0), (1, 1000)], 1100, [(0, 0), (2, 900)], 1200, 900, id="4"),
        pytest.param([(0, 0), (1, 700), (2, 900)], 1000, [(0, 0), (1, 700), (3, 800)], 1200, 800, id="5"),
        pytest.param([(0, 0), (1, 1000)], 1200, [(0, 0), (2, 1100)], 1300, 1000, id="6"),
        pytest.param([(1, 0), (2, 900)], 800, [(1, 0), (2, 900)], 1200, 800, id="entries behind the end"),
        pytest.param([], 800, [], 700, 700, id="no tables"),
        pytest.param([], 800, [(1, 0)], 700, None, id="one table"),
        pytest.param([(1, 0)], 800, [(2, 0)], 700, None, id="two first masters"),
    ],
)
def test_consistent_points(
    ours: list[tuple[int, int]], end: int, theirs: list[tuple[int, int]], their_end: int, expected: int | None
) -> None:
    a, b = log("a", ours, end), log("b", theirs, their_end)
    assert consistent_point(a, b) == consistent_point(b, a) == expected


def test_the_reference_has_the_highest_epoch_then_the_longest_log() -> None:
    old, new, longer = log("a", end=5000), log("b", [(1, 0), (2, 900)], 1000), log("c", [(1, 0), (2, 900)], 1200)
    seen = lineage([old, new, longer])
    assert seen.reference == C
    assert seen.confirm_offset == 1200  # what the old master noted for itself counts only up to 900
    assert {zone.replica: (zone.extent, zone.sure) for zone in seen.zones} == {
        A: (Extent(0, 1200), 900),
        B: (Extent(0, 1000), 1000),
        C: (Extent(0, 1200), 1200),
    }


def test_a_strict_replicas_note_is_a_promise() -> None:
    old, new = log("a", end=1000, strict=True), log("b", [(1, 0), (2, 900)], 1200, strict=True)
    zone = lineage([old, new]).zone(A)
    assert zone is not None
    assert (zone.sure, zone.promised) == (900, 1000)


def test_what_is_not_confirmed_is_not_compared() -> None:
    seen = lineage([log("a", end=1000, confirm=700), log("b", end=900, confirm=600)])
    assert [zone.extent for zone in seen.zones] == [Extent(0, 700), Extent(0, 700)]
    assert seen.findings == ()


def test_files_of_two_sizes_are_refused_with_both_names() -> None:
    with pytest.raises(SegmentSizeError, match=r"of a have 1000 bytes, those of b 2000"):
        lineage([log("a"), log("b", size=2000)])


def test_one_log_with_files_of_another_size_does_not_stop_the_others() -> None:
    odd = other_sizes([log("a"), log("b"), log("c", size=2000)])
    assert list(odd) == [C]
    assert "files of a have 1000 bytes, those of c 2000" in odd[C]
    assert other_sizes([log("a"), log("c", size=2000)]) == {}
    assert other_sizes([log("a"), log("b"), log("c", size=2000), log("d", size=2000)]) == {}
    cut = msgspec.structs.replace(log("c", end=1300, begin=1000), segment_size=437)
    assert other_sizes([log("a", end=1900), log("b", end=1900), cut]) == {}, "a file that was cut"


def test_nothing_and_empty_logs() -> None:
    assert lineage([]).zones == ()
    empty = lineage([log("a", [], 0), log("b", [], 0)])
    assert (empty.reference, empty.findings) == (None, ())
    new = lineage([log("a"), log("b", [], 0)])
    assert [one.kind for one in new.findings] == [Kind.LAGGING]


def test_missing_files_are_reported_as_ranges() -> None:
    seen = lineage([log("a", end=9500), log("b", end=9500, lacks=[2000, 3000, 7000], begin=1000), log("c", end=9500)])
    assert [(one.kind, one.replicas, one.extent) for one in seen.findings] == [
        (Kind.MISSING_SEGMENT, (B,), Extent(2000, 4000)),
        (Kind.MISSING_SEGMENT, (B,), Extent(7000, 8000)),
    ]
    assert lineage([log("a", end=9500), log("b", end=9500, begin=8000)]).findings == ()


def test_files_that_end_early_are_reported_without_reading_them() -> None:
    short = msgspec.structs.replace(log("b", end=9500), short=((2000, 300), (9000, 600)))
    whole = [log("a", end=9500), log("c", end=9500)]
    (found,) = lineage([*whole, short]).findings
    assert (found.kind, found.replicas, found.extent) == (Kind.MISSING_SEGMENT, (B,), Extent(2300, 3000))
    assert found.segment == 2000
    assert lineage([*whole, short], [*whole, short]).findings == (found,)
    assert lineage([*whole, short], [*whole, log("b", end=9500)]).findings == (), "it was being copied"


def test_a_replica_that_is_behind_at_both_looks_lags() -> None:
    before = [log("a", end=1000), log("b", end=800)]
    assert [one.kind for one in lineage(before).findings] == [Kind.LAGGING]
    assert lineage(before, [log("a", end=2000), log("b", end=1100)]).findings == ()
    (found,) = lineage(before, [log("a", end=2000), log("b", end=900)]).findings
    assert found.extent == Extent(900, 1000)


@pytest.mark.parametrize(("strict", "kind"), [(False, Kind.LOST_COPY), (True, Kind.LOST_CONFIRMED)])
def test_a_replica_that_lost_what_it_had_noted_and_others_have(strict: bool, kind: Kind) -> None:
    whole, short = log("a", end=1000, confirm=600), log("b", end=800, confirm=900, strict=strict)
    for looks in (([whole, short],), ([whole, short], [whole, short])):
        (found,) = lineage(*looks).findings
        assert (found.kind, found.replicas, found.extent) == (kind, (B,), Extent(800, 900))
        assert "b ends at 800 and has noted 900 as confirmed: it lost" in found.detail


def test_a_replica_that_was_cut_or_caught_up_between_two_looks_has_lost_nothing() -> None:
    others = [log("a", end=1000, confirm=900)]
    cut = lineage([*others, log("b")], [*others, log("b", end=950, confirm=950)])
    assert cut.findings == ()
    caught_up = lineage([*others, log("b", end=800, confirm=900)], [*others, log("b", end=920, confirm=900)])
    assert caught_up.findings == ()


@pytest.mark.parametrize("ends", [(600, 600, 600), (600, 700, 600), (0, 0, 0)])
def test_bytes_that_were_confirmed_and_that_no_replica_has_are_lost(ends: tuple[int, int, int]) -> None:
    logs = [log(name, end=end, confirm=1000) for name, end in zip("abc", ends, strict=True)]
    for looks in ((logs,), (logs, logs)):
        found = lineage(*looks).findings
        assert (found[0].kind, found[0].replicas) == (Kind.LOST_CONFIRMED, (A, B, C))
        assert found[0].extent == Extent(max(ends), 1000)
        assert [(one.kind, one.replicas) for one in found[1:]] == [
            (Kind.LOST_COPY, (name,)) for name, end in zip((A, B, C), ends, strict=True) if end < max(ends)
        ]


def test_of_lost_bytes_those_that_noted_them_are_named() -> None:
    logs = [log("a", end=600, confirm=1000), log("b", end=600, confirm=600), log("c", end=500, confirm=500)]
    assert [(one.kind, one.replicas, one.extent) for one in lineage(logs).findings] == [
        (Kind.LOST_CONFIRMED, (A,), Extent(600, 1000)),
        (Kind.LAGGING, (C,), Extent(500, 600)),
    ]


@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize(("strict", "kind"), [(False, Kind.LOST_COPY), (True, Kind.LOST_CONFIRMED)])
def test_a_note_of_one_replica_alone_may_be_older_than_a_cut(strict: bool, kind: Kind, looks: int) -> None:
    """Java writes its note some time after it has cut its log."""
    epochs = [(1, 0), (2, 600)]
    logs = [log("a", epochs, 620, confirm=620), log("b", epochs, 610, confirm=1000, strict=strict)]
    found = lineage(*[logs] * looks).findings
    assert {(one.kind, one.replicas) for one in found} == {(kind, (B,))}
    assert [one.extent for one in found] == ([Extent(620, 1000), Extent(610, 620)] if strict else [Extent(610, 1000)])
    if not strict:
        assert found[0].detail == (
            "b ends at 610 and has noted 1000 as confirmed: it lost the bytes in between (cut, or a crash; or its note "
            "is older than a cut); no log that was read is that long"
        )
    everyone = [log(name, epochs, 610, confirm=1000, strict=strict) for name in "ab"]
    (lost,) = lineage(*[everyone] * looks).findings
    assert (lost.kind, lost.replicas, lost.extent) == (Kind.LOST_CONFIRMED, (A, B), Extent(610, 1000))


def test_a_replica_beyond_the_end_of_a_newer_epoch_has_a_stale_tail() -> None:
    old, new = log("a", end=1000), log("b", [(1, 0), (2, 900)], 950)
    (found,) = lineage([old, new]).findings
    assert (found.kind, found.replicas, found.extent) == (Kind.STALE_TAIL, (A,), Extent(950, 1000))
    # a slave read later than its master, which was elected again
    assert lineage([old, new], [log("a", end=1400), log("b", [(1, 0), (2, 900)], 1400)]).findings == ()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(log("a", [(1, 0), (5, 1200)], 1300), log("b", [(1, 0), (5, 900)], 1150), id="a restarted master"),
        pytest.param(log("a", [(1, 0), (5, 900)], begin=950), log("b", [(1, 0), (5, 901)]), id="in front of the log"),
        pytest.param(log("a", [(1, 0), (3, 500)]), log("b", [(1, 0), (4, 600)]), id="two masters, one stale"),
        pytest.param(
            log("a", [(1, 0), (5, 900)], confirm=800), log("b", [(1, 0), (5, 950)], confirm=800), id="above C"
        ),
        pytest.param(log("a", [(1006, 900)]), log("b", [(1, 0), (2, 300)], 700), id="forgotten"),
    ],
)
def test_no_contradiction(a: object, b: object) -> None:
    kinds = {one.kind for one in lineage([a, b]).findings}  # type: ignore[list-item] # parametrized
    assert Kind.DIVERGENT_HISTORY not in kinds


def test_a_contradiction_names_the_minority_or_all() -> None:
    right, wrong = [(1, 0), (5, 500)], [(1, 0), (5, 600)]
    (found,) = lineage([log("a", right), log("b", wrong), log("c", right)]).findings
    assert (found.replicas, found.epoch, found.extent) == ((B,), 5, Extent(500, 600))
    assert found.detail == "epoch 5 has two starts below the confirm offset 1000: 5-500 in a and c, 5-600 in b"
    (found,) = lineage([log("a", right), log("b", wrong)]).findings
    assert found.replicas == (A, B)


def test_settled_is_what_both_looks_have() -> None:
    before = log("a", [(1, 0)], 5000)
    grown = log("a", [(1, 0), (2, 6000)], 9000, begin=2000)
    (same,) = settled([before], [grown])
    assert same.extent == Extent(2000, 5000)
    cut = log("a", [(1, 0), (2, 3000)], 9000)  # was cut to 3000 and rewritten
    (same,) = settled([before], [cut])
    assert same.extent == Extent(0, 3000)
    assert settled([before], []) == ()
    assert settled([before], [log("a", broker_id=7)]) == ()
    assert settled([before], [log("a", [(1, 0)], 9000, begin=6000)]) == ()
    assert settled([log("a", [(1, 0)], 5000)], [log("a", [(9, 0)], 5000)]) == ()


def test_a_rebuilt_replica_is_moved_and_no_finding() -> None:
    seen = lineage([log("a"), log("b")], [log("a"), log("b", [], 0, broker_id=9)])
    assert (seen.moved, seen.findings) == ((B,), ())


def test_what_replicas_have_noted_as_given_up_is_told_once_for_each_epoch() -> None:
    def noted(name: str, *losses: tuple[int, int, int]) -> ReplicaLog:
        given_up = tuple(GivenUp(start=start, end=end, epoch=epoch, at_millis=7) for start, end, epoch in losses)
        return msgspec.structs.replace(log(name, end=9000, confirm=9000), given_up=given_up)

    logs = [noted("a", (600, 900, 3), (2000, 2100, 7)), noted("b", (600, 1000, 3)), noted("c")]
    for looks in ((logs,), (logs, logs)):
        assert [(one.kind, one.replicas, one.extent, one.epoch) for one in lineage(*looks).findings] == [
            (Kind.LOST_CONFIRMED, (A, B), Extent(600, 1000), 3),
            (Kind.LOST_CONFIRMED, (A,), Extent(2000, 2100), 7),
        ]
    assert lineage(logs, [noted("a"), noted("b"), noted("c")]).findings == (), "an operator has deleted the notes"
    empty = msgspec.structs.replace(
        noted("a", (600, 900, 3)), min_offset=0, max_offset=0, confirm_offset=0, segments=()
    )
    assert [one.extent for one in lineage([empty]).findings] == [Extent(600, 900)]
