"""What operators may ask of a native replica (`replica_admin.ReplicaAdmin`), answered out of agent, replication and the
fence's file. Built by `app`, which also knows whether the start waits for somebody."""

import asyncio
import time
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from rocketmq_api.replica_view import EpochRange, NewMaster, ReplicaRole, ReplicaView
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.version import __version__
from rocketmq_sidecar.agent import Agent
from rocketmq_sidecar.domain.fence import Fence
from rocketmq_sidecar.domain.hand_over import Outcome
from rocketmq_sidecar.domain.role import Broker
from rocketmq_sidecar.fence_file import FenceFile
from rocketmq_sidecar.replica_admin import NotDoneError, NotNowError, StartingError, UnderWayError

log = structlog.get_logger(__name__)

HAND_OVER_MARGIN = 0.5
"""Seconds that the machine may be late with its own time-out."""


class NativeAdmin:
    """One per process; used in the event loop only."""

    def __init__(self, agent: Agent, *, unready: Callable[[], str | None]) -> None:
        """`unready` is what /readyz says."""
        self.fence: Fence | None = None
        self._agent = agent
        self._unready = unready
        self._file = FenceFile(agent.settings.root)
        self._writing = asyncio.Lock()
        self._loaded = False

    def load(self) -> Fence | None:
        """The fence that an earlier process was ordered; the replica's lock is held from now on."""
        self.fence = self._file.load()
        self._loaded = True
        if self.fence is not None:
            log.warning("fenced: sends are refused until an operator ends that", reason=self.fence.reason)
        return self.fence

    def get_replica(self) -> ReplicaView:
        """See `ReplicaAdmin`."""
        agent, settings = self._agent, self._agent.settings
        machine, replication = agent.machine, agent.replication
        view = ReplicaView(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            fenced=self.fence is not None,
            fence_reason="" if self.fence is None else self.fence.reason,
            fenced_at_millis=0 if self.fence is None else self.fence.since_millis,
            ready_reason=self._unready() or "",
            version=__version__,
            max_offset=replication.max_offset,
            confirm_offset=replication.confirm_offset,
            min_offset=replication.min_offset,
            epochs=tuple(EpochRange(one.epoch, one.start_offset, one.end_offset) for one in replication.epochs),
        )
        if machine is None:
            return view
        steward, mandate = machine.steward, machine.steward.mandate
        return replace(
            view,
            broker_id=steward.broker_id,
            role=self.role,
            master_broker_id=mandate.master_id,
            master_epoch=mandate.master_epoch,
            sync_state_set=tuple(sorted(mandate.agreed.sync_state_set)),
            sync_state_set_epoch=mandate.agreed.sync_state_set_epoch,
            broker_connected=agent.broker.link.connected,
            address=steward.address or "",
        )

    @property
    def role(self) -> ReplicaRole:
        """What this replica is just now."""
        machine = self._agent.machine
        if machine is None or not self._agent.broker.link.connected:
            return ReplicaRole.NONE
        if machine.role.broker is Broker.MASTER:
            return ReplicaRole.MASTER
        return ReplicaRole.FENCED if machine.role.slave_of is None else ReplicaRole.SLAVE

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        """See `ReplicaAdmin`. The first reason and time stay where it is fenced already for the same."""
        if not self._loaded:
            raise StartingError("the sidecar is starting and does not hold the replica yet: try again")
        # Shielded: a caller that goes away must not leave file and broker at odds.
        await asyncio.shield(self._set_fenced(Fence(reason, time.time_ns() // 1_000_000) if fenced else None))
        return self.get_replica()

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        """See `ReplicaAdmin`."""
        agent = self._agent
        if agent.machine is None or agent.stopping:
            raise StartingError("the sidecar is stopping" if agent.stopping else f"not started yet: {self._unready()}")
        try:
            async with asyncio.timeout(seconds + HAND_OVER_MARGIN):
                ended = await agent.hand_over(broker_id, seconds)
        except TimeoutError as error:
            raise NotDoneError("the sidecar did not come to an end in time: look who is master") from error
        if ended.outcome == Outcome.NOT_NOW:
            raise NotNowError(ended.reason)
        if ended.outcome == Outcome.UNDER_WAY:
            raise UnderWayError(ended.reason)
        if ended.outcome != Outcome.ELECTED or ended.master_id is None:
            raise NotDoneError(f"{ended.reason}; sends are accepted here again if this is still the master")
        return NewMaster(ended.master_id, ended.master_epoch)

    async def _set_fenced(self, wanted: Fence | None) -> None:
        async with self._writing:
            same = self.fence is not None and wanted is not None and self.fence.reason == wanted.reason
            if not same and (self.fence is not None or wanted is not None):
                try:
                    await asyncio.to_thread(self._file.save, wanted)
                except StorageError as error:
                    raise NotNowError(f"the order cannot be kept, so nothing is changed: {error}") from error
                self.fence = wanted
                log.info("fence kept" if wanted is not None else "fence removed", reason=wanted and wanted.reason)
            try:
                await self._agent.fence(self.fence)
            except TimeoutError as error:
                raise NotDoneError("the order is kept, but the broker has not answered: it hangs") from error
