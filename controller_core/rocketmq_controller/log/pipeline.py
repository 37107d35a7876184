"""From a decision to a committed change: decides each request against the newest state and lets Raft carry the events.

Requests for one group follow each other without waiting for the disk: the pipeline keeps, per group, the state as it
will be once everything proposed so far has committed ("ahead"), decides against that, and answers when the events an
answer rests on have committed. Events that come together travel as one Raft entry.

Why this is safe: entries of one term commit in their order, so a batch can only commit after every batch it was decided
on. Two things could break that order, and both empty the pipeline first: a refused proposal (it would be missing
below later ones), and a lost leadership (the outcome of what is in flight is unknown, and the next leader decides from
what committed).

No event loop in here: `proposals` drives it in a process, the simulation in virtual time.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from rocketmq_controller.domain.decision import Decision, superseded
from rocketmq_controller.domain.events import Event
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.forms import FEATURE_LEVEL, FIRST_LEVEL, level_of
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.domain.room import Room, Tally
from rocketmq_controller.log import event_codec
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.raft import NotLeaderError, RaftError
from rocketmq_formats.codes import ResponseCode

log = structlog.get_logger(__name__)

MAX_BATCH_EVENTS = 1000
"""Events of one Raft entry (a request makes two at most): with the longest names about 1 MiB, well below its bound."""

NOT_LEADER = Decision(code=ResponseCode.CONTROLLER_NOT_LEADER, remark="The controller is not in leader state")
BUSY = Decision(code=ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]system busy, start flow control for a while")
UPGRADING = Decision(
    code=ResponseCode.SYSTEM_BUSY,
    remark="A controller of an older release could not read this change; it is possible once all are upgraded",
)
UNKNOWN = Decision(
    code=ResponseCode.SYSTEM_ERROR,
    remark="The controller lost its leadership before the change was committed; look whether it took effect",
)

Decide = Callable[[BrokerGroup | None], Decision]
Answer = Callable[[Decision], None]
Settle = Callable[["frozenset[str] | RaftError"], None]
"""Receives the groups for which a committed event was void, or why the outcome of the entry is unknown."""


class Proposer(Protocol):
    """The Raft member as the pipeline needs it."""

    @property
    def is_leader(self) -> bool:
        """Whether it may decide right now."""

    def propose(self, command: bytes, settle: Settle) -> None:
        """Replicate one entry; raises RaftError where nothing was proposed, else `settle` is called once, later."""

    def call_soon(self, flush: Callable[[], None]) -> None:
        """Call `flush` when what has come in so far has been handled."""


class _Batch(msgspec.Struct, eq=False):
    """Events that will be one Raft entry, and the answers that wait for it."""

    events: list[Event] = []
    groups: dict[str, BrokerGroup | None] = {}
    tally: Tally = msgspec.field(default_factory=Tally)
    """What the events change of it."""
    waiting: list[tuple[Answer, str, Decision]] = []
    """Callback, broker name, and the answer if the batch commits."""


class Pipeline:
    def __init__(
        self,
        proposer: Proposer,
        machine: ControllerStateMachine,
        *,
        feature_level: Callable[[], int] = lambda: FEATURE_LEVEL,
    ) -> None:
        """`feature_level`: what all members can read now (see `features`)."""
        self._feature_level = feature_level
        self._proposer = proposer
        self._machine = machine
        self._filling: _Batch | None = None
        self._in_flight: dict[int, _Batch] = {}
        self._sequence = 0
        # Which batch holds a group's newest uncommitted value.
        self._ahead: dict[str, _Batch] = {}
        self._draining = False
        self._tally = Tally()
        """What the batches that have not settled will change of the machine's."""

    @property
    def in_flight(self) -> int:
        """Raft entries proposed and not yet settled."""
        return len(self._in_flight)

    def group(self, broker_name: str) -> BrokerGroup | None:
        """The group as the next decision will see it."""
        batch = self._ahead.get(broker_name)
        return batch.groups[broker_name] if batch is not None else self._machine.groups.get(broker_name)

    @property
    def feature_level(self) -> int:
        """What all members can read now."""
        return self._feature_level()

    def room(self, host: str, max_groups: int) -> Room:
        """The room that the next decision will find, for a broker of `host`."""
        return Room.of(host, max_groups, self._machine.tally, self._tally)

    def submit(self, broker_name: str, decide: Decide, answer: Answer) -> None:
        """Decide for one group. `answer` is called before this returns where the decision rests on committed state
        only, else when that has committed.

        It gets CONTROLLER_NOT_LEADER where this member does not lead, SYSTEM_BUSY while proposals are refused or if a
        member could not read the change, and SYSTEM_ERROR where leadership was lost in between (outcome unknown).
        """
        if not self._proposer.is_leader:
            answer(NOT_LEADER)
            return
        if self._filling is not None and len(self._filling.events) >= MAX_BATCH_EVENTS:
            self._flush()  # before deciding: if it is refused, nothing may rest on it
        if self._draining:
            answer(BUSY)
            return
        group = self.group(broker_name)
        decision = decide(group)
        if decision.events:
            needed = max(map(level_of, decision.events))
            if needed > FIRST_LEVEL and needed > self._feature_level():  # to ask costs more than most decisions
                answer(UPGRADING)
                return
            batch = self._fill(broker_name, group, decision)
        elif broker_name in self._ahead:  # it changes nothing, but rests on what has not committed yet
            batch = self._ahead[broker_name]
        else:
            answer(decision)
            return
        batch.waiting.append((answer, broker_name, decision))

    def _fill(self, broker_name: str, group: BrokerGroup | None, decision: Decision) -> _Batch:
        if self._filling is None:
            self._filling = _Batch()
            self._proposer.call_soon(self._flush)
        batch = self._filling
        before = group
        for event in decision.events:
            group = evolve(group, event)
        if before is None or group is None or before.replicas is not group.replicas:  # most changes are of the set
            for tally in (batch.tally, self._tally):
                tally.change(before, group)
        batch.groups[broker_name] = group
        batch.events.extend(decision.events)
        self._ahead[broker_name] = batch
        return batch

    def _flush(self) -> None:
        batch, self._filling = self._filling, None
        if batch is None:  # flushed already, or given up together with what it rested on
            return
        self._sequence += 1
        sequence = self._sequence
        try:
            self._proposer.propose(
                event_codec.encode_events(batch.events), lambda outcome: self._settled(sequence, outcome)
            )
        except RaftError as error:
            self._refused(batch, error)
        else:
            self._in_flight[sequence] = batch

    def _refused(self, batch: _Batch, error: RaftError) -> None:
        # Later decisions must not rest on this batch, and may not forget those in flight: they wait until those have
        # settled.
        log.warning("proposal refused", events=len(batch.events), in_flight=len(self._in_flight), reason=str(error))
        self._start_over()
        self._tally.subtract(batch.tally)
        _answer_all(batch, NOT_LEADER if isinstance(error, NotLeaderError) else BUSY)

    def _settled(self, sequence: int, outcome: "frozenset[str] | RaftError") -> None:
        batch = self._in_flight.pop(sequence)
        self._tally.subtract(batch.tally)
        for name in batch.groups:
            if self._ahead.get(name) is batch:  # a later batch may hold a newer value
                del self._ahead[name]
        if isinstance(outcome, RaftError):
            log.warning("proposal lost", events=len(batch.events), in_flight=len(self._in_flight), reason=str(outcome))
            # What was decided on it and not proposed yet is void as well, and surely without effect.
            filling, self._filling = self._filling, None
            self._start_over()
            _answer_all(batch, UNKNOWN)
            if filling is not None:
                self._tally.subtract(filling.tally)
                _answer_all(filling, NOT_LEADER)
            return
        # After a refusal, decisions rest on committed state again once nothing is in flight.
        self._draining = self._draining and bool(self._in_flight)
        if outcome:
            log.error("committed events were void: decided on another state", groups=sorted(outcome))
        for answer, name, decision in batch.waiting:
            answer(superseded(decision) if name in outcome else decision)

    def _start_over(self) -> None:
        self._ahead.clear()
        self._draining = bool(self._in_flight)


def _answer_all(batch: _Batch, decision: Decision) -> None:
    for answer, _, _ in batch.waiting:
        answer(decision)
