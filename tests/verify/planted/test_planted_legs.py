"""A run that reads in legs finds what one without finds, and one that ends early says how far it came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rocketmq_verify.domain.findings import Finding, Kind, Severity
from rocketmq_verify.domain.verdict import Result
from tests.verify.planted.faults import CHUNK, SEGMENT, WEEK_MS, Group, verify
from tests.verify.planted.planted_kit import deterministic, group, kinds, part
from tests.verify.planted.test_planted_life import Life

few = hypothesis_settings(deterministic, max_examples=20)


def told(findings: tuple[Finding, ...]) -> set[tuple[Kind, tuple[str, ...], int, str]]:
    return {(one.kind, one.replicas, one.extent.start, one.detail) for one in findings}


@few
@given(
    places=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 59)), min_size=1, max_size=4),
    where=st.sampled_from(["size", "magic", "crc", "head", "times", "body", "tail"]),
    leg=st.sampled_from([1, SEGMENT, 2 * SEGMENT]),
)
def test_the_same_damage_is_found(places: list[tuple[str, int]], where: str, leg: int) -> None:
    made = group()
    for number, (name, index) in enumerate(places):
        made[name].flip(part(made, index, where, number))
    assert told(verify(made.replicas, leg=leg).findings) == told(verify(made.replicas).findings)


def test_a_stale_tail_over_several_legs_is_one() -> None:
    made = Group(strict=False).fill(20)
    old = made.master
    for _ in range(60):
        made.put(700)  # only the master has these
    made.elect(made["b"])
    for _ in range(90):
        made.put(700)
    made.copy(made["c"])
    assert old.end > made.messages[0].end + 3 * SEGMENT
    whole, legs = verify(made.replicas), verify(made.replicas, leg=1)
    assert Kind.STALE_TAIL in kinds(whole)
    assert told(legs.findings) == told(whole.findings)
    assert legs.verdict.result is whole.verdict.result


@few
@given(seed=st.integers(0, 10**6), strict=st.booleans(), replicas=st.integers(2, 4), every=st.integers(1, 7))
def test_no_life_of_a_group_raises_an_alarm(seed: int, strict: bool, replicas: int, every: int) -> None:
    life = Life(Group(replicas, strict=strict), seed)
    for _ in range(60):
        life.step()
    marks = None
    for number in range(3):
        run = verify(
            life.group.replicas, meanwhile=life.step, every=every, marks=marks, full=True, leg=1, most_legs=number
        )
        assert not [one for one in run.findings if one.severity is Severity.MISMATCH]
        marks = run.marks


def test_a_run_that_ends_early_is_continued() -> None:
    made = group(messages=200)
    end, marks = made.master.end, None
    ends: list[int | None] = []
    for number in range(1, 40):
        run = verify(made.replicas, marks=marks, leg=1, most_legs=2, now_ms=number)
        marks = run.marks
        assert run.verdict.result is Result.ALIGNED
        assert run.plan.expected_bytes <= 2 * SEGMENT
        ends.append(run.verdict.aligned_up_to)
        if ends[-1] == end:
            break
        assert f"are not read yet, the next run continues at {ends[-1]}" in run.verdict.summary
        assert not run.verdict.full
    assert ends == [*range(2 * SEGMENT, end, 2 * SEGMENT), end]
    assert verify(made.replicas, marks=marks, now_ms=50).plan.pieces == ()


def test_a_full_run_that_ends_early_is_continued() -> None:
    made = group(messages=200)
    marks = verify(made.replicas, now_ms=1).marks
    made["b"].flip(made.messages[150].body_start)
    found = []
    for number in range(2, 40):
        run = verify(made.replicas, marks=marks, leg=1, most_legs=1, full=True, now_ms=number)
        marks, found = run.marks, [*found, *kinds(run)]
        if found:
            break
    assert number == 2 + made.messages[150].offset // SEGMENT
    assert run.marks.last_full_ms is None or not run.verdict.full


@pytest.mark.parametrize("seen", [True, False])
def test_what_was_not_read_in_time_is_never_aligned(seen: bool) -> None:
    """Not what was read too long ago, and not what was never read."""
    made = group(messages=200)
    run = verify(made.replicas, now_ms=1, leg=1, most_legs=0 if seen else 1)
    assert run.verdict.result is Result.ALIGNED
    late = verify(made.replicas, marks=run.marks, leg=1, most_legs=1, now_ms=2 + WEEK_MS)
    assert late.verdict.result is Result.UNVERIFIED
    assert late.verdict.exit_code == 3
    (finding,) = late.findings
    assert finding.kind is Kind.NOT_READ_IN_TIME
    assert "were not read within 7 days; the oldest is at" in finding.detail
    assert late.verdict.aligned_up_to is not None
    assert late.verdict.aligned_up_to <= finding.extent.start + CHUNK
    whole = verify(made.replicas, marks=late.marks, now_ms=3 + WEEK_MS)
    assert whole.verdict.result is Result.ALIGNED
    assert whole.findings == ()


def test_known_damage_is_read_before_new_bytes_and_is_never_forgotten() -> None:
    made = group(messages=60)
    bad = [made.messages[10].body_start, made.messages[50].body_start]
    for place in bad:
        made["b"].flip(place)
    marks = verify(made.replicas, now_ms=1).marks
    assert bad[1] > bad[0] + SEGMENT
    made["b"].flip(bad[0])
    for _ in range(200):
        made.put(700)
    first = verify(made.replicas, marks=marks, leg=1, most_legs=1, now_ms=2)
    assert first.plan.pieces[0].start <= bad[0] < first.plan.pieces[0].end
    assert (first.verdict.result, first.verdict.exit_code) == (Result.UNVERIFIED, 3)
    assert "were damaged, and were not read again: the time was up" in first.verdict.summary
    second = verify(made.replicas, marks=first.marks, leg=1, most_legs=1, now_ms=3)
    assert second.verdict.result is Result.MISMATCH
