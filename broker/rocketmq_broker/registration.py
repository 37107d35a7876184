"""Registers this broker and its topics at every name server (103), and unregisters it at the end (104).

One task per name server, so that a dead one does not delay the others. A registration always carries the current
state; a change during a registration triggers another one. A broker without a role does not register; the next master
takes its place.
Source: rocketmq-all-5.3.3: BrokerController.java, BrokerOuterAPI.java; docs/protocol.md.
"""

import asyncio

import structlog
from msgspec import structs

from rocketmq_broker.domain.permission import BrokerPermission
from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.nameserver import RegisterBrokerRequestHeader, UnregisterBrokerRequestHeader
from rocketmq_formats.remoting.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
    encode_registration,
)
from rocketmq_formats.topics import DataVersion
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

CALL_SECONDS = 3.0
"""Maximum; registerBrokerTimeoutMills may make it shorter."""
RETRY_SECONDS = 1.0
"""After a failed registration; also the minimum time between two that lost connections cause."""
UNREGISTERED_SECONDS = 30.0
"""Without any registration until it is reported."""
UNREGISTER_SECONDS = 1.0
"""A name server that does not answer notices the closed connection itself."""


class Registrar:
    """Keeps this broker registered."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        topics: TopicTable,
        permission: BrokerPermission,
        client: RemotingClient,
        address: str,
        ha_address: str,
    ) -> None:
        """`address`: brokerIP1:listenPort, `ha_address`: brokerIP2:haListenPort."""
        self._settings = settings
        self._role = role
        self._topics = topics
        self._permission = permission
        self._client = client
        self._address = address
        self._ha_address = ha_address
        self._servers = {server: asyncio.Event() for server in settings.name_servers}
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self._registered_at = dict.fromkeys(settings.name_servers, float("-inf"))
        """Loop time when the last registration at each began."""
        self._problems: dict[str, str] = {}
        """By name server: why its last registration failed."""
        self._unregistered_since: float | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """For name servers whose connections closed."""
        self._body = b""
        self._body_version: DataVersion | None = None
        topics.on_change(self.register_now)
        permission.on_change(self._permission_changed)
        client.on_lost = self._lost

    def start(self) -> None:
        """Begin; the first registration follows when there is a role."""
        self._tasks = [
            background.start(self._keep_registered(server, changed), f"registration at {server}")
            for server, changed in self._servers.items()
        ]

    def register_now(self) -> None:
        """Register at once: something changed."""
        for changed in self._servers.values():
            changed.set()

    def _permission_changed(self) -> None:
        self._body_version = None
        self.register_now()

    def unregistered(self) -> str | None:
        """Why no name server has taken a registration for UNREGISTERED_SECONDS; None if one has, or if this broker does
        not register at present."""
        since = self._unregistered_since
        if since is None or self._role.outward_id is None or self._loop.time() - since < UNREGISTERED_SECONDS:
            return None
        return "; ".join(f"{server}: {problem}" for server, problem in sorted(self._problems.items()))

    def _note(self, server: str, problem: str | None) -> None:
        self._problems.pop(server, None)
        if problem is not None:
            self._problems[server] = problem
        if len(self._problems) < len(self._servers):
            self._unregistered_since = None
        elif self._unregistered_since is None:
            self._unregistered_since = self._loop.time()

    async def stop(self) -> None:
        """Unregister at every name server."""
        self._client.on_lost = None
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        outward = self._role.outward_id
        if self._tasks and outward is not None:
            await asyncio.gather(*(self._unregister(server, outward) for server in self._servers))

    def _lost(self, address: str) -> None:
        """A connection closed: a restarted name server has no registrations. The pause keeps a server that answers and
        hangs up from being called in a loop."""
        changed = self._servers.get(address)
        if changed is not None and address not in self._timers:
            due = max(self._loop.time(), self._registered_at[address] + RETRY_SECONDS)
            self._timers[address] = self._loop.call_at(due, self._register_again, address, changed)

    def _register_again(self, server: str, changed: asyncio.Event) -> None:
        del self._timers[server]
        changed.set()

    async def _keep_registered(self, server: str, changed: asyncio.Event) -> None:
        failing = False
        while True:
            changed.clear()
            wait = self._settings.register_period
            outward = self._role.outward_id
            if outward is None:
                self._note(server, None)
            else:
                problem = await self._register(server, outward)
                self._note(server, problem)
                if problem is None and failing:
                    log.info("registered again", name_server=server)
                elif problem is not None and not failing:
                    log.warning("not registered, retrying", name_server=server, reason=problem)
                failing = problem is not None
                if failing:
                    wait = RETRY_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await changed.wait()
            except TimeoutError:
                pass

    async def _register(self, server: str, outward: int) -> str | None:
        """What went wrong, or None."""
        self._registered_at[server] = self._loop.time()
        body = self._registration()
        header = RegisterBrokerRequestHeader(
            broker_name=self._settings.name,
            broker_addr=self._address,
            cluster_name=self._settings.broker_cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=outward,
            heartbeat_timeout_millis=self._settings.not_active_timeout,
            enable_acting_master=self._settings.enable_slave_acting_master,
            body_crc32=body_crc32(body),
        )
        timeout = min(CALL_SECONDS, self._settings.register_broker_timeout_mills / 1000)
        return await self._call(server, request(RequestCode.REGISTER_BROKER, header, body), timeout)

    async def _unregister(self, server: str, outward: int) -> None:
        header = UnregisterBrokerRequestHeader(
            broker_name=self._settings.name,
            broker_addr=self._address,
            cluster_name=self._settings.broker_cluster_name,
            broker_id=outward,
        )
        problem = await self._call(server, request(RequestCode.UNREGISTER_BROKER, header), UNREGISTER_SECONDS)
        if problem is not None:
            log.info("could not unregister from name server", name_server=server, reason=problem)

    async def _call(self, server: str, command: RemotingCommand, seconds: float) -> str | None:
        try:
            answer = await self._client.call(server, command, timeout=seconds)
        except (RemotingError, ValueError) as error:
            return str(error)
        except Exception as error:
            # if this task ended here, the broker would silently disappear from the name servers
            log.exception("unexpected error in a call to a name server", name_server=server)
            return f"{type(error).__name__}: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"code {answer.code}: {answer.remark}"
        return None

    def _registration(self) -> bytes:
        """The body, made once per version of the table."""
        version = self._topics.version
        if self._body_version != version:
            table = self._topics.table
            if self._permission.limits:
                allowed = self._permission.value
                table = {name: structs.replace(topic, perm=topic.perm & allowed) for name, topic in table.items()}
            wrapper = TopicConfigSerializeWrapper(topic_config_table=table, data_version=version)
            self._body = encode_registration(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
            self._body_version = version
        return self._body
