"""The watch on the broker, in virtual time: who answers is kept however busy, who does not is cut off, and promises
nothing more is promised to.
"""

import asyncio
from typing import cast

import pytest

from rocketmq_formats.replica_link import FromSidecar, Probe
from rocketmq_sidecar.control.broker_link import BrokerLink
from rocketmq_sidecar.control.broker_watch import PERIOD, BrokerWatch

pytestmark = pytest.mark.looptime

LIMIT = 2.0


class Link:
    """A broker that answers `delay` seconds after a question; None: never."""

    def __init__(self, delay: float | None = 0.0, *, outlast_promises: bool = False) -> None:
        self.delay = delay
        self.asked: list[float] = []
        self.dropped: float | None = None
        self.reason = ""
        self.watch = BrokerWatch(
            cast("BrokerLink", self),
            limit=LIMIT,
            outlast_promises=outlast_promises,
            clock=asyncio.get_running_loop().time,
        )
        self.watch.start()

    def send(self, message: FromSidecar) -> None:
        assert message == Probe()
        loop = asyncio.get_running_loop()
        self.asked.append(loop.time())
        if self.delay is not None:
            loop.call_later(self.delay, self.watch.on_message)

    def drop(self, reason: str) -> None:
        self.dropped, self.reason = asyncio.get_running_loop().time(), reason
        self.watch.stop()


@pytest.mark.parametrize("delay", [0.0, 0.2, 1.0, 1.7])
async def test_broker_that_answers_is_kept(delay: float) -> None:
    link = Link(delay)
    await asyncio.sleep(60)
    assert link.dropped is None
    assert len(link.asked) >= 60 / (delay + 2 * PERIOD)
    link.watch.stop()


async def test_silent_broker_is_disconnected() -> None:
    link = Link()
    await asyncio.sleep(10.1)
    link.delay = None
    await asyncio.sleep(10)
    assert link.dropped is not None
    assert LIMIT <= link.dropped - 10.1 <= LIMIT + 2 * PERIOD
    assert "it hangs" in link.reason


async def test_any_message_shows_that_it_lives() -> None:
    """A master under load says every few milliseconds how far its log reaches."""
    link = Link(delay=None)
    for _ in range(600):
        await asyncio.sleep(0.1)
        link.watch.on_message()
        assert not link.watch.silent
    assert link.dropped is None
    link.watch.stop()


async def test_promised_nothing_more_once_it_is_silent() -> None:
    link = Link()
    await asyncio.sleep(5)
    assert not link.watch.silent
    link.delay = None
    await asyncio.sleep(3 * PERIOD)
    assert link.watch.silent
    link.watch.on_message()
    assert not link.watch.silent
    link.watch.stop()
    assert not link.watch.silent


async def test_with_relaxed_durability_its_promises_are_outlasted() -> None:
    link = Link(delay=None, outlast_promises=True)
    link.watch.promised(asyncio.get_running_loop().time() + 7)
    await asyncio.sleep(6.9)
    assert link.dropped is None
    await asyncio.sleep(2 * PERIOD)
    assert link.dropped is not None


async def test_own_delay_is_not_the_brokers() -> None:
    now = 100.0
    link = Link(delay=None)
    link.watch.stop()
    watch = BrokerWatch(cast("BrokerLink", link), limit=LIMIT, outlast_promises=False, clock=lambda: now)
    link.watch = watch
    watch.start()
    await asyncio.sleep(PERIOD)
    assert len(link.asked) == 1
    now += 60  # the machine was asleep between two looks
    await asyncio.sleep(PERIOD)
    assert link.dropped is None
    now += 2 * PERIOD
    await asyncio.sleep(PERIOD)
    assert link.dropped is None
    watch.stop()
