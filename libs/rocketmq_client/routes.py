"""Where topics are: asks the name servers, remembers, and asks again when a broker turns out to be gone.

The producer and the consumers share one object. One name server is asked at a time, the same one while it answers,
the next one when it does not. Source: client reference, section 2; name server reference, sections 6 and 11.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from rocketmq_client.errors import NameServerError, TopicNotFoundError, describe
from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.bodies import decode_body
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.nameserver import (
    MASTER_ID,
    ClusterInfo,
    GetRouteInfoRequestHeader,
    TopicRouteData,
)
from rocketmq_formats.topics import AUTO_CREATE_TOPIC, PERM_READ, PERM_WRITE
from rocketmq_runtime.client import RemotingClient, RemotingError

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


def parse_addresses(nameservers: str | Sequence[str]) -> tuple[str, ...]:
    """Addresses of name servers, from a list or from a text in which `;` or `,` joins them.

    Raises:
        ValueError: none.
    """
    parts = re.split("[;,]", nameservers) if isinstance(nameservers, str) else nameservers
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise ValueError("no name server given; write host:port;host:port")
    return addresses


class Routes:
    """Routes by topic. Nothing is asked twice at the same time."""

    def __init__(self, client: RemotingClient, nameservers: str | Sequence[str], *, timeout: float = 3.0) -> None:
        """`timeout`, in seconds, is one name server's."""
        self._client = client
        self._nameservers = parse_addresses(nameservers)
        self._first = 0
        self._timeout = timeout
        self._routes: dict[str, TopicRoute] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute]] = {}

    def known(self, topic: str) -> TopicRoute | None:
        """What was answered last."""
        return self._routes.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        """The route of `topic`, asked for if it is not known.

        Raises:
            TopicNotFoundError, NameServerError: see `refresh`.
        """
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str, *, unlike: TopicRoute | None = None) -> TopicRoute:
        """Ask again. If the answer is still `unlike`, which did not work, the next call asks another name server.

        Raises:
            TopicNotFoundError: neither the topic nor a template (TBW102) has a route.
            NameServerError: no name server answered; what was known stays known.
        """
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask_route(topic, unlike))
            self._asking[topic] = task
            task.add_done_callback(lambda done: self._asked(topic, done))
        return await asyncio.shield(task)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers (106).

        Raises:
            NameServerError: no name server answered as it should.
        """
        answer = await self.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return _read(ClusterInfo, answer)

    async def ask(self, question: RemotingCommand) -> RemotingCommand:
        """A name server's answer to `question`, whatever its code.

        Raises:
            NameServerError: none answered.
        """
        failures: list[str] = []
        for turn in range(len(self._nameservers)):
            index = (self._first + turn) % len(self._nameservers)
            try:
                answer = await self._client.call(self._nameservers[index], question, timeout=self._timeout)
            except RemotingError as error:
                failures.append(str(error))
                continue
            self._first = index
            return answer
        raise NameServerError("no name server answers: " + "; ".join(failures))

    def _asked(self, topic: str, task: "asyncio.Task[TopicRoute]") -> None:
        self._asking.pop(topic)
        if not task.cancelled():
            task.exception()  # whoever waited has it; if all were cancelled, nobody needs it

    async def _ask_route(self, topic: str, unlike: TopicRoute | None) -> TopicRoute:
        data = await self._ask_data(topic)
        template = data is None
        if data is None:
            data = await self._ask_data(AUTO_CREATE_TOPIC)
        if data is None:
            raise TopicNotFoundError(f"no route of topic {topic}, and no broker that creates topics")
        route = _digest(topic, data, template=template)
        if route == unlike:
            self._first = (self._first + 1) % len(self._nameservers)
        if not template:  # the topic's own route may be there after the next send
            self._routes[topic] = route
        return route

    async def _ask_data(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.pop(topic, None)
            return None
        return _read(TopicRouteData, answer)


B = TypeVar("B", TopicRouteData, ClusterInfo)


def _read(body_type: type[B], answer: RemotingCommand) -> B:
    if answer.code != ResponseCode.SUCCESS:
        raise NameServerError(f"a name server answered with {describe(answer.code)}: {answer.remark or 'no remark'}")
    try:
        return decode_body(body_type, answer.body)
    except BodyError as error:
        raise NameServerError(f"a name server's answer makes no sense: {error}") from error


def _digest(topic: str, data: TopicRouteData, *, template: bool) -> TopicRoute:
    addresses = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas if broker.broker_addrs}
    publish: list[PublishQueue] = []
    read: list[ReadQueue] = []
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        where = addresses.get(queues.broker_name)
        if where is None:
            continue
        master = where.get(MASTER_ID)
        writable = queues.write_queue_nums
        if template:
            writable = min(DEFAULT_TOPIC_QUEUE_NUMS, queues.read_queue_nums)
        if master is not None and queues.perm & PERM_WRITE:
            publish += [PublishQueue(queues.broker_name, queue_id, master) for queue_id in range(writable)]
        if queues.perm & PERM_READ and not template:
            read += [ReadQueue(queues.broker_name, queue_id, where) for queue_id in range(queues.read_queue_nums)]
    return TopicRoute(topic, publish, read, template)
