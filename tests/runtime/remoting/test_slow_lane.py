"""The slow lane is shared by hosts: none fills it for others, and each has its turn."""

import asyncio

import pytest

from rocketmq_runtime.remoting.slow_lane import (
    MAX_WAITING_OF_HOST,
    MAX_WAITING_OF_PEER,
    Lane,
    LaneFullError,
    Pace,
)


class Work:
    """Requests that note their names when they run."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.done: list[str] = []

    def ask(self, host: str, name: str, peer: object = None) -> "asyncio.Future[str]":
        async def make(_: Pace) -> str:
            await asyncio.sleep(0)
            self.done.append(name)
            return name

        return self.lane.run(peer if peer is not None else object(), make, host=host)


async def test_each_host_has_its_turn() -> None:
    work = Work(Lane())
    asked = [work.ask("stranger", f"s{number}") for number in range(5)]
    asked += [work.ask("a", "a1"), work.ask("a", "a2"), work.ask("b", "b1")]
    await asyncio.gather(*asked)
    assert work.done == ["s0", "s1", "a1", "b1", "s2", "a2", "s3", "s4"]
    assert await work.ask("a", "again") == "again"


async def test_one_host_does_not_fill_it() -> None:
    work = Work(Lane())
    asked = [work.ask("stranger", "s") for _ in range(MAX_WAITING_OF_HOST)]
    with pytest.raises(LaneFullError):
        work.ask("stranger", "one more")
    asked.append(work.ask("a", "a"))
    one = object()
    asked += [work.ask("b", "b", one) for _ in range(MAX_WAITING_OF_PEER)]
    with pytest.raises(LaneFullError):
        work.ask("b", "one more", one)
    await asyncio.gather(*asked)
    assert not work.lane.waiting


async def test_who_goes_gives_the_turn_on() -> None:
    work = Work(Lane())
    first, second, third, last = (work.ask(host, host) for host in "abcd")
    await asyncio.sleep(0)
    second.cancel()  # waits
    await first
    third.cancel()  # has the turn, and has not begun
    assert await last == "d"
    assert work.done == ["a", "d"]
    assert not work.lane.waiting
