"""The native engine's load: numbered messages by our own client, and all of them read back at the end.

A number is sent once: after a failed send the next number follows. So a message that is read twice was stored twice,
and one that was acknowledged and is not read is lost.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rocketmq_client.errors import ClientError
from rocketmq_client.producer import Producer
from rocketmq_client.reading import read_all
from rocketmq_client.routes import Routes
from rocketmq_demo.engines.engine import MOMENT, Acknowledgement, LoadResult
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

TOPIC = "ledger"
PATIENCE = 0.5
"""Seconds that one send may take unless the load is patient; a hung master costs this once."""
SENDERS = 4
"""Each has one send in flight."""
PAUSE = 0.002
"""Seconds between two sends of a sender."""
PAUSE_AFTER_FAILURE = 0.02
_PADDING = b"." * 200


class NativeLoad:
    """Implements `engine.Load`."""

    def __init__(self, *, nameservers: Sequence[str]) -> None:
        self._nameservers = list(nameservers)
        self._acknowledged: list[Acknowledgement] = []
        self._failed = 0
        self._number = 0
        self._senders: list[asyncio.Task[None]] = []
        self._producers: list[Producer] = []
        """The last one sends."""

    async def start(self) -> None:
        """Begin to send."""
        self._add_producer(PATIENCE)
        self._senders = [background.awaited(self._send_forever(), "load") for _ in range(SENDERS)]

    @contextmanager
    def patient(self) -> Iterator[None]:
        """A context in which one send may take a `MOMENT`."""
        self._add_producer(MOMENT)
        try:
            yield
        finally:
            self._producers.insert(0, self._producers.pop())

    def acknowledgements(self) -> Sequence[Acknowledgement]:
        """All so far."""
        return self._acknowledged

    def failures(self) -> int:
        """Attempts that failed so far."""
        return self._failed

    async def finish(self) -> LoadResult:
        """Stop sending and read everything back."""
        for sender in self._senders:
            sender.cancel()
        ended = await asyncio.gather(*self._senders, return_exceptions=True)
        problems = [f"the producer failed: {error!r}" for error in ended if isinstance(error, Exception)]
        for producer in self._producers:
            await producer.close()
        acknowledged = {sent.number for sent in self._acknowledged}
        if not acknowledged:
            return LoadResult(acknowledged=0, failed=self._failed, problems=(*problems, "nothing was acknowledged"))
        try:
            found = await self._read_back()
        except (ClientError, RemotingError) as error:
            problems.append(f"the topic could not be read to its end: {error}")
            return LoadResult(acknowledged=len(acknowledged), failed=self._failed, problems=tuple(problems))
        return LoadResult(
            acknowledged=len(acknowledged),
            failed=self._failed,
            read_back=len(found),
            lost=len(acknowledged - found.keys()),
            duplicated=sum(1 for copies in found.values() if copies > 1),
            problems=tuple(problems),
        )

    def _add_producer(self, patience: float) -> None:
        producer = Producer(self._nameservers, group="ledger-producer", attempts=1, timeout=patience)
        producer.start()
        self._producers.append(producer)

    async def _read_back(self) -> Counter[int]:
        client = RemotingClient()
        try:
            messages = await read_all(client, Routes(client, self._nameservers), TOPIC, group="ledger-audit")
        finally:
            await client.close()
        return Counter(int(message.body.partition(b" ")[0]) for message in messages)

    async def _send_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            number = self._number
            self._number += 1
            try:
                result = await self._producers[-1].send(TOPIC, b"%d %b" % (number, _PADDING))
            except (ClientError, RemotingError):
                self._failed += 1
                await asyncio.sleep(PAUSE_AFTER_FAILURE)
                continue
            if result.acknowledged:
                self._acknowledged.append(Acknowledgement(loop.time(), number))
            else:
                self._failed += 1
            await asyncio.sleep(PAUSE)
