"""The light engine's load: numbered probes to the master, as a producer would send messages.

It finds the master as clients find theirs, by asking: after a failure the controllers (1004), since the light group has
no name server. A second task asks every broker over and over, so that a second master cannot hide from us.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from rocketmq_demo.agent.wire import AgentCode, ProbeRequestHeader, ProbeResponseHeader
from rocketmq_demo.engine import Acknowledgement, LoadResult
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import GetReplicaInfoRequestHeader, GetReplicaInfoResponseHeader
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.client import RemotingClient, RemotingError

PATIENCE = 0.3
"""Seconds that a probe may take; a hung master costs so much once, then others are asked for."""
PAUSE_AFTER_FAILURE = 0.02
WATCH_PERIOD = 0.05


class Prober:
    """Implements `engine.Load`."""

    def __init__(
        self, *, controllers: Sequence[str], broker_name: str, brokers: Callable[[], Sequence[str]], rate: float = 200.0
    ) -> None:
        """`brokers` gives the addresses to watch; `rate` is probes per second while all is well."""
        self._controllers = list(controllers)
        self._broker_name = broker_name
        self._brokers = brokers
        self._period = 1.0 / rate
        self._acknowledged: list[Acknowledgement] = []
        self._failed = 0
        self._number = 0
        self._answered: dict[int, set[int]] = defaultdict(set)
        """Ids of the brokers that answered with success, by epoch."""
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[RemotingClient] = []

    async def start(self) -> None:
        """Begin to probe."""
        # Two clients: a call that times out closes its connection under all others.
        for work in (self._send_forever, self._watch_forever):
            client = RemotingClient(connect_timeout=PATIENCE)
            self._clients.append(client)
            self._tasks.append(asyncio.create_task(work(client)))

    def acknowledgements(self) -> Sequence[Acknowledgement]:
        """All so far."""
        return self._acknowledged

    async def finish(self) -> LoadResult:
        """Stop; a broker that broke the rules is among the problems."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
        problems = [
            f"two masters answered in epoch {epoch}: brokers {sorted(ids)}"
            for epoch, ids in sorted(self._answered.items())
            if len(ids) > 1
        ]
        problems += [f"the prober failed: {error!r}" for error in ended if isinstance(error, Exception)]
        return LoadResult(acknowledged=len(self._acknowledged), failed=self._failed, problems=tuple(problems))

    async def _send_forever(self, client: RemotingClient) -> None:
        loop = asyncio.get_running_loop()
        master: str | None = None
        due = loop.time()
        while True:
            if master is None:
                master = await self._find_master(client)
            answer = None if master is None else await self._probe(client, master, self._number)
            if answer is None:
                self._failed += master is not None
                master = None
                await asyncio.sleep(PAUSE_AFTER_FAILURE)
            else:
                self._acknowledged.append(
                    Acknowledgement(loop.time(), self._number, answer.broker_id, answer.master_epoch)
                )
                self._number += 1
            due = max(due + self._period, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _watch_forever(self, client: RemotingClient) -> None:
        while True:
            await asyncio.gather(*(self._probe(client, address, -1) for address in self._brokers()))
            await asyncio.sleep(WATCH_PERIOD)

    async def _probe(self, client: RemotingClient, address: str, number: int) -> ProbeResponseHeader | None:
        try:
            answer = await client.call(
                address, request(AgentCode.PROBE, ProbeRequestHeader(number=number)), timeout=PATIENCE
            )
            if answer.code != ResponseCode.SUCCESS:
                return None
            header = decode_header(ProbeResponseHeader, answer.ext_fields or {})
        except (RemotingError, FormatError):
            return None
        self._answered[header.master_epoch].add(header.broker_id)
        return header

    async def _find_master(self, client: RemotingClient) -> str | None:
        question = GetReplicaInfoRequestHeader(broker_name=self._broker_name)
        for address in list(self._controllers):
            try:
                answer = await client.call(
                    address, request(RequestCode.CONTROLLER_GET_REPLICA_INFO, question), timeout=PATIENCE
                )
                if answer.code == ResponseCode.SUCCESS:
                    return decode_header(GetReplicaInfoResponseHeader, answer.ext_fields or {}).master_address
            except (RemotingError, FormatError):
                pass
            # Whoever did not help is asked last the next time.
            self._controllers.remove(address)
            self._controllers.append(address)
        return None
