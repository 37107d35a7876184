"""Damaged bytes and files are planted into the logs of a group in memory, and the exact finding is demanded."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Kind
from rocketmq_verify.domain.repair import repairs
from rocketmq_verify.domain.verdict import Result
from tests.verify.planted import faults
from tests.verify.planted.faults import SEGMENT, Group, verify
from tests.verify.planted.planted_kit import deterministic, group, kinds, only, part

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


@pytest.mark.parametrize("who", ["a", "b", "c"])
@pytest.mark.parametrize("part_of_name", ["topic", "queueId"])
def test_a_message_is_named_as_the_right_copies_have_it(who: str, part_of_name: str) -> None:
    """A damaged name is well-formed too: no checksum protects the topic, the queue and its offset."""
    made = group()
    message = made.messages[20]
    at = {"topic": message.body_start + message.body_length + 1, "queueId": message.offset + 15}
    made[who].flip(at[part_of_name])
    found = only(verify(made.replicas))
    assert found.replicas == (who,)
    assert found.record is not None
    assert (found.record.topic, found.record.queue_id) == ("Orders", 3)
    assert f"message {message.queue_offset} of queue 3 of Orders at" in found.detail


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
        assert "it is unknown which" in found.detail


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
    assert "more places differ up to offset" in " ".join(one.detail for one in run.findings)
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


def test_swapped_files_are_recognized_by_their_offsets() -> None:
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
    assert f"offset field has {other}" in next(copy.reason for copy in first.copies if copy.replica == "c")


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


@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("left", [0, 5000])
def test_a_missing_or_cut_file_is_reported_once(who: str, left: int) -> None:
    made = group(messages=100)
    made[who].lost = {SEGMENT: left}
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas, found.segment) == (Kind.MISSING_SEGMENT, (who,), SEGMENT)
    assert found.extent == Extent(SEGMENT + left - left % 4096, 2 * SEGMENT)
    assert run.verdict.result is Result.MISMATCH


@pytest.mark.parametrize(("known_strict", "kind", "code"), [(False, Kind.LOST_COPY, 3), (True, Kind.LOST_CONFIRMED, 1)])
def test_a_log_cut_below_what_it_has_noted_has_lost_it(known_strict: bool, kind: Kind, code: int) -> None:
    made = Group(known_strict=known_strict).fill()
    made["b"].end = made.messages[50].end
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas) == (kind, ("b",))
    assert found.extent == Extent(made.messages[50].end, made.master.end)
    assert run.verdict.exit_code == code


def test_a_log_that_ends_early_is_behind() -> None:
    made = group()
    made["b"].end = made["b"].confirm = made.messages[50].end
    run = verify(made.replicas)
    found = only(run)
    assert (found.kind, found.replicas) == (Kind.LAGGING, ("b",))
    assert found.extent == Extent(made.messages[50].end, made.master.end)
    assert run.verdict.exit_code == 0
    assert run.verdict.aligned_up_to == made.master.end


@pytest.mark.parametrize("first", ["b", "c"])
def test_many_damaged_records_of_one_replica_hide_none_of_another(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """In the same chunk; each bad copy shows by its checksum."""
    monkeypatch.setattr(faults, "CHUNK", SEGMENT)
    made = group(messages=60, length=80)
    other = "c" if first == "b" else "b"
    bad = made.messages[:20]
    for message in bad:
        made[first].flip(message.body_start)
    hidden = made.messages[35]
    assert hidden.end < SEGMENT
    made[other].flip(hidden.body_start)
    run = verify(made.replicas)
    named = [(one.replicas, one.extent.start) for one in run.findings if one.record is not None]
    assert ((other,), hidden.offset) in named
    plan = repairs(run.findings, replicas=("a", "b", "c"))  # type: ignore[arg-type] # names
    steps = " ".join(step.text for one in plan for step in one.steps)
    assert "Make a the master" in steps
    assert "Make a or" not in steps


def test_what_was_not_examined_makes_every_replica_without_a_majority_suspect() -> None:
    made = group(2, messages=120, length=700)
    for message in made.messages[:60]:
        made["b"].flip(message.body_start)
    run = verify(made.replicas)
    (rest,) = [one for one in run.findings if one.record is None]
    assert rest.replicas == ("a", "b")
    three = group(3, messages=120, length=700)
    for message in three.messages[:60]:
        three["b"].flip(message.body_start)
    (rest,) = [one for one in verify(three.replicas).findings if one.record is None]
    assert rest.replicas == ("b",)


def topic_start(made: Group, index: int) -> int:
    """Of the topic's name in this message: `Orders`."""
    message = made.messages[index]
    return message.body_start + message.body_length + 1


def test_most_copies_without_a_checksum_are_counted_and_not_called_right() -> None:
    """The same wrong field in two of three: no one can know."""
    made = group()
    message = made.messages[20]
    for name in "bc":
        made[name].flip(message.offset + 60, 3)  # storeTimestamp
    found = only(verify(made.replicas))
    assert found.replicas == ("a",)
    assert found.detail == (
        f"message 20 of queue 3 of Orders at {message.offset} differs: 2 of 3 agree (b and c) and no checksum decides, "
        "so it is damaged in a unless these are wrong in the same way"
    )


def test_what_a_checksum_shows_is_certain() -> None:
    made = group()
    made["b"].flip(made.messages[20].body_start)
    assert only(verify(made.replicas)).detail.endswith("is damaged in b and right in a and c")


@deterministic
@given(index=st.integers(0, 59), byte=st.integers(0, 5), bit=st.integers(0, 6), who=st.sampled_from("abc"))
def test_a_damaged_topic_never_names_the_message(index: int, byte: int, bit: int, who: str) -> None:
    made = group()
    made[who].flip(topic_start(made, index) + byte, bit)
    found = only(verify(made.replicas))
    assert found.record is not None
    assert (found.record.topic, found.record.queue_offset) == ("Orders", index)
    assert f"message {index} of queue 3 of Orders at" in found.detail


@pytest.mark.parametrize("who", ["a", "b"])
def test_of_two_names_that_may_be_right_both_are_told(who: str) -> None:
    made = group(2)
    made[who].flip(topic_start(made, 20))
    found = only(verify(made.replicas))
    assert found.record is not None
    assert (found.record.topic, found.record.queue_id, found.record.queue_offset) == (None, 3, 20)
    names = ("Nrders", "Orders") if who == "a" else ("Orders", "Nrders")
    told = " or ".join(f"message 20 of queue 3 of {name} (in {copy})" for name, copy in zip(names, "ab", strict=True))
    assert found.detail.startswith(f"{told}, at {made.messages[20].offset}, differs between a and b")


def test_the_topic_of_a_copy_that_fails_its_checksum_is_not_told() -> None:
    made = group(2)
    made["a"].flip(topic_start(made, 20))
    made["a"].flip(made.messages[20].body_start)
    found = only(verify(made.replicas))
    assert found.record is not None
    assert found.record.topic == "Orders"


def test_a_topic_that_is_no_name_is_still_a_whole_record() -> None:
    made = group()
    for replica in made.replicas:
        replica.flip(topic_start(made, 20), 7)
    made["b"].flip(made.messages[20].body_start)
    found = only(verify(made.replicas))
    assert found.detail.startswith("message 20 of queue 3 of a topic without a valid name at")
