"""Rates and daily totals of the traffic, as Java's brokers give them to tools.

A timer samples the counters once a second; `runtime_info.py` asks.
Source: rocketmq-all-5.3.3: StoreStatsService.java, BrokerStats.java.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from rocketmq_broker.traffic import Traffic

WINDOWS: Final = (10, 60, 600)
"""Seconds over which rates are given."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The counters at one moment."""

    time: float
    put: int
    got: int
    found: int
    missed: int


class Totals(msgspec.Struct, frozen=True):
    """Messages since the start."""

    put: int = 0
    got: int = 0


class TrafficStats:
    """Samples `traffic` every second, for rates and for totals by day."""

    def __init__(self, traffic: Traffic, *, today: Callable[[], int] = lambda: time.localtime().tm_yday) -> None:
        self._traffic = traffic
        self._today = today
        self._day = today()
        self._loop = asyncio.get_running_loop()
        self._samples: deque[Sample] = deque([self._sample()], maxlen=WINDOWS[-1] + 1)
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._sends = list(traffic.sends)
        self._minute: list[int] | None = None
        self.boot_timestamp = time.time_ns() // 1_000_000
        self.yesterday_morning = Totals()
        self.today_morning = Totals()
        """Totals when the day began."""

    @property
    def sends(self) -> list[int]:
        """As `Traffic.sends`: of the last whole minute, of the first one as far as it has come."""
        return self._traffic.sends if self._minute is None else self._minute

    @property
    def now(self) -> Totals:
        """Messages since this process started."""
        return Totals(self._traffic.counts.put_messages, self._traffic.counts.got_messages)

    def start(self) -> None:
        """Begin to sample."""
        self._timer = self._loop.call_later(1.0, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def rates(self, count: Callable[[Sample], int]) -> str:
        """Per second over each of `WINDOWS`, or since the start where that is shorter: `1.5 0.25 0.1`."""
        now = self._sample()
        texts = []
        for window in WINDOWS:
            then = self._samples[max(len(self._samples) - window, 0)]
            elapsed = now.time - then.time
            texts.append(f"{(count(now) - count(then)) / elapsed if elapsed > 0 else 0.0:.2f}")
        return " ".join(texts)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(1.0, self._tick)
        self._samples.append(self._sample())
        self._ticks += 1
        if self._ticks % 60 == 0:
            self._minute = [now - then for now, then in zip(self._traffic.sends, self._sends, strict=True)]
            self._sends = list(self._traffic.sends)
        day = self._today()
        if day != self._day:
            self._day = day
            self.yesterday_morning, self.today_morning = self.today_morning, self.now

    def _sample(self) -> Sample:
        traffic = self._traffic
        return Sample(
            self._loop.time(),
            traffic.counts.put_messages,
            traffic.counts.got_messages,
            traffic.counts.pulls_found,
            traffic.counts.pulls_missed,
        )
