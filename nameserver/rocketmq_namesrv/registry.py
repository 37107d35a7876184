"""The route tables with clock, connections, the timer of expiry and the notices (905).

Used by `remoting_api` for all requests of brokers, in the event loop only.
"""

import asyncio
from time import perf_counter

import structlog

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.nameserver import (
    ORDER_TOPIC_CONFIG,
    NotifyMinBrokerIdChangeRequestHeader,
    RegisterBrokerRequestHeader,
    TopicRouteData,
    UnregisterBrokerRequestHeader,
)
from rocketmq_formats.remoting.registration import RegisterBrokerBody
from rocketmq_formats.steps import Steps
from rocketmq_namesrv.config import LiveConfig
from rocketmq_namesrv.domain import queries, routes
from rocketmq_namesrv.domain.identity import other_broker
from rocketmq_namesrv.domain.model import (
    DEFAULT_TIMEOUT,
    LONGEST_TIMEOUT,
    SHORTEST_TIMEOUT,
    MinBrokerIdChange,
    OtherBrokerError,
    Registered,
    Registration,
    Unregistered,
)
from rocketmq_namesrv.domain.route_answers import RouteAnswers
from rocketmq_namesrv.domain.tables import RouteTables
from rocketmq_namesrv.kv_store import KVStore
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_runtime import background
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting import server
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient
from rocketmq_runtime.remoting.slow_lane import STEP_SECONDS

log = structlog.get_logger(__name__)

NOTICE_SECONDS = 0.3
"""Time-out for sending a 905, as in Java."""
SCANS_APART = 0.1
"""Seconds from the end of a silent broker's time to the scan that finds it."""
MAX_NOTICES = 1000
"""Notices under way; more are dropped, since brokers also poll."""
WIPED_BROKERS = "ROCKETMQ_HA_WIPED_WRITE_PERM"
"""Namespace of the KV configuration, by brokerName: what 205 took off stays so through restarts."""
LOG_SECONDS = 60.0
"""Between two lines about one kind of refusal to one host."""
EVENT_LINES = 200
"""Lines about events of one kind within LOG_SECONDS: a broker that registers and leaves all the time does not fill the
log."""


class Registry:
    def __init__(self, config: LiveConfig, kv: KVStore, client: RemotingClient) -> None:
        settings = config.settings
        self.config = config
        self.kv = kv
        self.answers = RouteAnswers(self._route)
        self.tables = RouteTables(
            limits=settings.limits,
            on_change=self.answers.forget,
            delete_with_registration=settings.delete_topic_with_broker_registration,
        )
        self.tables.wiped = frozenset(kv.tables.namespace(WIPED_BROKERS) or ())
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._may_log = LogLimiter(self._loop.time, LOG_SECONDS)
        self._events = LogLimiter(self._loop.time, LOG_SECONDS, lines=EVENT_LINES)
        self._peers: dict[int, server.Peer] = {}
        """Connections that a broker registered over."""
        self._notices: set[asyncio.Task[None]] = set()
        self._scan: asyncio.TimerHandle | None = None
        config.on_update(self._on_update)

    def start(self) -> None:
        """Begin to check for silent brokers."""
        self._schedule_scan()

    async def stop(self) -> None:
        """End the timer and the notices under way."""
        if self._scan is not None:
            self._scan.cancel()
        for task in self._notices:
            task.cancel()
        await asyncio.gather(*self._notices, return_exceptions=True)

    # requests of brokers

    def register(
        self, header: RegisterBrokerRequestHeader, body: RegisterBrokerBody, peer: server.Peer
    ) -> Steps[Registered]:
        """Register a broker, in steps; no other registration of the broker name may come between.

        Raises:
            TableRefusedError: see `routes.register`.
        """
        registration = _registration(header, body)
        dropped = len(body.topic_config_serialize_wrapper.topic_config_table) - len(registration.topics)
        if dropped and self.may_log_refusal("nameless topic", peer):
            log.warning(
                "topics without a name, or with the same name, skipped",
                broker=header.broker_name,
                address=header.broker_addr,
                count=dropped,
            )
        self._peers[peer.id] = peer
        registered = yield from routes.register(
            self.tables, registration, now=self._loop.time(), connection_id=peer.id, host=peer.host
        )
        if registered.stale is not None:
            if self.may_log_refusal("stale registration", peer):
                log.warning(
                    "registration ignored: another address holds this id with a newer epoch",
                    broker=registration.broker_name,
                    broker_id=registration.broker_id,
                    address=registration.address,
                    state_version=registration.data_version.state_version,
                    holder=registered.stale,
                )
            return registered
        if registered.first and self.may_log_event("registered"):
            log.info(
                "broker registered",
                cluster=registration.cluster_name,
                broker=registration.broker_name,
                broker_id=registration.broker_id,
                address=registration.address,
                ha_address=registration.ha_server_addr,
                topics=len(registration.topics),
            )
        wiped = registered.first and registration.broker_name in self.tables.wiped
        if wiped and self.may_log_refusal(f"wiped {registration.broker_name[:200]}", peer):
            log.warning(
                "broker gets no sends: wipeWritePerm took its name's write permission off, and only addWritePerm gives"
                " it back, also to a new group",
                broker=registration.broker_name,
                broker_id=registration.broker_id,
                address=registration.address,
            )
        group = self.tables.groups.get(registration.broker_name)
        in_two = registered.first and group is not None and group.cluster != registration.cluster_name
        if group is not None and in_two and self.may_log_refusal("two clusters", peer):
            log.warning(
                "one brokerName in two clusters: clients of both get all its brokers;"
                " correct brokerClusterName or brokerName",
                broker=registration.broker_name,
                broker_id=registration.broker_id,
                address=registration.address,
                cluster=registration.cluster_name,
                other_cluster=group.cluster,
            )
        self._notify(registered.change)
        return registered

    def unregister(self, header: UnregisterBrokerRequestHeader) -> None:
        """Forget one address of a broker name; with the last one the name and its queues.

        Raises:
            OtherBrokerError: another broker is registered at the address.
        """
        problem = other_broker(
            self.tables,
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
        )
        if problem is not None:
            raise OtherBrokerError(problem)
        removed = routes.unregister(
            self.tables,
            broker_name=header.broker_name,
            address=header.broker_addr,
        )
        self._after_removal(removed, "it unregistered")

    def refresh(self, cluster_name: str, address: str) -> None:
        """A registered broker was heard."""
        self.tables.live.refresh(cluster_name, address, self._loop.time())

    def connection_closed(self, peer: server.Peer) -> None:
        """Remove the brokers that registered over this connection."""
        if self._peers.pop(peer.id, None) is not None:
            self._forget_connection(peer.id)

    # what tools set

    def keep_wiped(self, broker_name: str, peer: server.Peer) -> "asyncio.Future[None]":
        """Keep on disk whether the broker name's topics are written to. StorageError: it holds until a restart only.

        Raises:
            TableRefusedError: the same.
        """
        if broker_name in self.tables.wiped:
            return self.kv.put(WIPED_BROKERS, broker_name, "true", host=peer.host)
        return self.kv.delete(WIPED_BROKERS, broker_name, host=peer.host)

    def wiped_changed(self, broker_name: str) -> None:
        """A tool has changed the KV configuration about the name."""
        wiped = self.kv.tables.get(WIPED_BROKERS, broker_name) is not None  # not what may still fail to be written
        self.tables.wiped = self.tables.wiped - {broker_name} | ({broker_name} if wiped else set())

    # log limits

    def may_log_refusal(self, kind: str, peer: server.Peer) -> bool:
        """Whether a refusal is logged: one line per kind and host in a minute, however often it comes."""
        return self._may_log(f"{kind} {peer.host}")

    def may_log_event(self, kind: str) -> bool:
        """Whether an event is logged."""
        return self._events(kind)

    # internals

    def _route(self, topic: str) -> TopicRouteData | None:
        settings = self.config.settings
        order_conf = self.kv.tables.get(ORDER_TOPIC_CONFIG, topic) if settings.order_message_enable else None
        return queries.route(self.tables, topic, acting_master=settings.support_acting_master, order_conf=order_conf)

    def _on_update(self, settings: NameServerSettings) -> None:
        self.tables.delete_with_registration = settings.delete_topic_with_broker_registration
        self.answers.clear()
        if self._scan is not None:
            self._scan.cancel()
            self._schedule_scan()

    def _forget_connection(self, connection_id: int) -> None:
        """One connection may have registered any number of brokers and topics."""
        began = perf_counter()
        for broker in self.tables.live.of_connection(connection_id):
            if perf_counter() - began >= STEP_SECONDS:
                self._loop.call_soon(self._forget_connection, connection_id)
                return
            self._after_removal(routes.expire(self.tables, broker), "its connection ended")

    def _schedule_scan(self) -> None:
        """After a period, or right after a broker's time is over."""
        period = self.config.settings.scan_not_active_broker_interval / 1000
        now = self._loop.time()
        self._scan = self._loop.call_later(
            min(period, self.tables.live.next_end(now) - now + SCANS_APART), self._expire
        )

    def _expire(self) -> None:
        self._schedule_scan()  # first: an exception below must not stop the scans
        self._remove_silent()

    def _remove_silent(self) -> None:
        began = perf_counter()
        for broker in self.tables.live.expired(self._loop.time()):
            if perf_counter() - began >= STEP_SECONDS:
                self._loop.call_soon(self._remove_silent)
                return
            self._after_removal(routes.expire(self.tables, broker), f"silent for more than {broker.timeout:g} s")
            peer = self._peers.get(broker.connection_id)
            if peer is not None:
                peer.close()

    def _after_removal(self, removed: Unregistered, why: str) -> None:
        if removed.known and self.may_log_event("removed"):
            log.info("broker removed", broker=removed.broker_name, address=removed.address, reason=why)
        self._notify(removed.change)

    def _notify(self, change: MinBrokerIdChange | None) -> None:
        if change is None or not self.config.settings.notify_min_broker_id_changed:
            return
        if self.may_log_event("smallest id"):
            log.info(
                "smallest broker id changed",
                broker=change.broker_name,
                min_broker_id=change.min_broker_id,
                notified=list(change.recipients),
            )
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_broker_id,
            min_broker_addr=change.min_broker_addr,
            offline_broker_addr=change.offline_broker_addr,
            ha_broker_addr=change.ha_broker_addr,
        )
        for address in change.recipients:
            if len(self._notices) < MAX_NOTICES:
                task = background.start(self._send_notice(address, header), f"notice to {address}")
                self._notices.add(task)
                task.add_done_callback(self._notices.discard)

    async def _send_notice(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await self._client.send_oneway(address, request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
        except (ConnectError, TimeoutError) as error:
            if self._may_log(f"not notified {address}"):
                reason = str(error) or "time-out"
                log.warning("broker not notified of its group's smallest id", address=address, reason=reason)


def _registration(header: RegisterBrokerRequestHeader, body: RegisterBrokerBody) -> Registration:
    wrapper = body.topic_config_serialize_wrapper
    table = wrapper.topic_config_table
    if any(topic != config.topic_name or not topic for topic, config in table.items()):
        # the name inside counts, as in Java
        table = {config.topic_name: config for config in table.values() if config.topic_name}
    millis = header.heartbeat_timeout_millis
    timeout = DEFAULT_TIMEOUT if millis is None else min(max(millis / 1000, SHORTEST_TIMEOUT), LONGEST_TIMEOUT)
    return Registration(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_server_addr=header.ha_server_addr,
        zone_name=header.zone_name,
        timeout=timeout,
        enable_acting_master=header.enable_acting_master,
        data_version=wrapper.data_version,
        topics=table,
        mappings=wrapper.topic_queue_mapping_info_map or {},
        filter_servers=body.filter_server_list or (),
    )
