"""Sends messages: many in flight over one connection per broker, again and elsewhere when a broker fails.

Used by the demo, the benchmarks and tests. A send's fast path is one coroutine, one frame and one future; every
failure leaves it for `_recover`.
Source: rocketmq-all-5.3.3: DefaultMQProducerImpl.java, MQClientAPIImpl.java.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import structlog

from rocketmq_client.connections import Connections
from rocketmq_client.errors import ClientError, NameServerError, SendError, TopicNotFoundError, describe
from rocketmq_client.names import UniqueIds, new_client_id
from rocketmq_client.routes import Routes, TopicRoute
from rocketmq_client.sending import REFUSED_UNSEEN, RETRIED, Job, SendResult, Target, Targets
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.client import HeartbeatData, ProducerData, UnregisterClientRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.send_frames import SendAnswer, json_properties
from rocketmq_formats.store.batch import BatchMessage, encode_batch
from rocketmq_formats.store.message_properties import UNIQ_KEY, WAIT, format_properties
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient, RemotingError

log = structlog.get_logger(__name__)

UPKEEP_SECONDS: Final = 30.0
"""Between two heartbeats and refreshes of the routes, as in Java."""
_UNSENT: Final = "no queue of the topic takes messages now"


class Producer:
    """Sends for one producer group. `async with Producer(...)` starts and closes it."""

    def __init__(
        self,
        nameservers: str | Sequence[str],
        *,
        group: str = "rocketmq-client",
        attempts: int = 3,
        timeout: float = 3.0,
        pause: float = 0.02,
        client: RemotingClient | None = None,
    ) -> None:
        """A send is tried up to `attempts` times for up to `timeout` seconds each.

        `pause`: seconds between a second failure in a row and the next attempt, so that a new master can register at
        the name servers; the first retry is immediate. `client` is shared for routes and heartbeats if given.
        """
        self.client_id = new_client_id()
        self.group = group
        self._own_client = client is None
        self._client = client or RemotingClient()
        self.routes = Routes(self._client, nameservers, timeout=timeout)
        self._attempts = attempts
        self._pause = pause
        self._ids = UniqueIds()
        self._targets: dict[str, Targets] = {}
        self._doubted: set[str] = set()
        """Topics whose last send failed: the next one refreshes the route first."""
        self._connections = Connections(timeout)
        self._upkeep: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Start heartbeats and refreshes of routes; sending works without them."""
        if self._upkeep is None:
            self._upkeep = background.start(self._keep_up(), "upkeep of a producer")

    async def close(self) -> None:
        """Sign off at the brokers and end every connection; sends in flight fail with SendError."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
            header = UnregisterClientRequestHeader(client_id=self.client_id, producer_group=self.group)
            for address in self._connections.addresses:
                with contextlib.suppress(RemotingError):
                    await self._client.call(address, request(RequestCode.UNREGISTER_CLIENT, header), timeout=1.0)
        await self._connections.close()
        if self._own_client:
            await self._client.close()

    async def send(
        self, topic: str, body: bytes, *, queue_id: int | None = None, properties: Mapping[str, str] | None = None
    ) -> SendResult:
        """Send one message, to the queue whose turn it is or to `queue_id`. `properties`: KEYS, TAGS and others.

        Raises:
            SendError: not stored as far as this client can tell, or unknown; see its `maybe_stored`.
            TopicNotFoundError, NameServerError: there is no route and was none before; nothing was sent.
            ValueError: larger than a frame.
            PropertiesError: an illegal property.
        """
        now_ms = time.time_ns() // 1_000_000
        msg_id = self._ids.next(now_ms)
        encoded = b"UNIQ_KEY\\u0001%b\\u0002WAIT\\u0001true\\u0002" % msg_id.encode()
        if properties:
            encoded += json_properties(format_properties(properties))
        targets = self._targets.get(topic)
        if targets is not None:
            target = targets.next() if queue_id is None else targets.queue(queue_id)
            if target is not None:
                queue = target.queue
                connection = self._connections.get(queue.address)
                if connection is not None and connection.open:
                    frame = target.template.frame(connection.next_opaque, now_ms, encoded, body)
                    try:
                        answer = await connection.send(frame)
                    except RemotingError as error:
                        failure: SendAnswer | RemotingError = error
                    else:
                        fields = answer.fields
                        if answer.code == 0 and fields is not None:
                            return SendResult(
                                0,
                                msg_id,
                                fields.msg_id,
                                queue.broker_name,
                                fields.queue_id,
                                fields.queue_offset,
                                queue.address,
                                1,
                            )
                        failure = answer
                    job = Job(topic, queue_id, now_ms, msg_id, encoded, body)
                    return await self._recover(job, target, failure)
        return await self._recover(Job(topic, queue_id, now_ms, msg_id, encoded, body))

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[bytes],
        *,
        queue_id: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> SendResult:
        """Send several messages in one request, to one queue; `properties` are each message's.

        Raises:
            As `send`; a batch is stored whole or not at all.
        """
        now_ms = time.time_ns() // 1_000_000
        ids: list[str] = []
        messages: list[BatchMessage] = []
        for body in bodies:
            ids.append(self._ids.next(now_ms))
            named = {UNIQ_KEY: ids[-1], WAIT: "true", **(properties or {})}
            messages.append(BatchMessage(0, body, format_properties(named)))
        if not messages:
            raise ValueError("a batch without messages")
        # A UNIQ_KEY here, as Java's client sends it, would take the place of each message's own.
        encoded = json_properties(format_properties({WAIT: "true"}))
        job = Job(topic, queue_id, now_ms, ",".join(ids), encoded, encode_batch(messages), batch=True)
        return await self._recover(job)

    async def _recover(
        self, job: Job, target: Target | None = None, failure: SendAnswer | RemotingError | None = None
    ) -> SendResult:
        """Continue `job` after its first attempt, to `target`, ended in `failure`; or start it."""
        attempts = 0 if failure is None else 1
        maybe_stored = False
        while True:
            if failure is not None:
                if isinstance(failure, SendAnswer):
                    if target is not None and (result := job.result(target, failure, attempts)) is not None:
                        return result
                    code, what = failure.code, f"{describe(failure.code)}: {failure.remark or 'no remark'}"
                    maybe_stored |= code not in REFUSED_UNSEEN
                    final = code not in RETRIED
                else:
                    code, what, final = None, str(failure), False
                    maybe_stored |= not isinstance(failure, ConnectError)
                if final or attempts >= self._attempts:
                    self._targets.pop(job.topic, None)
                    self._doubted.add(job.topic)
                    where = "" if target is None else f" to {target.queue.address}"
                    message = f"sending to topic {job.topic}{where} failed: {what}"
                    raise SendError(message, code=code, attempts=attempts, maybe_stored=maybe_stored)
                if attempts > 1:
                    await asyncio.sleep(self._pause)
            again = failure is not None or job.topic in self._doubted
            self._doubted.discard(job.topic)
            target = await self._pick(job, target, again=again)
            attempts += 1
            try:
                if target is None:
                    raise ConnectError(_UNSENT)
                connection = await self._connections.open(target.queue.address)
                failure = await connection.send(job.frame(target, connection.next_opaque))
            except RemotingError as error:
                failure = error

    async def _pick(self, job: Job, failed: Target | None, *, again: bool) -> Target | None:
        """The queue for the next attempt, by a fresh route where one failed."""
        known = self.routes.known(job.topic)
        if known is not None and failed is not None and failed.queue not in known.publish:
            again = False  # another send has refreshed it already
        route: TopicRoute | None
        try:
            route = await (self.routes.refresh(job.topic, unlike=known) if again else self.routes.route(job.topic))
        except (NameServerError, TopicNotFoundError):
            # the old route may still work, and a topic may return with its broker
            if known is None and not again:
                raise
            route = known
        if route is None:
            return None
        targets = self._targets.get(job.topic)
        if targets is None or targets.route is not route:
            if targets is None or targets.route != route:
                targets = Targets(route, self.group)
            if not route.is_template:
                self._targets[job.topic] = targets
        if job.queue_id is not None:
            return targets.queue(job.queue_id)
        return targets.next(other_than=None if failed is None else failed.queue.broker_name)

    async def _keep_up(self) -> None:
        """Heartbeats to every broker connected, at once and then now and then; routes as often."""
        used = self._connections.used
        while True:
            try:
                async with asyncio.timeout(UPKEEP_SECONDS):
                    await used.wait()
            except TimeoutError:
                for topic in list(self._targets):
                    try:
                        await self.routes.refresh(topic)
                    except ClientError as error:
                        log.warning("route not refreshed, the old one stays", topic=topic, reason=str(error))
            used.clear()
            body = encode_body(
                HeartbeatData(client_id=self.client_id, producer_data_set=[ProducerData(group_name=self.group)])
            )
            for address in self._connections.addresses:
                with contextlib.suppress(RemotingError):
                    await self._client.call(address, request(RequestCode.HEART_BEAT, body=body))
