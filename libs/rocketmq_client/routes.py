"""Routes of topics: queries the name servers, caches the routes, and queries again when a broker has left.

The producer and the consumers share one object. One name server is queried at a time: the same one while it answers,
else the next. "No such topic" counts only if all that answer agree: a name server that has just started has no topics
until the brokers have registered.
Source: rocketmq-all-5.3.3: MQClientInstance.java, NettyRemotingClient.java, ClientRequestProcessor.java.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from rocketmq_client.errors import NameServerError, TopicNotFoundError, describe
from rocketmq_formats.addresses import parse_addresses
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.nameserver import (
    MASTER_ID,
    ClusterInfo,
    GetRouteInfoRequestHeader,
    TopicRouteData,
)
from rocketmq_formats.topics import AUTO_CREATE_TOPIC, PERM_READ, PERM_WRITE, bounded_queues
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

DEFAULT_TOPIC_QUEUE_NUMS: Final = 4
"""Queues of a topic that a send creates, if the template has as many."""


class PublishQueue(msgspec.Struct, frozen=True):
    """A queue that takes messages, and its master's address."""

    broker_name: str
    queue_id: int
    address: str


class ReadQueue(msgspec.Struct, frozen=True):
    """A queue that can be read, and where: broker id (0 is the master) -> address."""

    broker_name: str
    queue_id: int
    addresses: Mapping[int, str]

    def address(self, wanted_id: int = MASTER_ID) -> str:
        """The address of broker `wanted_id`; without it the master's, without a master any."""
        return self.addresses.get(wanted_id) or self.addresses.get(MASTER_ID) or next(iter(self.addresses.values()))


class TopicRoute(msgspec.Struct, frozen=True):
    """A topic as a client needs it; `is_template` if it is not there yet and a send will create it."""

    topic: str
    publish: Sequence[PublishQueue]
    read: Sequence[ReadQueue]
    is_template: bool = False


def name_servers_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Addresses of name servers, from a list or from a text in which `;` joins them.

    Raises:
        ValueError: none, or one that does not parse.
    """
    addresses = parse_addresses(given if isinstance(given, str) else ";".join(given))
    if not addresses:
        raise ValueError("no name server given; write host:port;host:port")
    return addresses


class Routes:
    """Routes by topic. Concurrent queries of one topic share one request."""

    def __init__(self, client: RemotingClient, nameservers: str | Sequence[str], *, timeout: float = 3.0) -> None:
        """`timeout`, in seconds, is one name server's."""
        self._client = client
        self._nameservers = name_servers_of(nameservers)
        self._first = 0
        self._timeout = timeout
        self._routes: dict[str, TopicRoute] = {}
        self._querying: dict[str, asyncio.Task[TopicRoute]] = {}

    def known(self, topic: str) -> TopicRoute | None:
        """What was answered last."""
        return self._routes.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        """The route of `topic`, queried if it is not cached.

        Raises:
            TopicNotFoundError, NameServerError: see `refresh`.
        """
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str, *, unlike: TopicRoute | None = None) -> TopicRoute:
        """Query again. If the answer is still `unlike`, which did not work, the next call queries another name server.

        Raises:
            TopicNotFoundError: no name server has a route of the topic or of a template (TBW102). The cached route
                is dropped if all of them answered.
            NameServerError: no name server answered; the cached route stays.
        """
        task = self._querying.get(topic)
        if task is None:
            task = background.awaited(self._query_route(topic, unlike), f"route of {topic}")
            self._querying[topic] = task
            task.add_done_callback(lambda done: self._on_queried(topic, done))
        return await asyncio.shield(task)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers (106).

        Raises:
            NameServerError: no name server answered as it should.
        """
        answer = await self.query(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return _read(ClusterInfo, answer)

    async def query(self, command: RemotingCommand) -> RemotingCommand:
        """A name server's answer to `command`, whatever its code.

        Raises:
            NameServerError: none answered.
        """
        answer, _ = await self._query_until(command, lambda _: True)
        return answer

    async def _query_until(
        self, command: RemotingCommand, settles: Callable[[RemotingCommand], bool]
    ) -> tuple[RemotingCommand, bool]:
        """The first answer that `settles` the query, else the last one; and whether every server before it answered.

        Raises:
            NameServerError: none answered.
        """
        failures: list[str] = []
        last: RemotingCommand | None = None
        first = self._first
        for turn in range(len(self._nameservers)):
            index = (first + turn) % len(self._nameservers)
            try:
                answer = await self._client.call(self._nameservers[index], command, timeout=self._timeout)
            except RemotingError as error:
                failures.append(str(error))
                continue
            if last is None or settles(answer):
                self._first = index
            last = answer
            if settles(answer):
                break
        if last is None:
            raise NameServerError("no name server answers: " + "; ".join(failures))
        return last, not failures

    def _on_queried(self, topic: str, task: "asyncio.Task[TopicRoute]") -> None:
        self._querying.pop(topic)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: if all callers were cancelled, none has seen it

    async def _query_route(self, topic: str, unlike: TopicRoute | None) -> TopicRoute:
        data = await self._query_data(topic)
        template = data is None
        if data is None:
            data = await self._query_data(AUTO_CREATE_TOPIC)
        if data is None:
            raise TopicNotFoundError(f"no route of topic {topic}, and no broker that creates topics")
        route = _digest(topic, data, template=template)
        if route == unlike:
            self._first = (self._first + 1) % len(self._nameservers)
        if not template:  # the topic's own route may be there after the next send
            self._routes[topic] = route
        return route

    async def _query_data(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer, all_answered = await self._query_until(command, _has_topic)
        if _has_topic(answer):
            return _read(TopicRouteData, answer)
        if all_answered:
            self._routes.pop(topic, None)
        return None


def _has_topic(answer: RemotingCommand) -> bool:
    return answer.code != ResponseCode.TOPIC_NOT_EXIST


B = TypeVar("B", TopicRouteData, ClusterInfo)


def _read(body_type: type[B], answer: RemotingCommand) -> B:
    if answer.code != ResponseCode.SUCCESS:
        raise NameServerError(f"a name server answered with {describe(answer.code)}: {answer.remark or 'no remark'}")
    try:
        return decode_body(body_type, answer.body)
    except BodyError as error:
        raise NameServerError(f"a name server's answer is malformed: {error}") from error


def _digest(topic: str, data: TopicRouteData, *, template: bool) -> TopicRoute:
    addresses = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas if broker.broker_addrs}
    publish: list[PublishQueue] = []
    read: list[ReadQueue] = []
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        where = addresses.get(queues.broker_name)
        if where is None:
            continue
        master = where.get(MASTER_ID)
        readable, writable = bounded_queues(queues.read_queue_nums), bounded_queues(queues.write_queue_nums)
        if template:
            writable = min(DEFAULT_TOPIC_QUEUE_NUMS, readable)
        if master is not None and queues.perm & PERM_WRITE:
            publish += [PublishQueue(queues.broker_name, queue_id, master) for queue_id in range(writable)]
        if queues.perm & PERM_READ and not template:
            read += [ReadQueue(queues.broker_name, queue_id, where) for queue_id in range(readable)]
    return TopicRoute(topic, publish, read, template)
