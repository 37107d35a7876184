"""Clean logs give no finding, whatever their group lives through, and what was read before is not read again.

The logs live: they grow, expire, are cut and led by others between any two questions of a run.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Kind, Severity
from rocketmq_verify.domain.inquiry.watermarks import Watermarks, ages
from rocketmq_verify.domain.model import ReadRequest
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.domain.verdict import Result
from tests.verify.planted.faults import Group, Replica, verify
from tests.verify.planted.planted_kit import deterministic, group, kinds


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_clean_logs_are_aligned(replicas: int, strict: bool) -> None:
    made = group(replicas, strict=strict)
    run = verify(made.replicas)
    assert run.findings == ()
    assert run.verdict.result is Result.ALIGNED
    assert run.verdict.aligned_up_to == made.master.end
    assert (run.verdict.epoch, run.verdict.exit_code) == (1, 0)
    assert run.tally.bytes == made.master.end


class Life:
    """Random happenings to a group, none of which is damage."""

    def __init__(self, made: Group, seed: int) -> None:
        self.group, self.random = made, Random(seed)

    def step(self) -> None:
        getattr(self, self.random.choice(self.happenings))()

    happenings = (
        *["put"] * 6, *["copy"] * 6, "fail_over", "elect_again", "expire", "rebuild", "restart_slave", "sync",
        "lose_end",
    )  # fmt: skip

    def slave(self) -> Replica:
        return self.random.choice(self.group.slaves)

    def put(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.group.put(self.random.randint(0, 2500))

    def copy(self) -> None:
        self.group.copy(self.slave(), self.random.choice([None, 100, 1000, 5000]))

    def sync(self) -> None:
        self.group.sync()

    def fail_over(self) -> None:
        to = self.slave()
        confirmed = max(one.confirm for one in self.group.replicas)
        whole = not self.group.messages or to.end in {0, *(message.end for message in self.group.messages)}
        # a slave that has not heard of an epoch makes a table without it when it is elected: an official broker's bug,
        # after which logs do differ
        if to.end and whole and to.name not in self.group.told_late and (not self.group.strict or to.end >= confirmed):
            self.group.elect(to)

    def elect_again(self) -> None:
        self.group.elect(self.group.master)

    def restart_slave(self) -> None:
        self.group.connected.discard(self.slave().name)

    def expire(self) -> None:
        self.group.expire(self.random.choice(self.group.replicas))

    def rebuild(self) -> None:
        if not self.group.strict or len(self.group.replicas) > 2:
            self.group.rebuild(self.slave())

    def lose_end(self) -> None:
        """A machine stops before its last bytes are on disk."""
        one = self.slave()
        self.group.connected.discard(one.name)
        one.end = max(one.min, min(one.end, max(one.end - self.random.randint(0, 500), one.confirm)))


@deterministic
@given(seed=st.integers(0, 10**6), strict=st.booleans(), replicas=st.integers(2, 4), every=st.integers(1, 7))
def test_no_life_of_a_group_raises_an_alarm(seed: int, strict: bool, replicas: int, every: int) -> None:
    life = Life(Group(replicas, strict=strict), seed)
    for _ in range(60):
        life.step()
    at_rest = verify(life.group.replicas)
    assert not [one for one in at_rest.findings if one.severity is Severity.MISMATCH]
    marks = at_rest.marks
    for number in range(4):
        run = verify(
            life.group.replicas,
            meanwhile=life.step,
            every=every,
            marks=marks,
            reread_ms=4_000,
            now_ms=2_000 + number * 1_000,
        )
        assert not [one for one in run.findings if one.severity is Severity.MISMATCH]
        marks = run.marks


@pytest.mark.parametrize(("seed", "strict", "replicas", "every"), [(10056, False, 2, 5), (10718, False, 4, 2)])
def test_what_is_equal_again_when_it_is_read_is_no_finding(seed: int, strict: bool, replicas: int, every: int) -> None:
    """A log that was cut and copied again while everything was read again."""
    life = Life(Group(replicas, strict=strict), seed)
    for _ in range(60):
        life.step()
    marks = verify(life.group.replicas).marks
    for _ in range(4):
        run = verify(life.group.replicas, meanwhile=life.step, every=every, marks=marks, full=True)
        assert not [one for one in run.findings if one.severity is Severity.MISMATCH]
        marks = run.marks


@deterministic
@given(seed=st.integers(0, 10**6), every=st.integers(1, 7))
def test_a_strict_group_under_load_has_no_finding_at_all(seed: int, every: int) -> None:
    made = group()
    life = Life(made, seed)

    def work() -> None:
        life.put()
        made.sync()

    run = verify(made.replicas, meanwhile=work, every=every)
    assert run.findings == ()
    assert run.verdict.result is Result.ALIGNED


def test_a_second_run_reads_what_is_new_and_a_third_what_was_bad() -> None:
    made = group()
    first = verify(made.replicas)
    end = made.master.end
    for _ in range(10):
        made.put()
    made.sync()
    second = verify(made.replicas, marks=first.marks)
    assert list(second.plan.pieces) == [Extent(end, made.master.end)]
    made["b"].flip(made.messages[30].body_start)
    assert verify(made.replicas, marks=second.marks).findings == ()
    scrub = verify(made.replicas, marks=second.marks, full=True, now_ms=5_000)
    assert kinds(scrub) == [Kind.CORRUPT_RECORD]
    assert scrub.marks.last_full_ms == 5_000
    again = verify(made.replicas, marks=scrub.marks)
    assert kinds(again) == [Kind.CORRUPT_RECORD]
    assert again.plan.expected_bytes <= 2 * 4096
    made["b"].flip(made.messages[30].body_start)
    mended = verify(made.replicas, marks=again.marks)
    assert mended.findings == ()
    assert mended.marks.suspects == ()


def ages_of(made: Group, marks: Watermarks) -> tuple[Aged, ...]:
    logs = [replica.log() for replica in made.replicas]
    return ages(marks, logs, lineage(logs), now_ms=10**6)


def test_damage_that_was_found_is_read_again_after_its_replica_was_away() -> None:
    made = group()
    made["b"].flip(made.messages[30].body_start)
    marks = verify(made.replicas).marks
    without_b = [made["a"], made["c"]]
    for _ in range(3):
        away = verify(without_b, marks=marks)
        assert away.findings == ()
        assert away.plan.expected_bytes <= 2 * 4096
        marks = away.marks
    back = verify(made.replicas, marks=marks)
    assert kinds(back) == [Kind.CORRUPT_RECORD]
    made["b"].flip(made.messages[30].body_start)
    assert verify(made.replicas, marks=back.marks).marks.suspects == ()


def test_what_a_replica_was_not_there_for_is_read_when_it_is_back() -> None:
    made = group()
    marks = verify(made.replicas, now_ms=1_000).marks
    marks = verify([made["a"], made["c"]], marks=marks, full=True, now_ms=5_000).marks
    made["b"].flip(made.messages[30].body_start)
    last = ages_of(made, marks)
    assert {age.since_ms for age in last} == {1_000}
    late = verify(made.replicas, marks=marks, reread_ms=10_000, now_ms=11_000)
    assert kinds(late) == [Kind.CORRUPT_RECORD]
    assert {age.since_ms for age in ages_of(made, late.marks)} == {11_000}


def test_damage_of_old_bytes_is_found_within_the_promised_time() -> None:
    made = group(messages=200)
    marks = verify(made.replicas, now_ms=1_000).marks
    made["b"].flip(made.messages[77].body_start)
    found = []
    for number in range(1, 11):
        run = verify(made.replicas, marks=marks, reread_ms=10_000, now_ms=1_000 + 1_000 * number)
        marks = run.marks
        found += kinds(run)
        assert run.plan.expected_bytes < made.master.end // 2
    assert Kind.CORRUPT_RECORD in found
    assert run.verdict.result is Result.MISMATCH


def test_a_rebuilt_replica_is_read_as_a_whole() -> None:
    made = group()
    marks = verify(made.replicas).marks
    made.rebuild(made["c"])
    made.sync()
    run = verify(made.replicas, marks=marks)
    assert run.plan.new_bytes == made.master.end


def test_what_expires_while_it_is_read_is_not_missing() -> None:
    made = group(messages=200)
    run = verify(made.replicas, meanwhile=lambda: made.expire(made["a"]), every=5)
    assert run.findings == ()


def test_a_byte_that_changes_at_each_read_is_named() -> None:
    made = Group(3).fill(40)
    replica, message = made["b"], made.messages[20]
    reads = 0

    def answer(request: ReadRequest) -> bytes | None:
        """The first read of this byte is wrong, the next ones that narrow it down are right, and then every second."""
        nonlocal reads
        if request.extent.start <= message.body_start < request.extent.end:
            reads += 1
        wrong = reads == 1 or (reads > 2 and reads % 2 == 0)
        replica.data[message.body_start] ^= wrong
        data = Replica.answer(replica, request)
        replica.data[message.body_start] ^= wrong
        return data

    replica.answer = answer  # type: ignore[method-assign]
    run = verify(made.replicas)
    (found,) = run.findings
    assert (found.kind, found.replicas, run.verdict.exit_code) == (Kind.UNREACHABLE, ("b",), 3)
    assert found.extent.start <= message.body_start < found.extent.end
    assert "its reads of these bytes differ from each other" in run.verdict.summary


def test_a_log_that_is_copied_again_during_the_reads_is_not_named() -> None:
    made = Group(3).fill(40)
    replica, message = made["b"], made.messages[20]
    reads = 0

    def answer(request: ReadRequest) -> bytes | None:
        """Some bytes more at each read; all of them at the one that narrows it down."""
        nonlocal reads
        if request.extent.start <= message.body_start < request.extent.end:
            reads += 1
        whole = bytes(replica.data)
        if reads != 2:
            begin = message.body_start + min(20 * reads, 100)
            replica.data[begin : message.body_start + 100] = bytes(message.body_start + 100 - begin)
        data = Replica.answer(replica, request)
        replica.data[:] = whole
        return data

    replica.answer = answer  # type: ignore[method-assign]
    run = verify(made.replicas)
    assert (run.findings, run.verdict.exit_code) == ((), 0)
