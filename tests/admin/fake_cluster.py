"""A cluster that answers as scripted: the recorded one's addresses, each served on a port of its own on loopback.

Runs in a thread with its own loop, for the tool under test runs one of its own. Answers are the frames recorded from
RocketMQ 5.3.3 or made here; the recorded addresses in them are replaced by the real ones, and back in what was printed.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TypeVar

from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame
from rocketmq_formats.remoting.headers import Header, encode_header
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer
from tests.paths import GOLDEN_FILES

N0, N1, N2 = CONTROLLERS = ("127.0.0.1:9878", "127.0.0.1:9888", "127.0.0.1:9898")
NAME_SERVER = "127.0.0.1:9876"
BROKERS = {1: "127.0.0.1:30911", 2: "127.0.0.1:30921", 3: "127.0.0.1:30931"}

T = TypeVar("T")


def recorded(name: str) -> RemotingCommand:
    """A response recorded from RocketMQ."""
    return decode_frame((GOLDEN_FILES / "remoting" / f"{name}.bin").read_bytes()[4:])


def metadata(*, leads: bool) -> RemotingCommand:
    """The recorded answer to 1005 of a controller that leads, or of another."""
    command = recorded("1005-get-metadata-info-response")
    assert command.ext_fields is not None
    command.ext_fields["isLeader"] = str(leads).lower()
    return command


def answer(
    code: int = 0, remark: str | None = None, header: Header | None = None, body: object = None
) -> RemotingCommand:
    """A response of ours; `body`: bytes, or what JSON is made of."""
    raw = body if isinstance(body, bytes) else b"" if body is None else encode_body(body)
    fields = None if header is None else encode_header(header)
    return RemotingCommand(code=code, flag=1, remark=remark, ext_fields=fields, body=raw)


Script = RemotingCommand | Callable[[RemotingCommand], RemotingCommand | None]
"""What to answer; a callable may say None for no answer at all."""


class FakeProcess:
    """One scripted process; a request without a script gets no answer."""

    def __init__(self, cluster: "FakeCluster") -> None:
        self.scripts: dict[int, Script] = {}
        self.requests: list[RemotingCommand] = []
        self._cluster = cluster
        self.server: RemotingServer | None = None

    async def start(self) -> int:
        self.server = RemotingServer(self, host="127.0.0.1", port=0)
        await self.server.start()
        return self.server.port

    def on_request(self, request: RemotingCommand, peer: Peer) -> Answer:
        self.requests.append(request)
        script = self.scripts.get(request.code)
        scripted = script(request) if callable(script) else script
        return None if scripted is None else self._cluster.readdressed(scripted, request)

    def on_close(self, peer: Peer) -> None:
        pass


class FakeCluster:
    """Starts every process of the recorded cluster; n1 leads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake cluster", daemon=True)
        self._thread.start()
        self._ports: dict[str, str] = {}
        self.processes: dict[str, FakeProcess] = {}
        for address in (*CONTROLLERS, NAME_SERVER, *BROKERS.values()):
            process = FakeProcess(self)
            self.processes[address] = process
            self._ports[address] = f"127.0.0.1:{self._run(process.start())}"
        for address in CONTROLLERS:
            self.processes[address].scripts[1005] = metadata(leads=address == N1)
        self.processes[NAME_SERVER].scripts[106] = recorded("106-get-broker-cluster-info-response")

    def kill(self, *addresses: str) -> None:
        for address in addresses:
            server = self.processes[address].server
            assert server is not None
            self._run(server.stop())

    def stop(self) -> None:
        self.kill(*self.processes)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def real(self, text: str) -> str:
        """`text` with this cluster's addresses for the recorded ones."""
        for recorded_address, real_address in self._ports.items():
            text = text.replace(recorded_address, real_address)
        return text

    def as_recorded(self, text: str) -> str:
        """`text` with the recorded addresses for this cluster's."""
        for recorded_address, real_address in self._ports.items():
            text = text.replace(real_address, recorded_address)
        return text

    def readdressed(self, scripted: RemotingCommand, request: RemotingCommand) -> RemotingCommand:
        fields = scripted.ext_fields
        return RemotingCommand(
            code=scripted.code,
            flag=1,
            opaque=request.opaque,
            remark=scripted.remark,
            ext_fields=None if fields is None else {key: self.real(value) for key, value in fields.items()},
            body=self.real(scripted.body.decode("latin-1")).encode("latin-1"),
        )

    def _run(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)
