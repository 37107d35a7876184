"""Clients of a quorum that is being broken: one broker group each, several requests at once, every answer recorded."""

import asyncio
import itertools
import random
import time
from collections import Counter
from contextlib import suppress

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import Header, decode_header
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient, RemotingError
from tests.processes.history import Seen

CLUSTER = "C"
REPLICAS = (1, 2, 3)
CALL_TIMEOUT = 1.0
OUTCOME_UNKNOWN = ("The controller lost its leadership", "cancelled: the process is stopping")
"""Beginnings of the remarks of code 1 answers whose outcome is unknown; any other code 1 is a bug."""
NOTHING_DONE = frozenset({ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_BUSY})

Answered = tuple[RemotingCommand, float, float]
"""Answer, when the request was sent, when the answer arrived."""


class GroupClients:
    """The brokers 1 to 3 of one group, and joiners that take further ids and are cleaned again.

    All of them share one connection to each controller, as the agent of one broker has: so a registration (1003) does
    not look like a restart.
    """

    def __init__(self, name: str, addresses: tuple[str, ...], rng: random.Random, dead_port: int) -> None:
        """`dead_port`: for brokers' addresses; no process listens there."""
        self.name = name
        self.history: list[Seen] = []
        self.epochs: set[tuple[int, int]] = set()
        """syncStateSetEpoch and masterEpoch, as seen together."""
        self.counts: Counter[str] = Counter()
        """Answers by request and code; `unknown` without a definite answer."""
        self.unexpected: list[RemotingCommand] = []
        """Answers that no state of the controllers explains."""
        self.stopping = asyncio.Event()
        self._addresses = addresses
        self._rng = rng
        self._dead_port = dead_port
        self._client = RemotingClient(connect_timeout=CALL_TIMEOUT)
        self._leader = 0
        self._hosts = itertools.count(1)
        self._background: set[asyncio.Task[None]] = set()

    async def found(self) -> None:
        """Register the three brokers and let the first become master."""
        for broker_id in REPLICAS:
            assert await self._join(f"{self._address()};{self.name}-{broker_id}", expect=broker_id)
        self._send_heartbeats()
        while not any(seen.register == f"{self.name} master" for seen in self.history):
            await self._elect(1, designate=False)

    async def run(self) -> None:
        """Send requests and record until `stopping`; then wait for the answers that are due."""
        async with asyncio.TaskGroup() as tasks:
            for work in (
                self._heartbeats,
                self._alters,
                self._alters,
                self._elections,
                self._joins,
                self._joins,
                self._reads,
            ):
                tasks.create_task(work())

    async def read_group(self) -> None:
        """Read the group once, from the leader."""
        await self._read()

    async def close(self) -> None:
        """End the connections."""
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._client.close()

    # Work that runs at the same time

    async def _heartbeats(self) -> None:
        while not self.stopping.is_set():
            self._send_heartbeats()
            await self._pause(1.0)

    async def _alters(self) -> None:
        while not self.stopping.is_set():
            await self._alter()
            await self._pause(self._rng.uniform(0, 0.04))

    async def _elections(self) -> None:
        while not self.stopping.is_set():
            designate = self._rng.random() < 0.8
            await self._elect(self._rng.choice(REPLICAS), designate=designate)
            await self._pause(self._rng.uniform(0, 0.2))

    async def _joins(self) -> None:
        for number in itertools.count():
            if self.stopping.is_set():
                return
            code = f"127.0.0.1:{self._dead_port};{self.name}-{id(asyncio.current_task())}-{number}"
            broker_id = await self._join(code)
            if broker_id is not None and self._rng.random() < 0.8:
                await self._clean(broker_id)
            await self._pause(self._rng.uniform(0, 0.2))

    async def _reads(self) -> None:
        while not self.stopping.is_set():
            await (self._read() if self._rng.random() < 0.5 else self._register(self._rng.choice(REPLICAS)))
            await self._pause(self._rng.uniform(0, 0.04))

    # Requests

    def _send_heartbeats(self) -> None:
        for address, broker_id in itertools.product(self._addresses, REPLICAS):
            header = BrokerHeartbeatRequestHeader(
                cluster_name=CLUSTER,
                broker_addr=f"127.0.0.1:{self._dead_port}",
                broker_name=self.name,
                broker_id=broker_id,
                epoch=1,
                max_offset=self._rng.randrange(1000),
                heartbeat_timeout_mills=10_000,
            )
            task = asyncio.create_task(
                self._client.send_oneway(address, request(RequestCode.BROKER_HEARTBEAT, header, oneway=True))
            )
            self._background.add(task)
            task.add_done_callback(self._beaten)

    async def _alter(self) -> None:
        now = await self._read()
        if now is None or now[0].master_broker_id is None:
            return
        header, body = now
        master = header.master_broker_id
        others = [broker_id for broker_id in REPLICAS if broker_id != master]
        wanted = frozenset({master, *self._rng.sample(others, self._rng.randint(0, 2))})
        answered = await self._call(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            AlterSyncStateSetRequestHeader(
                broker_name=self.name, master_broker_id=master, master_epoch=header.master_epoch
            ),
            encode_body(SyncStateSet(sync_state_set=wanted, sync_state_set_epoch=body.sync_state_set_epoch)),
        )
        if answered is None or answered[0].code != ResponseCode.SUCCESS:
            return
        new_epoch = decode_header(
            AlterSyncStateSetResponseHeader, answered[0].ext_fields or {}
        ).new_sync_state_set_epoch
        if new_epoch != body.sync_state_set_epoch + 1:
            self.unexpected.append(answered[0])
        self._saw(answered, header.master_epoch, master, new_epoch, wanted, altered=True)

    async def _elect(self, broker_id: int, *, designate: bool) -> None:
        answered = await self._call(
            RequestCode.CONTROLLER_ELECT_MASTER,
            ElectMasterRequestHeader(
                broker_name=self.name, cluster_name=CLUSTER, broker_id=broker_id, designate_elect=designate
            ),
        )
        if answered is None:
            return
        answer = answered[0]
        if answer.code in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            header = decode_header(ElectMasterResponseHeader, answer.ext_fields or {})
            members = decode_body(ElectMasterResponseBody, answer.body).sync_state_set or frozenset()
            self._saw(
                answered,
                header.master_epoch or 0,
                header.master_broker_id,
                header.sync_state_set_epoch or 0,
                members,
                elected=answer.code == ResponseCode.SUCCESS,
            )

    async def _read(self) -> tuple[GetReplicaInfoResponseHeader, SyncStateSet] | None:
        answered = await self._call(
            RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=self.name)
        )
        if answered is None or answered[0].code != ResponseCode.SUCCESS:
            return None
        header = decode_header(GetReplicaInfoResponseHeader, answered[0].ext_fields or {})
        body = decode_body(SyncStateSet, answered[0].body)
        self._saw(
            answered, header.master_epoch or 0, header.master_broker_id, body.sync_state_set_epoch, body.sync_state_set
        )
        return header, body

    async def _register(self, broker_id: int) -> None:
        answered = await self._call(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            RegisterBrokerToControllerRequestHeader(
                cluster_name=CLUSTER, broker_name=self.name, broker_id=broker_id, broker_address=self._address()
            ),
        )
        if answered is None or answered[0].code != ResponseCode.SUCCESS:
            return
        header = decode_header(RegisterBrokerToControllerResponseHeader, answered[0].ext_fields or {})
        body = decode_body(SyncStateSet, answered[0].body)
        if header.master_epoch is not None:
            self._saw(
                answered, header.master_epoch, header.master_broker_id, body.sync_state_set_epoch, body.sync_state_set
            )

    async def _join(self, check_code: str, expect: int | None = None) -> int | None:
        """Take an id as a broker does: get the next one, apply for it, and repeat until it is ours or `stopping`."""
        while not self.stopping.is_set():
            asked = await self._call(
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name=self.name),
            )
            if asked is None or asked[0].code != ResponseCode.SUCCESS:
                continue
            broker_id = decode_header(GetNextBrokerIdResponseHeader, asked[0].ext_fields or {}).next_broker_id
            assert broker_id is not None
            self.history.append(Seen(f"{self.name} ids", broker_id - 1, None, asked[1], asked[2]))
            first_sent = time.monotonic()
            while not self.stopping.is_set():
                applied = await self._call(
                    RequestCode.CONTROLLER_APPLY_BROKER_ID,
                    ApplyBrokerIdRequestHeader(
                        cluster_name=CLUSTER,
                        broker_name=self.name,
                        applied_broker_id=broker_id,
                        register_check_code=check_code,
                    ),
                )
                if applied is None:
                    continue  # the check code makes it safe to repeat, with any outcome
                if applied[0].code != ResponseCode.SUCCESS:
                    break
                assert expect in {None, broker_id}, f"{broker_id} where {expect} was expected"
                self.history.append(Seen(f"{self.name} ids", broker_id, check_code, first_sent, applied[2], wrote=True))
                return broker_id
        return None

    async def _clean(self, broker_id: int) -> None:
        await self._call(
            RequestCode.CLEAN_BROKER_DATA,
            CleanControllerBrokerDataRequestHeader(
                broker_name=self.name,
                cluster_name=CLUSTER,
                broker_controller_ids_to_clean=str(broker_id),
                is_clean_living_broker=True,  # a new leader presumes for a while that all live
            ),
        )

    # Inside

    def _beaten(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RemotingError):
            raise error

    def _address(self) -> str:
        """Another loopback address each time, so that each registration is a change."""
        number = next(self._hosts)
        return f"127.1.{number // 250 % 250}.{number % 250 + 1}:{self._dead_port}"

    async def _call(self, code: RequestCode, header: Header, body: bytes = b"") -> Answered | None:
        """Try controllers in turn until one acts as leader; None if the outcome is unknown, or `stopping` came
        first."""
        while True:
            address = self._addresses[self._leader]
            sent = time.monotonic()
            try:
                answer = await self._client.call(address, request(code, header, body), timeout=CALL_TIMEOUT)
            except ConnectError:
                answer = None
            except RemotingError:
                self.counts[f"{code.name} unknown"] += 1
                self._ask_next(address)
                return None
            if answer is not None and answer.code not in NOTHING_DONE:
                return self._answered(code, answer, sent)
            self._ask_next(address)
            if self.stopping.is_set():
                return None
            await self._pause(0.02)

    def _answered(self, code: RequestCode, answer: RemotingCommand, sent: float) -> Answered | None:
        known = answer.code in set(ResponseCode)
        self.counts[f"{code.name} {ResponseCode(answer.code).name if known else answer.code}"] += 1
        if answer.code == ResponseCode.SYSTEM_ERROR:
            if not (answer.remark or "").startswith(OUTCOME_UNKNOWN):
                self.unexpected.append(answer)
            return None
        if not known:
            self.unexpected.append(answer)
        return answer, sent, time.monotonic()

    def _ask_next(self, address: str) -> None:
        if self._addresses[self._leader] == address:  # else another task has turned already
            self._leader = (self._leader + 1) % len(self._addresses)

    def _saw(
        self,
        answered: Answered,
        master_epoch: int,
        master: int | None,
        epoch: int,
        members: frozenset[int],
        *,
        altered: bool = False,
        elected: bool = False,
    ) -> None:
        _, began, ended = answered
        wrote = altered or elected
        value = (master_epoch, tuple(sorted(members)))
        self.history.append(Seen(f"{self.name} set", epoch, value, began, ended, wrote=wrote))
        # An altered set's master is the one of the request, not news.
        if not altered:
            self.history.append(Seen(f"{self.name} master", master_epoch, master, began, ended, wrote=elected))
        self.epochs.add((epoch, master_epoch))

    async def _pause(self, seconds: float) -> None:
        if self.stopping.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
