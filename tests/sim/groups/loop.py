"""Processes in virtual time: an event loop for each, so that the shells of broker, sidecar and controller run as they
are.

`Schedule` is the one clock of a run, `Process` an asyncio event loop on it that can be stopped (SIGSTOP), killed, and
whose threads are turns of its own. Used by the simulation of broker groups.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from rocketmq_formats.addresses import format_address
from tests.sim.checks import Violation
from tests.sim.disk import SimCrash

if TYPE_CHECKING:
    from tests.sim.groups.net import Network

T = TypeVar("T")

_DYING_TURNS = 200
_BUSY = 0.9
"""Share of turns that follow the one before at once."""


class Schedule:
    """What happens when. One step is one turn of one process, or one event of the world."""

    def __init__(self, rng: Random) -> None:
        self.now = 0.0
        self.rng = rng
        self.steps = 0
        self.turned: Process | None = None
        """Whose turn the present step is, if it is one."""
        self.after_turn: Callable[[Process], None] = lambda _: None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time, self._sequence, action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            self.steps += 1
            action()
            if self.turned is not None:
                turned, self.turned = self.turned, None
                self.after_turn(turned)
        self.now = end


class Host:
    """A machine: one monotonic clock, one power supply, an address that a restart may change."""

    def __init__(self, name: str, address: str, rng: Random) -> None:
        self.name = name
        self.address = address
        # Clocks start anywhere and run up to 2 % wrong; a lease of 2.4 s under a suspicion of 3 s allows for 12 %.
        self.offset = rng.uniform(1e3, 1e6)
        self.speed = rng.uniform(0.98, 1.02)
        self.disk_delay = 0.001
        """Mean seconds of what takes a disk's time."""


class Process(asyncio.AbstractEventLoop):
    """One process of a host. Unhandled exceptions end the run."""

    def __init__(self, name: str, host: Host, schedule: Schedule, network: "Network") -> None:
        self.name, self.host, self.schedule, self.network = name, host, schedule, network
        self.alive = True
        self.dying = False
        self.paused = False
        self.on_kill: list[Callable[[], None]] = []
        """What the kernel does when the process ends."""
        self.on_power_cut: Callable[[], None] = lambda: None
        self.tasks: set[asyncio.Task[Any]] = set()
        self._ready: deque[asyncio.Handle] = deque()
        self._turn_due = False
        self._pools: dict[int, float] = {}
        self._threads: set[asyncio.Future[Any]] = set()

    def __repr__(self) -> str:
        return f"<{self.name}>"

    # What the world does

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._wake()

    def kill(self) -> None:
        """At once; then everything is unwound without any effect on the world."""
        if not self.alive:
            return
        self.alive, self.dying, self.paused = False, True, False
        for action in self.on_kill:
            action()
        for thread in self._threads:
            thread.cancel()
        for task in list(self.tasks):
            task.cancel()
        for _ in range(_DYING_TURNS):
            if not self._ready:
                break
            self._run_ready()
            for task in list(self.tasks):
                task.cancel()
        self._ready.clear()
        self.dying = False

    def run(self, action: Callable[[], object]) -> None:
        """Let `action` happen in this process, when it runs."""
        self.call_soon(action)

    # Turns

    def _wake(self) -> None:
        if self._ready and not self._turn_due and not self.paused and self.alive:
            self._turn_due = True
            self.schedule.at(self.schedule.now, self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if not self.alive or self.paused:
            return
        self.schedule.turned = self
        rng = self.schedule.rng
        self._turn_due = True
        self._run_ready()
        # Mostly the next turn follows at once; now and then the process does not get the CPU.
        while self._ready and self.alive and not self.paused and rng.random() < _BUSY:
            self._run_ready()
        self._turn_due = False
        if self._ready and self.alive and not self.paused:
            self._turn_due = True
            self.schedule.after(0.0 if rng.random() < 0.5 else rng.uniform(0.0002, 0.01), self._turn)

    def _run_ready(self) -> None:
        events._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                if self.paused:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(None)

    # asyncio.AbstractEventLoop

    def time(self) -> float:
        return self.host.offset + self.schedule.now * self.host.speed

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.alive

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self.alive or self.dying:
            self._ready.append(handle)
            self._wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        due = max(self.schedule.now, (when - self.host.offset) / self.host.speed) + 1e-7

        def fire() -> None:
            if self.alive and not timer.cancelled():
                self._ready.append(timer)
                self._wake()

        self.schedule.at(due, fire)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SimCrash):
            self.on_power_cut()
        elif isinstance(error, Violation):
            raise error

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.dying or not self.alive:
            return
        if isinstance(error, SimCrash):
            self.on_power_cut()
        elif isinstance(error, Violation):
            raise error
        else:
            raise Violation(f"NoBugs: {self.name}: {context.get('message')}: {error!r}") from error

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        """What a pool is given runs one after another; it takes the time of this host's disk."""
        future: asyncio.Future[T] = self.create_future()
        if not self.alive:
            future.cancel()
            return future
        rng = self.schedule.rng
        mean = self.host.disk_delay
        begin = max(self.schedule.now, self._pools.get(id(executor), 0.0))
        half = begin + rng.uniform(0.1, 1.0) * mean
        end = half + rng.uniform(0.1, 1.0) * mean
        self._pools[id(executor)] = end
        self._threads.add(future)
        outcome: list[T | Exception] = []

        def work() -> None:
            if not self.alive:
                return
            if self.paused:
                self.schedule.after(0.01, work)
                return
            try:
                outcome.append(func(*args))
            except SimCrash:
                self.on_power_cut()
                return
            except Exception as error:  # noqa: BLE001 - as a thread pool
                outcome.append(error)
            self.schedule.at(max(end, self.schedule.now), lambda: self.call_soon(done))

        def done() -> None:
            self._threads.discard(future)
            if future.done():
                return
            if isinstance(outcome[0], Exception):
                future.set_exception(outcome[0])
            else:
                future.set_result(outcome[0])

        self.schedule.at(half, work)
        return future

    # The network, as the loop offers it

    async def create_connection(self, factory: Any, host: str, port: int, **_: Any) -> Any:  # type: ignore[override]
        return await self.network.connect_transport(self, format_address(host, port), factory)

    async def create_server(self, factory: Any, host: str, port: int, **_: Any) -> Any:  # type: ignore[override]
        return self.network.listen_transport(self, format_address(self.host.address, port), factory)

    def add_reader(self, sock: Any, callback: Callable[..., object], *args: object) -> None:
        sock.on_readable(lambda: callback(*args))

    def remove_reader(self, sock: Any) -> bool:
        sock.on_readable(None)
        return True

    def add_writer(self, sock: Any, callback: Callable[..., object], *args: object) -> None:
        sock.on_writable(lambda: callback(*args))

    def remove_writer(self, sock: Any) -> bool:
        sock.on_writable(None)
        return True
