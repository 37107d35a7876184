"""A producer's connections, one `Pipeline` per broker address, opened when first needed."""

import asyncio

from rocketmq_client.pipeline import Pipeline, connect
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import ConnectError


class Connections:
    """Open connections by address."""

    def __init__(self, timeout: float) -> None:
        """`timeout`, in seconds, is each send's."""
        self.used = asyncio.Event()
        """Set when a connection was opened; the task that waits for it clears it."""
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
        """The connection to `address`, opened now if needed.

        Raises:
            ConnectError: it cannot be opened.
        """
        connection = self._open.get(address)
        if connection is not None and connection.open:
            return connection
        if self._closed:
            raise ConnectError(f"cannot connect to {address}: this producer is closed")
        task = self._connecting.get(address)
        if task is None:
            task = background.awaited(self._connect(address), f"connection to {address}")
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        try:
            # shielded, so that one cancelled caller does not cancel the connection of the others
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
        connections = list(self._open.values())
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.closed for connection in connections], timeout=1.0)
        for connection in connections:
            connection.abort()
        await asyncio.sleep(0)  # aborted sockets are closed in the loop's next turn

    async def _connect(self, address: str) -> Pipeline:
        connection = await connect(address, timeout=self._timeout)
        self._open[address] = connection
        connection.closed.add_done_callback(lambda _: self._on_closed(address, connection))
        self.used.set()
        return connection

    def _connected(self, address: str, task: "asyncio.Task[Pipeline]") -> None:
        self._connecting.pop(address)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: if all callers were cancelled, none has seen it

    def _on_closed(self, address: str, connection: Pipeline) -> None:
        if self._open.get(address) is connection:
            del self._open[address]
