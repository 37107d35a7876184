"""Numbered messages, and every answer about them. Each number is sent once: without an answer it is open whether the
message is stored.

All times are this process's steady clock in seconds; the clocks of the nodes are not trusted.
"""

import asyncio
import itertools
import random
from typing import NamedTuple

from tests.campaign import wire
from tests.campaign.cluster import GROUP, NAMESRV_PORT, Cluster

TOPIC, LATER = "CampaignTopic", "CampaignLater"
QUEUES = 4
DELAYS = {1: 1.0, 2: 5.0, 3: 10.0}
"""Seconds of the delay levels in use."""
CONSUMERS = "campaign-group"
_IN_FLIGHT = 12
ZEROS_EVERY = 13
"""Prime to the number of queues, so that zeros come to each queue."""


class Acked(NamedTuple):
    queue: int
    offset: int
    sent: float
    at: float
    master: str
    place: int
    """Its offset in the commit log."""


class Commit(NamedTuple):
    offset: int
    sent: float
    at: float
    master: str


class FallenBack(NamedTuple):
    """A consumer offset found behind."""

    queue: int
    first: Commit
    """The oldest that is missing."""
    missing: int


class Delayed(NamedTuple):
    level: int
    sent: float
    at: float
    place: int
    """Its offset in the commit log. The copy that consumers get lies behind it."""


def body_of(number: int, size: int) -> bytes:
    """The only body that message `number` may have."""
    return b"%d:" % number + _rest_of(number, size)


def _rest_of(number: int, size: int) -> bytes:
    """Random bytes, and in every ZEROS_EVERYth message zeros: a body may look like what a crash leaves of a file."""
    return bytes(size) if number % ZEROS_EVERY == 0 else random.Random(number).randbytes(size)


ODD = b"odd:"
"""Prefix of bodies that the nemesis sends; the broker may accept them or not."""


def number_of(body: bytes) -> int | None:
    """None for a message of the nemesis. Raises ValueError for a body that no number has."""
    head, _, rest = body.partition(b":")
    if body.startswith(ODD):
        return None
    number = int(head)
    if rest != _rest_of(number, len(rest)):
        raise ValueError(f"message {number} has changed")
    return number


class History:
    """What was promised, and what was seen."""

    def __init__(self) -> None:
        self.acked: dict[int, Acked] = {}
        self.delayed: dict[int, Delayed] = {}
        """Acknowledged messages that were to come later."""
        self.first_seen: dict[int, float] = {}
        """When a live consumer first saw a delayed message."""
        self.seen: dict[tuple[int, int], int] = {}
        """What a live consumer saw at (queue, offset)."""
        self.changed: list[str] = []
        self.committed: dict[int, list[Commit]] = {}
        """The consumer offsets of each queue whose commits were answered, oldest first."""
        self.fallen_back: list[FallenBack] = []
        self.blackout = 0.0
        """When no replica lived last, or one lost power: older consumer offsets are not promised."""
        self.all_down: list[float] = []
        """When no replica lived: when older delayed messages came is unknown."""
        self.disk_was_full = False
        """A replica's disk: it deletes its oldest files then, and in no other round."""
        self.refused = 0
        self.open = 0
        self.gaps: list[tuple[float, float]] = []
        self._last_ack: float | None = None

    def ack(self, number: int, acked: Acked) -> None:
        self.acked[number] = acked
        if self._last_ack is not None and acked.at - self._last_ack > 1.0:
            self.gaps.append((self._last_ack, acked.at))
        self._last_ack = acked.at

    def commit(self, queue: int, commit: Commit) -> None:
        self.committed.setdefault(queue, []).append(commit)

    def next_commit(self, queue: int) -> int:
        commits = self.committed.get(queue)
        return commits[-1].offset + 1 if commits else 1

    def found_offset(self, queue: int, offset: int) -> None:
        """A master has this consumer offset now."""
        missing = [commit for commit in self.committed.get(queue, ()) if commit.offset > offset]
        if missing:
            if missing[0].sent > self.blackout:  # an answer from before it may have been read after it
                self.fallen_back.append(FallenBack(queue, missing[0], len(missing)))
            del self.committed[queue][-len(missing) :]

    def saw(self, queue: int, offset: int, number: int) -> None:
        before = self.seen.setdefault((queue, offset), number)
        if before != number:
            self.changed.append(f"queue {queue} offset {offset} showed message {before}, then {number}")

    @property
    def longest_gap(self) -> float:
        return max((end - start for start, end in self.gaps), default=0.0)


class Master:
    """The connection to the broker that the name server names as master of the group."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._name_server = f"{cluster.name_server.address}:{NAMESRV_PORT}"
        self._connections: dict[str, wire.Connection] = {}
        self._lock = asyncio.Lock()
        self.address: str | None = None

    async def connection(self) -> wire.Connection:
        """To the master of the last answer. Raises OSError, RemotingError."""
        async with self._lock:
            if self.address is None:
                self.address = await self._look_up()
            connection = self._connections.get(self.address)
            if connection is None or connection.closed:
                address, self.address = self.address, None
                connection = self._connections[address] = await wire.Connection.open(address)
                self.address = address
            return connection

    def forget(self) -> None:
        """Look the master up again."""
        self.address = None

    async def _look_up(self) -> str:
        connection = await wire.Connection.open(self._name_server)
        try:
            answer = await connection.ask(wire.ROUTE, {"topic": TOPIC}, timeout=1.0)
        finally:
            connection.close()
        if answer.code == 17:  # no broker has registered the topic yet
            state = await self._cluster.state()
            if state is None or not state.master_address:
                raise wire.RemotingError(17, "no master")
            return state.master_address
        if answer.code != wire.SUCCESS:
            raise wire.RemotingError(answer.code, answer.remark)
        for data in wire.lenient_json(answer.body)["brokerDatas"]:
            address = data["brokerAddrs"].get("0")
            if data["brokerName"] == GROUP and address:
                return str(address)
        raise wire.RemotingError(None, "no master in the route")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


class Load:
    """Producers, live consumers and committed offsets; `stop` ends the producers first."""

    def __init__(self, cluster: Cluster, rng: random.Random, *, per_second: float) -> None:
        self.history = History()
        self.master = Master(cluster)
        self._rng = rng
        self._pause = _IN_FLIGHT / per_second
        self._numbers = itertools.count()
        self._sending = True
        self._producers: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []
        self._now = asyncio.get_running_loop().time

    async def prepare(self, timeout: float) -> None:
        """Make both topics. Raises TimeoutError."""
        deadline = self._now() + timeout
        for topic in (TOPIC, LATER):
            while not await self._made(topic):
                if self._now() > deadline:
                    raise TimeoutError(f"{topic} could not be made")
                await asyncio.sleep(0.2)

    def start(self) -> None:
        for _ in range(_IN_FLIGHT):
            self._producers.append(asyncio.create_task(self._produce()))
        self._others.append(asyncio.create_task(self._produce_later()))
        for queue in range(QUEUES):
            self._others.append(asyncio.create_task(self._watch(TOPIC, queue)))
            self._others.append(asyncio.create_task(self._watch(LATER, queue)))
        self._others.append(asyncio.create_task(self._commit()))

    async def flows(self, timeout: float) -> None:
        """Wait for the next acknowledgement. Raises TimeoutError."""
        before = len(self.history.acked)
        deadline = self._now() + timeout
        while len(self.history.acked) == before:
            if self._now() > deadline:
                raise TimeoutError(f"no send was acknowledged for {timeout:g} s although all replicas are in sync")
            await asyncio.sleep(0.1)

    async def stop_sending(self) -> None:
        """Stop, and wait for the answers that are still to come."""
        self._sending = False
        await asyncio.gather(*self._producers)

    async def stop(self) -> None:
        for task in self._others:
            task.cancel()
        for result in await asyncio.gather(*self._others, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
                raise result
        self.master.close()

    async def _made(self, topic: str) -> bool:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        try:
            connection = await self.master.connection()
            return (await connection.ask(wire.CREATE_TOPIC, fields)).code == wire.SUCCESS
        except (OSError, wire.RemotingError):
            self.master.forget()
            return False

    async def _produce(self) -> None:
        while self._sending:
            number = next(self._numbers)
            queue = number % QUEUES
            size = self._rng.choice((0, 20, 200, 1000, 1000, 1000, 5000, 40_000))
            await self._send(number, TOPIC, queue, body_of(number, size), {"KEYS": str(number), "WAIT": "true"})
            await asyncio.sleep(self._pause * self._rng.random() * 2)

    async def _produce_later(self) -> None:
        while self._sending:
            number = next(self._numbers)
            level = self._rng.choice(tuple(DELAYS))
            sent = self._now()
            answer = await self._ask_send(number, LATER, number % QUEUES, body_of(number, 100), {"DELAY": str(level)})
            if answer is not None:
                self.history.delayed[number] = Delayed(level, sent, self._now(), wire.place_of(answer))
            await asyncio.sleep(0.1 + 0.2 * self._rng.random())

    async def _send(self, number: int, topic: str, queue: int, body: bytes, properties: dict[str, str]) -> None:
        sent = self._now()
        master = self.master.address or ""
        answer = await self._ask_send(number, topic, queue, body, properties)
        if answer is not None:
            spot = int(answer.fields["queueId"]), int(answer.fields["queueOffset"])
            self.history.ack(number, Acked(*spot, sent, self._now(), master, wire.place_of(answer)))

    async def _ask_send(
        self, number: int, topic: str, queue: int, body: bytes, properties: dict[str, str]
    ) -> wire.Answer | None:
        """The answer if the message was accepted."""
        properties = {**properties, "UNIQ_KEY": f"C{number:031d}"}
        try:
            connection = await self.master.connection()
            answer = await connection.ask(wire.SEND, wire.send_fields(topic, queue, properties), body, timeout=4.0)
        except (OSError, wire.RemotingError):
            self.history.open += 1
            self.master.forget()
            await asyncio.sleep(0.05)
            return None
        if answer.code == wire.SUCCESS:
            return answer
        self.history.refused += 1
        if answer.code not in {10, 11, 12}:  # stored, and not yet as safe as promised
            self.master.forget()
        await asyncio.sleep(0.05)
        return None

    # Live consumers

    async def _watch(self, topic: str, queue: int) -> None:
        offset = 0
        while True:
            try:
                connection = await self.master.connection()
                fields = wire.pull_fields(CONSUMERS, topic, queue, offset, wait_ms=1000)
                answer = await connection.ask(wire.PULL, fields, timeout=5.0)
            except (OSError, wire.RemotingError):
                self.master.forget()
                await asyncio.sleep(0.1)
                continue
            if answer.code == wire.SUCCESS:
                for record in wire.records(answer.body):
                    self._saw(topic, record)
            if answer.code in {wire.SUCCESS, wire.PULL_RETRY, wire.PULL_MOVED}:
                offset = int(answer.fields["nextBeginOffset"])
            elif answer.code != wire.PULL_NOT_FOUND:
                self.master.forget()
                await asyncio.sleep(0.1)

    def _saw(self, topic: str, record: wire.Record) -> None:
        try:
            number = number_of(record.body)
        except ValueError as error:
            self.history.changed.append(f"{topic} queue {record.queue} offset {record.queue_offset}: {error}")
            return
        if number is None:
            return
        if topic == LATER:
            self.history.first_seen.setdefault(number, self._now())
        else:
            self.history.saw(record.queue, record.queue_offset, number)

    async def _commit(self) -> None:
        for turn in itertools.count():
            queue = turn % QUEUES
            known = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": queue}
            try:
                connection = await self.master.connection()
                master = self.master.address or ""
                answer = await connection.ask(wire.QUERY_OFFSET, known, timeout=1.0)
                if answer.code == wire.SUCCESS:
                    self.history.found_offset(queue, int(answer.fields["offset"]))
                elif answer.code == 22:
                    self.history.found_offset(queue, 0)
                offset, sent = self.history.next_commit(queue), self._now()
                answer = await connection.ask(wire.UPDATE_OFFSET, {**known, "commitOffset": offset}, timeout=1.0)
                if answer.code == wire.SUCCESS:
                    self.history.commit(queue, Commit(offset, sent, self._now(), master))
            except (OSError, wire.RemotingError):
                self.master.forget()
            await asyncio.sleep(0.05)


async def read_queue(connection: wire.Connection, topic: str, queue: int) -> dict[int, wire.Record]:
    """All that a consumer can read of one queue, by offset. Raises OSError, RemotingError, ValueError."""
    known = {"topic": topic, "queueId": queue}
    offset = int((await connection.ask(wire.MIN_OFFSET, known)).fields["offset"])
    end = int((await connection.ask(wire.MAX_OFFSET, known)).fields["offset"])
    found: dict[int, wire.Record] = {}
    while offset < end:
        answer = await connection.ask(
            wire.PULL, wire.pull_fields(CONSUMERS, topic, queue, offset, wait_ms=0), timeout=10
        )
        if answer.code == wire.SUCCESS:
            found.update((record.queue_offset, record) for record in wire.records(answer.body))
        elif answer.code not in {wire.PULL_RETRY, wire.PULL_MOVED}:
            raise wire.RemotingError(answer.code, f"pull of {topic} queue {queue} at {offset}: {answer.remark}")
        following = int(answer.fields["nextBeginOffset"])
        if following <= offset:
            raise wire.RemotingError(answer.code, f"pull of {topic} queue {queue} stays at {offset} of {end}")
        offset = following
    return found
