"""A network in virtual time: messages get lost, late, doubled and overtaken; links fail one way or both; connections
end.

The transport does less to messages: TCP and the sequence numbers of the frames keep them in order. Raft does not rest
on that, except for introductions: they arrive once, behind what was sent before and before what is sent after.

Each pair of members has a connection with a generation, and each end its own view of it, because ends learn of a break
at different times. A message only arrives where sender and receiver see the same generation, as TCP has it.
"""

from collections.abc import Callable
from random import Random

import msgspec
from pysyncobj.transport import Transport

from rocketmq_controller.raft.network import messages


class Weather(msgspec.Struct):
    """How the network behaves for now; delays are seconds."""

    delay: float = 0.001
    slow_share: float = 0.0
    slow_delay: float = 0.3
    loss: float = 0.0
    doubled: float = 0.0


class Endpoint(Transport):
    """PySyncObj's Transport for one member."""

    def __init__(self, send: Callable[[str, messages.AnyMessage], None]) -> None:
        super().__init__(None, None, [])
        self._send = send

    def send(self, node, message) -> bool:
        self._send(node.id, message)
        return True


Pipe = tuple[str, str, int]
"""Sender, receiver and generation: one direction of a connection."""


class Network:
    """Who can reach whom, and what is under way."""

    def __init__(
        self,
        members: list[str],
        rng: Random,
        clock: Callable[[], float],
        after: Callable[[float, Callable[[], None]], None],
        deliver: Callable[[str, str, messages.AnyMessage], None],
    ) -> None:
        self._rng = rng
        self._clock = clock
        self._after = after
        self._deliver = deliver
        self.weather = Weather()
        self.blocked: set[tuple[str, str]] = set()
        """Directions (from, to) in which nothing gets through."""
        self.holding = False
        """Blocked messages wait for the link instead of being lost, as in TCP when a partition is short."""
        self._held: list[tuple[Pipe, messages.AnyMessage]] = []
        self._last_arrival: dict[Pipe, float] = {}
        self._introduced_at: dict[Pipe, float] = {}
        """When the last introduction arrives: nothing that is sent after it arrives earlier."""
        self._generation = 0
        self._view: dict[tuple[str, str], int] = {}
        self.members = members

    def connect(self, one: str, other: str) -> None:
        self._generation += 1
        self._view[one, other] = self._view[other, one] = self._generation

    def disconnect_end(self, end: str, other: str) -> bool:
        """`end` sees no connection to `other` any more; False if it saw none."""
        return self._view.pop((end, other), None) is not None

    def view(self, end: str, other: str) -> int | None:
        """Generation of the connection that `end` sees."""
        return self._view.get((end, other))

    def whole(self, one: str, other: str) -> bool:
        view = self._view.get((one, other))
        return view is not None and view == self._view.get((other, one))

    def send(self, sender: str, receiver: str, message: messages.AnyMessage, late: float = 0.0) -> None:
        """`late`: seconds from now until the sender really gets to send it."""
        generation = self._view.get((sender, receiver))
        if generation is None:
            return
        pipe = (sender, receiver, generation)
        introduces = isinstance(message, messages.Introduction)
        if (sender, receiver) in self.blocked:
            if self.holding or introduces:
                self._held.append((pipe, message))
            return
        weather, rng = self.weather, self._rng
        if introduces:
            self._put(pipe, message, late)
            return
        if weather.loss and rng.random() < weather.loss:
            return
        for _ in range(2 if weather.doubled and rng.random() < weather.doubled else 1):
            self._put(pipe, message, late)

    def _put(self, pipe: Pipe, message: messages.AnyMessage, late: float = 0.0) -> None:
        data = messages.encode(message)
        now = self._clock()
        arrival = max(now + late + self._delay(), self._introduced_at.get(pipe, 0.0))
        if isinstance(message, messages.Introduction):
            arrival = self._introduced_at[pipe] = max(arrival, self._last_arrival.get(pipe, 0.0))
        self._last_arrival[pipe] = max(arrival, self._last_arrival.get(pipe, 0.0))
        self._after(arrival - now, lambda: self._arrive(pipe, data))

    def _delay(self) -> float:
        weather, rng = self.weather, self._rng
        if weather.slow_share and rng.random() < weather.slow_share:
            return rng.uniform(0, weather.slow_delay)
        return weather.delay * (0.5 + rng.random())

    def _arrive(self, pipe: Pipe, data: bytes) -> None:
        sender, receiver, generation = pipe
        if self._view.get((receiver, sender)) == generation:
            self._deliver(sender, receiver, messages.decode(data))

    def heal(self) -> None:
        """All links work; what was held gets through now."""
        self.blocked.clear()
        held, self._held = self._held, []
        for pipe, message in held:
            self._put(pipe, message)
