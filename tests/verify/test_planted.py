"""Damage is planted into the logs of a group in memory, and the exact finding is demanded; clean logs give none.

The logs live: they grow, expire, are cut and led by others between any two questions of a run.
"""

from __future__ import annotations

import zlib
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_verify.domain.findings import Finding, Kind, Severity
from rocketmq_verify.domain.model import Extent
from rocketmq_verify.domain.verdict import Result
from tests.verify.faults import SEGMENT, Group, Replica, Run, verify

deterministic = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def only(run: Run) -> Finding:
    assert len(run.findings) == 1, run.findings
    return run.findings[0]


def kinds(run: Run) -> list[Kind]:
    return [finding.kind for finding in run.findings]


def group(replicas: int = 3, *, strict: bool = True, messages: int = 60, length: int = 700) -> Group:
    return Group(replicas, strict=strict).fill(messages, length)


# clean and live


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
        run = verify(life.group.replicas, meanwhile=life.step, every=every, marks=marks, sample=0.5, seed=number)
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


# bytes


def part(made: Group, index: int, where: str, seed: int) -> int:
    message = made.messages[index % len(made.messages)]
    ranges = {
        "size": (message.offset, message.offset + 4),
        "magic": (message.offset + 4, message.offset + 8),
        "crc": (message.offset + 8, message.offset + 12),
        "head": (message.offset + 12, message.offset + 28),
        "place": (message.offset + 28, message.offset + 36),
        "times": (message.offset + 36, message.offset + 84),
        "lengths": (message.offset + 84, message.offset + 88),
        "body": (message.body_start, message.body_start + message.body_length),
        "tail": (message.body_start + message.body_length, message.end),
    }
    return Random(seed).randrange(*ranges[where])


PARTS = ["size", "magic", "crc", "head", "place", "times", "lengths", "body", "tail"]


@deterministic
@given(
    index=st.integers(0, 59),
    where=st.sampled_from(PARTS),
    seed=st.integers(0, 1000),
    bit=st.integers(0, 7),
    who=st.sampled_from("abc"),
)
def test_a_flipped_bit_is_named_to_the_message(index: int, where: str, seed: int, bit: int, who: str) -> None:
    made = group()
    message = made.messages[index]
    offset = part(made, index, where, seed)
    made[who].flip(offset, bit)
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas, found.first_difference) == (Kind.CORRUPT_RECORD, (who,), offset)
    assert found.extent == Extent(message.offset, message.end)
    assert found.record is not None
    assert (found.record.topic, found.record.queue_id) == ("Orders", 3)
    assert (found.record.queue_offset, found.record.physical_offset) == (message.queue_offset, message.offset)
    assert {copy.replica: copy.right for copy in found.copies} == {name: name != who for name in "abc"}
    assert run.verdict.exit_code == 1
    assert run.verdict.aligned_up_to == offset
    assert found.segment == offset - offset % SEGMENT


@deterministic
@given(index=st.integers(0, 59), where=st.sampled_from(PARTS), seed=st.integers(0, 1000), who=st.sampled_from("ab"))
def test_of_two_replicas_the_one_that_fails_its_own_check_is_wrong(index: int, where: str, seed: int, who: str) -> None:
    made = group(2)
    message = made.messages[index]
    made[who].flip(part(made, index, where, seed), 1)
    found = only(verify(made.replicas))
    assert found.kind is Kind.CORRUPT_RECORD
    assert found.extent == Extent(message.offset, message.end)
    if where in {"size", "magic", "crc", "place", "lengths", "body"}:
        assert found.replicas == (who,)
        assert [copy.replica for copy in found.copies if copy.right] == [name for name in "ab" if name != who]
    if where == "head":  # queueId, flag, queueOffset: nothing protects them
        assert found.replicas == ("a", "b")
        assert [copy.right for copy in found.copies] == [None, None]
        assert "nobody can tell" in found.detail


@deterministic
@given(index=st.integers(0, 59), seed=st.integers(0, 1000))
def test_two_of_three_copies_with_a_wrong_body_do_not_win(index: int, seed: int) -> None:
    made = group()
    offset = part(made, index, "body", seed)
    made["a"].flip(offset)
    made["b"].flip(offset)
    found = only(verify(made.replicas))
    assert found.replicas == ("a", "b")
    assert [(copy.replica, copy.right) for copy in found.copies] == [("a", False), ("b", False), ("c", True)]
    made["c"].flip(offset, 3)
    found = only(verify(made.replicas))
    assert found.replicas == ("a", "b", "c")
    assert "no copy is right" in found.detail


@deterministic
@given(indexes=st.lists(st.integers(0, 59), min_size=2, max_size=8, unique=True), seed=st.integers(0, 1000))
def test_several_damaged_messages_are_several_findings(indexes: list[int], seed: int) -> None:
    made = group()
    expected = set()
    for number, index in enumerate(indexes):
        who = "abc"[number % 3]
        made[who].flip(part(made, index, "body", seed + number))
        expected.add((made.messages[index].offset, (who,)))
    run = verify(made.replicas)
    assert {(one.extent.start, one.replicas) for one in run.findings} == expected


def test_a_hole_of_zeros_over_many_messages_is_a_bounded_number_of_findings() -> None:
    made = group(messages=200)
    start = made.messages[20].offset + 100
    made["b"].data[start : start + 80_000] = bytes(80_000)
    made["c"].flip(made.messages[60].body_start)  # within the hole of b
    run = verify(made.replicas)
    named = [one for one in run.findings if one.record is not None and one.replicas == ("b",)]
    assert 10 < len(named) <= 40
    assert "more places differ in the same way up to offset" in " ".join(one.detail for one in run.findings)
    assert any("c" in one.replicas and one.record is not None for one in run.findings)
    assert len(run.findings) < 60


def test_the_unused_end_of_a_file_is_no_mismatch_but_its_head_is() -> None:
    made = group()
    blank = next(
        a.end for a, b in zip(made.messages, made.messages[1:], strict=False) if b.offset % SEGMENT == 0
    )  # fmt: skip
    made["b"].flip(blank + 8)
    run = verify(made.replicas)
    assert kinds(run) == [Kind.UNUSED_BYTES]
    assert run.verdict.exit_code == 0
    made["b"].flip(blank + 2)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas, found.extent.start) == (Kind.CORRUPT_RECORD, ("b",), blank)


def test_swapped_files_say_whose_place_they_have() -> None:
    made = group(messages=100)
    data = made["c"].data
    one, other = SEGMENT, 3 * SEGMENT
    data[one : one + SEGMENT], data[other : other + SEGMENT] = (
        data[other : other + SEGMENT],
        data[one : one + SEGMENT],
    )
    run = verify(made.replicas)
    assert {(one.kind, one.replicas) for one in run.findings} == {(Kind.CORRUPT_RECORD, ("c",))}
    first = run.findings[0]
    assert first.extent.start == one
    assert f"belongs at {other}" in next(copy.reason for copy in first.copies if copy.replica == "c")


def test_a_head_that_fakes_its_size_does_not_swallow_what_follows() -> None:
    made = group()
    message, later = made.messages[10], made.messages[13]
    size = later.end - message.offset
    made["b"].data[message.offset : message.offset + 4] = size.to_bytes(4, "big")
    made["b"].flip(later.body_start)
    run = verify(made.replicas)
    assert [(one.replicas, one.extent.start) for one in run.findings] == [
        (("b",), message.offset),
        (("b",), later.offset),
    ]
    assert f"{size} bytes" in next(copy.reason for copy in run.findings[0].copies if copy.replica == "b")


def test_a_checksum_made_to_fit_is_decided_by_the_others() -> None:
    made = group()
    message = made.messages[5]
    made["a"].flip(message.body_start)
    body = bytes(made["a"].data[message.body_start : message.body_start + message.body_length])
    made["a"].data[message.offset + 8 : message.offset + 12] = (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big")
    found = only(verify(made.replicas))
    assert found.replicas == ("a",)


# files


@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("left", [0, 5000])
def test_a_missing_or_cut_file_is_told_once(who: str, left: int) -> None:
    made = group(messages=100)
    made[who].lost = {SEGMENT: left}
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas, found.segment) == (Kind.MISSING_SEGMENT, (who,), SEGMENT)
    assert found.extent == Extent(SEGMENT + left - left % 4096, 2 * SEGMENT)
    assert run.verdict.result is Result.MISMATCH


def test_a_log_cut_at_its_end_is_behind() -> None:
    made = group()
    made["b"].end = made.messages[50].end
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas) == (Kind.LAGGING, ("b",))
    assert found.extent == Extent(made.messages[50].end, made.master.end)
    assert run.verdict.exit_code == 0
    assert run.verdict.aligned_up_to == made.master.end


# histories


def old_master(*, strict: bool = False, known_strict: bool = False) -> Group:
    """`a` wrote ten messages that nobody copied; `b` leads now and wrote others in their place."""
    made = Group(3, strict=strict, known_strict=known_strict).fill(40)
    for _ in range(10):
        made.put(500)
    made.elect(made["b"])
    for _ in range(30):
        made.put(500)
    made.copy(made["c"])
    return made


def test_what_an_old_master_had_alone_is_a_stale_tail() -> None:
    made = old_master()
    point = made["b"].epochs[-1][1]
    run = verify(made.replicas)
    tail = next(one for one in run.findings if one.kind is Kind.STALE_TAIL)
    assert (tail.replicas, tail.extent) == (("a",), Extent(point, made["a"].end))
    assert {one.kind for one in run.findings} == {Kind.STALE_TAIL, Kind.LAGGING}
    assert run.verdict.exit_code == 0
    assert (run.verdict.aligned_up_to, run.verdict.epoch) == (made.master.end, 2)


@deterministic
@given(index=st.integers(0, 60), who=st.sampled_from("bc"), seed=st.integers(0, 1000))
def test_a_stale_tail_hides_no_damage_of_others(index: int, who: str, seed: int) -> None:
    made = old_master()
    message = made.messages[index]
    made[who].flip(part(made, index, "body", seed))
    run = verify(made.replicas)
    damaged = [one for one in run.findings if one.kind is Kind.CORRUPT_RECORD]
    assert [(one.replicas, one.extent) for one in damaged] == [((who,), Extent(message.offset, message.end))]
    assert [one.replicas for one in run.findings if one.kind is Kind.STALE_TAIL] == [("a",)]


@deterministic
@given(index=st.integers(0, 39), seed=st.integers(0, 1000))
def test_a_stale_tail_hides_no_damage_of_its_own_replica(index: int, seed: int) -> None:
    made = old_master()
    message = made.messages[index]
    made["a"].flip(part(made, index, "body", seed))
    run = verify(made.replicas)
    damaged = [one for one in run.findings if one.kind is Kind.CORRUPT_RECORD]
    assert [(one.replicas, one.extent) for one in damaged] == [(("a",), Extent(message.offset, message.end))]


def test_confirmed_messages_that_differ_in_a_strict_group_are_divergent_history() -> None:
    made = old_master(known_strict=True)
    made["a"].confirm = made["a"].end
    run = verify(made.replicas)
    found = [one for one in run.findings if one.severity is Severity.MISMATCH]
    assert [(one.kind, one.replicas) for one in found] == [(Kind.DIVERGENT_HISTORY, ("a", "b"))]
    assert found[0].extent == Extent(made["b"].epochs[-1][1], made["a"].end)
    assert found[0].record is not None


def test_a_slave_that_has_not_heard_of_an_epoch_is_compared_all_the_same() -> None:
    made = group()
    made.elect(made.master)  # again
    for _ in range(30):
        made.put(600)
    made.sync()
    assert made["a"].epochs != made["b"].epochs
    run = verify(made.replicas)
    assert run.findings == ()
    assert run.verdict.aligned_up_to == made.master.end
    message = made.messages[70]
    made["b"].flip(message.body_start)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas, found.extent.start) == (Kind.CORRUPT_RECORD, ("b",), message.offset)
    made["b"].flip(message.body_start)
    made["a"].flip(message.body_start)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas) == (Kind.CORRUPT_RECORD, ("a",))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_two_beginnings_of_one_epoch_are_divergent_history(index: int) -> None:
    made = group(messages=20)
    for name in ("b", "c"):
        made.elect(made[name])
        for _ in range(20):
            made.put(500)
        made.sync()
    wrong = made.replicas[index]
    epoch, start = wrong.epochs[1]
    wrong.epochs[1] = (epoch, start + 1000)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas) == (Kind.DIVERGENT_HISTORY, (wrong.name,))
    assert found.extent == Extent(start, start + 1000)
    assert f"{epoch}-{start} in" in found.detail
    assert f"{epoch}-{start + 1000} in {wrong.name}" in found.detail


def test_a_master_that_restarts_in_its_epoch_contradicts_nobody() -> None:
    made = group(strict=False)
    made.elect(made["b"])
    for _ in range(5):
        made.put()
    made.sync()
    made.restart_master()
    for _ in range(5):
        made.put()
    run = verify(made.replicas)
    assert not [one for one in run.findings if one.severity is not Severity.INFORMATION]
    assert {one.kind for one in run.findings} == {Kind.LAGGING}


@deterministic
@given(behind=st.integers(1, 30))
def test_a_lagging_replica_is_told_and_compared_as_far_as_it_goes(behind: int) -> None:
    made = group(strict=False)
    for _ in range(behind):
        made.put()
    made.copy(made["b"])
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas) == (Kind.LAGGING, ("c",))
    assert found.extent == Extent(made["c"].end, made.master.end)
    assert run.verdict.aligned_up_to == made.master.end
    made["c"].flip(made.messages[-behind - 1].body_start)
    assert {one.kind for one in verify(made.replicas).findings} == {Kind.LAGGING, Kind.CORRUPT_RECORD}


def test_logs_of_two_groups_are_not_aligned() -> None:
    one, other = group(2), group(2)
    other.clock += 1
    strange = Group(1)
    strange.epoch = 7
    strange.clock = 77_777
    strange.master.epochs = [(7, 0)]
    for _ in range(60):
        strange.put(650)
    stranger = strange.master
    stranger.name = one["b"].name
    stranger.confirm = stranger.end
    run = verify([one["a"], stranger])
    assert run.verdict.result is not Result.ALIGNED
    assert Kind.DIVERGENT_HISTORY in kinds(run)


def test_a_log_that_was_filled_from_its_masters_last_files_is_compared_where_both_have_bytes() -> None:
    made = group(messages=120)
    made.expire(made["a"], 3)
    made.rebuild(made["c"])
    made.put()
    made.sync()
    assert made["c"].min == 3 * SEGMENT
    run = verify(made.replicas)
    assert run.findings == ()
    assert run.verdict.aligned_up_to == made.master.end


def test_replicas_without_epochs_are_compared_by_their_bytes() -> None:
    made = group(2, strict=False)
    for replica in made.replicas:
        replica.epochs = []
    assert verify(made.replicas).verdict.result is Result.ALIGNED
    made["b"].flip(made.messages[9].body_start)
    found = only(verify(made.replicas))
    assert (found.kind, found.replicas) == (Kind.CORRUPT_RECORD, ("b",))


# what is read


def test_a_second_run_reads_what_is_new_and_a_third_what_was_bad() -> None:
    made = group()
    first = verify(made.replicas)
    end = made.master.end
    for _ in range(10):
        made.put()
    made.sync()
    second = verify(made.replicas, marks=first.marks)
    assert [piece.extent for piece in second.plan.pieces] == [Extent(end, made.master.end)]
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
