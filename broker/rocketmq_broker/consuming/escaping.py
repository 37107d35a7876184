"""How a delayed message that is due leaves an acting slave for another group: tried again until it has, recorded on
disk before the next one of its level leaves, and held back when a new master asks what has escaped.

`delay_service.py` says which message is next. What is known of those that have escaped is in
`domain/consuming/escaped.py`; where they go, in `sending/escape.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from rocketmq_broker.sending.escape import Escape
from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_formats.store.config_files import Escaped
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_store.model import Draft

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.5
"""After a message could not be delivered, to the log or to another group; there it doubles with each failure."""
MAX_RETRY_SECONDS: Final = 10.0
YIELD_SECONDS: Final = 10.0
"""Nothing escapes after a new master asked what has, unless no master has come by then."""
SENDING_SECONDS: Final = 0.2
"""That a new master waits for what is on its way."""
STOP_SECONDS: Final = 4.0
"""That a stopping broker waits for the same."""


class Escaping:
    """One message of a level at a time."""

    def __init__(self, *, escape: Escape | None, delays: DelayOffsets, saved: Callable[[], Awaitable[None]]) -> None:
        """As of `DelayService`."""
        self._escape = escape
        self._delays = delays
        self._saved = saved
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[str | None]] = set()
        """Such a task ends by itself, as its message may be at the other group already."""
        self._failures: dict[int, int] = {}
        """By level, attempts that failed since the last message that escaped."""
        self._yields_until = float("-inf")

    @property
    def possible(self) -> bool:
        """Whether there is a way out."""
        return self._escape is not None

    @property
    def under_way(self) -> bool:
        """Whether a message may be at another group, and no answer tells yet."""
        return bool(self._sending)

    @property
    def yields_for(self) -> float:
        """Seconds for which nothing may leave, if more than 0."""
        return self._yields_until - self._loop.time()

    def yield_to_master(self) -> None:
        """A new master asks what has escaped: nothing may leave after the answer."""
        self._yields_until = self._loop.time() + YIELD_SECONDS

    async def sent(self, seconds: float = STOP_SECONDS) -> None:
        """Until nothing is on its way, at most for `seconds`."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=seconds)

    def forget_failures(self) -> None:
        """The levels stop."""
        self._failures.clear()

    async def send(self, level: int, draft: Draft, fact: Escaped) -> float:
        """Try once, in the task of the level. Seconds until the level continues; 0: the message has escaped, and `fact`
        is known. If the level stops, so the task is cancelled, what is on its way is still recorded."""
        waiting = asyncio.current_task()
        assert waiting is not None

        def may_leave() -> bool:
            # a master may have come, or have asked what has escaped, during the waits before: its answer has nothing of
            # what leaves later
            return not waiting.cancelling() and self.yields_for <= 0

        attempt = background.awaited(self._attempt(level, draft, fact, may_leave), f"escape of level {level}")
        self._sending.add(attempt)
        attempt.add_done_callback(self._sending.discard)
        return self._pause(level, await background.shielded(attempt, attempt.get_name()))

    async def _attempt(self, level: int, draft: Draft, fact: Escaped, may_leave: Callable[[], bool]) -> str | None:
        """Why the message has not escaped; None: it has."""
        assert self._escape is not None
        problem: str | None
        try:
            await self._saved()  # what escaped before, if that could not be written
            problem = await self._escape.put(draft, may_leave)
            if problem is None:
                self._delays.escape(level, fact)
                await self._saved()
        except StorageError as error:
            problem = str(error)
        except Exception as error:
            # if this task ended here, the level would wait for the next role
            log.exception("unexpected error while a delayed message escapes", level=level)
            problem = f"{type(error).__name__}: {error}"
        return problem

    def _pause(self, level: int, problem: str | None) -> float:
        if problem is None:
            if self._failures.pop(level, 0):
                log.info("delayed messages escape again", level=level)
            return 0
        failures = self._failures[level] = self._failures.get(level, 0) + 1
        if failures == 1:
            log.warning("delayed messages do not escape, retrying", level=level, reason=problem)
        return min(RETRY_SECONDS * 2.0 ** min(failures - 1, 10), MAX_RETRY_SECONDS)
