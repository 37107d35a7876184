"""When a master is lost: who notices, who elects, who is told.

Every member hears the heartbeats; only the leader acts on them. A closed connection of a master starts an election at
once, silence after the suspect timeout, the return of a replica as soon as its group has nobody, and a periodic scan
is the net below all of these. An election that finds no candidate makes no event; it waits for the next of these
occasions.

A process that was held up blames nobody for its own silence (see `liveness`). Whatever runs first after a stall, the
timer, a heartbeat that had waited, a connection closed meanwhile, finds out about it before it judges anybody.
"""

import asyncio

import msgspec
import structlog

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.domain import decide
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.liveness import HEARTBEAT_SUCCESS, BrokerKey, HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, LivenessView, Options
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.notifier import Announcement, RoleNotifier
from rocketmq_controller.proposals import Proposals
from rocketmq_controller.raft import Replica
from rocketmq_controller.state_machine import ControllerStateMachine
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    NO_BROKER_ID,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import encode_header

log = structlog.get_logger(__name__)

CHECK_PERIOD = 0.1
"""Seconds between looks at the heartbeat table: what suspicion is late by at the most."""
STALL = 1.0
"""A look that comes later than this means that we did not listen: silence and hang-ups meanwhile prove nothing."""
RETRY_DELAY = 0.05


class Elections:
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
        self._looked_at = self._last_scan = self._loop.time()
        self._was_leader = False

    def start(self) -> None:
        """Begin to look at the heartbeat table."""
        self._looked_at = self._last_scan = self._loop.time()
        self._timer = self._loop.call_later(CHECK_PERIOD, self._check)

    async def stop(self) -> None:
        """End the timer and every election under way."""
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    # What can happen

    def on_heartbeat(self, header: BrokerHeartbeatRequestHeader, connection_id: int) -> Decision:
        """904: take a heartbeat, and elect if its sender was all that its group waited for."""
        heard = self._heartbeats.on_heartbeat(header, connection_id, self._now())
        self._notifier.on_heartbeat(header)
        if heard.came_alive and self._replica.is_leader:
            group = self._machine.groups.get(header.broker_name)
            if group is not None and self._needs_election(group):
                self._trigger(header.broker_name, f"broker {header.broker_id} came alive in a group without master")
        return heard.refused or HEARTBEAT_SUCCESS

    def on_register(self, header: RegisterBrokerToControllerRequestHeader, connection_id: int) -> None:
        """1003: who registers over a new connection has begun another life."""
        self._heartbeats.on_registered(header.broker_name, header.broker_id, connection_id)

    def on_connection_closed(self, connection_id: int) -> None:
        """Whoever sent heartbeats over it is gone until it beats again."""
        gone = self._heartbeats.on_connection_closed(connection_id, self._now())
        self._lost(gone, "its connection closed")

    def on_role_change(self) -> None:
        """Begin to act, or stop to, as this member gains or loses leadership."""
        is_leader = self._replica.is_leader
        if is_leader and not self._was_leader:
            self._heartbeats.start_grace(self._now())
            self._scan("this controller became leader")
        self._was_leader = is_leader

    def elect(
        self, header: ElectMasterRequestHeader, connection_id: int | None = None, *, last_resort: bool = False
    ) -> "Decision | asyncio.Future[Decision]":
        """1002, for brokers, tools and ourselves; whoever is elected is told to the group's living members."""
        if connection_id is not None and not header.designate_elect:
            self._touch(header, connection_id)
        options = msgspec.structs.replace(self._options(), last_resort=last_resort)
        answer = self._proposals.submit(
            header.broker_name, lambda group: decide.elect_master(group, header, self.view(), options)
        )
        if isinstance(answer, Decision):
            self._decided(header.broker_name, answer)
        else:
            answer.add_done_callback(
                lambda done: None if done.cancelled() else self._decided(header.broker_name, done.result())
            )
        return answer

    def view(self) -> LivenessView:
        """The heartbeat table now; to be used within the same call stack."""
        return self._heartbeats.view(self._now())

    # Inside

    def _now(self) -> float:
        now = self._loop.time()
        if now - self._looked_at > STALL:
            log.warning("event loop was stalled, silence counts from now on", seconds=round(now - self._looked_at, 3))
            self._heartbeats.forgive_stall(now)
            self._looked_at = now
        return now

    def _touch(self, header: ElectMasterRequestHeader, connection_id: int) -> None:
        # A broker that asks for an election lives; the heartbeat it sent before may have been overtaken.
        group = self._proposals.group(header.broker_name)
        broker_id = header.broker_id
        if group is not None and BrokerId(broker_id) in group.replicas:
            key = BrokerKey(group.cluster_name, group.broker_name, broker_id)
            self._heartbeats.touch(key, connection_id, self._now())

    def _check(self) -> None:
        now = self._looked_at = self._now()
        self._lost(self._heartbeats.expired(now), "it was silent for too long")
        if now - self._last_scan >= self._config.settings.scan_inactive_master_interval / 1000:
            self._scan("periodic scan")
        self._timer = self._loop.call_later(CHECK_PERIOD, self._check)

    def _scan(self, reason: str) -> None:
        self._last_scan = self._now()
        if self._replica.is_leader:
            for name in decide.groups_needing_election(self._machine.groups, self.view(), self._options()):
                self._trigger(name, reason)

    def _lost(self, brokers: tuple[BrokerKey, ...], reason: str) -> None:
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
            task = self._loop.create_task(self._elect_until_settled(broker_name, reason))
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

    def _decided(self, broker_name: str, decision: Decision) -> None:
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
        return decide.needs_election(group, self.view(), self._options())

    def _options(self) -> Options:
        return Options(enable_elect_unclean_master=self._config.settings.enable_elect_unclean_master)
