"""The native engine's consumer: reads the ledger while it is written, commits, and checks what was committed.

A committed offset that was answered and is not there any more has gone back: consumers would read messages again.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from rocketmq_client.errors import ClientError
from rocketmq_client.queue_reader import Pulled, QueueReader
from rocketmq_client.reading import Cursor, read_all
from rocketmq_client.routes import Routes
from rocketmq_demo.engines.engine import ReadResult
from rocketmq_demo.engines.native_load import TOPIC
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

GROUP: Final = "ledger-consumer"
PATIENCE: Final = 0.5
"""Seconds that one request may take beyond the time that the broker may hold it."""
SUSPEND: Final = 0.5
"""Seconds that the broker may hold a pull for which it has no message."""
PAUSE: Final = 0.05
START_SECONDS: Final = 30.0
COMMIT_PERIOD: Final = 0.2
READ_AGAIN_ATTEMPTS: Final = 3


class NativeReader:
    """Implements `engine.Reader`."""

    def __init__(self, *, nameservers: Sequence[str]) -> None:
        self._nameservers = list(nameservers)
        self._client: RemotingClient | None = None
        self._times: list[float] = []
        self._messages = self._rolled_back = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to read; a send has created the topic, and name servers will know that soon.

        Raises:
            TimeoutError: they do not after `START_SECONDS`.
            ClientError: no name server answers.
        """
        client = self._client = RemotingClient()
        routes = Routes(client, self._nameservers)
        deadline = time.monotonic() + START_SECONDS
        # a template may have queues that the topic has not
        while (route := await routes.refresh(TOPIC)).is_template:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no name server knows topic {TOPIC} after {START_SECONDS:g} s")
            await asyncio.sleep(PAUSE)
        for queue in route.read:
            cursor = Cursor(client, routes, TOPIC, queue, group=GROUP, attempts=None, timeout=PATIENCE, pause=PAUSE)
            self._tasks.append(background.awaited(self._read(cursor), "reader"))

    def times(self) -> Sequence[float]:
        """When messages came."""
        return self._times

    async def read_again(self) -> int:
        """How many messages another consumer gets now, from the first one on; 0 without an answer."""
        client = RemotingClient()
        routes = Routes(client, self._nameservers)
        try:
            found = await read_all(
                client,
                routes,
                TOPIC,
                group="ledger-again",
                attempts=READ_AGAIN_ATTEMPTS,
                timeout=PATIENCE,
                pause=PAUSE,
            )
        except (ClientError, RemotingError):
            return 0
        finally:
            await client.close()
        return len(found)

    async def finish(self) -> ReadResult:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        problems = tuple(f"a consumer failed: {error!r}" for error in ended if isinstance(error, Exception))
        return ReadResult(messages=self._messages, rolled_back=self._rolled_back, problems=problems)

    async def _read(self, cursor: Cursor) -> None:
        loop = asyncio.get_running_loop()
        offset = committed = await cursor.run(QueueReader.min_offset)
        committed_at = loop.time()

        async def pull(reader: QueueReader) -> Pulled:
            return await reader.pull(offset, suspend=SUSPEND)

        async def commit(reader: QueueReader) -> None:
            await reader.commit_offset(offset)

        while True:
            pulled = await cursor.run(pull)
            if pulled.messages:
                self._messages += len(pulled.messages)
                self._times.append(loop.time())
            elif pulled.next_offset == offset and pulled.max_offset > offset:
                await asyncio.sleep(PAUSE)  # a slave, or one that is becoming master
            offset = max(offset, pulled.next_offset)
            if offset > committed and loop.time() - committed_at > COMMIT_PERIOD:
                self._check(committed, await cursor.run(QueueReader.committed_offset))
                await cursor.run(commit)
                committed, committed_at = offset, loop.time()

    def _check(self, committed: int, found: int | None) -> None:
        if committed and (found or 0) < committed:
            self._rolled_back += 1
