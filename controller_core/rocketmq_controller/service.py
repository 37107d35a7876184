"""What a controller does, whoever asks: the remoting API and the gRPC API are two doors to this one room.

Each method takes the typed request and returns a Decision, at once or as a future; the doors only translate. Reads are
answered from the state as the next decision would see it, once it has committed; `isProcessReadEvent` asks the quorum
first.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.domain import decide
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import LivenessView
from rocketmq_controller.elections import Elections
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.pipeline import NOT_LEADER
from rocketmq_controller.proposals import Proposals
from rocketmq_controller.raft import RaftError, Replica
from rocketmq_controller.settings import Peer
from rocketmq_controller.state_machine import ControllerStateMachine
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)

log = structlog.get_logger(__name__)

Answer = Decision | asyncio.Future[Decision]


class ControllerService:
    """One per process; used in the event loop only."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        replica: Replica,
        machine: ControllerStateMachine,
        proposals: Proposals,
        elections: Elections,
        metrics: ControllerMetrics,
    ) -> None:
        self.config = config
        self.replica = replica
        self.machine = machine
        self.metrics = metrics
        self._proposals = proposals
        self._elections = elections
        self._loop = asyncio.get_running_loop()

    # Liveness

    def view(self) -> LivenessView:
        """This member's heartbeat table, now."""
        return self._elections.view()

    def heartbeat(self, header: BrokerHeartbeatRequestHeader, connection_id: int) -> Decision:
        """904, taken by every member."""
        return self._elections.on_heartbeat(header, connection_id)

    def connection_closed(self, connection_id: int) -> None:
        """A broker's connection, maybe, is gone."""
        self._elections.on_connection_closed(connection_id)

    # The replicated state

    def alter_sync_state_set(self, header: AlterSyncStateSetRequestHeader, body: SyncStateSet) -> Answer:
        return self._proposals.submit(
            header.broker_name, lambda group: decide.alter_sync_state_set(group, header, body, self.view())
        )

    def elect_master(
        self, header: ElectMasterRequestHeader, connection_id: int | None = None, *, last_resort: bool = False
    ) -> Answer:
        """1002; `connection_id` where the asking broker may be on the other end; `last_resort`: see `Options`."""
        return self._elections.elect(header, connection_id, last_resort=last_resort)

    def register_broker(self, header: RegisterBrokerToControllerRequestHeader, connection_id: int) -> Answer:
        self._elections.on_register(header, connection_id)
        return self._proposals.submit(
            header.broker_name,
            lambda group: decide.register_broker(group, header, self.view(), connection_id=connection_id),
        )

    def get_next_broker_id(self, header: GetNextBrokerIdRequestHeader) -> Answer:
        def ask() -> Answer:
            return self._proposals.submit(header.broker_name, lambda group: decide.get_next_broker_id(group, header))

        return self._read(ask)

    def apply_broker_id(self, header: ApplyBrokerIdRequestHeader) -> Answer:
        return self._proposals.submit(header.broker_name, lambda group: decide.apply_broker_id(group, header))

    def get_replica_info(self, header: GetReplicaInfoRequestHeader) -> Answer:
        return self._read(lambda: self._proposals.submit(header.broker_name, decide.get_replica_info))

    def clean_broker_data(self, header: CleanControllerBrokerDataRequestHeader) -> Answer:
        return self._proposals.submit(
            header.broker_name, lambda group: decide.clean_broker_data(group, header, self.view())
        )

    def get_sync_state_data(self, broker_names: Sequence[str] | None) -> Answer:
        """Of committed state only: it spans groups, and whoever asks wants a picture, not a decision."""
        if not self.replica.is_leader:
            return NOT_LEADER
        return self._read(lambda: decide.get_sync_state_data(self.machine.groups, broker_names, self.view()))

    # The quorum and the node

    def get_metadata(self) -> GetMetaDataResponseHeader:
        """1005, answered by every member."""
        settings = self.config.settings
        leader = self.leader()
        return GetMetaDataResponseHeader(
            group=settings.group,
            controller_leader_id=None if leader is None else leader.id,
            controller_leader_address=None if leader is None else leader.address,
            is_leader=self.replica.is_leader,
            peers="".join(f"{peer.id}:{peer.address};" for peer in settings.peers.values()),
        )

    def leader(self) -> Peer | None:
        """Who leads, as far as this member knows."""
        leader_id = self.replica.status().leader_id
        return None if leader_id is None else self.config.settings.peers.get(leader_id)

    def _read(self, answer: Callable[[], Answer]) -> Answer:
        if not self.config.settings.is_process_read_event:
            return answer()
        return self._loop.create_task(self._read_behind_barrier(answer))

    async def _read_behind_barrier(self, answer: Callable[[], Answer]) -> Decision:
        try:
            await self.replica.barrier()
        except RaftError as error:
            log.warning("read refused: leadership not proved", reason=str(error))
            return NOT_LEADER
        result = answer()
        return await result if isinstance(result, asyncio.Future) else result
