"""What a controller does for the remoting API and the gRPC API.

Each method takes the typed request and returns a Decision, at once or as a future; the APIs only translate. Reads are
answered from the state as the next decision would see it, once it has committed; with `isProcessReadEvent` the quorum
confirms the leader first.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.forms import APPENDED_LEVEL, FEATURE_LEVEL
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_controller.domain.requests.cleaning import clean_broker_data
from rocketmq_controller.domain.requests.queries import get_replica_info, get_sync_state_data
from rocketmq_controller.domain.requests.registration import (
    apply_broker_id,
    get_next_broker_id,
    register_broker,
    still_connected,
)
from rocketmq_controller.failover import Failover
from rocketmq_controller.log.pipeline import NOT_LEADER
from rocketmq_controller.log.proposals import Proposals
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.raft import NotLeaderError, RaftError, Replica
from rocketmq_controller.settings import Peer
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_runtime import background
from rocketmq_runtime.clocks import boot_clock
from rocketmq_runtime.log_limiter import LogLimiter

log = structlog.get_logger(__name__)

LOG_SECONDS: Final = 60.0
"""Between two lines about the refusals of one host."""

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
        failover: Failover,
        metrics: ControllerMetrics,
    ) -> None:
        self.config = config
        self.replica = replica
        self.machine = machine
        self.metrics = metrics
        self.failover = failover
        """Takes heartbeats, doubts, ends of connections and requests for an election."""
        self._proposals = proposals
        self._may_log = LogLimiter(boot_clock, LOG_SECONDS)

    # The replicated state

    def alter_sync_state_set(self, header: AlterSyncStateSetRequestHeader, body: SyncStateSet) -> Answer:
        return self._proposals.submit(
            header.broker_name, lambda group: alter_sync_state_set(group, header, body, self.failover.view())
        )

    def register_broker(
        self, header: RegisterBrokerToControllerRequestHeader, connection_id: int, host: str = ""
    ) -> Answer:
        if not self.failover.on_register(header, connection_id, host) and self.replica.is_leader:
            return still_connected(header)
        return self._proposals.submit(
            header.broker_name,
            lambda group: register_broker(group, header, self.failover.view(), connection_id=connection_id),
        )

    def get_next_broker_id(self, header: GetNextBrokerIdRequestHeader) -> Answer:
        def submit() -> Answer:
            return self._proposals.submit(header.broker_name, lambda group: get_next_broker_id(group, header))

        return self._read(submit)

    def apply_broker_id(self, header: ApplyBrokerIdRequestHeader, host: str = "") -> Answer:
        """1013, over a connection from `host`."""
        known = host if self._proposals.feature_level >= APPENDED_LEVEL else ""

        def decide(group: BrokerGroup | None) -> Decision:
            room = self._proposals.room(known, self.config.settings.max_broker_groups)
            decision = apply_broker_id(group, header, room=room, host=known)
            if decision.code is ResponseCode.SYSTEM_BUSY and self._may_log(host):
                log.warning("no room for a broker", broker=header.broker_name, host=host, reason=decision.remark)
            return decision

        return self._proposals.submit(header.broker_name, decide)

    def get_replica_info(self, header: GetReplicaInfoRequestHeader) -> Answer:
        return self._read(lambda: self._proposals.submit(header.broker_name, get_replica_info))

    def clean_broker_data(self, header: CleanControllerBrokerDataRequestHeader) -> Answer:
        return self._proposals.submit(
            header.broker_name, lambda group: clean_broker_data(group, header, self.failover.view())
        )

    def get_sync_state_data(self, broker_names: Sequence[str] | None) -> Answer:
        """From committed state only: it spans groups, and nothing is decided on it."""
        if not self.replica.is_leader:
            return NOT_LEADER
        return self._read(lambda: get_sync_state_data(self.machine.groups, broker_names, self.failover.view()))

    # The quorum and the node

    def update_config(self, body: bytes, host: str = "") -> Answer:
        """1009, over a connection from `host`: of this member only."""
        return background.awaited(self._update_config(body, host), "configuration")

    async def _update_config(self, body: bytes, host: str) -> Decision:
        try:
            answer = await self.config.update(body, host=host)
        except BodyError as error:
            return Decision(error.response_code, str(error))
        return Decision(answer.code, answer.remark)

    def get_metadata(self) -> GetMetaDataResponseHeader:
        """1005, answered by every member."""
        settings, peers = self.config.settings, self.peers()
        leader_id = self.replica.status().leader_id
        leader = None if leader_id is None else peers.get(leader_id)
        return GetMetaDataResponseHeader(
            group=settings.group,
            controller_leader_id=None if leader is None else leader.id,
            controller_leader_address=None if leader is None else leader.address,
            is_leader=self.replica.is_leader,
            peers="".join(f"{peer.id}:{peer.address};" for peer in peers.values()),
            feature_level=FEATURE_LEVEL,
        )

    def leader(self) -> Peer | None:
        """The leader that this member follows, or itself."""
        leader_id = self.replica.status().leader_id
        return None if leader_id is None else self.peers().get(leader_id)

    def peers(self) -> Mapping[str, Peer]:
        """The members with their remoting addresses: from the log, else from the configuration file."""
        configured, distance = self.config.settings.peers, self.config.settings.raft_distance
        try:
            members = self.replica.status().configuration.members
        except NotLeaderError:  # not started
            return configured
        peers = {m.id: Peer(m.id, m.host, m.port - distance) for m in members if m.host}
        peers.update({m.id: configured[m.id] for m in members if not m.host and m.id in configured})
        return peers

    def _read(self, answer: Callable[[], Answer]) -> Answer:
        if not self.config.settings.is_process_read_event:
            return answer()
        return background.awaited(self._read_behind_barrier(answer), "read")

    async def _read_behind_barrier(self, answer: Callable[[], Answer]) -> Decision:
        try:
            await self.replica.barrier()
        except RaftError as error:
            log.warning("read refused: leadership not proved", reason=str(error))
            return NOT_LEADER
        result = answer()
        return await result if isinstance(result, asyncio.Future) else result
