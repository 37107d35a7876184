"""A producer's connections, one `Pipeline` per broker address, opened when first needed."""

import asyncio

from rocketmq_client.pipeline import Pipeline, connect
from rocketmq_runtime.client import ConnectError


class Lines:
    """Open connections by address."""

    def __init__(self, timeout: float) -> None:
        """`timeout`, in seconds, is each send's."""
        self.used = asyncio.Event()
        """Set when a connection was opened; whoever waits for it clears it."""
        self._timeout = timeout
        self._open: dict[str, Pipeline] = {}
        self._connecting: dict[str, asyncio.Task[Pipeline]] = {}
        self._closed = False

    @property
    def addresses(self) -> list[str]:
        """Of the open connections."""
        return list(self._open)

    def get(self, address: str) -> Pipeline | None:
        """The connection to `address`; it may just have ended."""
        return self._open.get(address)

    async def open(self, address: str) -> Pipeline:
        """The connection to `address`, opened now if there is none.

        Raises:
            ConnectError: it cannot be opened.
        """
        line = self._open.get(address)
        if line is not None and line.open:
            return line
        if self._closed:
            raise ConnectError(f"cannot connect to {address}: this producer is closed")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        try:
            # Shielded: one caller that gives up must not take the connection from the others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise ConnectError(f"cannot connect to {address}: this producer is closed") from None

    async def close(self) -> None:
        """End every connection; what waits on them fails."""
        self._closed = True
        for task in self._connecting.values():
            task.cancel()
        lines = list(self._open.values())
        for line in lines:
            line.close()
        if lines:
            await asyncio.wait([line.closed for line in lines], timeout=1.0)
        for line in lines:
            line.abort()
        await asyncio.sleep(0)  # aborted sockets are closed in the loop's next turn

    async def _connect(self, address: str) -> Pipeline:
        line = await connect(address, timeout=self._timeout)
        self._open[address] = line
        line.closed.add_done_callback(lambda _: self._gone(address, line))
        self.used.set()
        return line

    def _connected(self, address: str, task: "asyncio.Task[Pipeline]") -> None:
        self._connecting.pop(address)
        if not task.cancelled():
            task.exception()  # whoever waited has it; if all were cancelled, nobody needs it

    def _gone(self, address: str, line: Pipeline) -> None:
        if self._open.get(address) is line:
            del self._open[address]
