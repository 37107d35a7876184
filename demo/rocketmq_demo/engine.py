"""What the story needs of a kind of broker: a group of them that can be broken and healed, and a load on it.

Implemented by `native` (ours) and `official` (Apache's brokers). All calls block unless they are async;
the story runs them in threads.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

BROKER_GROUP = "broker-a"
CLUSTER = "DefaultCluster"


class Running(Protocol):
    """A process that faults are done to."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    def kill9(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Broker(Protocol):
    """One member's place in the group: folder and identity stay, process and address come and go."""

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
    """One send that the group took. `at` is monotonic seconds."""

    at: float
    number: int


class LoadResult(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What came of all sends. The last three are None if they could not be found out; `problems` says why."""

    acknowledged: int
    failed: int
    read_back: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    problems: tuple[str, ...] = ()


class Load(Protocol):
    """Numbered sends, one after another, to whichever broker is master."""

    async def start(self) -> None: ...
    def acknowledgements(self) -> Sequence[Acknowledgement]:
        """All so far, in the order of time."""

    async def finish(self) -> LoadResult:
        """Stop sending; what came of it."""


class Engine(Protocol):
    """A group of brokers under given controllers."""

    @property
    def name(self) -> str: ...
    @property
    def remark(self) -> str:
        """For the user: what is real here and what is not."""

    @property
    def patience(self) -> float:
        """Seconds in which a healthy group of this kind settles, at the most."""

    @property
    def brokers(self) -> Sequence[Broker]: ...
    @property
    def load(self) -> Load: ...

    def start(self) -> None:
        """Start the brokers; returns when they listen."""

    def close(self) -> None:
        """End everything that was started, at once."""
