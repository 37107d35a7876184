"""Delayed messages of a group without a master: in order, none lost, and none twice without need."""

import asyncio
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_broker.consuming.escaping import YIELD_SECONDS
from rocketmq_broker.domain.consuming.escaped import counts_for, cut, joined, one_more
from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_formats.store.config_files import ConfigFileError, Escaped, decode_escaped, encode_escaped
from tests.broker.consuming.escape_kit import Member

pytestmark = pytest.mark.looptime


class Members:
    """Made in a test, closed at its end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: list[Member] = []

    def new(self, *, escapes: bool = True, delays: DelayOffsets | None = None) -> Member:
        root = self._root / str(len(self._made))
        self._made.append(Member(root, escapes=escapes, delays=delays))
        return self._made[-1]

    def with_log_of(self, other: Member, *, facts: bool = True) -> Member:
        """A member with the log of `other`, which ends; `facts`: and with what is on its disk of what escaped."""
        other.close()
        root = self._root / str(len(self._made))
        shutil.copytree(other.root, root, ignore=shutil.ignore_patterns("lock", "*.lock"))
        delays = DelayOffsets()
        if facts:
            delays.join(decode_escaped(encode_escaped(other.on_disk) or {}))
        return self.new(delays=delays)

    async def sending(self, *bodies: bytes, route_seconds: float = 0.0, seconds: float = 0.0) -> Member:
        """An acting slave, a moment after the first of these messages became due: until its route is known and it is
        answered, so many seconds pass."""
        slave = self.new()
        slave.arrives(*bodies)
        slave.outlet.route_seconds, slave.outlet.seconds = route_seconds, seconds
        slave.act()
        await asyncio.sleep(1.05)
        return slave

    def close(self) -> None:
        for member in self._made:
            member.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    made = Members(tmp_path)
    yield made
    made.close()


def fact(first: int, end: int, place: int) -> Escaped:
    return Escaped(first, end, place, 7)


def test_a_fact_says_what_escaped_without_a_gap() -> None:
    known = one_more(None, 5, 100, b"a")
    assert known == Escaped(5, 6, 100, known.checksum)
    assert one_more(known, 6, 200, b"b")[:3] == (5, 7, 200)
    assert one_more(known, 8, 300, b"c")[:3] == (8, 9, 300), "7 did not escape"
    assert [counts_for(known, offset) for offset in (4, 5, 6)] == [False, True, False]


def test_of_two_facts_the_one_that_reaches_further_is_kept() -> None:
    ours, theirs = {1: fact(0, 3, 90), 2: fact(0, 1, 10)}, {1: fact(2, 5, 120), 3: fact(0, 1, 30)}
    assert joined(ours, theirs) == joined(theirs, ours) == {1: fact(2, 5, 120), 2: fact(0, 1, 10), 3: fact(0, 1, 30)}
    assert cut(ours, 90) == {2: fact(0, 1, 10)}


def test_facts_are_kept_as_text() -> None:
    facts = {1: Escaped(0, 3, 2**40, 2**32 - 1), 18: Escaped(7, 8, 0, 0)}
    texts = encode_escaped(facts)
    assert texts == {"1": f"0:3:{2**40}:{2**32 - 1}", "18": "7:8:0:0"}
    assert decode_escaped(texts) == facts
    assert encode_escaped({}) is None


@pytest.mark.parametrize("text", ["", "1:2:3", "2:2:3:4", "3:2:3:4", "1:2:-3:4", "1:2:3:4:5", "a:2:3:4"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigFileError):
        decode_escaped({"1": text})


@pytest.mark.parametrize("level", ["x", "0", "256", "-1"])
def test_levels_that_there_cannot_be_are_refused(level: str) -> None:
    """Else the facts of several members could be more than the file may have, and the next start would refuse it."""
    with pytest.raises(ConfigFileError):
        decode_escaped({level: "1:2:3:4"})


async def test_due_messages_escape_in_order(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"0", b"1", b"2")
    slave.arrives(b"later", level=2)
    await asyncio.sleep(0.5)
    slave.act()
    slave.outlet.seconds = 0.01
    await asyncio.sleep(10)
    assert slave.outlet.taken == [b"0", b"1", b"2", b"later"]
    times = [at for at, _ in slave.outlet.tried]
    assert 0.9 < times[0] < 1.1, "not before it is due"
    assert 4.9 < times[3] < 5.1
    slave.arrives(b"3")
    await asyncio.sleep(2)
    assert slave.outlet.taken[4:] == [b"3"], "messages that become visible too"
    assert slave.stored() == []
    assert {level: known[:2] for level, known in slave.on_disk.items()} == {1: (0, 4), 2: (0, 1)}


async def test_only_an_acting_slave_lets_them_escape(members: Members) -> None:
    slave, without = members.new(), members.new(escapes=False)
    for member in (slave, without):
        member.arrives(b"0")
    without.act()
    await asyncio.sleep(10)
    assert (slave.outlet.tried, without.outlet.tried) == ([], [])
    slave.lead()
    await asyncio.sleep(10)
    assert (slave.outlet.tried, slave.stored()) == ([], [b"0"])


async def test_what_the_master_delivered_does_not_escape(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"0", b"1", b"2")
    slave.master_delivers(b"0", b"1")
    slave.act()
    await asyncio.sleep(10)
    assert slave.outlet.taken == [b"2"]


async def test_only_put_ok_advances_a_level(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"0", b"1")
    slave.arrives(b"other", level=2)
    slave.outlet.problems.extend(["refused"] * 8)
    slave.act()
    await asyncio.sleep(60)
    assert slave.outlet.taken.index(b"0") < slave.outlet.taken.index(b"1")
    assert b"other" in slave.outlet.taken, "each level has its own attempts"
    first = [at for at, body in slave.outlet.tried if body == b"0"]
    pauses = [round(after - before, 1) for before, after in itertools.pairwise(first)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(pauses) <= 10.1
    assert sorted(slave.outlet.taken) == [b"0", b"1", b"other"]


async def test_nothing_more_escapes_while_its_progress_cannot_be_written(members: Members) -> None:
    slave = await members.sending(b"0", b"1", seconds=0.1)
    slave.disk_full = True
    await asyncio.sleep(60)
    assert slave.outlet.taken == [b"0"]
    slave.disk_full = False
    await asyncio.sleep(20)
    assert slave.outlet.taken == [b"0", b"1"]


async def test_a_message_that_cannot_be_delivered_waits_for_a_master(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"nowhere", topic=None)
    slave.arrives(b"1")
    slave.act()
    await asyncio.sleep(100)
    assert (slave.outlet.tried, slave.traffic.counts.delayed_passed_over) == ([], 0)
    slave.lead()
    await asyncio.sleep(100)
    assert slave.stored() == [b"1"]


async def test_a_message_that_is_damaged_here_waits_for_a_master(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"whole", b"damaged")
    slave.close()
    (log,) = (slave.root / "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(b"damaged", b"DAMAGED", 1))
    again = members.with_log_of(slave)
    again.act()
    await asyncio.sleep(100)
    assert again.outlet.taken == [b"whole"]


async def test_the_progress_survives_a_kill(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"0", b"1", b"2")
    slave.outlet.problems.extend([None, None, *["refused"] * 100])
    slave.act()
    await asyncio.sleep(3)
    again = members.with_log_of(slave)
    again.act()
    await asyncio.sleep(10)
    assert (slave.outlet.taken, again.outlet.taken) == ([b"0", b"1"], [b"2"])
    assert again.on_disk[1][:2] == (0, 3), "one fact for both"


async def test_a_new_master_delivers_only_the_rest(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"0", b"1", b"2")
    slave.master_delivers(b"0")
    slave.outlet.problems.extend([None, *["refused"] * 100])
    slave.act()
    await asyncio.sleep(3)
    master = members.with_log_of(slave)
    master.lead()
    await asyncio.sleep(10)
    assert (slave.outlet.taken, master.stored()) == ([b"1"], [b"0", b"2"])
    master.service.settle()
    assert master.delays.table == {1: 3}


async def test_a_master_that_does_not_know_delivers_all(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"0", b"1")
    slave.act()
    await asyncio.sleep(3)
    master = members.with_log_of(slave, facts=False)
    master.lead()
    await asyncio.sleep(10)
    assert master.stored() == [b"0", b"1"]


async def test_in_another_log_a_fact_says_nothing(members: Members) -> None:
    """An unclean election: other messages came in the place of those that escaped."""
    slave, other = members.new(), members.new()
    slave.arrives(b"0", b"1")
    slave.act()
    await asyncio.sleep(3)
    other.arrives(b"x", b"y")
    other.delays.join(slave.on_disk)
    other.lead()
    await asyncio.sleep(10)
    assert other.stored() == [b"x", b"y"]


async def test_what_a_master_delivered_and_lost_is_delivered_before_what_escaped(members: Members) -> None:
    """Relaxed: the copy was cut off, the fact is only about what came after it."""
    slave = members.new()
    slave.arrives(b"0", b"1", b"2")
    end = slave.store.max_offset
    slave.master_delivers(b"0")
    slave.outlet.problems.extend([None, *["refused"] * 100])
    slave.act()
    await asyncio.sleep(3)
    assert slave.on_disk[1][:2] == (1, 2)
    slave.act(acting=False)
    await asyncio.sleep(10)
    slave.store.truncate(end)
    slave.store.files.truncate(end)
    master = members.with_log_of(slave)
    master.lead()
    await asyncio.sleep(10)
    assert master.stored() == [b"0", b"2"]


async def test_what_is_on_its_way_when_this_slave_is_elected_is_not_delivered_again(members: Members) -> None:
    slave = await members.sending(b"0", b"1", seconds=2.0)
    slave.lead()
    await asyncio.sleep(10)
    assert (slave.outlet.taken, slave.stored()) == ([b"0"], [b"1"])


@pytest.mark.parametrize("epoch", [3, 2], ids=["elected", "returned, without controllers"])
async def test_the_question_of_a_new_master_ends_the_escape(members: Members, epoch: int) -> None:
    slave = members.new()
    slave.follow(2)
    slave.arrives(b"0", b"1", b"2")
    slave.outlet.seconds = 0.1
    slave.act()
    await asyncio.sleep(1.05)
    await slave.service.before_next_master(1)
    assert slave.outlet.taken == [b"0"], "the answer has what was on its way"
    await asyncio.sleep(0.05)
    assert len(slave.outlet.tried) == 2, "that master is over"
    await slave.service.before_next_master(epoch)
    assert (slave.outlet.taken, slave.on_disk[1][:2]) == ([b"0", b"1"], (0, 2))
    asked = slave.now
    await asyncio.sleep(YIELD_SECONDS - 1)
    assert len(slave.outlet.tried) == 2
    await asyncio.sleep(2)
    at, body = slave.outlet.tried[2]
    assert body == b"2", "no master has come"
    assert at >= asked + YIELD_SECONDS - 0.2


@pytest.mark.parametrize("slow", ["disk", "route"])
async def test_what_has_not_left_when_a_new_master_asks_stays(members: Members, slow: str) -> None:
    slave = members.new()
    slave.arrives(b"0")
    if slow == "disk":
        slave.saving_seconds = 1.0
    else:
        slave.outlet.route_seconds = 1.0
    slave.act()
    await asyncio.sleep(1.5)
    await slave.service.before_next_master(2)
    await asyncio.sleep(YIELD_SECONDS - 1)
    assert slave.outlet.tried == [], "the answer does not have it"
    await asyncio.sleep(10)
    assert slave.outlet.taken == [b"0"], "no master has come"


async def test_what_has_not_left_when_this_slave_is_elected_is_delivered_here(members: Members) -> None:
    slave = await members.sending(b"0", b"1", route_seconds=1.0)
    slave.lead()
    await asyncio.sleep(10)
    assert (slave.outlet.tried, slave.stored()) == ([], [b"0", b"1"])


async def test_the_answer_has_what_was_on_its_way_when_this_slave_follows_already(members: Members) -> None:
    slave = await members.sending(b"0", seconds=0.1)
    slave.follow()
    await slave.service.before_next_master(2)
    assert slave.delays.escaped[1][:2] == (0, 1)


async def test_a_hanging_send_delays_a_new_master_no_longer(members: Members) -> None:
    slave = await members.sending(b"0", seconds=3.0)
    asked = slave.now
    await slave.service.before_next_master(2)
    assert slave.now - asked < 0.25
    slave.follow()
    await asyncio.sleep(10)
    assert slave.on_disk[1][:2] == (0, 1), "it is still recorded"


async def test_after_a_master_it_acts_again(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"0", b"1")
    slave.act()
    await asyncio.sleep(3)
    slave.act(acting=False)
    slave.arrives(b"2", b"3", b"4")
    slave.master_delivers(b"2", b"3")
    slave.act()
    await asyncio.sleep(3)
    assert slave.outlet.taken == [b"0", b"1", b"4"]
    assert slave.on_disk[1][:2] == (4, 5)


async def test_what_was_sent_to_a_deleted_topic_stays_and_leaves_no_gap(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"before")
    slave.arrives(b"deleted", topic="Gone")
    slave.arrives(b"after")
    slave.topic_deleted("Gone")
    slave.act()
    await asyncio.sleep(3)
    assert slave.outlet.taken == [b"before", b"after"]
    master = members.with_log_of(slave)
    master.lead()
    await asyncio.sleep(3)
    assert master.stored() == []


async def test_an_acting_slave_finds_the_copies_behind_a_message_of_a_deleted_topic(members: Members) -> None:
    slave = members.new()
    slave.arrives(b"deleted", topic="Gone")
    slave.arrives(b"delivered", b"waits")
    slave.topic_deleted("Gone")
    slave.master_delivers(b"delivered")
    slave.act()
    await asyncio.sleep(3)
    assert slave.outlet.taken == [b"waits"]
