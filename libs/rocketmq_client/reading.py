"""Reads all of a topic, and one queue wherever its broker goes (`Cursor`). Used by `consumer`, the demo and tests."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from rocketmq_client.errors import AnswerError, ClientError
from rocketmq_client.queue_reader import Message, QueueReader
from rocketmq_client.routes import ReadQueue, Routes
from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

_RETRIED: Final = frozenset(
    (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.GO_AWAY,
    )
)

T = TypeVar("T")


async def read_all(
    client: RemotingClient,
    routes: Routes,
    topic: str,
    *,
    group: str = "rocketmq-client-reader",
    attempts: int = 10,
    timeout: float = 3.0,  # noqa: ASYNC109
    pause: float = 0.05,
) -> list[Message]:
    """Everything in `topic` that consumers may see now, each queue from its first to its last message, queue by queue.

    A step that fails is tried again, by a fresh route, up to `attempts` times in a row, `pause` seconds apart.

    Raises:
        TopicNotFoundError, NameServerError: there is no route.
        ClientError, RemotingError: a step that failed in all its attempts; among them a queue that does not
            return the messages before its end.
    """
    route = await routes.refresh(topic)
    cursors = [
        Cursor(client, routes, topic, queue, group=group, attempts=attempts, timeout=timeout, pause=pause)
        for queue in route.read
    ]
    queues = await asyncio.gather(*(_read_queue(cursor) for cursor in cursors))
    return [message for messages in queues for message in messages]


async def _read_queue(cursor: "Cursor") -> list[Message]:
    offset = await cursor.run(QueueReader.min_offset)
    end = await cursor.run(QueueReader.max_offset)
    messages: list[Message] = []

    async def step(reader: QueueReader) -> int:
        pulled = await reader.pull(offset)
        if pulled.next_offset <= offset:
            raise ClientError(f"queue {cursor.queue} ends at {end}, but nothing behind {offset} is given")
        messages.extend(message for message in pulled.messages if message.queue_offset < end)
        return pulled.next_offset

    while offset < end:
        offset = await cursor.run(step)
    return messages


class Cursor:
    """One queue, wherever it is: a step that fails is retried by a fresh route."""

    def __init__(
        self,
        client: RemotingClient,
        routes: Routes,
        topic: str,
        queue: ReadQueue,
        *,
        group: str,
        attempts: int | None,
        timeout: float,
        pause: float,
    ) -> None:
        """Each step is tried `attempts` times, None means without end; `timeout` and `pause` in seconds."""
        self.queue = queue
        self.topic = topic
        self._client = client
        self._routes = routes
        self._group = group
        self._attempts = attempts
        self._timeout = timeout
        self._pause = pause

    async def run(self, step: Callable[[QueueReader], Awaitable[T]]) -> T:
        """What `step` returns in its first attempt that does not fail.

        Raises:
            ClientError, RemotingError: the last attempt's.
        """
        failures = 0
        while True:
            reader = QueueReader(self._client, self.topic, self.queue, self._group, timeout=self._timeout)
            try:
                return await step(reader)
            except (RemotingError, ClientError) as error:
                failures += 1
                if isinstance(error, AnswerError) and error.code not in _RETRIED:
                    raise
                if failures == self._attempts:
                    raise
                log.debug("step failed, retried", queue=self.queue, reason=str(error))
            await asyncio.sleep(self._pause)
            await self._find_again()

    async def _find_again(self) -> None:
        """Find the queue by a fresh route; keep the old one if name servers do not answer or do not have it now."""
        with contextlib.suppress(ClientError):
            route = await self._routes.refresh(self.topic, unlike=self._routes.known(self.topic))
            key = (self.queue.broker_name, self.queue.queue_id)
            for found in route.read:
                if (found.broker_name, found.queue_id) == key:
                    self.queue = found
