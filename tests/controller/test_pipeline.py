"""The pipeline: what is decided ahead of the disk, and that nothing decided on a lost change survives it."""

import asyncio
from collections import deque

import pytest

from rocketmq_controller import event_codec
from rocketmq_controller.domain import decide
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.pipeline import BUSY, NOT_LEADER, UNKNOWN, Pipeline
from rocketmq_controller.raft import NotLeaderError, OverloadedError, ProposalLostError
from rocketmq_controller.state_machine import ControllerStateMachine
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.controller import ApplyBrokerIdRequestHeader


class FakeReplica:
    """Raft with the committing left to the test."""

    def __init__(self, machine: ControllerStateMachine) -> None:
        self.is_leader = True
        self.refuse: Exception | None = None
        self.machine = machine
        self.log: deque[tuple[bytes, asyncio.Future[object]]] = deque()
        self.index = 0

    def propose(self, command: bytes) -> "asyncio.Future[object]":
        if self.refuse is not None:
            raise self.refuse
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.log.append((command, future))
        return future

    def commit(self) -> None:
        command, future = self.log.popleft()
        self.index += 1
        future.set_result(self.machine.apply(self.index, command))

    def lose(self) -> None:
        while self.log:
            self.log.popleft()[1].set_exception(ProposalLostError("lost"))


class World:
    """A pipeline on a fake Raft."""

    def __init__(self) -> None:
        self.machine = ControllerStateMachine()
        self.replica = FakeReplica(self.machine)
        metrics = ControllerMetrics(address="a:1", group="g", peer_id="n0", extra_labels={})
        self.pipeline = Pipeline(self.replica, self.machine, metrics)  # type: ignore[arg-type]

    def apply_id(self, broker_id: int, name: str = "b") -> "Decision | asyncio.Future[Decision]":
        header = ApplyBrokerIdRequestHeader(
            cluster_name="c", broker_name=name, applied_broker_id=broker_id, register_check_code=f"a:{broker_id};1"
        )
        return self.pipeline.submit(name, lambda group: decide.apply_broker_id(group, header))

    def replica_info(self, name: str = "b") -> "Decision | asyncio.Future[Decision]":
        return self.pipeline.submit(name, decide.get_replica_info)


@pytest.fixture
async def world() -> World:
    return World()


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_requests_of_one_turn_travel_as_one_entry_and_are_decided_in_order(world: World) -> None:
    answers = [world.apply_id(number) for number in (1, 2, 3)]
    await turn()
    assert len(world.replica.log) == 1
    assert len(event_codec.decode_events(world.replica.log[0][0])) == 3
    assert not any(answer.done() for answer in answers if isinstance(answer, asyncio.Future))
    world.replica.commit()
    await turn()
    assert [answer.result().code for answer in answers if isinstance(answer, asyncio.Future)] == [0, 0, 0]
    assert sorted(world.machine.groups["b"].replicas) == [1, 2, 3]


async def test_a_second_request_is_decided_on_the_uncommitted_first_without_waiting(world: World) -> None:
    first = world.apply_id(1)
    await turn()
    second = world.apply_id(2)
    await turn()
    assert len(world.replica.log) == 2
    world.replica.commit()
    world.replica.commit()
    await turn()
    for answer in (first, second):
        assert isinstance(answer, asyncio.Future)
        assert answer.result().code is ResponseCode.SUCCESS


async def test_a_read_waits_for_the_change_it_saw(world: World) -> None:
    world.apply_id(1)
    await turn()
    read = world.replica_info()
    assert isinstance(read, asyncio.Future)
    await turn()
    assert not read.done()
    world.replica.commit()
    await turn()
    assert read.result().code is ResponseCode.SUCCESS


async def test_a_read_of_another_group_is_answered_at_once(world: World) -> None:
    world.apply_id(1)
    await turn()
    answer = world.replica_info("other")
    assert isinstance(answer, Decision)
    assert answer.code is ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST


async def test_a_read_that_saw_a_lost_change_is_not_answered_with_it(world: World) -> None:
    world.apply_id(1)
    await turn()
    read = world.replica_info()
    world.replica.lose()
    await turn()
    assert isinstance(read, asyncio.Future)
    assert read.result() is UNKNOWN


async def test_a_follower_decides_nothing(world: World) -> None:
    world.replica.is_leader = False
    assert world.apply_id(1) is NOT_LEADER


async def test_after_a_lost_proposal_decisions_start_from_committed_state(world: World) -> None:
    lost = world.apply_id(1)
    await turn()
    world.replica.lose()
    await turn()
    assert isinstance(lost, asyncio.Future)
    assert lost.result() is UNKNOWN
    # id 2 would only be right had id 1 been taken
    refused = world.apply_id(2)
    assert isinstance(refused, Decision)
    assert refused.code is ResponseCode.CONTROLLER_BROKER_ID_INVALID


async def test_decisions_not_yet_proposed_are_given_up_with_the_change_they_rest_on(world: World) -> None:
    world.apply_id(1)
    await turn()
    # Decided on the uncommitted id 1, and not flushed yet when that is lost.
    after = world.apply_id(2)
    world.replica.lose()
    await turn()
    assert isinstance(after, asyncio.Future)
    assert after.result() is NOT_LEADER
    assert not world.replica.log, "an event that rests on a lost one must not be proposed"


async def test_after_a_refused_proposal_nothing_is_decided_until_those_in_flight_have_committed(world: World) -> None:
    first = world.apply_id(1)
    await turn()
    world.replica.refuse = OverloadedError("full")
    second = world.apply_id(2)
    await turn()
    assert isinstance(second, asyncio.Future)
    assert second.result() is BUSY
    world.replica.refuse = None
    # 1 is in flight: deciding on committed state would forget it, deciding on 2 would invent it.
    assert world.apply_id(3) is BUSY
    world.replica.commit()
    await turn()
    assert isinstance(first, asyncio.Future)
    assert first.result().code is ResponseCode.SUCCESS
    third = world.apply_id(2)
    await turn()
    world.replica.commit()
    await turn()
    assert isinstance(third, asyncio.Future)
    assert third.result().code is ResponseCode.SUCCESS


async def test_leadership_lost_between_deciding_and_proposing(world: World) -> None:
    answer = world.apply_id(1)
    world.replica.refuse = NotLeaderError(None)
    await turn()
    assert isinstance(answer, asyncio.Future)
    assert answer.result() is NOT_LEADER
    assert world.pipeline.in_flight == 0


async def test_a_void_event_is_answered_as_superseded(world: World) -> None:
    answer = world.apply_id(1)
    await turn()
    command, future = world.replica.log.popleft()
    del command
    future.set_result(frozenset({"b"}))
    await turn()
    assert isinstance(answer, asyncio.Future)
    assert answer.result().code is ResponseCode.SYSTEM_ERROR
