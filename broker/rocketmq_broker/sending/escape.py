"""Where a slave that acts as master puts what it may not store: at a master of another group (RIP-32).

The group is one that the topic's route lists as writable, never the own one, queue after queue; the request is an
ordinary send. `consuming/escaping.py` puts delayed messages that are due there.
Source: rocketmq-all-5.3.3: EscapeBridge.java, BrokerOuterAPI.java, TopicRouteInfoManager.java.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_client.errors import ClientError
from rocketmq_client.routes import PublishQueue, Routes
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.send import SendMessageRequestHeaderV2
from rocketmq_formats.store.message_properties import (
    DELAY,
    PRODUCER_GROUP,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    WAIT,
    find_property,
    join_properties,
    remove_property,
)
from rocketmq_formats.topics import AUTO_CREATE_TOPIC
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_store.model import Draft

SEND_SECONDS: Final = 3.0
ROUTE_SECONDS: Final = 30.0
"""Age of a route that is still used while sends succeed (loadBalancePollNameServerInterval)."""
MAX_ROUTES: Final = 10_000
KEPT: Final = "a master is about to begin, or has begun"
"""Why a message did not leave that no longer may."""
_QUEUES_OF_A_NEW_TOPIC: Final = 8
_HANDLED: Final = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC)
"""Properties with which the other group would delay the message again."""


class Escape(Protocol):
    """The way out for messages that only a master may store: delayed ones that are due."""

    async def put(self, message: Draft, may_leave: Callable[[], bool]) -> str | None:
        """None: another group has acknowledged `message` (PUT_OK). Otherwise why it is to be tried again; whether it
        was stored is unknown. Takes a bounded time. `store_host` and `queue_id` have no meaning there. `may_leave` is
        asked right before the message leaves; if it may not, the answer is `KEPT`."""


class RemoteEscape:
    """Implements `Escape` by sends to other groups."""

    def __init__(
        self, *, broker_name: str, role: ReplicaRole, name_servers: Sequence[str], client: RemotingClient
    ) -> None:
        """`name_servers`: `host:port`, at least one."""
        self._broker_name = broker_name
        self._role = role
        self._client = client
        self._routes = Routes(client, name_servers)
        self._fresh_until: dict[str, float] = {}
        """By topic, in the loop's time; topics whose route is to be asked for again are not in it."""
        self._turn = itertools.count()

    async def put(self, message: Draft, may_leave: Callable[[], bool]) -> str | None:
        """See `Escape`."""
        topic = message.topic.decode("utf-8", "replace")
        try:
            queue = await self._queue(topic)
            if queue is None:
                return f"no other group has a master that takes messages of topic {topic}"
            if not may_leave():
                return KEPT
            group = f"InnerProducerGroup_{self._broker_name}_{self._role.broker_id}"
            command = escape_request(message, queue.queue_id, group)
            answer = await self._client.call(queue.address, command, timeout=SEND_SECONDS)
        except (RemotingError, ClientError, ValueError) as error:
            self._fresh_until.pop(topic, None)
            return str(error)
        if answer.code != ResponseCode.SUCCESS:
            self._fresh_until.pop(topic, None)
            return f"{queue.broker_name} at {queue.address} answers {answer.code}: {answer.remark}"
        return None

    async def _queue(self, topic: str) -> PublishQueue | None:
        now = self._client.loop.time()
        route = self._routes.known(topic)
        if route is None or self._fresh_until.get(topic, now) <= now:
            route = await self._routes.refresh(topic)
            if len(self._fresh_until) >= MAX_ROUTES:
                self._fresh_until.clear()
            self._fresh_until[topic] = now + ROUTE_SECONDS
        # as in Java, a topic that does not exist yet is not created
        queues = [] if route.is_template else [q for q in route.publish if q.broker_name != self._broker_name]
        if not queues:
            self._fresh_until.pop(topic, None)
            return None
        return queues[next(self._turn) % len(queues)]


def escape_request(message: Draft, queue_id: int, producer_group: str) -> RemotingCommand:
    """The send (310) of `message`. `producer_group` is for messages that do not name theirs."""
    properties = message.properties
    for name in (*_HANDLED, WAIT):
        properties = remove_property(properties, name)
    properties = join_properties(properties, f"{WAIT}\x01false\x02".encode())
    header = SendMessageRequestHeaderV2(
        producer_group=find_property(properties, PRODUCER_GROUP) or producer_group,
        topic=message.topic.decode("utf-8", "replace"),
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=_QUEUES_OF_A_NEW_TOPIC,
        queue_id=queue_id,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=properties.decode("utf-8", "replace"),
        reconsume_times=message.reconsume_times,
        unit_mode=False,
        batch=False,
    )
    return request(RequestCode.SEND_MESSAGE_V2, header, bytes(message.body))
