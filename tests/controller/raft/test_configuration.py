"""Who the members are, as a value: which changes there are, what its bytes may be, and what a log's history says."""

from random import Random

import msgspec
import pytest

from rocketmq_controller.raft.configuration import (
    MAX_MEMBERS,
    AddMember,
    Change,
    ChangePendingError,
    Configuration,
    ConfigurationError,
    Configurations,
    Member,
    MemberExistsError,
    MembershipError,
    PromoteMember,
    QuorumAtRiskError,
    RemoveMember,
    UnknownMemberError,
    changed,
    decode,
    encode,
    majority,
    of_voters,
)

FIRST = of_voters({"b": ("hb", 2), "a": ("ha", 1), "c": ("hc", 3)})
WITH_LEARNER = changed(FIRST, AddMember("d", "hd", 4), 7)


def test_a_member_is_added_as_a_learner_then_votes_then_goes() -> None:
    assert (WITH_LEARNER.voters, WITH_LEARNER.learners, WITH_LEARNER.index) == ({"a", "b", "c"}, {"d"}, 7)
    four = changed(WITH_LEARNER, PromoteMember("d"), 8)
    assert four.voters == {"a", "b", "c", "d"}
    replaced = changed(four, RemoveMember("a"), 9)
    assert replaced.voters == {"b", "c", "d"}
    assert replaced.addresses() == {"b": ("hb", 2), "c": ("hc", 3), "d": ("hd", 4)}


def test_adding_a_member_again_changes_its_address_and_nothing_else() -> None:
    moved = changed(WITH_LEARNER, AddMember("b", "elsewhere", 2), 8)
    assert moved.voters == FIRST.voters
    assert moved.get("b") == Member("b", "elsewhere", 2)
    assert changed(WITH_LEARNER, AddMember("d", "hd", 5), 8).learners == {"d"}


@pytest.mark.parametrize(
    ("before", "change", "error", "text"),
    [
        (FIRST, AddMember("a", "ha", 1), MemberExistsError, "a is a member"),
        (FIRST, AddMember("d", "ha", 1), MemberExistsError, "a is a member and has the address"),
        (WITH_LEARNER, AddMember("e", "he", 5), ChangePendingError, "d is not caught up"),
        (FIRST, AddMember("", "he", 5), MembershipError, "1 to 100 bytes"),
        (FIRST, AddMember("é" * 51, "he", 5), MembershipError, "1 to 100 bytes"),
        (FIRST, AddMember("e", "", 5), MembershipError, "a host and a port"),
        (FIRST, AddMember("e", "he", 65_536), MembershipError, "a host and a port"),
        (FIRST, PromoteMember("a"), UnknownMemberError, "a is not a learner"),
        (FIRST, PromoteMember("x"), UnknownMemberError, "x is not a learner"),
        (FIRST, RemoveMember("x"), UnknownMemberError, "x is not among the members a, b, c"),
        (of_voters({"a": ("h", 1)}), RemoveMember("a"), QuorumAtRiskError, "the last voter"),
        (changed(of_voters({"a": ("h", 1)}), AddMember("d", "hd", 4), 1), RemoveMember("a"), QuorumAtRiskError, "last"),
    ],
)
def test_changes_that_cannot_be(before: Configuration, change: Change, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        changed(before, change, 8)


def test_the_number_of_members_is_bounded() -> None:
    full = of_voters({f"n{number:02}": ("h", 1 + number) for number in range(MAX_MEMBERS)})
    with pytest.raises(MembershipError, match="15 are allowed"):
        changed(full, AddMember("x", "hx", 9), 2)


@pytest.mark.parametrize("seed", range(200))
def test_quorums_of_neighbours_share_a_member(seed: int) -> None:
    """However it is changed: any majority of one configuration meets any majority of the next."""
    rng, now = Random(seed), FIRST
    for index in range(2, 30):
        name = rng.choice("abcdefg")
        change = rng.choice((AddMember(name, f"h{index}", index), PromoteMember(name), RemoveMember(name)))
        try:
            after = changed(now, change, index)
        except MembershipError:
            continue
        common = len(now.voters & after.voters)
        outside = len(now.voters) - common, len(after.voters) - common
        needed = majority(len(now.voters)) - outside[0], majority(len(after.voters)) - outside[1]
        assert sum(needed) > common  # the least part of each majority within what both have
        assert decode(encode(after), index) == after
        now = after


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02" + encode(FIRST)[1:],
        encode(FIRST)[:-1],
        encode(FIRST) + b"\x00",
        b"\x01" + msgspec.msgpack.encode([["b", "h", 1, True], ["a", "h", 1, True]]),
        b"\x01" + msgspec.msgpack.encode([["a", "h", 1, True], ["a", "h", 2, True]]),
        b"\x01" + msgspec.msgpack.encode([["a", "h", 1, False]]),
        b"\x01" + msgspec.msgpack.encode([["a", "h", 1, True, "more"]]),
        b"\x01" + msgspec.msgpack.encode([["a", "h", 65_536, True]]),
        b"\x01" + msgspec.msgpack.encode([["", "h", 1, True]]),
        b"\x01" + msgspec.msgpack.encode([["a" * 101, "h", 1, True]]),
        b"\x01" + msgspec.msgpack.encode([["a", "h" * 256, 1, True]]),
        b"\x01" + msgspec.msgpack.encode([[f"n{number:02}", "h", 1, True] for number in range(MAX_MEMBERS + 1)]),
        b"\x01" + b"\x91" * 100_000,
        b"\x01\x91\x91\xa1\xff",
    ],
)
def test_bytes_that_are_no_configuration(data: bytes) -> None:
    with pytest.raises(ConfigurationError):
        decode(data, 5)


def test_the_bytes_of_an_entry() -> None:
    """Pinned: members of other releases read them."""
    assert encode(changed(of_voters({"a": ("h", 1)}), AddMember("b", "::1", 300), 9)) == (
        b"\x01\x92\x94\xa1a\xa1h\x01\xc3\x94\xa1b\xa3::1\xcd\x01,\xc2"
    )


def test_a_history_goes_back_when_the_tail_is_cut() -> None:
    history = Configurations(FIRST)
    history.append(WITH_LEARNER)
    four = changed(WITH_LEARNER, PromoteMember("d"), 9)
    history.append(four)
    assert [held.index for held in history.since(7)] == [7, 9]
    assert [held.index for held in history.since(6)] == [0, 7, 9]
    assert history.at(8) == WITH_LEARNER
    assert not history.cut(10)
    assert history.cut(9)
    assert history.latest == WITH_LEARNER
    assert history.cut(1)
    assert history.latest == FIRST


def test_a_snapshot_begins_a_history() -> None:
    four = changed(WITH_LEARNER, PromoteMember("d"), 9)
    history = Configurations(FIRST)
    history.append(WITH_LEARNER)
    history.append(four)
    history.install(8, WITH_LEARNER, keep=True)
    assert [held.index for held in history.since(0)] == [7, 9]
    history.forget(8)
    assert [held.index for held in history.since(0)] == [7, 9]
    history.forget(9)
    assert list(history.since(0)) == [four]
    history.install(20, WITH_LEARNER, keep=False)
    assert list(history.since(0)) == [WITH_LEARNER]


def test_a_snapshot_without_members_undoes_what_its_log_never_had() -> None:
    """The entry of a leader that was cut off, in place of which others committed something else."""
    history = Configurations(FIRST)
    history.append(WITH_LEARNER)
    history.install(20, None, keep=False)
    assert list(history.since(0)) == [FIRST]
