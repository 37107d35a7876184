"""Messages into each topic and out to each group: the statistics that tools request by name (315), and the
consume TPS of 208.

Counters only grow; every 10 s `sample` records them, as in Java (rocketmq-all-5.3.3: StatsItem.java), so that
an answer is up to 10 s old. `flows.py` calls it and answers.
"""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

SAMPLE_SECONDS: Final = 10
_EVERY: Final = (1, 60, 360)
"""Samples of 10 s between two records for the last minute, hour and day."""
_NOTES: Final = (7, 7, 25)
MAX_COUNTERS: Final = 100_000
"""Of topics and groups together; above it new ones are not counted."""
FORGET_AFTER: Final = 8640
"""Samples without a change (a day) after which a counter is dropped."""


class Counter:
    """Messages, bytes and operations; counted up by the send and pull paths."""

    __slots__ = ("_last", "_notes", "_quiet", "bytes", "messages", "operations")

    def __init__(self) -> None:
        self.messages = self.bytes = self.operations = 0
        self._notes: tuple[deque[tuple[float, int, int, int]], ...] = tuple(deque(maxlen=most) for most in _NOTES)
        self._last = self._quiet = 0

    def add(self, messages: int, size: int) -> None:
        """One operation."""
        self.messages += messages
        self.bytes += size
        self.operations += 1

    def sample(self, number: int, now: float) -> bool:
        """The `number`-th sample; False: nothing has happened for a day."""
        self._quiet = self._quiet + 1 if self.operations == self._last else 0
        self._last = self.operations
        for notes, every in zip(self._notes, _EVERY, strict=True):
            if not notes:
                notes.append((now - SAMPLE_SECONDS, 0, 0, 0))
            if number % every == 0:
                notes.append((now, self.messages, self.bytes, self.operations))
        return self._quiet < FORGET_AFTER

    def snapshots(self, what: int) -> "StatsData":
        """Of messages (1) or bytes (2)."""
        minute, hour, day = (_snapshot(notes, what) for notes in self._notes)
        return StatsData(minute, hour, day)


class Snapshot(msgspec.Struct, frozen=True):
    """`avgpt`: of one operation."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsData(msgspec.Struct, frozen=True):
    """Of the last minute, hour and day."""

    minute: Snapshot
    hour: Snapshot
    day: Snapshot


def _snapshot(notes: "deque[tuple[float, int, int, int]]", what: int) -> Snapshot:
    if len(notes) < 2:
        return Snapshot()
    first, last = notes[0], notes[-1]
    total, operations, seconds = last[what] - first[what], last[3] - first[3], last[0] - first[0]
    return Snapshot(int(total), total / seconds if seconds > 0 else 0.0, total / operations if operations > 0 else 0.0)


class FlowStats:
    """All counters of a broker."""

    def __init__(self) -> None:
        self.puts: dict[str, Counter] = {}
        """By topic; counted up by `Traffic.put`, too."""
        self._gets: dict[str, Counter] = {}
        self._back: dict[str, Counter] = {}
        self._broker_puts: dict[str, Counter] = {}
        self._broker_gets: dict[str, Counter] = {}
        """By cluster; this broker's alone, without the number of operations, as in Java."""
        self._names: Mapping[str, tuple[dict[str, Counter], int]] = {
            "TOPIC_PUT_NUMS": (self.puts, 1),
            "TOPIC_PUT_SIZE": (self.puts, 2),
            "GROUP_GET_NUMS": (self._gets, 1),
            "GROUP_GET_SIZE": (self._gets, 2),
            "SNDBCK_PUT_NUMS": (self._back, 1),
            "BROKER_PUT_NUMS": (self._broker_puts, 1),
            "BROKER_GET_NUMS": (self._broker_gets, 1),
        }
        self._number = 0

    def put(self, topic: str, messages: int, size: int) -> None:
        """Count messages stored in a topic."""
        self._add(self.puts, topic, messages, size)

    def got(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count messages that a group pulled from a topic."""
        self._add(self._gets, f"{topic}@{group}", messages, size)

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message that a group sent back."""
        self._add(self._back, f"{topic}@{group}", 1, 0)

    def forget_topics(self, topics: AbstractSet[str]) -> None:
        """These are deleted."""
        for topic in topics:
            self.puts.pop(topic, None)
        starts = tuple(f"{topic}@" for topic in topics)
        for counters in (self._gets, self._back):
            for key in [key for key in counters if key.startswith(starts)]:
                del counters[key]

    def forget_groups(self, groups: AbstractSet[str]) -> None:
        """These are deleted."""
        ends = tuple(f"@{group}" for group in groups)
        for counters in (self._gets, self._back):
            for key in [key for key in counters if key.endswith(ends)]:
                del counters[key]

    def stats(self, name: str, key: str) -> StatsData | None:
        """What Java calls statistics `name` of `key`: a topic, `topic@group`, or of a broker the cluster; None without
        any."""
        counters, what = self._names.get(name, ({}, 1))
        counter = counters.get(key)
        return None if counter is None else counter.snapshots(what)

    def consume_tps(self, topic: str, group: str) -> float:
        """Messages a second in the last minute."""
        stats = self.stats("GROUP_GET_NUMS", f"{topic}@{group}")
        return 0.0 if stats is None else stats.minute.tps

    def sample_broker(self, cluster: str, put: int, got: int, now: float) -> None:
        """Before each call of `samplers`: what this broker took and gave since its start."""
        for counters, messages in ((self._broker_puts, put), (self._broker_gets, got)):
            counter = counters.setdefault(cluster, Counter())
            counter.messages = messages
            counter.sample(self._number + 1, now)

    def samplers(self, now: float) -> list[Callable[[], None]]:
        """To be called soon, in any turns of the loop: each samples one portion of the counters."""
        self._number += 1
        number = self._number
        result: list[Callable[[], None]] = []
        for counters in (self.puts, self._gets, self._back):
            keys = list(counters)
            starts = range(0, len(keys), PORTION)
            result += [_sampler(counters, keys[start : start + PORTION], number, now) for start in starts]
        return result

    def _add(self, counters: dict[str, Counter], key: str, messages: int, size: int) -> None:
        counter = counters.get(key)
        if counter is None:
            if len(self.puts) + len(self._gets) + len(self._back) >= MAX_COUNTERS:
                return
            counter = counters[key] = Counter()
        counter.add(messages, size)


PORTION: Final = 2000
"""Counters sampled in one turn of the loop: some 5 ms."""


def _sampler(counters: dict[str, Counter], keys: list[str], number: int, now: float) -> Callable[[], None]:
    def sample() -> None:
        for key in keys:
            counter = counters.get(key)  # its topic or group may have been deleted since
            if counter is not None and not counter.sample(number, now):
                del counters[key]

    return sample
