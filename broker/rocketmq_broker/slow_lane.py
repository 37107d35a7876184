"""The broker's answers that take long; see `rocketmq_runtime.remoting.slow_lane`.

A tool that asks about tens of thousands of queues waits; producers, consumers and the sidecar do not.
"""

from collections.abc import Awaitable, Callable

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Lane, LaneFullError, Pace
from rocketmq_store.errors import StoreError

Make = Callable[[Pace], Awaitable[RemotingCommand]]
"""Makes an answer. May raise `RequestRefusedError`, `StoreError` and `OSError`."""

Unreadable = Callable[[RemotingCommand, Exception], RemotingCommand]
"""See `ProcessorTable.unreadable`."""


class SlowLane(Lane):
    def __init__(self, unreadable: Unreadable, clock: Callable[[], float] | None = None) -> None:
        """`clock`: seconds that grow within a turn of the loop."""
        super().__init__(clock)
        self._unreadable = unreadable

    def answer(self, request: RemotingCommand, peer: Peer, make: Make) -> Answer:
        """The answer of `make`, when it is its turn.

        Raises:
            RequestRefusedError: too many wait already.
        """

        async def answer(pace: Pace) -> RemotingCommand:
            if not peer.takes:
                return response(request, ResponseCode.SYSTEM_BUSY, "read the answers before the next request")
            try:
                return await make(pace)
            except RequestRefusedError as error:
                return response(request, error.code, str(error))
            except (StoreError, OSError) as error:
                return self._unreadable(request, error)

        try:
            return self.run(peer, answer, host=peer.host)
        except LaneFullError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error
