"""Damage and losses that are the same in all replicas: no comparison has read them, and a message is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.inquiry import names
from rocketmq_verify.report.kube_status import outcome_of
from tests.verify.history.stores import save_all
from tests.verify.planted.faults import SEGMENT, Group
from tests.verify.ways.test_both_ways import body_of_all, length_of_all, log_file, magic_of_all
from tests.verify.ways.ways_kit import Outcome, verify

NUMBER = 20
"""Of the message that the damage of `test_both_ways` is in."""


def damaged(tmp_path: Path, damage: Callable[[Group, Path], None], group: Group | None = None) -> Outcome:
    group = group or Group().fill(60)
    places = save_all(group, tmp_path)
    damage(group, tmp_path)
    return verify(places)


def only(found: Outcome, kind: Kind) -> Finding:
    (finding,) = [one for one in found.findings if one.kind is kind]
    return finding


def lose(root: Path, names: str, end: int) -> None:
    """Zeros from there to the end of the file, and no file behind it."""
    for name in names:
        file = log_file(root, name, end - end % SEGMENT)
        file.write_bytes(file.read_bytes()[: end % SEGMENT].ljust(SEGMENT, b"\0"))
        for other in file.parent.iterdir():
            if other.name > file.name:
                other.unlink()


@pytest.mark.parametrize("damage", [body_of_all, magic_of_all, length_of_all])
def test_damage_alike_in_all(tmp_path: Path, damage: Callable[[Group, Path], None]) -> None:
    found = damaged(tmp_path, damage)
    finding = only(found, Kind.BAD_STRUCTURE)
    assert finding.record is not None
    assert (finding.record.topic, finding.record.queue_id, finding.record.queue_offset) == ("Orders", 3, NUMBER)
    assert finding.detail.startswith(f"message {NUMBER} of queue 3 of Orders: no sound record from ")
    assert finding.detail in outcome_of(found.verdict).details


def test_damage_alike_in_all_of_a_record_larger_than_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "NEAR", 256)
    finding = only(damaged(tmp_path, body_of_all), Kind.BAD_STRUCTURE)
    assert finding.detail.startswith(f"message {NUMBER} of queue 3 of Orders: ")


def test_zeros_alike_in_all_have_no_name(tmp_path: Path) -> None:
    def zeros(group: Group, root: Path) -> None:
        for name in "abc":
            file = log_file(root, name, SEGMENT)
            data = bytearray(file.read_bytes())
            data[:8000] = bytes(8000)
            file.write_bytes(data)

    finding = only(damaged(tmp_path, zeros), Kind.BAD_STRUCTURE)
    assert finding.record is None
    assert finding.detail.startswith("no sound record from ")


def test_a_tail_that_all_lost_begins_behind_a_message_that_is_left(tmp_path: Path) -> None:
    group = Group().fill(60)
    found = damaged(tmp_path, lambda group, root: lose(root, "abc", group.messages[-4].offset), group)
    finding, left = only(found, Kind.LOST_CONFIRMED), group.messages[-5]
    assert finding.record is None, "the message that is named is not lost"
    assert f"the last message before them is message {left.queue_offset} of queue 3 of Orders" in finding.detail
    assert f"at {left.offset}, stored 1970-01-01 00:00:" in finding.detail
    assert finding.detail in outcome_of(found.verdict).details


def test_a_tail_that_all_lost_from_the_beginning_of_a_file(tmp_path: Path) -> None:
    """There is a blank before it."""
    group = Group().fill(60)
    start = group.messages[-1].offset // SEGMENT * SEGMENT
    found = damaged(tmp_path, lambda _, root: lose(root, "abc", start), group)
    left = [one for one in group.messages if one.end <= start][-1]
    assert f"is message {left.queue_offset} of queue 3 of Orders" in only(found, Kind.LOST_CONFIRMED).detail


def test_a_tail_that_one_lost_begins_with_a_message_that_others_have(tmp_path: Path) -> None:
    group = Group().fill(60)
    first = group.messages[-4]
    finding = only(damaged(tmp_path, lambda _, root: lose(root, "c", first.offset), group), Kind.LOST_COPY)
    assert finding.record is not None
    assert (finding.record.topic, finding.record.queue_offset) == ("Orders", first.queue_offset)
    assert f"the first of them is message {first.queue_offset} of queue 3 of Orders" in finding.detail


def test_what_all_lost_as_a_whole_has_no_name(tmp_path: Path) -> None:
    def gone(group: Group, root: Path) -> None:
        for name in "abc":
            for file in (root / name / "commitlog").iterdir():
                file.unlink()

    assert "message" not in only(damaged(tmp_path, gone), Kind.LOST_CONFIRMED).detail
