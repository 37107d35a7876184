"""A name server without sockets: its door, told requests, with the connections and the clock in the test's hand."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_namesrv.config import LiveConfig, write_with_folder
from rocketmq_namesrv.kv_store import KVStore
from rocketmq_namesrv.metrics import Counts
from rocketmq_namesrv.registry import Registry
from rocketmq_namesrv.remoting_api import RemotingApi
from rocketmq_runtime.remoting import server
from rocketmq_runtime.remoting.client import RemotingClient


class FakePeer:
    """A connection as far as handlers look at it."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.host = "127.0.0.1"
        self.address = f"{self.host}:{50_000 + number}"
        self.closed = False

    def close(self) -> None:
        self.closed = True


class FakeClient:
    """Keeps the notices that would leave."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, RemotingCommand]] = []

    async def send_oneway(self, address: str, request: RemotingCommand) -> None:
        self.sent.append((address, request))


class Door:
    """The whole name server but its port; needs a running event loop."""

    def __init__(
        self, folder: Path, *, write: Callable[[Path, bytes], None] = write_with_folder, **config: str
    ) -> None:
        """`write`: keeps the KV configuration."""
        files = {
            "kvConfigPath": str(folder / "kv" / "kvConfig.json"),
            "configStorePath": str(folder / "kept.properties"),
        }
        self.config = LiveConfig({**files, **config}, {})
        self.client = FakeClient()
        self.kv = KVStore(self.config.settings.kv_path, write=write)
        self.registry = Registry(self.config, self.kv, cast("RemotingClient", self.client))
        self.counts = Counts()
        self.time = itertools.count(step=0)
        """Seconds that each look at the clock finds passed while requests are worked on: with none nothing takes
        long."""
        self.api = RemotingApi(self.registry, self.counts, clock=lambda: float(next(self.time)))
        self.peers: dict[str, FakePeer] = {}
        self._numbers = 0

    def peer(self, connection: str = "tool") -> FakePeer:
        """The open connection of this name, opened when first needed."""
        if connection not in self.peers:
            self._numbers += 1
            self.peers[connection] = FakePeer(self._numbers)
        return self.peers[connection]

    def begin(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        connection: str = "tool",
        version: int = 479,
    ) -> server.Answer:
        """The answer to one request, or the promise of one."""
        asked = RemotingCommand(code, 0, 7, "JAVA", version, None, None if ext is None else dict(ext), body)
        return self.api.on_request(asked, cast("server.Peer", self.peer(connection)))

    def ask(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        connection: str = "tool",
        version: int = 479,
    ) -> RemotingCommand:
        """The answer to one request, which comes at once."""
        return self._at_once(self.begin(code, ext, body, connection=connection, version=version))

    async def told(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        connection: str = "tool",
        version: int = 479,
    ) -> RemotingCommand:
        """The answer to one request, at once or when it is there."""
        answer = self.begin(code, ext, body, connection=connection, version=version)
        return await answer if isinstance(answer, asyncio.Future) else self._at_once(answer)

    @staticmethod
    def _at_once(answer: server.Answer) -> RemotingCommand:
        assert isinstance(answer, RemotingCommand)
        assert answer.opaque == 7
        assert answer.is_response
        return answer

    async def update(self, body: bytes) -> RemotingCommand:
        """The answer to updateNamesrvConfig."""
        asked = RemotingCommand(318, 0, 7, "JAVA", 479, None, None, body)
        answer = self.api.on_request(asked, cast("server.Peer", self.peer()))
        assert isinstance(answer, asyncio.Future)
        return await answer

    def close(self, connection: str) -> None:
        """The connection of this name ends."""
        self.api.on_close(cast("server.Peer", self.peers.pop(connection)))
