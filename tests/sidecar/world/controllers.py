"""The controllers of the world: their real domain, deciding at once and forgetting nothing; the test sets
whose answers get lost, and which controller leads."""

from collections.abc import Callable

import msgspec

from rocketmq_controller.domain import invariants
from rocketmq_controller.domain.broker_entry import BrokerKey
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, Options
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_controller.domain.requests.elect_master import elect_master, needs_election
from rocketmq_controller.domain.requests.queries import get_replica_info, get_sync_state_data
from rocketmq_controller.domain.requests.registration import (
    apply_broker_id,
    get_next_broker_id,
    register_broker,
    still_connected,
)
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    BrokerReplicasInfo,
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_sidecar.domain.actions import Heartbeat, Request
from tests.sidecar.world.node import CLUSTER, NAME, Node
from tests.sidecar.world.releases import as_first_released, replicas_as_first_released

CONTROLLERS = ("10.0.1.1:9878", "10.0.1.2:9878", "10.0.1.3:9878")


class Controllers:
    """All of them: one state, one table of heartbeats. Notices of elections go to `on_elected`."""

    def __init__(self, on_elected: Callable[[], None]) -> None:
        self.group: BrokerGroup | None = None
        self.heartbeats = HeartbeatTable()
        self.leader: str | None = CONTROLLERS[1]
        self.deaf: set[str] = set()
        """Those that answer nothing."""
        self.name: str | None = None
        """controllerDLegerGroup; None: they do not say."""
        self.old = False
        """They are of RocketMQ 5.0.0 or 5.1.0, which assign brokerIds at 1003."""
        self.older: set[int] = set()
        """Numbers of the sidecars that are of an earlier release, or all: then the controllers may be."""
        self.java = False
        """They ignore renewEpoch."""
        self.lose: Callable[[Node, Request], bool] = lambda _node, _ask: False
        """Whether the answer to a request gets lost, after it was acted on."""
        self._history = invariants.History()
        self._on_elected = on_elected

    def answer(self, node: Node, ask: Request, now: float) -> RemotingCommand | None:
        """What the asked one says; None: nothing arrives."""
        if ask.address in self.deaf:
            return None
        older = node.number in self.older
        if older and ask.header is not None:
            ask = msgspec.structs.replace(ask, header=as_first_released(ask.header))
        asked = request(ask.code, ask.header, ask.body)
        leads = ask.address == self.leader
        if ask.code is RequestCode.CONTROLLER_GET_METADATA_INFO:
            said = GetMetaDataResponseHeader(group=self.name, controller_leader_address=self.leader, is_leader=leads)
            return response(asked, ResponseCode.SUCCESS, None, said)
        if self.old and ask.code is RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
            return response(asked, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 1012 not supported")
        if not leads:
            return response(asked, ResponseCode.CONTROLLER_NOT_LEADER)
        if ask.code is RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
            state = {} if self.group is None else {NAME: self.group}
            decision = get_sync_state_data(state, [NAME], self.heartbeats.view(now))
        else:
            decision = self._decide(node, ask, now)
        said_more = decision.body
        if older and isinstance(said_more, BrokerReplicasInfo):
            said_more = replicas_as_first_released(said_more)
        body = b"" if said_more is None else encode_body(said_more)
        if self.lose(node, ask):
            return None
        return response(asked, decision.code, decision.remark, decision.header, body)

    def receive(self, node: Node, beat: Heartbeat, address: str, now: float) -> bool:
        """Whether the one at `address` takes the heartbeat; it counts where it leads, or did so last."""
        if address in self.deaf:
            return False
        if address == (self.leader or CONTROLLERS[1]):
            header = BrokerHeartbeatRequestHeader(
                cluster_name=CLUSTER,
                broker_addr=beat.broker_address,
                broker_name=NAME,
                broker_id=beat.broker_id,
                epoch=node.epochs[-1],
                max_offset=node.max_offset if beat.whole_to is None else min(beat.whole_to, node.max_offset),
                heartbeat_timeout_mills=10_000,
                election_priority=node.priority,
                write_lease_millis=None if beat.lease is None else round(1000 * beat.lease),
                strict_durability=beat.lease is None or None,
                unproven=beat.unproven or None,
            )
            if node.number in self.older:
                header = as_first_released(header)
            heard, view = self.heartbeats.on_heartbeat(header, node.connection, now), self.heartbeats.view(now)
            group = self.group if heard.came_alive and address == self.leader else None
            if group is not None and needs_election(group, view, Options()):
                self._elect(ElectMasterRequestHeader(broker_name=NAME), now)
            return heard.refused is None
        return True

    def on_tick(self, now: float) -> None:
        """Brokers that have been silent for too long are lost."""
        for gone in self.heartbeats.expired(now):
            self._lost(gone, now)

    def on_connection_closed(self, node: Node, now: float) -> None:
        for gone in self.heartbeats.on_connection_closed(node.connection, now):
            self._lost(gone, now)

    def _decide(self, node: Node, ask: Request, now: float) -> Decision:
        view = self.heartbeats.view(now)
        match ask.header:
            case GetNextBrokerIdRequestHeader() as header:
                return get_next_broker_id(self.group, header)
            case ApplyBrokerIdRequestHeader() as header:
                return self._made(apply_broker_id(self.group, header))
            case RegisterBrokerToControllerRequestHeader() as header:
                restarted = self.heartbeats.on_registered(NAME, header.broker_id, node.connection, now)
                registered = register_broker(self.group, header, view, connection_id=node.connection)
                return self._made(registered) if restarted else still_connected(header)
            case ElectMasterRequestHeader() as header:
                key, strict = BrokerKey(CLUSTER, NAME, header.broker_id), header.strict_durability is True
                self.heartbeats.touch(key, node.connection, now, strict=strict)
                return self._elect(header, now)
            case GetReplicaInfoRequestHeader():
                return get_replica_info(self.group)
            case AlterSyncStateSetRequestHeader() as header:
                if self.java:
                    header = msgspec.structs.replace(header, renew_epoch=None)
                body = decode_body(SyncStateSet, ask.body)
                return self._made(alter_sync_state_set(self.group, header, body, view))
        raise AssertionError(ask)

    def _elect(self, header: ElectMasterRequestHeader, now: float) -> Decision:
        decision = self._made(elect_master(self.group, header, self.heartbeats.view(now), Options()))
        if decision.code == ResponseCode.SUCCESS:
            self._on_elected()
        return decision

    def _made(self, decision: Decision) -> Decision:
        for event in decision.events:
            before = self.group
            self.group = evolve(before, event)
            invariants.check_transition(before, event, self.group, Options())
            if self.group is not None:
                self._history.observe(self.group)
        return decision

    def _lost(self, key: BrokerKey, now: float) -> None:
        if self.leader is not None and self.group is not None and self.group.master_broker_id == key.broker_id:
            self._elect(ElectMasterRequestHeader(broker_name=NAME), now)
