"""One job at a time beside the event loop: what a snapshot needs of processor and disk.

The machine starts a job with values that no longer change, and takes its outcome in a later tick. In production the job
runs in a thread (replica.py); the simulation chooses the moment.
"""

from collections.abc import Callable
from concurrent.futures import Future

Beside = Callable[[Callable[[], object]], "Future[object]"]
"""Runs a job beside the loop, and has the machine ticked when it is done. The result is what the job returned or
raised."""


class Background:
    """Of one machine; all methods run in its event loop."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._running: tuple[Future[object], Callable[[Future[object]], None]] | None = None

    @property
    def busy(self) -> bool:
        """A job is under way, or its outcome was not taken yet: no other may be started."""
        return self._running is not None

    def start(self, job: Callable[[], object], finish: Callable[["Future[object]"], None]) -> None:
        """Run `job`; `finish` gets its outcome, here if it is there at once, else in a later `settle`."""
        assert self._running is None
        self._running = (self._beside(job), finish)
        self.settle()

    def settle(self) -> None:
        """Take the outcome if there is one."""
        if self._running is None or not self._running[0].done():
            return
        (future, finish), self._running = self._running, None
        finish(future)
