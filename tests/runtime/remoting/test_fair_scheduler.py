"""The loop shared out among connections: by requests, by time, and in turn."""

import asyncio
from contextlib import AsyncExitStack

from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_runtime.remoting.fair_scheduler import SLICE_SECONDS, TURN_SECONDS, FairScheduler
from rocketmq_runtime.remoting.server import REQUESTS_PER_TURN, Answer, Peer, RemotingServer
from tests.runtime.remoting.remoting_kit import RawConnection, Recorder, raw

CHEAP, COSTLY = 1, 2


def ask(code: int, opaque: int) -> RemotingCommand:
    return request(code, opaque=opaque)


class Costs(Recorder):
    """Requests of code COSTLY take `seconds` of its clock; `turns` are the costs between two turns of the loop."""

    def __init__(self, seconds: float) -> None:
        super().__init__(self._respond)
        self.now = 0.0
        self.turns = [0.0]
        self.order: list[tuple[int, int]] = []
        self._seconds = seconds
        self._ticking = False

    def clock(self) -> float:
        return self.now

    def _respond(self, asked: RemotingCommand, peer: Peer) -> Answer:
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_soon(self._tick)
        if asked.code == COSTLY:
            self.now += self._seconds
            self.turns[-1] += self._seconds
        self.order.append((peer.id, asked.opaque))
        return response(asked, 0)

    def _tick(self) -> None:
        self._ticking = False
        self.turns.append(0.0)


async def started(handler: Costs, stack: AsyncExitStack) -> RemotingServer:
    server = RemotingServer(handler, host="127.0.0.1", port=0, clock=handler.clock)
    await server.start()
    stack.push_async_callback(server.stop)
    return server


async def connected(server: RemotingServer, stack: AsyncExitStack) -> RawConnection:
    return await stack.enter_async_context(raw(server))


async def test_a_healthy_request_is_answered_among_those_of_a_costly_peer() -> None:
    handler = Costs(seconds=0.2)
    async with AsyncExitStack() as stack:
        server = await started(handler, stack)
        costly, healthy = await connected(server, stack), await connected(server, stack)
        for connection, opaque in ((costly, 0), (healthy, 0)):
            connection.send(ask(CHEAP, opaque))
            await connection.receive()
        costly.send(*(ask(COSTLY, opaque) for opaque in range(1, 301)))
        healthy.send(ask(CHEAP, 7))
        assert (await healthy.receive()).opaque == 7
        assert handler.order.index((2, 7)) < 150, "it waits for a few of the costly ones"
        assert [(await costly.receive()).opaque for _ in range(300)] == list(range(1, 301))
        assert max(handler.turns) <= TURN_SECONDS + 2 * 0.2


async def test_many_costly_peers_share_each_turn() -> None:
    handler = Costs(seconds=SLICE_SECONDS / 2)
    async with AsyncExitStack() as stack:
        server = await started(handler, stack)
        peers = [await connected(server, stack) for _ in range(20)]
        for peer in peers:
            peer.send(*(ask(COSTLY, opaque) for opaque in range(1, 11)))
        for peer in peers:
            assert [(await peer.receive()).opaque for _ in range(10)] == list(range(1, 11))
        assert max(handler.turns) <= 2 * TURN_SECONDS + 2 * SLICE_SECONDS
        # in turn: no connection is done before all have begun
        first_done = handler.order.index(next(item for item in handler.order if item[1] == 10))
        assert {peer for peer, _ in handler.order[: first_done + 1]} == {peer for peer, _ in handler.order}


class Line:
    """A worker with `left` requests of `seconds` each."""

    def __init__(self, turns: FairScheduler, name: str, left: int, seconds: float, log: list[str]) -> None:
        self._turns, self._name, self._left, self._seconds, self._log = turns, name, left, seconds, log

    def turn(self) -> None:
        count = min(self._left, REQUESTS_PER_TURN)
        spent = count * self._seconds
        if spent > SLICE_SECONDS:
            count, spent = 1, self._seconds
        self._left -= count
        self._log.append(self._name)
        self._turns.spend(spent)
        if self._left:
            self._turns.wait(self, slow=spent >= SLICE_SECONDS)

    def flush(self) -> None:
        self._log.append(f"{self._name} flushed")


async def test_slow_ones_wait_behind_quick_ones_but_do_not_starve() -> None:
    log: list[str] = []
    turns = FairScheduler(asyncio.get_running_loop())
    slow = Line(turns, "slow", 5, 1.0, log)
    quick = Line(turns, "quick", 10 * REQUESTS_PER_TURN, 0.0, log)
    turns.wait(slow, slow=True)
    turns.wait(quick, slow=False)
    turns.flush_later(quick)
    await loop_turns(20)
    assert log.count("slow") == 5
    assert log.count("quick") == 10
    assert log[:3] == ["quick flushed", "quick", "slow"]
    assert log[3:5] == ["quick", "slow"]


async def test_quick_ones_have_their_turn_however_long_the_slow_ones_take() -> None:
    log: list[str] = []
    turns = FairScheduler(asyncio.get_running_loop())
    for number in range(5):
        turns.wait(Line(turns, f"slow {number}", 100, 1.0, log), slow=True)
    await loop_turns(2)
    turns.wait(Line(turns, "quick", 1, 0.0, log), slow=False)
    await loop_turns(2)
    assert "quick" in log
    assert len(log) <= 5


async def test_a_turn_of_the_loop_is_free_until_its_time_is_spent() -> None:
    turns = FairScheduler(asyncio.get_running_loop())
    assert turns.free
    turns.spend(TURN_SECONDS)
    assert not turns.free
    await loop_turns(1)
    assert turns.free


async def loop_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
