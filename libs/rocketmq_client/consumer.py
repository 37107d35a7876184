"""Reads a topic as a consumer group, from its committed offsets on. Used by the demo and tests.

A `Consumer` takes every queue of its topic: it is the only member of its group, so queues are not divided.
Source: rocketmq-all-5.3.3: DefaultMQPushConsumerImpl.java, RebalanceImpl.java.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Final, Literal, Self

import structlog

from rocketmq_client.errors import ClientError
from rocketmq_client.names import new_client_id
from rocketmq_client.queue_reader import SUSPEND_SECONDS, Message, Pulled, QueueReader
from rocketmq_client.reading import Cursor
from rocketmq_client.routes import Routes
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.client import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    UnregisterClientRequestHeader,
)
from rocketmq_formats.remoting.command import request
from rocketmq_formats.tags import java_hash_code
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS: Final = 30.0
COMMIT_SECONDS: Final = 5.0
READ_AHEAD: Final = 1024
"""Messages buffered for the reader; the pulls pause above it."""


class Consumer:
    """`async with Consumer(...) as consumer: async for message in consumer: ...; consumer.done(message)`.

    Each queue is pulled on its own, and held by the broker while it is empty; messages of one queue arrive in order.
    What was `done` is committed every COMMIT_SECONDS and at the end.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str],
        topic: str,
        *,
        group: str,
        tags: str = "*",
        start: Literal["first", "last"] = "first",
        timeout: float = 3.0,
        pause: float = 0.05,
        client: RemotingClient | None = None,
    ) -> None:
        """`start` holds where the group has no committed offset; `tags` as in `TagA || TagB`.

        A request may take `timeout` seconds; a failed one is retried after `pause` seconds, without end.
        """
        self.client_id = new_client_id()
        self.topic = topic
        self.group = group
        self._tags = tags
        self._start: Final = start
        self._timeout = timeout
        self._pause = pause
        self._own_client = client is None
        self._client = client or RemotingClient()
        self.routes = Routes(self._client, nameservers, timeout=timeout)
        self._messages: deque[Message] = deque()
        self._came, self._went = asyncio.Event(), asyncio.Event()
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._done: dict[tuple[str, int], int] = {}
        """Offsets to commit, by queue."""
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Find the queues, send heartbeats to their brokers, begin to pull.

        Raises:
            TopicNotFoundError, NameServerError: there is no route.
        """
        route = await self.routes.refresh(self.topic)
        await self._send_heartbeats()
        for queue in route.read:
            cursor = Cursor(
                self._client,
                self.routes,
                self.topic,
                queue,
                group=self.group,
                attempts=None,
                timeout=self._timeout,
                pause=self._pause,
            )
            self._cursors[queue.broker_name, queue.queue_id] = cursor
            self._run(self._pull(cursor))
        self._run(self._every(HEARTBEAT_SECONDS, self._send_heartbeats))
        self._run(self._every(COMMIT_SECONDS, self.commit))

    async def close(self) -> None:
        """Commit, unregister, close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(RemotingError, ClientError):
            await self.commit()
        header = UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=self.group)
        for address in self._addresses():
            with contextlib.suppress(RemotingError):
                await self._client.call(address, request(RequestCode.UNREGISTER_CLIENT, header), timeout=1.0)
        if self._own_client:
            await self._client.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message of any queue; waits for one.

        Raises:
            AnswerError: a broker refuses for good (no permission for the group, say).
        """
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            self._came.clear()
            await self._came.wait()
        self._went.set()
        return self._messages.popleft()

    def done(self, message: Message) -> None:
        """`message`, and everything before it in its queue, is consumed."""
        self._done[message.broker_name, message.queue_id] = message.queue_offset + 1

    async def commit(self) -> None:
        """Commit what is done.

        Raises:
            RemotingError, AnswerError: a broker did not accept it; the next commit tries again.
        """
        for key, offset in list(self._done.items()):
            cursor = self._cursors[key]
            reader = QueueReader(self._client, self.topic, cursor.queue, self.group, timeout=self._timeout)
            await reader.commit_offset(offset)
            if self._done.get(key) == offset:
                del self._done[key]

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task = background.awaited(work, "consumer")
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._came.set()

    async def _pull(self, cursor: Cursor) -> None:
        offset = await self._first_offset(cursor)

        async def step(reader: QueueReader) -> Pulled:
            return await reader.pull(offset, suspend=SUSPEND_SECONDS, tags=self._tags)

        while True:
            pulled = await cursor.run(step)
            self._messages += pulled.messages
            self._came.set()
            while len(self._messages) > READ_AHEAD:
                self._went.clear()
                await self._went.wait()
            if pulled.next_offset == offset and pulled.max_offset > offset:
                await asyncio.sleep(self._pause)  # a slave, or one that is becoming master
            offset = pulled.next_offset

    async def _first_offset(self, cursor: Cursor) -> int:
        committed = await cursor.run(QueueReader.committed_offset)
        if committed is not None:
            return committed
        return await cursor.run(QueueReader.min_offset if self._start == "first" else QueueReader.max_offset)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except (RemotingError, ClientError) as error:
                log.warning("failed, retried later", what=work.__name__, reason=str(error))

    async def _send_heartbeats(self) -> None:
        """Send this client's subscription to every broker of the topic."""
        tags = frozenset(tag.strip() for tag in self._tags.split("||")) - {"*", ""}
        subscription = SubscriptionData(
            topic=self.topic,
            sub_string=self._tags,
            tags_set=tags,
            code_set=frozenset(map(java_hash_code, tags)),
        )
        consumer = ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            subscription_data_set=[subscription],
        )
        body = encode_body(HeartbeatData(client_id=self.client_id, consumer_data_set=[consumer]))
        for address in self._addresses():
            try:
                await self._client.call(address, request(RequestCode.HEART_BEAT, body=body), timeout=self._timeout)
            except RemotingError as error:
                log.warning("heartbeat not accepted", address=address, reason=str(error))

    def _addresses(self) -> list[str]:
        route = self.routes.known(self.topic)
        return sorted({address for queue in route.read for address in queue.addresses.values()}) if route else []
