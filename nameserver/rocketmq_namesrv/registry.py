"""The route tables with what they need of the world: the clock, connections, the timer of expiry, the notices (905).

Used by `remoting_api` for everything that brokers say; all of it in the event loop.
"""

import asyncio

import structlog

from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.nameserver import (
    ORDER_TOPIC_CONFIG,
    NotifyMinBrokerIdChangeRequestHeader,
    RegisterBrokerRequestHeader,
    TopicRouteData,
    UnregisterBrokerRequestHeader,
)
from rocketmq_formats.remoting.registration import RegisterBrokerBody
from rocketmq_namesrv.config import LiveConfig
from rocketmq_namesrv.domain import queries, routes
from rocketmq_namesrv.domain.model import (
    DEFAULT_TIMEOUT,
    LONGEST_TIMEOUT,
    SHORTEST_TIMEOUT,
    MinBrokerIdChange,
    Registered,
    Registration,
    Unregistered,
)
from rocketmq_namesrv.domain.route_answers import RouteAnswers
from rocketmq_namesrv.domain.tables import RouteTables
from rocketmq_namesrv.kv_store import KVStore
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_runtime import server
from rocketmq_runtime.client import ConnectError, RemotingClient
from rocketmq_runtime.quiet import Quiet

log = structlog.get_logger(__name__)

NOTICE_SECONDS = 0.3
"""How long a 905 may take to leave, as in Java."""
MAX_NOTICES = 1000
"""Notices under way; above it they are dropped, for brokers also ask by themselves."""
LOG_SECONDS = 60.0
"""Between two lines about one kind of refusal to one host."""


class Registry:
    """One per process."""

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
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._quiet = Quiet(self._loop.time, LOG_SECONDS)
        self._peers: dict[int, server.Peer] = {}
        """Connections that a broker registered over."""
        self._notices: set[asyncio.Task[None]] = set()
        self._scan: asyncio.TimerHandle | None = None
        config.on_update(self._on_update)

    def start(self) -> None:
        """Begin to look for silent brokers."""
        self._schedule_scan()

    async def stop(self) -> None:
        """End the timer and the notices under way."""
        if self._scan is not None:
            self._scan.cancel()
        for task in self._notices:
            task.cancel()
        await asyncio.gather(*self._notices, return_exceptions=True)

    # what brokers say

    def register(self, header: RegisterBrokerRequestHeader, body: RegisterBrokerBody, peer: server.Peer) -> Registered:
        """Take in a broker.

        Raises:
            RefusedError: see `routes.register`.
        """
        registration = _registration(header, body)
        registered = routes.register(self.tables, registration, now=self._loop.time(), connection_id=peer.id)
        if registered.stale is not None:
            if self.may_log("stale registration", peer):
                log.warning(
                    "registration ignored: another address holds this id with a newer epoch",
                    broker=registration.broker_name,
                    broker_id=registration.broker_id,
                    address=registration.address,
                    state_version=registration.data_version.state_version,
                    holder=registered.stale,
                )
            return registered
        self._peers[peer.id] = peer
        if registered.first:
            log.info(
                "broker registered",
                cluster=registration.cluster_name,
                broker=registration.broker_name,
                broker_id=registration.broker_id,
                address=registration.address,
                ha_address=registration.ha_server_addr,
                topics=len(registration.topics),
            )
        self._notify(registered.change)
        return registered

    def unregister(self, header: UnregisterBrokerRequestHeader) -> None:
        """A broker says that it stops."""
        ended = routes.unregister(
            self.tables,
            broker_name=header.broker_name,
            address=header.broker_addr,
        )
        self._ended(ended, "it unregistered")

    def refresh(self, cluster_name: str, address: str) -> None:
        """A registered broker was heard of."""
        self.tables.live.refresh(cluster_name, address, self._loop.time())

    def connection_closed(self, peer: server.Peer) -> None:
        """Brokers that registered over this connection are gone."""
        if self._peers.pop(peer.id, None) is not None:
            for ended in routes.connection_closed(self.tables, peer.id):
                self._ended(ended, "its connection ended")

    # for the doors

    def may_log(self, kind: str, peer: server.Peer) -> bool:
        """Whether a refusal is written down: one line per kind and host in a minute, however often it comes."""
        return self._quiet(f"{kind} {peer.address.rpartition(':')[0]}")

    # inside

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

    def _schedule_scan(self) -> None:
        period = self.config.settings.scan_not_active_broker_interval / 1000
        self._scan = self._loop.call_later(period, self._expire)

    def _expire(self) -> None:
        self._schedule_scan()  # first: a defect must not be the end of it
        for broker in self.tables.live.expired(self._loop.time()):
            self._ended(routes.expire(self.tables, broker), f"silent for more than {broker.timeout:g} s")
            peer = self._peers.get(broker.connection_id)
            if peer is not None:
                peer.close()

    def _ended(self, ended: Unregistered, why: str) -> None:
        if ended.known:
            log.info("broker is gone", broker=ended.broker_name, address=ended.address, reason=why)
        self._notify(ended.change)

    def _notify(self, change: MinBrokerIdChange | None) -> None:
        if change is None or not self.config.settings.notify_min_broker_id_changed:
            return
        log.info(
            "smallest broker id changed",
            broker=change.broker_name,
            min_broker_id=change.min_broker_id,
            told=list(change.tell),
        )
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_broker_id,
            min_broker_addr=change.min_broker_addr,
            offline_broker_addr=change.offline_broker_addr,
            ha_broker_addr=change.ha_broker_addr,
        )
        for address in change.tell:
            if len(self._notices) < MAX_NOTICES:
                task = self._loop.create_task(self._tell(address, header))
                self._notices.add(task)
                task.add_done_callback(self._notices.discard)

    async def _tell(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await self._client.send_oneway(address, request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
        except (ConnectError, TimeoutError) as error:
            if self._quiet(f"not told {address}"):
                reason = str(error) or "time-out"
                log.warning("broker not told of its group's smallest id", address=address, reason=reason)


def _registration(header: RegisterBrokerRequestHeader, body: RegisterBrokerBody) -> Registration:
    wrapper = body.topic_config_serialize_wrapper
    table = wrapper.topic_config_table
    if any(topic != config.topic_name for topic, config in table.items()):
        table = {config.topic_name: config for config in table.values()}  # the name inside counts, as in Java
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
