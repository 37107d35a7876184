"""What the story needs from a kind of broker: a group that can be broken and healed, and a load on it.

Implemented by `native` (ours) and `official` (Apache's brokers). All calls block unless they are async;
the story runs them in threads.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

BROKER_GROUP = "broker-a"
CLUSTER = "DefaultCluster"
MOMENT: Final = 1.0
"""Seconds that one send may take, and for which all may pause, before it counts against the group."""


class Running(Protocol):
    """A process that faults can hit."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    def kill9(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Broker(Protocol):
    """One member's place in the group: folder and identity stay, process and address change with every start."""

    @property
    def label(self) -> str: ...
    @property
    def address(self) -> str:
        """host:port where controllers reach it; empty before the first start."""

    @property
    def process(self) -> Running: ...
    def start(self) -> None:
        """Start it, the first time or again; each time on other ports. Returns when it listens."""


class Acknowledgement(msgspec.Struct, frozen=True):
    """One acknowledged send. `at` is monotonic seconds."""

    at: float
    number: int


class LoadResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The result of all sends. `read_back`, `lost` and `duplicated` are unset if unknown; `problems` has the reason."""

    acknowledged: int
    failed: int
    read_back: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    problems: tuple[str, ...] = ()


class ReadResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a consumer has read while it was written. `rolled_back`: how often an offset that was committed, and
    answered, had gone back."""

    messages: int
    rolled_back: int
    problems: tuple[str, ...] = ()


class Reader(Protocol):
    """A consumer group that follows the load, and commits."""

    async def start(self) -> None: ...
    def times(self) -> Sequence[float]:
        """When messages came, in monotonic seconds."""

    async def read_again(self) -> int:
        """How many messages another consumer gets now, from the first one on; 0 without an answer."""

    async def finish(self) -> ReadResult:
        """Stop reading."""


class DelayedResult(msgspec.Struct, frozen=True, kw_only=True):
    """Delayed messages: acknowledged, delivered to a consumer (each counted once), and delivered too early."""

    sent: int
    delivered: int
    early: int
    unread: str | None = None
    """Why the consumer did not get to the end."""

    @property
    def problem(self) -> str | None:
        """What was not kept; None if all came, in time."""
        if self.delivered == self.sent and not self.early:
            return None
        text = f"{self.delivered} of {self.sent} delayed messages came without a master, {self.early} of them too early"
        return text if self.unread is None else f"{text}: {self.unread}"


class Delayed(Protocol):
    """Delayed messages that become due while their group has no master (RIP-32)."""

    async def start(self) -> None:
        """Start what delivers them then, and return when it can; harmless to repeat."""

    async def send(self) -> None:
        """Send some that will be due in a few seconds."""

    async def delivered(self) -> DelayedResult:
        """What a consumer gets now of all that were sent."""


class Load(Protocol):
    """Numbered sends, one after another, to whichever broker is master."""

    async def start(self) -> None: ...
    def acknowledgements(self) -> Sequence[Acknowledgement]:
        """All so far, in the order of time."""

    def failures(self) -> int:
        """Attempts that failed so far."""

    def patient(self) -> AbstractContextManager[None]:
        """A context in which a send fails only if it takes longer than a `MOMENT`. Elsewhere the load may give up
        earlier, so that a hung master costs less."""

    async def finish(self) -> LoadResult:
        """Stop sending; the result of all sends."""


class Engine(Protocol):
    """A group of brokers under given controllers."""

    @property
    def name(self) -> str: ...
    @property
    def remark(self) -> str:
        """What this engine runs, for the user."""

    @property
    def patience(self) -> float:
        """The most seconds that a healthy group of this kind needs to settle."""

    @property
    def brokers(self) -> Sequence[Broker]: ...
    @property
    def load(self) -> Load: ...
    @property
    def reader(self) -> Reader | None:
        """None: nothing is known about consumers."""

    @property
    def delayed(self) -> Delayed | None:
        """None: nothing is known about delayed messages."""

    def start(self) -> None:
        """Start the brokers; returns when they listen."""

    def close(self) -> None:
        """End everything that was started, at once."""
