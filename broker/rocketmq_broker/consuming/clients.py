"""Producers and consumers at this broker: HEART_BEAT (34), UNREGISTER_CLIENT (35), who is in a group (38, 203, 204,
328), and the push to consumers that their group has changed (40).

Members leave by unregistering, when their connection closes, or after 120 s without a heartbeat.
Source: rocketmq-all-5.3.3: ClientManageProcessor.java, ConsumerManageProcessor.java, ConsumerManager.java.
"""

import asyncio
from collections.abc import Callable

import structlog

from rocketmq_broker.domain.consuming.members import Client, Consumers, Members, NoRoomError
from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.subscription_groups import SubscriptionGroups
from rocketmq_broker.domain.tables.topics import READ_WRITE, TopicTable
from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import Body, decode_request_body, encode_body
from rocketmq_formats.remoting.broker_admin import (
    Connection,
    ConsumerConnection,
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketmq_formats.remoting.client import (
    ConsumerData,
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    HeartbeatResponseHeader,
    NotifyConsumerIdsChangedRequestHeader,
    SubscriptionData,
    UnregisterClientRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.topics import RETRY_PREFIX
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting.server import Answer, Peer

log = structlog.get_logger(__name__)

EXPIRY_SECONDS = 120.0
SCAN_SECONDS = 10.0
LOG_SECONDS = 60.0
"""Between two lines about refused heartbeats of one host."""
MAX_GROUPS_PER_HEARTBEAT = 1000
MAX_SUBSCRIPTIONS = 1000
"""Of one group."""
MAX_PRODUCERS_ANSWERED = 20_000
"""In one answer to 328: it has to fit a frame, and is made in one step of some 40 ms."""
MAX_TAGS = 1000
"""Of one subscription."""


class CheckClientRequestBody(Body, frozen=True):
    """Body of 46, as far as it matters here."""

    subscription_data: SubscriptionData | None = None


class ClientManager:
    """The connected producers and consumers."""

    def __init__(self, *, groups: SubscriptionGroups, topics: TopicTable, role: ReplicaRole) -> None:
        self._groups = groups
        self._topics = topics
        self._role = role
        self._loop = asyncio.get_running_loop()
        self._seen: dict[Peer, float] = {}
        """Loop time of each connection's last heartbeat."""
        self._scan: asyncio.TimerHandle | None = None
        self.consumers: Consumers[Peer] = Consumers(_host_of)
        self.producers: Members[Peer] = Members(_host_of)
        self._may_log = LogLimiter(self._loop.time, LOG_SECONDS)
        self.on_scan: Callable[[], None] = _nothing
        """Called every 10 s, so that others can expire things too."""

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }

    def start(self) -> None:
        """Begin to close connections that send no heartbeats."""
        self._scan = self._loop.call_later(SCAN_SECONDS, self._expire)

    def stop(self) -> None:
        if self._scan is not None:
            self._scan.cancel()

    def peer_closed(self, peer: Peer) -> None:
        if self._seen.pop(peer, None) is not None:
            self._left(peer)

    def on_role_change(self) -> None:
        """Creates the retry topics of consumers that connected while this replica was not master."""
        if self._role.role is Role.MASTER:
            for group in self.consumers.members.groups():
                self._provide(group, unit_mode=False)

    # processors

    def _heartbeat(self, command: RemotingCommand, peer: Peer) -> Answer:
        data = decode_request_body(HeartbeatData, command.body)
        _check_size(data)
        client = Client(data.client_id, command.language, command.version)
        self._seen[peer] = self._loop.time()
        try:
            for consumer in data.consumer_data_set:
                self._consumer(peer, client, consumer, minimal=data.without_sub)
            for producer in data.producer_data_set:
                self.producers.add(producer.group_name, peer, client)
        except NoRoomError as error:
            if self._may_log(peer.host):
                log.warning("heartbeat refused", address=peer.address, client=data.client_id, reason=str(error))
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error
        return response(command, ResponseCode.SUCCESS, None, HeartbeatResponseHeader())

    def _unregister(self, command: RemotingCommand, peer: Peer) -> Answer:
        header = decode_header(UnregisterClientRequestHeader, command.ext_fields or {})
        if header.producer_group:
            self.producers.remove(header.producer_group, peer)
        if header.consumer_group and self.consumers.unregister(peer, header.consumer_group):
            log.info("consumer left", group=header.consumer_group, client=header.client_id)
            self._notify(header.consumer_group)
        return response(command, ResponseCode.SUCCESS)

    def _check_config(self, command: RemotingCommand, _peer: Peer) -> Answer:
        """46: consumers with other filters than tags ask whether these parse."""
        data = decode_request_body(CheckClientRequestBody, command.body).subscription_data
        kind = None if data is None else data.expression_type
        if kind not in (None, "", "TAG"):
            remark = f"The broker does not support consumer to filter message by {kind}"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return response(command, ResponseCode.SUCCESS)

    def _consumer_list(self, command: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(GetConsumerListByGroupRequestHeader, command.ext_fields or {})
        members = self.consumers.members.of(header.consumer_group)
        if not members:
            remark = f"no consumer for this group, {header.consumer_group}"
            return response(command, ResponseCode.SYSTEM_ERROR, remark)
        # each id once: a client that connected again counts twice until its old connection ends, and then members
        # share the queues out among more clients than there are, so that some queues have no reader
        ids = tuple(dict.fromkeys(client.client_id for client in members.values()))
        body = encode_body(GetConsumerListByGroupResponseBody(consumer_id_list=ids))
        return response(command, ResponseCode.SUCCESS, None, None, body)

    def _consumer_connections(self, command: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(GetConsumerConnectionListRequestHeader, command.ext_fields or {})
        group = self.consumers.get(header.consumer_group)
        if group is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            return response(command, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = ConsumerConnection(
            connection_set=_connections(self.consumers.members, header.consumer_group),
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return response(command, ResponseCode.SUCCESS, None, None, encode_body(body))

    def _producer_connections(self, command: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(GetProducerConnectionListRequestHeader, command.ext_fields or {})
        connections = _connections(self.producers, header.producer_group)
        if not connections:
            remark = f"the producer group[{header.producer_group}] not exist"
            return response(command, ResponseCode.SYSTEM_ERROR, remark)
        body = encode_body(ProducerConnection(connection_set=connections))
        return response(command, ResponseCode.SUCCESS, None, None, body)

    def _all_producers(self, command: RemotingCommand, _peer: Peer) -> Answer:
        groups = self.producers.groups()
        if sum(len(self.producers.of(group)) for group in groups) > MAX_PRODUCERS_ANSWERED:
            remark = f"more than {MAX_PRODUCERS_ANSWERED} producers: ask for a group at a time (204)"
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        data = {
            group: tuple(self._producer(*member) for member in self.producers.of(group).items()) for group in groups
        }
        return response(command, ResponseCode.SUCCESS, None, None, encode_body(ProducerTableInfo(data=data)))

    # inside

    def _producer(self, peer: Peer, client: Client) -> ProducerInfo:
        silent_ms = round((self._loop.time() - self._seen[peer]) * 1000)
        return ProducerInfo(
            client_id=client.client_id,
            remote_ip=f"/{peer.address}",
            language=client.language,
            version=client.version,
            last_update_timestamp=now_ms() - silent_ms,
        )

    def _consumer(self, peer: Peer, client: Client, data: ConsumerData, *, minimal: bool) -> None:
        group = data.group_name
        if not self._provide(group, unit_mode=data.unit_mode):
            log.warning("heartbeat of a group that cannot be created", group=group, client=client.client_id)
            return
        joined = peer not in self.consumers.members.of(group)
        if self.consumers.register(peer, client, data, minimal=minimal):
            if joined:
                log.info("consumer joined", group=group, client=client.client_id, address=peer.address)
            self._notify(group)

    def _provide(self, group: str, *, unit_mode: bool) -> bool:
        """The group and its retry topic exist, where this replica is master; False if there can be no such group."""
        config = self._groups.find(group)
        if config is None:
            return False
        if self._role.role is Role.MASTER:
            self._topics.create_plain(
                RETRY_PREFIX + group,
                max(config.retry_queue_nums, 1),
                perm=READ_WRITE,
                sys_flag=2 if unit_mode else 0,
                state_version=self._role.epoch,
                now_ms=now_ms(),
            )
        return True

    def _notify(self, group: str) -> None:
        """Makes members rebalance at once."""
        config = self._groups.get(group)
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        for peer in self.consumers.members.of(group):
            peer.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))

    def _left(self, peer: Peer) -> None:
        self.producers.remove_all(peer)
        groups = self.consumers.leave(peer)
        if groups:
            log.info("consumer lost", groups=groups[:10], address=peer.address)
        for group in groups:
            self._notify(group)

    def _expire(self) -> None:
        self._scan = self._loop.call_later(SCAN_SECONDS, self._expire)
        oldest = self._loop.time() - EXPIRY_SECONDS
        for peer in [peer for peer, seen in self._seen.items() if seen < oldest]:
            log.info("client without heartbeats, connection closed", address=peer.address)
            del self._seen[peer]
            self._left(peer)
            peer.close()
        self.on_scan()


def _check_size(data: HeartbeatData) -> None:
    if max(len(data.producer_data_set), len(data.consumer_data_set)) > MAX_GROUPS_PER_HEARTBEAT:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"more than {MAX_GROUPS_PER_HEARTBEAT} groups in a heartbeat: use more clients"
        )
    for consumer in data.consumer_data_set:
        if len(consumer.subscription_data_set) > MAX_SUBSCRIPTIONS:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"group {consumer.group_name}: more than {MAX_SUBSCRIPTIONS} subscriptions"
            )
        for subscription in consumer.subscription_data_set:
            named = subscription.sub_string.count("||") + 1
            if max(named, len(subscription.tags_set), len(subscription.code_set)) > MAX_TAGS:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR, f"topic {subscription.topic}: more than {MAX_TAGS} tags"
                )


def _connections(members: Members[Peer], group: str) -> tuple[Connection, ...]:
    return tuple(
        Connection(
            client_id=client.client_id, client_addr=peer.address, language=client.language, version=client.version
        )
        for peer, client in members.of(group).items()
    )


def _host_of(peer: Peer) -> str:
    return peer.host


def _nothing() -> None:
    pass
