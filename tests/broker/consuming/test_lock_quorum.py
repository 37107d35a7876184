"""lockInStrictMode: a queue is held by whom most members of the group say, whatever the others do."""

import asyncio

import pytest

from rocketmq_broker.consuming import lock_members
from rocketmq_broker.consuming.lock_members import MEMBER_SECONDS
from rocketmq_broker.domain.consuming.lock_votes import Ballot, quorum
from rocketmq_broker.domain.consuming.locks import LOCK_SECONDS
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from tests.broker.consuming.lock_kit import LockGroup, lock_body, queues

pytestmark = pytest.mark.looptime

ALL = queues(0, 1, 2)


async def old_group(*addresses: str, replicas: int | None = None) -> LockGroup:
    """Whose members have run for longer than a lock lasts."""
    group = LockGroup(*addresses, replicas=replicas)
    await asyncio.sleep(LOCK_SECONDS)
    return group


def test_more_than_half() -> None:
    assert [quorum(replicas) for replicas in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


def test_a_ballot_is_decided_when_no_vote_can_change_it() -> None:
    ballot = Ballot(ALL, queues(0, 1), needed=2, voters=2)
    assert (ballot.decided, ballot.won) == (False, frozenset())
    ballot.count(queues(0, 7))
    assert (ballot.decided, ballot.won) == (False, queues(0)), "the other one may give 1"
    ballot.count(queues(2))
    assert (ballot.decided, ballot.won) == (True, queues(0)), "queue 7 was not asked for, 2 has one vote"


def test_a_ballot_that_needs_nobody_else() -> None:
    assert Ballot(queues(), queues(), needed=3, voters=4).decided, "nothing is asked for"
    assert Ballot(ALL, ALL, needed=3, voters=1).decided, "too few can be asked"
    assert not Ballot(ALL, ALL, needed=3, voters=2).decided


async def test_most_members_decide() -> None:
    group = await old_group("a", "b", "c")
    assert await group.lock("c1", "a", ALL) == ALL
    await asyncio.sleep(1)
    assert [group.votes(address, "c2", ALL) for address in "abc"] == [frozenset()] * 3, "all members know"
    assert await group.lock("c2", "b", ALL) == frozenset(), "another master gives nothing away"
    assert await group.lock("c1", "b", ALL) == ALL, "and renews"


async def test_members_ask_nobody_else() -> None:
    """onlyThisBroker=true: two members that asked each other would never end."""
    group = await old_group("a", "b", "c")
    group.kill("b")
    group.kill("c")
    assert group.votes("a", "c1", ALL) == ALL


async def test_one_member_away_costs_nothing() -> None:
    group = await old_group("a", "b", "c")
    group.kill("c")
    assert await group.lock("c1", "a", ALL) == ALL


async def test_without_most_members_nobody_gets_a_queue() -> None:
    group = await old_group("a", "b", "c")
    group.kill("b")
    group.kill("c")
    assert await group.lock("c1", "a", ALL) == frozenset()
    assert group.votes("a", "c2", ALL) == ALL, "what the lost vote took is free again"


async def test_members_that_no_name_server_knows_give_nothing() -> None:
    group = await old_group("a", replicas=3)
    assert await group.lock("c1", "a", ALL) == frozenset()


async def test_a_member_that_hangs_delays_nobody() -> None:
    group = await old_group("a", "b", "c")
    group.cut.add(frozenset("ac"))
    began = group.loop.time()
    assert await group.lock("c1", "a", ALL) == ALL
    assert group.loop.time() - began < 0.1


async def test_an_answer_comes_in_time_although_members_hang() -> None:
    """Java's clients give up after 1 s."""
    group = await old_group("a", "b", "c")
    group.votes("b", "c2", queues(0))
    group.cut.add(frozenset("ac"))
    began = group.loop.time()
    assert await group.lock("c1", "a", ALL) == queues(1, 2)
    assert group.loop.time() - began == pytest.approx(MEMBER_SECONDS + 2 * group.delay)


async def test_a_vote_that_comes_too_late_lapses() -> None:
    group = await old_group("a", "b", "c")
    group.kill("c")
    true_handle = group.handle

    async def slow(address: str, command: RemotingCommand) -> RemotingCommand:
        answer = await true_handle(address, command)
        if address == "b":
            await asyncio.sleep(MEMBER_SECONDS)
        return answer

    group.handle = slow
    assert await group.lock("c1", "a", ALL) == frozenset()


@pytest.mark.parametrize(
    "answer",
    [
        (ResponseCode.SYSTEM_ERROR, encode_body(LockBatchResponseBody(lock_ok_mq_set=ALL))),
        (ResponseCode.SUCCESS, b""),
        (ResponseCode.SUCCESS, b"\xff\x00 no JSON"),
        (ResponseCode.SUCCESS, b"[]"),
        (ResponseCode.SUCCESS, b'{"lockOKMQSet":[{"topic":7}]}'),
        (ResponseCode.SUCCESS, b'{"lockOKMQSet":null}'),
        (ResponseCode.SUCCESS, b"[" * 100_000),
        (ResponseCode.SUCCESS, encode_body(LockBatchResponseBody(lock_ok_mq_set=queues(8, 9)))),
        (ResponseCode.SUCCESS, b" " * 16_000_000),
    ],
    ids=["refused", "empty", "binary", "list", "shape", "null", "deep", "other queues", "huge"],
)
async def test_nonsense_is_no_vote(answer: tuple[int, bytes]) -> None:
    group = await old_group("a", "b", "c")
    true_handle = group.handle

    async def nonsense(address: str, command: RemotingCommand) -> RemotingCommand:
        return (
            await true_handle(address, command)
            if address == "a"
            else response(command, answer[0], None, None, answer[1])
        )

    group.handle = nonsense
    assert await group.lock("c1", "a", ALL) == frozenset()
    group.handle = true_handle
    assert await group.lock("c1", "a", ALL) == ALL


async def test_only_what_this_broker_gives_is_asked_for() -> None:
    group = await old_group("a", "b", "c")
    assert group.votes("a", "c2", queues(0)) == queues(0)
    asked: list[LockBatchRequestBody] = []
    true_handle = group.handle

    async def listen(address: str, command: RemotingCommand) -> RemotingCommand:
        if address != "a":
            asked.append(decode_body(LockBatchRequestBody, command.body))
        return await true_handle(address, command)

    group.handle = listen
    assert await group.lock("c1", "a", ALL) == queues(1, 2)
    assert {(one.client_id, one.mq_set, one.only_this_broker) for one in asked} == {("c1", queues(1, 2), True)}


async def test_a_member_known_by_two_ids_has_one_vote() -> None:
    """While roles change a name server may have the old master as 0 and by its own id."""
    group = await old_group("a", "b", replicas=5)
    group.known = ("a", "b", "b", "b")
    assert await group.lock("c1", "a", ALL) == frozenset()


async def test_one_replica_needs_nobody() -> None:
    group = LockGroup("a", replicas=1)
    assert await group.lock("c1", "a", ALL) == ALL, "at once: there is no other that could have given them away"


async def test_members_beyond_total_replicas_count() -> None:
    """The group has grown, and the key has not: two of five, asked by one, must not outvote three of five."""
    group = await old_group("a", "b", "c", "d", "e", replicas=3)
    for address in "cde":
        group.kill(address)
    assert await group.lock("c1", "a", ALL) == frozenset()
    for address in "cde":
        group.start(address)
    await asyncio.sleep(LOCK_SECONDS)
    assert await group.lock("c1", "a", ALL) == ALL


async def test_members_are_asked_though_total_replicas_is_one() -> None:
    group = await old_group("a", "b", "c", replicas=1)
    assert await group.lock("c1", "a", ALL) == ALL
    await asyncio.sleep(1)
    assert await group.lock("c2", "b", ALL) == frozenset()


@pytest.mark.parametrize("strict", [False, True])
async def test_a_member_votes_on_queues_of_its_own_group_only(strict: bool) -> None:
    """The address of a member that was may be another group's broker now."""
    group = LockGroup("a", strict=strict)
    foreign = frozenset(MessageQueue(topic="T", broker_name="other", queue_id=number) for number in range(2))
    assert group.votes("a", "c1", ALL | foreign) == ALL
    assert await group.lock("c2", "a", foreign) == foreign, "the vote took nothing, and clients are not asked"


async def test_unlock_tells_all_members() -> None:
    group = await old_group("a", "b", "c")
    assert await group.lock("c1", "a", ALL) == ALL
    await group.unlock("c2", "b", ALL)
    await asyncio.sleep(1)
    assert await group.lock("c2", "b", ALL) == frozenset(), "c2 held nothing"
    await group.unlock("c1", "b", queues(0, 1))
    await asyncio.sleep(1)
    assert await group.lock("c2", "c", ALL) == queues(0, 1)


async def test_a_lock_and_its_unlock_reach_members_in_order() -> None:
    group = await old_group("a", "b", "c")
    await asyncio.gather(group.lock("c1", "a", ALL), group.unlock("c1", "a", ALL))
    await asyncio.sleep(1)
    assert await group.lock("c2", "b", ALL) == ALL


async def test_unlock_does_not_wait_for_members() -> None:
    group = await old_group("a", "b", "c")
    assert await group.lock("c1", "a", ALL) == ALL
    group.cut |= {frozenset("ab"), frozenset("ac")}
    began = group.loop.time()
    await group.unlock("c1", "a", ALL)
    assert group.loop.time() - began < 0.1
    assert await group.lock("c2", "b", ALL) == frozenset(), "they did not learn it"
    await asyncio.sleep(LOCK_SECONDS)
    assert await group.lock("c2", "b", ALL) == ALL


async def test_a_lost_renewal_takes_nothing_back() -> None:
    """The answer may not have reached the client, which then continues for up to 30 s."""
    group = await old_group("a", "b", "c")
    assert await group.lock("c1", "a", ALL) == ALL
    group.cut |= {frozenset("ab"), frozenset("ac")}
    assert await group.lock("c1", "a", ALL) == frozenset()
    assert group.votes("a", "c2", ALL) == frozenset()


async def test_a_lost_first_vote_takes_nothing_from_a_later_one_of_the_same_client() -> None:
    group = await old_group("a", "b", "c")
    group.cut |= {frozenset("ab"), frozenset("ac")}
    first = asyncio.ensure_future(group.lock("c1", "a", ALL))
    await asyncio.sleep(0.1)
    group.cut.clear()
    assert await group.lock("c1", "a", ALL) == ALL
    assert await first == frozenset()
    assert group.votes("a", "c2", ALL) == frozenset()


async def test_a_broker_that_has_just_started_gives_nothing() -> None:
    """c1's majority was a and b; b forgets."""
    group = await old_group("a", "b", "c")
    group.cut |= {frozenset("ac")}
    assert await group.lock("c1", "a", ALL) == ALL
    group.kill("a")
    group.start("b")
    assert await group.lock("c2", "c", ALL) == frozenset()
    assert await group.lock("c2", "b", ALL) == frozenset()
    await asyncio.sleep(LOCK_SECONDS + 0.1)
    assert await group.lock("c2", "c", ALL) == ALL


async def test_a_master_that_has_just_started_collects_the_votes_of_others() -> None:
    group = await old_group("a", "b", "c")
    group.start("a")
    assert await group.lock("c1", "a", ALL) == ALL
    assert group.votes("b", "c2", ALL) == frozenset()


async def test_calls_to_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    group = await old_group("a", "b", "c")
    group.cut |= {frozenset("ab"), frozenset("ac")}
    monkeypatch.setattr(lock_members, "MAX_CALLS", 3)
    first = asyncio.ensure_future(group.lock("c1", "a", queues(0)))
    await asyncio.sleep(0.1)
    command = request(RequestCode.LOCK_BATCH_MQ, None, lock_body("c2", queues(1)))
    assert (await group.call("c2", "a", command, timeout=1.0)).code == ResponseCode.SYSTEM_BUSY
    assert await first == frozenset()
    group.cut.clear()
    await asyncio.sleep(1)
    assert await group.lock("c2", "a", queues(1)) == queues(1)
