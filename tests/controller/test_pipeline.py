"""The pipeline: what is decided ahead of the disk, and that nothing decided on a lost change survives it."""

from collections import deque
from collections.abc import Callable
from typing import cast

import pytest

from rocketmq_controller.domain import events
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.forms import APPENDED_LEVEL, FIRST_LEVEL
from rocketmq_controller.domain.model import BrokerId
from rocketmq_controller.domain.requests.queries import get_replica_info
from rocketmq_controller.domain.requests.registration import apply_broker_id
from rocketmq_controller.log import event_codec, pipeline
from rocketmq_controller.log.pipeline import BUSY, NOT_LEADER, UNKNOWN, Pipeline, Settle
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.raft import NotLeaderError, OverloadedError, ProposalLostError, RaftError
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import ApplyBrokerIdRequestHeader


class FakeRaft:
    """Implements `pipeline.Proposer`, with turns of the loop and commits left to the test."""

    def __init__(self, machine: ControllerStateMachine) -> None:
        self.is_leader = True
        self.refuse: RaftError | None = None
        self.log: deque[tuple[bytes, Settle]] = deque()
        self.index = 0
        self._machine = machine
        self._soon: list[Callable[[], None]] = []

    def propose(self, command: bytes, settle: Settle) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.log.append((command, settle))

    def call_soon(self, flush: Callable[[], None]) -> None:
        self._soon.append(flush)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for flush in soon:
            flush()

    def commit(self) -> None:
        command, settle = self.log.popleft()
        self.index += 1
        settle(self._machine.apply(self.index, command))

    def lose(self) -> None:
        while self.log:
            self.log.popleft()[1](ProposalLostError("lost"))


class World:
    """A pipeline on a fake Raft; answers are collected in the order of the requests."""

    def __init__(self) -> None:
        self.machine = ControllerStateMachine()
        self.raft = FakeRaft(self.machine)
        self.feature_level = FIRST_LEVEL
        self.pipeline = Pipeline(self.raft, self.machine, feature_level=lambda: self.feature_level)

    def apply_id(self, broker_id: int, name: str = "b") -> list[Decision]:
        header = ApplyBrokerIdRequestHeader(
            cluster_name="c", broker_name=name, applied_broker_id=broker_id, register_check_code=f"a:{broker_id};1"
        )
        answers: list[Decision] = []
        self.pipeline.submit(name, lambda group: apply_broker_id(group, header), answers.append)
        return answers

    def replica_info(self, name: str = "b") -> list[Decision]:
        answers: list[Decision] = []
        self.pipeline.submit(name, get_replica_info, answers.append)
        return answers


@pytest.fixture
def world() -> World:
    return World()


def codes(*answers: list[Decision]) -> list[ResponseCode]:
    assert all(len(answer) == 1 for answer in answers), "each request is answered exactly once"
    return [answer[0].code for answer in answers]


def test_requests_that_come_together_travel_as_one_entry_and_are_decided_in_order(world: World) -> None:
    answers = [world.apply_id(number) for number in (1, 2, 3)]
    world.raft.turn()
    assert len(world.raft.log) == 1
    assert len(event_codec.decode_events(world.raft.log[0][0])) == 3
    assert not any(answers)
    world.raft.commit()
    assert codes(*answers) == [ResponseCode.SUCCESS] * 3
    assert sorted(world.machine.groups["b"].replicas) == [1, 2, 3]


def test_a_second_request_is_decided_on_the_uncommitted_first_without_waiting(world: World) -> None:
    first = world.apply_id(1)
    world.raft.turn()
    second = world.apply_id(2)
    world.raft.turn()
    assert len(world.raft.log) == 2
    world.raft.commit()
    world.raft.commit()
    assert codes(first, second) == [ResponseCode.SUCCESS] * 2


def test_a_read_waits_for_the_change_it_saw(world: World) -> None:
    world.apply_id(1)
    world.raft.turn()
    read = world.replica_info()
    assert not read
    world.raft.commit()
    assert codes(read) == [ResponseCode.SUCCESS]


def test_a_read_of_another_group_is_answered_at_once(world: World) -> None:
    world.apply_id(1)
    assert codes(world.replica_info("other")) == [ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST]


def test_a_read_that_saw_a_lost_change_is_not_answered_with_it(world: World) -> None:
    world.apply_id(1)
    world.raft.turn()
    read = world.replica_info()
    world.raft.lose()
    assert read == [UNKNOWN]


def test_what_is_under_way_takes_room_until_it_is_lost(world: World) -> None:
    """A host that sends many requests at once gets no more than its share."""

    def taken() -> tuple[int, int]:
        room = world.pipeline.room("", 10)
        return room.groups, room.members

    world.apply_id(1)
    world.apply_id(2)
    assert taken() == (1, 2)
    world.raft.turn()
    world.apply_id(1, "c")
    assert taken() == (2, 3)
    world.raft.commit()
    assert taken() == (2, 3)
    world.raft.turn()
    world.apply_id(1, "d")
    assert taken() == (3, 4)
    world.raft.lose()
    assert taken() == (1, 2)
    world.raft.refuse = OverloadedError("full")
    world.apply_id(1, "e")
    assert taken() == (2, 3)
    world.raft.turn()
    assert taken() == (1, 2)


def test_a_follower_decides_nothing(world: World) -> None:
    world.raft.is_leader = False
    assert world.apply_id(1) == [NOT_LEADER]


def test_after_a_lost_proposal_decisions_start_from_committed_state(world: World) -> None:
    lost = world.apply_id(1)
    world.raft.turn()
    world.raft.lose()
    assert lost == [UNKNOWN]
    # id 2 would only be right had id 1 been taken
    assert codes(world.apply_id(2)) == [ResponseCode.CONTROLLER_BROKER_ID_INVALID]


def test_decisions_not_yet_proposed_are_given_up_with_the_change_they_rest_on(world: World) -> None:
    world.apply_id(1)
    world.raft.turn()
    after = world.apply_id(2)
    world.raft.lose()
    world.raft.turn()
    assert after == [NOT_LEADER]
    assert not world.raft.log, "an event that rests on a lost one must not be proposed"


def test_of_two_entries_in_flight_the_second_is_not_trusted_when_the_first_is_lost(world: World) -> None:
    world.apply_id(1)
    world.raft.turn()
    second = world.apply_id(2)
    world.raft.turn()
    world.raft.log.popleft()[1](ProposalLostError("lost"))
    assert world.apply_id(3) == [BUSY], "the second one's fate is open: nothing may be decided before it is known"
    world.raft.lose()
    assert second == [UNKNOWN]
    assert codes(world.apply_id(2)) == [ResponseCode.CONTROLLER_BROKER_ID_INVALID]


def test_after_a_refused_proposal_nothing_is_decided_until_those_in_flight_have_committed(world: World) -> None:
    first = world.apply_id(1)
    world.raft.turn()
    world.raft.refuse = OverloadedError("full")
    second = world.apply_id(2)
    world.raft.turn()
    assert second == [BUSY]
    world.raft.refuse = None
    # 1 is in flight: deciding on committed state would forget it, deciding on 2 would invent it.
    assert world.apply_id(3) == [BUSY]
    world.raft.commit()
    assert codes(first) == [ResponseCode.SUCCESS]
    third = world.apply_id(2)
    world.raft.turn()
    world.raft.commit()
    assert codes(third) == [ResponseCode.SUCCESS]


def test_leadership_lost_between_deciding_and_proposing(world: World) -> None:
    answer = world.apply_id(1)
    world.raft.refuse = NotLeaderError(None)
    world.raft.turn()
    assert answer == [NOT_LEADER]
    assert world.pipeline.in_flight == 0


def test_a_void_event_is_answered_as_superseded(world: World) -> None:
    answer = world.apply_id(1)
    world.raft.turn()
    world.raft.log.popleft()[1](frozenset({"b"}))
    assert codes(answer) == [ResponseCode.SYSTEM_ERROR]


def test_an_entry_that_is_full_goes_before_the_next_request_is_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MAX_BATCH_EVENTS", 2)
    answers = [world.apply_id(number) for number in (1, 2, 3)]
    assert len(world.raft.log) == 1
    world.raft.turn()
    assert [len(event_codec.decode_events(command)) for command, _ in world.raft.log] == [2, 1]
    world.raft.commit()
    world.raft.commit()
    assert codes(*answers) == [ResponseCode.SUCCESS] * 3


def test_a_request_that_meets_the_refusal_of_a_full_entry_does_not_rest_on_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MAX_BATCH_EVENTS", 1)
    first = world.apply_id(1)
    world.raft.refuse = OverloadedError("full")
    second = world.apply_id(2)
    assert first == [BUSY]
    # Decided on committed state, where id 1 is not taken.
    assert codes(second) == [ResponseCode.CONTROLLER_BROKER_ID_INVALID]


def test_nothing_is_proposed_that_an_older_member_would_stop_at(world: World) -> None:
    class Newer(events.UpdateBrokerAddress, frozen=True, array_like=True, tag=6):
        reason: str = ""

    def decided(reason: str) -> list[Decision]:
        event = cast("events.Event", Newer("b", BrokerId(1), "h:2", reason))
        answers: list[Decision] = []
        world.pipeline.submit("b", lambda _: Decision(ResponseCode.SUCCESS, events=(event,)), answers.append)
        world.raft.turn()
        return answers

    world.apply_id(1)
    world.raft.turn()
    world.raft.commit()
    assert codes(decided("disk replaced")) == [ResponseCode.SYSTEM_BUSY]
    assert not world.raft.log
    decided("")  # says nothing that is new
    assert len(world.raft.log) == 1
    world.feature_level = APPENDED_LEVEL
    decided("disk replaced")
    assert len(world.raft.log) == 2
