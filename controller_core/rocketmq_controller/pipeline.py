"""From a decision to a committed change: decides each request against the newest state and lets Raft carry the events.

Requests for one group follow each other without waiting for the disk: the pipeline keeps, per group, the state as it
will be once everything proposed so far has committed ("ahead"), decides against that, and answers when the events an
answer rests on have committed. All events of one turn of the event loop travel as one Raft entry.

Why this is safe: entries of one term commit in their order, so a batch can only commit after every batch it was
decided upon. Two things could break that order, and both empty the pipeline first: a refused proposal (it would be
missing below later ones), and a lost leadership (the outcome of what is in flight is unknown, and the next leader
decides from what committed).
"""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec
import structlog

from rocketmq_controller import event_codec
from rocketmq_controller.domain.decision import Decision, superseded
from rocketmq_controller.domain.events import Event
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.raft import NotLeaderError, OverloadedError, RaftError, Replica
from rocketmq_controller.state_machine import ControllerStateMachine
from rocketmq_formats.remoting.codes import ResponseCode

log = structlog.get_logger(__name__)

NOT_LEADER = Decision(code=ResponseCode.CONTROLLER_NOT_LEADER, remark="The controller is not in leader state")
BUSY = Decision(code=ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]system busy, start flow control for a while")
UNKNOWN = Decision(
    code=ResponseCode.SYSTEM_ERROR,
    remark="The controller lost its leadership before the change was committed; look whether it took effect",
)

Decide = Callable[[BrokerGroup | None], Decision]


class _Batch(msgspec.Struct, eq=False):
    """Events that will be one Raft entry, and the answers that wait for it."""

    events: list[Event] = []
    groups: dict[str, BrokerGroup | None] = {}
    proposed_at: float = 0.0
    waiting: list[tuple[asyncio.Future[Decision], str, Decision]] = []
    """Future, broker name, and the answer it gets if all goes well."""


class Pipeline:
    """One per process; used in the event loop only."""

    def __init__(self, replica: Replica, machine: ControllerStateMachine, metrics: ControllerMetrics) -> None:
        self._replica = replica
        self._machine = machine
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._filling: _Batch | None = None
        self._in_flight: dict[int, _Batch] = {}
        self._sequence = 0
        # Which batch holds a group's newest uncommitted value.
        self._ahead: dict[str, _Batch] = {}
        self._draining = False

    @property
    def in_flight(self) -> int:
        """Raft entries proposed and not yet decided."""
        return len(self._in_flight)

    def group(self, broker_name: str) -> BrokerGroup | None:
        """The group as the next decision will see it."""
        batch = self._ahead.get(broker_name)
        return batch.groups[broker_name] if batch is not None else self._machine.groups.get(broker_name)

    def submit(self, broker_name: str, decide: Decide) -> "Decision | asyncio.Future[Decision]":
        """Decide for one group. The answer comes at once where it rests on committed state only, else when that has
        committed.

        The answer is CONTROLLER_NOT_LEADER where this member does not lead, SYSTEM_BUSY while proposals are refused,
        and SYSTEM_ERROR where leadership was lost in between (outcome unknown).
        """
        if not self._replica.is_leader:
            return NOT_LEADER
        if self._draining:
            return BUSY
        decision = decide(self.group(broker_name))
        if decision.events:
            batch = self._fill(broker_name, decision)
        elif broker_name in self._ahead:
            batch = self._ahead[broker_name]
        else:
            return decision
        future: asyncio.Future[Decision] = self._loop.create_future()
        batch.waiting.append((future, broker_name, decision))
        return future

    def _fill(self, broker_name: str, decision: Decision) -> _Batch:
        if self._filling is None:
            self._filling = _Batch()
            self._loop.call_soon(self._flush)
        batch = self._filling
        group = self.group(broker_name)
        for event in decision.events:
            group = evolve(group, event)
        batch.groups[broker_name] = group
        batch.events.extend(decision.events)
        self._ahead[broker_name] = batch
        return batch

    def _flush(self) -> None:
        batch, self._filling = self._filling, None
        if batch is None:  # given up since, together with what it rested on
            return
        try:
            proposal = self._replica.propose(event_codec.encode_events(batch.events))
        except (NotLeaderError, OverloadedError) as error:
            self._refused(batch, error)
            return
        self._sequence += 1
        sequence = self._sequence
        self._in_flight[sequence] = batch
        batch.proposed_at = self._loop.time()
        proposal.add_done_callback(lambda done: self._decided(sequence, done))

    def _refused(self, batch: _Batch, error: RaftError) -> None:
        # Later decisions may rest on this batch only until it is forgotten; those in flight have to commit
        # before we go on.
        log.warning("proposal refused", events=len(batch.events), in_flight=len(self._in_flight), reason=str(error))
        self._forget(batch)
        self._draining = bool(self._in_flight)
        if self._draining:
            self._ahead.clear()
        answer = NOT_LEADER if isinstance(error, NotLeaderError) else BUSY
        _settle(batch, answer)

    def _decided(self, sequence: int, done: "asyncio.Future[object]") -> None:
        batch = self._in_flight.pop(sequence)
        self._forget(batch)
        lost = done.cancelled() or done.exception() is not None
        self._metrics.append("failed" if lost else "success", self._loop.time() - batch.proposed_at)
        if not self._in_flight:
            self._draining = False
        if lost:
            # Everything proposed after it fails too; until then nothing may be decided upon it.
            self._draining = bool(self._in_flight)
            self._ahead.clear()
            if self._filling is not None:  # never proposed, and decided upon what is lost
                _settle(self._filling, NOT_LEADER)
                self._filling = None
            reason = "cancelled" if done.cancelled() else str(done.exception())
            log.warning("proposal lost", events=len(batch.events), in_flight=len(self._in_flight), reason=reason)
            _settle(batch, UNKNOWN)
            return
        void = cast("frozenset[str]", done.result())
        if void:
            log.error("committed events were void: decided upon another state than they met", groups=sorted(void))
        for future, name, decision in batch.waiting:
            if not future.done():
                future.set_result(superseded(decision) if name in void else decision)

    def _forget(self, batch: _Batch) -> None:
        for name in batch.groups:
            if self._ahead.get(name) is batch:
                del self._ahead[name]


def _settle(batch: _Batch, answer: Decision) -> None:
    for future, _, _ in batch.waiting:
        if not future.done():
            future.set_result(answer)
