"""Where two logs part: RIP-44's six worked examples, our corrections, and a model that compares byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.replication.frames import MasterHandshake
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.domain.replication.truncate import (
    ConfirmedDataError,
    DurableDataError,
    NoConsistentPointError,
    NotAlignedError,
    check_cut,
    consistent_point,
    corrected,
)
from tests.records import make_record


def point(ours: list[tuple[int, int]], end: int, theirs: list[tuple[int, int]], their_end: int, begin: int = 0) -> int:
    master = EpochList.of(theirs)
    return consistent_point(EpochList.of(ours), begin, end, MasterHandshake(their_end, master.last_epoch, master))


@pytest.mark.parametrize(
    ("ours", "end", "theirs", "their_end", "expected"),
    [
        pytest.param([(0, 0)], 1000, [(0, 0), (1, 900)], 1200, 900, id="1: epoch0 ends at 900, 900-1000 uncommitted"),
        pytest.param([(0, 0)], 900, [(0, 0), (1, 1000)], 1000, 900, id="2: A lost 900-1000, copies it again"),
        pytest.param([(0, 0), (1, 900)], 1200, [(0, 0), (1, 900)], 1500, 1200, id="3: epoch1 to 1200, nothing to cut"),
        pytest.param([(0, 0), (1, 1000)], 1100, [(0, 0), (2, 900)], 1200, 900, id="4: epoch0 ends at 900"),
        pytest.param(
            [(0, 0), (1, 700), (2, 900)], 1000, [(0, 0), (1, 700), (3, 800)], 1200, 800, id="5: B, C cut to 800"
        ),
        pytest.param([(0, 0), (1, 1000)], 1200, [(0, 0), (2, 1100)], 1300, 1000, id="6: epoch0 ends at 1000"),
    ],
)
def test_rip_44_examples(
    ours: list[tuple[int, int]], end: int, theirs: list[tuple[int, int]], their_end: int, expected: int
) -> None:
    assert point(ours, end, theirs, their_end) == expected


def test_java_worked_examples() -> None:
    assert point([(1, 0)], 1000, [(1, 0), (2, 900)], 1200) == 900
    # Java asks for bytes from 1200 here, though its log ends at 800, and never converges.
    assert point([(1, 0), (2, 900)], 800, [(1, 0), (2, 900)], 1200) == 800


def test_a_replica_without_bytes_has_no_history() -> None:
    assert point([(1, 0), (2, 900)], 0, [(7, 5000)], 9000) == 0


def test_bytes_without_epochs_are_shared_up_to_the_first_epoch() -> None:
    assert point([], 5000, [(1, 4000)], 9000) == 4000
    assert point([], 3000, [(1, 4000)], 9000) == 3000
    with pytest.raises(NoConsistentPointError):
        point([], 3000, [], 9000)


def test_two_first_masters() -> None:
    assert point([(1, 0)], 300, [(2, 0)], 500) == 0
    assert point([(1, 0)], 300, [(2, 0)], 0) == 0
    data = make_record(0, b"first")
    check_cut(data, 0, len(data), 0, strict=False)
    with pytest.raises(ConfirmedDataError):
        check_cut(data, 0, len(data), len(data), strict=False)


def test_nothing_in_common_needs_an_operator() -> None:
    with pytest.raises(NoConsistentPointError, match="rebuilt"):
        point([(1, 0), (2, 500)], 900, [(3, 1000)], 2000)
    with pytest.raises(NoConsistentPointError, match="rebuilt"):
        point([(1, 0), (2, 500)], 900, [(2, 400)], 2000)
    with pytest.raises(NoConsistentPointError, match="rebuilt"):  # the common part is deleted here
        point([(1, 0), (2, 5000)], 9000, [(1, 0), (3, 1000)], 2000, begin=4096)


def test_a_longer_slave_is_cut_to_its_master() -> None:
    assert point([(1, 0)], 2000, [(1, 0)], 1500) == 1500


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[tuple[int, int]], bytes]]:
    """Logs of three replicas after some elections: each byte is the number of the epoch it was written in.

    Elected is anybody, cut short or not; then some others follow, by the rule under test, and copy a part.
    """
    logs: list[tuple[list[tuple[int, int]], bytes]] = [([], b"")] * 3
    for epoch in range(1, draw(st.integers(1, 7)) + 1):
        master = draw(st.integers(0, 2))
        starts, data = logs[master]
        data = data[: len(data) - draw(st.integers(0, 2))]  # a tail that was not on disk
        starts = [*((e, s) for e, s in starts if s < len(data)), (epoch, len(data))]
        data += bytes([epoch]) * draw(st.integers(0, 4))
        logs[master] = (starts, data)
        for slave in {0, 1, 2} - {master}:
            if draw(st.booleans()):
                logs[slave] = replicate(logs[slave], logs[master], draw(st.integers(0, 6)))
    return logs


def replicate(
    slave: tuple[list[tuple[int, int]], bytes], master: tuple[list[tuple[int, int]], bytes], count: int
) -> tuple[list[tuple[int, int]], bytes]:
    (ours, mine), (theirs, yours) = slave, master
    cut = point(ours, len(mine), theirs, len(yours)) if theirs else 0
    kept = mine[:cut]
    assert kept == yours[:cut], "not a prefix"
    copied = yours[: cut + count]
    epochs = EpochList.of(theirs).truncate_suffix(max(1, len(copied)))
    return epochs.starts() if copied else [], copied


@given(histories())
def test_the_longest_common_prefix_by_epochs_is_kept(
    logs: list[tuple[list[tuple[int, int]], bytes]],
) -> None:
    for ours, mine in logs:
        for theirs, yours in logs:
            if not mine or not theirs or not ours:
                continue
            try:
                cut = point(ours, len(mine), theirs, len(yours))
            except NoConsistentPointError:
                assert ours[0] != theirs[0]
                assert ours[0][1] or theirs[0][1]
                continue
            common = next((i for i, (a, b) in enumerate(zip(mine, yours, strict=False)) if a != b), None)
            assert cut == (min(len(mine), len(yours)) if common is None else common)


def test_entries_behind_the_end_are_dropped() -> None:
    epochs = EpochList.of([(1, 0), (2, 900), (3, 1000)])
    assert corrected(epochs, 950).starts() == [(1, 0), (2, 900)]
    assert corrected(epochs, 1000).starts() == [(1, 0), (2, 900), (3, 1000)]
    assert corrected(epochs, 0).starts() == []


def test_a_cut_needs_a_record() -> None:
    data = make_record(900, b"first") + make_record(1000, b"second")
    check_cut(data, 900, 900 + len(data), 0, strict=True)
    with pytest.raises(NotAlignedError):
        check_cut(data[1:], 901, 900 + len(data), 0, strict=True)
    damaged = bytearray(data)
    damaged[88] ^= 1
    with pytest.raises(NotAlignedError, match="checksum"):
        check_cut(damaged, 900, 900 + len(data), 0, strict=True)


def test_a_record_cut_short_may_go_only_at_the_end() -> None:
    data = make_record(900, b"first")[:-1]
    check_cut(data, 900, 900 + len(data), 899, strict=True)
    check_cut(data[:3], 900, 903, 899, strict=True)
    with pytest.raises(NotAlignedError):
        check_cut(data, 900, 5000, 899, strict=True)


def test_confirmed_messages_are_not_cut_with_strict_durability() -> None:
    data = make_record(900, b"first")
    end = 900 + len(data)
    check_cut(data, 900, end, end - 1, strict=True)  # confirmed up to the middle of a message: not the message
    check_cut(data, 900, end, end, strict=False)
    with pytest.raises(ConfirmedDataError, match="Elect this replica"):
        check_cut(data, 900, end, end, strict=True)


def test_without_controllers_no_whole_record_is_cut() -> None:
    data = make_record(900, b"first")
    check_cut(data[:-1], 900, 899 + len(data), 0, strict=False, alone=True)
    for strict in (False, True):
        with pytest.raises(DurableDataError, match="exchange brokerId and brokerRole"):
            check_cut(data, 900, 900 + len(data), 0, strict=strict, alone=True)
