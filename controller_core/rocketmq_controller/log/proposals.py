"""The pipeline in the event loop: answers as futures, entries through the Raft replica, both counted.

Called by service and failover for everything that may change the state.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast

from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.forms import FEATURE_LEVEL
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.domain.room import Room
from rocketmq_controller.log.pipeline import Decide, Pipeline, Settle
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.raft import RaftError, Replica


class Proposals:
    """Implements `pipeline.Proposer`; one per process, used in the event loop only."""

    def __init__(
        self,
        replica: Replica,
        machine: ControllerStateMachine,
        metrics: ControllerMetrics,
        *,
        feature_level: Callable[[], int] = lambda: FEATURE_LEVEL,
    ) -> None:
        """`feature_level`: as of `Pipeline`."""
        self._replica = replica
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._pipeline = Pipeline(self, machine, feature_level=feature_level)

    def submit(self, broker_name: str, decide: Decide) -> "Decision | asyncio.Future[Decision]":
        """Decide for one group (see `Pipeline.submit`): the answer itself, or a future where it has to commit first."""
        reply = _Reply()
        self._pipeline.submit(broker_name, decide, reply)
        if reply.decision is not None:
            return reply.decision
        reply.future = self._loop.create_future()
        return reply.future

    def group(self, broker_name: str) -> BrokerGroup | None:
        """The group as the next decision will see it."""
        return self._pipeline.group(broker_name)

    def room(self, host: str, max_groups: int) -> Room:
        """As of `Pipeline.room`."""
        return self._pipeline.room(host, max_groups)

    @property
    def feature_level(self) -> int:
        """What all members can read now."""
        return self._pipeline.feature_level

    # pipeline.Proposer

    @property
    def is_leader(self) -> bool:
        return self._replica.is_leader

    def propose(self, command: bytes, settle: Settle) -> None:
        began = time.perf_counter()  # the loop's clock stands still within a turn
        self._replica.propose(command).add_done_callback(lambda entry: self._settle(entry, began, settle))

    def call_soon(self, flush: Callable[[], None]) -> None:
        self._loop.call_soon(flush)

    def _settle(self, entry: "asyncio.Future[object]", began: float, settle: Settle) -> None:
        lost: RaftError | None = None
        if entry.cancelled():
            lost = RaftError("the process is stopping")
        elif (error := entry.exception()) is not None:
            lost = error if isinstance(error, RaftError) else RaftError(f"{type(error).__name__}: {error}")
        self._metrics.append("success" if lost is None else "failed", time.perf_counter() - began)
        settle(cast("frozenset[str]", entry.result()) if lost is None else lost)


class _Reply:
    """Takes the pipeline's answer, now or later."""

    __slots__ = ("decision", "future")

    def __init__(self) -> None:
        self.decision: Decision | None = None
        self.future: asyncio.Future[Decision] | None = None

    def __call__(self, decision: Decision) -> None:
        if self.future is None:
            self.decision = decision
        elif not self.future.done():
            self.future.set_result(decision)
