"""Tells every name server that this broker lives (322 or 904), and asks one of them who is in the group (105 or 901).

Registrations carry all topics, so they are too heavy for every second. A heartbeat keeps a registration alive and
says nothing else. 905, by which a name server reports another least id, only makes this broker ask at once: any client
can send it.
Source: rocketmq-all-5.3.3: BrokerController.java, BrokerOuterAPI.java.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from rocketmq_broker.domain.member_group import MemberGroup, members_in_route
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.remoting.nameserver import (
    GetBrokerMemberGroupRequestHeader,
    GetBrokerMemberGroupResponseBody,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    TopicRouteData,
)
from rocketmq_formats.topics import SYNC_MEMBER_PREFIX
from rocketmq_runtime import background
from rocketmq_runtime.defects import survive_defects
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_runtime.remoting.server import Answer, Peer

log = structlog.get_logger(__name__)

CALL_SECONDS = 3.0
"""That a name server has to say who is in the group; then another one is asked."""
APART_SECONDS = 0.1
"""Between two questions at least, however often a name server says that something changed."""


class GroupWatch:
    """Keeps `MemberGroup` up to date, and this broker known."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        topics: TopicTable,
        members: MemberGroup,
        client: RemotingClient,
        address: str,
        on_change: Callable[[], None] = lambda: None,
        on_answer: Callable[[Mapping[int, str]], None] = lambda _: None,
    ) -> None:
        """`address`: brokerIP1:listenPort. `on_change`: `members` changed. `on_answer`: whom the name servers list,
        after each answer; without name servers no one, once."""
        self._settings = settings
        self._role = role
        self._topics = topics
        self._members = members
        self._client = client
        self._address = address
        self._on_change, self._on_answer = on_change, on_answer
        self._servers = settings.name_servers
        self._asked = 0
        """Index of the name server that is asked first: the last one that answered."""
        self._noticed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self._least_id_changed}

    def start(self) -> None:
        """Begin, as far as the settings switch it on."""
        period = self._settings.heartbeat_period
        if period is not None:
            self._tasks += [
                background.start(self._keep_known(server, period), f"heartbeats to {server}")
                for server in self._servers
            ]
        settings = self._settings
        needed = settings.enable_slave_acting_master or settings.lock_in_strict_mode or self._names_master
        if needed and self._servers:
            self._tasks.append(background.start(self._keep_asking(), "members of the group"))
        elif self._names_master:
            self._on_answer({})

    @property
    def _names_master(self) -> bool:
        """Without controllers name servers say where the master is."""
        return not self._settings.enable_controller_mode

    async def stop(self) -> None:
        """No heartbeat leaves after this: the broker unregisters next."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _least_id_changed(self, command: RemotingCommand, _peer: Peer) -> Answer:
        self._noticed.set()
        return response(command, ResponseCode.SUCCESS)

    # heartbeats

    async def _keep_known(self, server: str, period: float) -> None:
        while True:
            await asyncio.sleep(period)
            outward = self._role.outward_id
            if outward is not None:
                # without heartbeats the broker would silently disappear from the name servers
                with survive_defects(log, "unexpected error in a heartbeat to a name server", name_server=server):
                    await self._heartbeat(server, outward)

    async def _heartbeat(self, server: str, outward: int) -> None:
        """What gets lost is made good by the next one; a lost connection makes the registrar register again."""
        name, address, cluster = self._settings.name, self._address, self._settings.broker_cluster_name
        if self._settings.compatible_with_old_name_srv:
            code = RequestCode.QUERY_DATA_VERSION
            header: Header = QueryDataVersionRequestHeader(
                broker_name=name, broker_addr=address, cluster_name=cluster, broker_id=outward
            )
            body = encode_body(self._topics.version)
        else:
            code, body = RequestCode.BROKER_HEARTBEAT, b""
            header = BrokerHeartbeatRequestHeader(broker_name=name, broker_addr=address, cluster_name=cluster)
        try:
            async with asyncio.timeout(self._settings.send_heartbeat_timeout_millis / 1000):
                await self._client.send_oneway(server, request(code, header, body))
        except (RemotingError, TimeoutError):
            pass

    # the group

    async def _keep_asking(self) -> None:
        period = self._settings.sync_broker_member_group_period / 1000
        while True:
            self._noticed.clear()
            await self._ask()
            await asyncio.sleep(min(APART_SECONDS, period))
            try:
                async with asyncio.timeout(period - min(APART_SECONDS, period)):
                    await self._noticed.wait()
            except TimeoutError:
                pass

    async def _ask(self) -> None:
        """One name server after another, until one knows the group; if none does, what is known stays."""
        said: Mapping[int, str] | None = None
        for turn in range(len(self._servers)):
            index = (self._asked + turn) % len(self._servers)
            server, addresses = self._servers[index], None
            # without these questions no slave would act as master any more
            with survive_defects(log, "unexpected error in a question to a name server", name_server=server):
                addresses = await self._members_by(server)
            said = said if addresses is None else addresses
            if addresses:
                self._asked = index
                if self._members.update(addresses):
                    log.info("members of the group", members=dict(sorted(addresses.items())))
                    self._on_change()
                break
        if said is not None:
            self._on_answer(said)

    async def _members_by(self, server: str) -> Mapping[int, str] | None:
        """What a name server says, empty if it knows no broker; None: it does not answer the question."""
        cluster, name = self._settings.broker_cluster_name, self._settings.name
        compatible = self._settings.compatible_with_old_name_srv
        if compatible:
            route_header = GetRouteInfoRequestHeader(topic=SYNC_MEMBER_PREFIX + name, accept_standard_json_only=True)
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_header)
        else:
            group_header = GetBrokerMemberGroupRequestHeader(cluster_name=cluster, broker_name=name)
            command = request(RequestCode.GET_BROKER_MEMBER_GROUP, group_header)
        try:
            answer = await self._client.call(server, command, timeout=CALL_SECONDS)
            if compatible and answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return {}
            if answer.code != ResponseCode.SUCCESS:
                return None
            if compatible:
                return members_in_route(decode_body(TopicRouteData, answer.body), cluster, name)
            group = decode_body(GetBrokerMemberGroupResponseBody, answer.body).broker_member_group
        except (RemotingError, FormatError, ValueError):
            return None
        return {} if group is None else group.broker_addrs
