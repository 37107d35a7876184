"""Serves operators' requests to a native replica (`replica_admin.ReplicaAdmin`) from the agent, replication and the
fence file. Built by `app`, which passes the reason in /readyz."""

import asyncio
import time
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from rocketmq_api.replica_view import EpochRange, NewMaster, ReplicaRole, ReplicaView
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.version import __version__
from rocketmq_sidecar.control.agent import Agent
from rocketmq_sidecar.control.fence_file import FenceFile
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.control.hand_over import Outcome
from rocketmq_sidecar.domain.control.role import BrokerState
from rocketmq_sidecar.ports.replica_admin import NotDoneError, NotNowError, StartingError, UnderWayError

log = structlog.get_logger(__name__)

HAND_OVER_MARGIN = 0.5
"""Seconds that the machine may be late with its own time-out."""


class NativeAdmin:
    """One per process; used in the event loop only."""

    def __init__(self, agent: Agent, *, unready: Callable[[], str | None]) -> None:
        """`unready` is the reason in /readyz."""
        self.fence: Fence | None = None
        self._agent = agent
        self._unready = unready
        self._file = FenceFile(agent.settings.root)
        self._writing = asyncio.Lock()
        self._loaded = False

    def load(self) -> Fence | None:
        """The fence of an earlier process; from now on this process holds the replica's lock."""
        self.fence = self._file.load()
        self._loaded = True
        if self.fence is not None:
            log.warning("fenced: sends are refused until an operator ends that", reason=self.fence.reason)
        return self.fence

    def get_replica(self) -> ReplicaView:
        agent, settings = self._agent, self._agent.settings
        machine, replication = agent.machine, agent.replication
        view = ReplicaView(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            fenced=self.fence is not None,
            fence_reason="" if self.fence is None else self.fence.reason,
            fenced_at_millis=0 if self.fence is None else self.fence.since_millis,
            ready_reason=self._unready() or "",
            remark=agent.remark() or "",
            version=__version__,
            max_offset=replication.max_offset,
            confirm_offset=replication.confirm_offset,
            min_offset=replication.min_offset,
            epochs=tuple(EpochRange(epoch.epoch, epoch.start_offset, epoch.end_offset) for epoch in replication.epochs),
        )
        if machine is None:
            return view
        session, group = machine.session, machine.session.group
        return replace(
            view,
            broker_id=session.broker_id,
            role=self.role,
            acting_master=agent.broker.acting,
            master_broker_id=group.master_id,
            master_epoch=group.master_epoch,
            sync_state_set=tuple(sorted(group.agreed.sync_state_set)),
            sync_state_set_epoch=group.agreed.sync_state_set_epoch,
            broker_connected=agent.broker.link.connected,
            address=session.address or "",
        )

    @property
    def role(self) -> ReplicaRole:
        """The replica's present role."""
        machine = self._agent.machine
        if machine is None or not self._agent.broker.link.connected:
            return ReplicaRole.UNKNOWN
        if machine.role.broker is BrokerState.MASTER:
            return ReplicaRole.MASTER
        return ReplicaRole.NONE if machine.role.slave_of is None else ReplicaRole.SLAVE

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        """See `ReplicaAdmin`. If it is already fenced for the same reason, the time stays."""
        if not self._loaded:
            raise StartingError("the sidecar is starting and does not hold the replica yet: try again")
        # Shielded: a caller that leaves must not leave file and broker with different states.
        await asyncio.shield(self._set_fenced(Fence(reason, time.time_ns() // 1_000_000) if fenced else None))
        return self.get_replica()

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        agent = self._agent
        if agent.machine is None or agent.stopping:
            raise StartingError("the sidecar is stopping" if agent.stopping else f"not started yet: {self._unready()}")
        try:
            async with asyncio.timeout(seconds + HAND_OVER_MARGIN):
                ended = await agent.hand_over(broker_id, seconds)
        except TimeoutError as error:
            raise NotDoneError("the hand-over did not end in time: check which replica is master") from error
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
                    raise NotNowError(f"the fence cannot be saved, so nothing has changed: {error}") from error
                self.fence = wanted
                log.info("fence saved" if wanted is not None else "fence removed", reason=wanted and wanted.reason)
            try:
                await self._agent.fence(self.fence)
            except TimeoutError as error:
                raise NotDoneError("the fence is saved, but the broker has not answered: it hangs") from error
