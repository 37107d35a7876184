"""Clients of a simulated quorum: their requests to a member that leads, and what must be true of the answers."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from rocketmq_controller.raft import NotLeaderError, OverloadedError, RaftError, StateMachine
from rocketmq_controller.raft.consensus.machine import RaftMachine
from tests.sim.checks import Violation
from tests.sim.commands import CommandList
from tests.sim.quorum.member import Member


class Surroundings(Protocol):
    """What clients need of the world."""

    rng: Random

    def after(self, delay: float, action: Callable[[], None]) -> None: ...

    def wake(self, member: Member) -> None: ...

    def answer(
        self, value: object, error: RaftError | None, done: Callable[[object, RaftError | None], None]
    ) -> None: ...


class Serving:
    """A member that leads, as clients get to use it; refuses when that process has ended."""

    def __init__(self, world: "Surroundings", member: Member, machine: RaftMachine, state: StateMachine) -> None:
        self._world, self._member, self.process, self.state = world, member, machine, state

    @property
    def rng(self) -> Random:
        return self._world.rng

    @property
    def is_leader(self) -> bool:
        return self._member.machine is self.process and self.process.is_leader

    def propose(self, command: bytes, done: Callable[[object, RaftError | None], None]) -> None:
        """As `RaftMachine.propose`; `done` gets (index, result of apply)."""
        if self._member.machine is not self.process:
            raise NotLeaderError(None)
        self.process.propose(command, lambda value, error: self._world.answer(value, error, done))
        self._world.wake(self._member)

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Call `action` later, if the process still runs and is awake then."""

        def due() -> None:
            if self._member.machine is self.process:
                if self._member.paused:
                    self._world.after(0.01, due)
                else:
                    action()

        self._world.after(delay, due)


class Workload(Protocol):
    """What clients do. One object per run."""

    def make_state_machine(self) -> StateMachine:
        """A fresh one for a member that starts."""

    def client(self, leader: Serving) -> None:
        """One client comes and asks a member that leads."""

    def check(self, name: str, state: StateMachine) -> None:
        """After each step that touched the member; raises Violation."""

    def finish(self, states: list[StateMachine]) -> None:
        """At the end of the run, all members whole and caught up; raises Violation."""


class Numbered:
    """Commands that carry a number; every answered one must be there at the end, where the answer said."""

    def __init__(self) -> None:
        self._next = 0
        self.done: dict[int, bytes] = {}

    def make_state_machine(self) -> StateMachine:
        return CommandList()

    def client(self, leader: Serving) -> None:
        for _ in range(leader.rng.choice((1, 1, 1, 5, 20))):
            self._next += 1
            command = b"%d" % self._next

            def done(value: object, error: RaftError | None, command: bytes = command) -> None:
                if error is None:
                    assert isinstance(value, tuple)
                    self._answered(command, value[0])

            try:
                leader.propose(command, done)
            except (NotLeaderError, OverloadedError):
                return

    def _answered(self, command: bytes, index: int) -> None:
        if self.done.setdefault(index, command) != command:
            raise Violation(
                f"OneAnswerPerIndex: {command!r} and {self.done[index]!r} were both answered for index {index}"
            )

    def check(self, name: str, state: StateMachine) -> None:
        pass

    def finish(self, states: list[StateMachine]) -> None:
        for state in states:
            assert isinstance(state, CommandList)
            at = dict(zip(state.indexes, state.commands, strict=True))
            lost = {index: command for index, command in self.done.items() if at.get(index) != command}
            if lost:
                raise Violation(f"AckedSurvives: answered and lost: {lost}")
