"""Failover: notices that a master is lost, elects another one, has the brokers notified.

Every member receives the heartbeats; only the leader acts on them. A closed connection of a master starts an election
at once, its silence does after the suspect timeout, and so does a replica that returns to a group without a master. A
periodic scan finds what these miss. An election that finds no candidate makes no event; the next of these occasions
tries again.

A process that was stalled does not take its own stall for silence of the brokers (see `liveness`). Whatever runs first
after a stall (the timer, a heartbeat that had waited, a closed connection) detects the stall before it judges a broker.
"""

import asyncio
import math

import msgspec
import structlog

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.domain.broker_entry import BrokerKey, Origin
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.liveness import HEARTBEAT_SUCCESS, HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, LivenessView, Options
from rocketmq_controller.domain.requests.elect_master import (
    elect_master,
    groups_needing_election,
    groups_waiting,
    needs_election,
)
from rocketmq_controller.domain.requests.identity import foreign_cluster, named_foreign_cluster
from rocketmq_controller.log.proposals import Proposals
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.notifier import Announcement, RoleNotifier
from rocketmq_controller.raft import LeadershipTerms, Replica
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    NO_BROKER_ID,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    LogDoubtRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import encode_header
from rocketmq_runtime import background
from rocketmq_runtime.remoting.hosts import ip_of

log = structlog.get_logger(__name__)

CHECK_PERIOD = 0.1
"""Seconds between checks of the heartbeat table: a suspicion is at most this late."""
STALL = 1.0
"""Seconds. A check that comes later than this means that this process was stalled: silence and closed connections
in that time prove nothing."""
RETRY_DELAY = 0.05
SCAN_PART = 2000
"""Groups that are scanned in one turn of the loop; 6 ms."""


class Failover:
    """One per process; used in the event loop only."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        replica: Replica,
        machine: ControllerStateMachine,
        proposals: Proposals,
        heartbeats: HeartbeatTable,
        notifier: RoleNotifier,
        metrics: ControllerMetrics,
    ) -> None:
        self._config = config
        self._replica = replica
        self._machine = machine
        self._proposals = proposals
        self._heartbeats = heartbeats
        self._notifier = notifier
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._scanning: asyncio.Handle | None = None
        """The next part of a scan."""
        self._checked_at = self._last_scan = self._loop.time()
        self._leadership = LeadershipTerms()
        self._waiting: dict[str, str] = {}
        """Why groups wait, as logged last."""

    def start(self) -> None:
        """Begin to check the heartbeat table."""
        self._checked_at = self._last_scan = self._loop.time()
        self._timer = self._loop.call_later(CHECK_PERIOD, self._check)

    async def stop(self) -> None:
        """End the timer and every election under way."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_scan()
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    # Events

    def on_heartbeat(self, header: BrokerHeartbeatRequestHeader, connection_id: int, host: str = "") -> Decision:
        """904, over a connection from `host`: take it, and elect if its sender was what its group waited for."""
        group = self._machine.groups.get(header.broker_name)
        if (remark := foreign_cluster(group, header.cluster_name)) is not None:
            return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
        registered = group is not None and header.broker_id in group.replicas
        heard = self._heartbeats.on_heartbeat(
            header, connection_id, self._now(), registered=registered, origin=_origin(group, header.broker_id, host)
        )
        if heard.refused is not None:
            return heard.refused
        self._notifier.on_heartbeat(header)
        if heard.came_alive and self._replica.is_leader and group is not None and self._needs_election(group):
            self._trigger(header.broker_name, f"broker {header.broker_id} came alive in a group without master")
        return HEARTBEAT_SUCCESS

    def on_log_doubt(self, header: LogDoubtRequestHeader, host: str = "") -> Decision:
        """990002, from `host`: whether the log of the broker beside a sidecar may lack data. Codes: 0, 2005, 2010."""
        group = self._machine.groups.get(header.broker_name)
        if group is None or header.broker_id not in group.replicas:
            return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered")
        if (remark := foreign_cluster(group, header.cluster_name)) is not None:
            return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
        proven = self._heartbeats.on_log_doubt(
            header.broker_name, header.broker_id, host, self._now(), unproven=header.unproven
        )
        if proven and self._replica.is_leader and self._needs_election(group):
            self._trigger(header.broker_name, f"broker {header.broker_id} has everything that was acknowledged")
        return Decision(ResponseCode.SUCCESS)

    def on_register(self, header: RegisterBrokerToControllerRequestHeader, connection_id: int, host: str = "") -> bool:
        """1003: a broker that registers over a new connection was restarted. False: it was not, since its heartbeats
        still come over the old connection."""
        group = self._machine.groups.get(header.broker_name)
        if foreign_cluster(group, header.cluster_name) is not None:
            return True  # it is refused, and changes nothing
        origin = _origin(group, header.broker_id, host)
        return self._heartbeats.on_registered(
            header.broker_name, header.broker_id, connection_id, self._now(), origin=origin
        )

    def on_connection_closed(self, connection_id: int) -> None:
        """The brokers on this connection are dead until their next heartbeat."""
        lost = self._heartbeats.on_connection_closed(connection_id, self._now())
        self._on_brokers_lost(lost, "its connection closed")

    def on_role_change(self) -> None:
        """Act on failures once this member serves as leader. Without a lease it elects none; the timer retries."""
        if self._leadership.begins(self._replica.status()):
            self._heartbeats.start_grace(self._now())
            self._last_scan = -math.inf
            self._scan("this controller became leader")

    def elect(
        self,
        header: ElectMasterRequestHeader,
        connection_id: int | None = None,
        *,
        host: str = "",
        last_resort: bool = False,
    ) -> "Decision | asyncio.Future[Decision]":
        """1002, for brokers, tools and this controller; the group's living members are notified of the new master."""
        if connection_id is not None and not header.designate_elect:
            self._touch(header, connection_id, host)
        options = msgspec.structs.replace(self._options(), last_resort=last_resort)
        answer = self._proposals.submit(
            header.broker_name, lambda group: elect_master(group, header, self.view(), options)
        )
        if isinstance(answer, Decision):
            self._on_decision(header.broker_name, answer)
        else:
            answer.add_done_callback(
                lambda done: None if done.cancelled() else self._on_decision(header.broker_name, done.result())
            )
        return answer

    def view(self) -> LivenessView:
        """The heartbeat table now; to be used within the same call stack."""
        return self._heartbeats.view(self._now())

    # Internals

    def _now(self) -> float:
        now = self._loop.time()
        late = now - self._checked_at
        if late > STALL:
            log.warning("event loop was stalled, silence counts from now on", seconds=round(late, 3))
            self._heartbeats.on_stall(now, late)
            self._checked_at = now
        return now

    def _touch(self, header: ElectMasterRequestHeader, connection_id: int, host: str) -> None:
        # A broker that asks for an election is alive; its heartbeat, sent just before, may arrive later.
        group = self._proposals.group(header.broker_name)
        broker_id = header.broker_id
        if named_foreign_cluster(group, header.cluster_name) is not None:
            return  # and it is refused
        if group is not None and BrokerId(broker_id) in group.replicas:
            key = BrokerKey(group.cluster_name, group.broker_name, broker_id)
            self._heartbeats.touch(
                key,
                connection_id,
                self._now(),
                strict=header.strict_durability is True,
                origin=_origin(group, broker_id, host),
            )

    def _check(self) -> None:
        now = self._checked_at = self._now()
        self._on_brokers_lost(self._heartbeats.expired(now), "it was silent for too long")
        if now - self._last_scan >= self._config.settings.scan_inactive_master_interval / 1000:
            self._scan("periodic scan")
        self._timer = self._loop.call_later(CHECK_PERIOD, self._check)

    def _scan(self, reason: str) -> None:
        """A part in each turn of the loop; a new scan takes the place of one under way."""
        if self._replica.is_leader:
            self._last_scan = self._now()
            self._end_scan()
            self._scan_part(reason, list(self._machine.groups), 0, {})

    def _scan_part(self, reason: str, names: list[str], first: int, waiting: dict[str, str]) -> None:
        if not self._replica.is_leader:
            return
        part, state = names[first : first + SCAN_PART], self._machine.groups
        groups = {name: state[name] for name in part if name in state}
        for name in groups_needing_election(groups, self.view(), self._options()):
            self._trigger(name, reason)
        waiting |= groups_waiting(groups, self.view(), self._options())
        first += SCAN_PART
        if first < len(names):
            self._scanning = self._loop.call_soon(self._scan_part, reason, names, first, waiting)
        else:
            self._log_waiting(waiting)

    def _end_scan(self) -> None:
        if self._scanning is not None:
            self._scanning.cancel()

    def _log_waiting(self, waiting: dict[str, str]) -> None:
        before, self._waiting = self._waiting, waiting
        for name, why in waiting.items():
            if before.get(name) != why:
                log.warning("no replica is elected", broker=name, reason=why)

    def _on_brokers_lost(self, brokers: tuple[BrokerKey, ...], reason: str) -> None:
        if not brokers:
            return
        leading = self._replica.is_leader
        for key in brokers:
            group = self._machine.groups.get(key.broker_name)
            was_master = group is not None and group.master_broker_id == key.broker_id
            log.info(
                "broker lost", broker=key.broker_name, broker_id=key.broker_id, was_master=was_master, reason=reason
            )
            if leading and was_master:
                self._trigger(key.broker_name, f"master {key.broker_id} lost: {reason}")

    def _trigger(self, broker_name: str, reason: str) -> None:
        if broker_name not in self._running:
            task = background.start(self._elect_until_settled(broker_name, reason), f"election of {broker_name}")
            self._running[broker_name] = task
            task.add_done_callback(lambda _: self._running.pop(broker_name, None))

    async def _elect_until_settled(self, broker_name: str, reason: str) -> None:
        header = ElectMasterRequestHeader(broker_name=broker_name, broker_id=NO_BROKER_ID)
        decision: Decision | None = None
        for attempt in range(self._config.settings.elect_master_max_retry_count):
            if attempt:
                await asyncio.sleep(RETRY_DELAY * 2**attempt)
            answer = self.elect(header)
            decision = answer if isinstance(answer, Decision) else await answer
            if decision.code not in {ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR}:
                break
        assert decision is not None
        log.info(
            "election",
            broker=broker_name,
            reason=reason,
            code=decision.code.name,
            remark=decision.remark,
            **({} if decision.header is None else encode_header(decision.header)),
        )

    def _on_decision(self, broker_name: str, decision: Decision) -> None:
        group = self._machine.groups.get(broker_name)
        self._metrics.election(group.cluster_name if group is not None else "", broker_name, decision.code)
        if decision.code is not ResponseCode.SUCCESS or not self._config.settings.notify_broker_role_changed:
            return
        header, body = decision.header, decision.body
        assert isinstance(header, ElectMasterResponseHeader)
        assert isinstance(body, ElectMasterResponseBody)
        assert body.broker_member_group is not None
        notice = NotifyBrokerRoleChangedRequestHeader(
            master_address=header.master_address,
            master_epoch=header.master_epoch,
            sync_state_set_epoch=header.sync_state_set_epoch,
            master_broker_id=header.master_broker_id,
        )
        in_sync = SyncStateSet(
            sync_state_set=body.sync_state_set or frozenset(), sync_state_set_epoch=header.sync_state_set_epoch or 0
        )

        def alive(broker_id: BrokerId) -> bool:
            return self.view().alive(broker_name, broker_id)

        addresses = {BrokerId(number): address for number, address in body.broker_member_group.broker_addrs.items()}
        living = {broker_id: address for broker_id, address in addresses.items() if alive(broker_id)}
        self._notifier.announce(Announcement(broker_name, notice, in_sync, living), alive)

    def _needs_election(self, group: BrokerGroup) -> bool:
        return needs_election(group, self.view(), self._options())

    def _options(self) -> Options:
        return Options(enable_elect_unclean_master=self._config.settings.enable_elect_unclean_master)


def _origin(group: BrokerGroup | None, broker_id: int | None, host: str) -> Origin:
    address = None if group is None or broker_id is None else group.address_of(BrokerId(broker_id))
    return Origin(host, "" if address is None else ip_of(address))
