"""One simulated replica: the real sidecar (agent, machine, replication with its shells) and the real half of the broker
that deals with role, store and acknowledgement, each in a process of its own on one disk.

Replaced are sockets, files, clocks and threads (`shims`), and of the broker what clients see: a send is `Broker.send`,
which does what `send.SendProcessor.on_send` does around `ReplicaRole`, store and `WaitingSends`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import rocketmq_broker.replica.link
import rocketmq_broker.replica.replica
import rocketmq_runtime.remoting.server
import rocketmq_sidecar.audit.audit_link
import rocketmq_sidecar.audit.log_audit
import rocketmq_sidecar.control.agent
import rocketmq_sidecar.control.broker_link
import rocketmq_sidecar.evidence.log_proof
import rocketmq_sidecar.replication.follower
import rocketmq_sidecar.replication.ha_server
import rocketmq_sidecar.replication.replica_log
import rocketmq_sidecar.replication.status
import rocketmq_store.log.torn_records
import rocketmq_store.message_store
from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.processor_table import ProcessorTable
from rocketmq_broker.replica.replica import Replica
from rocketmq_broker.replica.replica_api import ReplicaApi
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.addresses import format_address
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import encode_frame, request, response
from rocketmq_formats.replica_link import Copied, Grant, Prepare
from rocketmq_runtime.remoting.server import RemotingServer
from rocketmq_sidecar.app import SidecarApp
from rocketmq_sidecar.control.agent import Agent
from rocketmq_sidecar.control.meta_files import IdentityFiles
from rocketmq_sidecar.domain.actions import (
    Action,
    BeginEpoch,
    HandedOver,
    Request,
    SendToBroker,
    StopReplication,
)
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.evidence.boot_file import BootFile
from rocketmq_sidecar.evidence.given_up_file import GivenUpFile
from rocketmq_sidecar.evidence.log_mark import LogMark
from rocketmq_sidecar.replication.epoch_store import EpochStore
from rocketmq_sidecar.replication.replication import Replication
from rocketmq_sidecar.settings import SidecarSettings
from rocketmq_store.errors import StoreError, WriterLockHeldError
from rocketmq_store.flush import Flusher
from rocketmq_store.log_cut import LogCut
from rocketmq_store.model import Draft, StoreSettings
from tests.sim.checks import Violation
from tests.sim.groups.disk import (
    PAGE,
    ROOT,
    Half,
    ReplicaDisk,
    SimCheckpoint,
    SimFiles,
    SimQueueEnds,
    SimQueues,
    SimRootFiles,
    SimStore,
    SimWriterLock,
    here,
)
from tests.sim.groups.loop import Host, Schedule
from tests.sim.groups.net import Network

CLUSTER, GROUP = "C", "broker-a"
COPY_SECONDS = 0.02
"""For a slave to copy its master's tables."""
_REQUEST = request(RequestCode.SEND_MESSAGE)
PUT_OK = encode_frame(response(_REQUEST, ResponseCode.SUCCESS))


class Sender:
    """Stands for the connection of a producer that waits for one answer."""

    address = "10.0.9.9:40000"

    def __init__(self, answered: Callable[[bool], None]) -> None:
        self._answered = answered

    def answer_frame(self, frame: bytes) -> None:
        self._answered(frame is PUT_OK)

    def answer_frames(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.answer_frame(frame)


class Broker:
    """As `rocketmq_broker.app.BrokerApp`, without clients, topics and name servers."""

    def __init__(self, settings: BrokerSettings, process: Half) -> None:
        self.settings, self.process = settings, process
        self.store = SimStore(StoreSettings(root=ROOT, file_size=settings.mapped_file_size_commit_log))
        self.role = ReplicaRole(Durability(settings.copies_needed, settings.durability == "strict"))
        sync = settings.flush_disk_type == "SYNC_FLUSH"
        self.waiting = WaitingSends(
            self.role,
            slave_timeout_ms=settings.slave_timeout,
            capacity=1000,
            flushed_offset=(lambda: self.store.flushed_offset) if sync else None,
            flush_timeout_ms=settings.sync_flush_timeout,
            clock=process.time,
        )
        self.flusher = Flusher(
            self.store,
            interval_ms=settings.flush_interval_commit_log,
            on_flushed=self._on_flushed,
            on_failed=_never,
        )
        address = f"{settings.broker_ip1}:{settings.listen_port}"
        self.replica = Replica(
            settings=settings,
            address=address,
            store=self.store,
            flusher=self.flusher,
            role=self.role,
            waiting=self.waiting,
            on_role_change=lambda: None,
            on_visible=lambda _: None,
        )
        self.replica.on_members = self._on_members
        api = ReplicaApi(
            settings=settings,
            role=self.role,
            replica=self.replica,
            store=self.store,
            address=address,
            ha_address=f"{settings.broker_ip1}:{settings.ha_port}",
        )
        front = ProcessorTable()
        front.register(api.processors)
        self.server = RemotingServer(front, host=settings.broker_ip1, port=settings.listen_port)
        self.opened = self.stopping = False

    def _on_flushed(self, offset: int) -> None:
        self.replica.on_flushed(offset)

    def _on_members(self) -> None:
        """There are no tables here: slaves have copied them a moment after they are named."""
        joins = frozenset(self.role.joins.values())
        if joins:
            self.process.call_later(COPY_SECONDS, self.replica.copied, Copied(self.role.epoch, joins))

    async def start(self) -> None:
        """Raises StoreError."""
        self.store.writer.acquire()
        try:
            self.store.open()
        finally:
            self.store.writer.release()
        self.opened = True
        self.flusher.start()
        await self.server.start()
        self.replica.start()

    async def stop(self) -> None:
        self.stopping = True
        await self.waiting.drained(self.settings.shutdown_wait_ms)
        await self.replica.stop()
        await self.server.stop()
        await self.flusher.stop()
        self.store.close()

    def send(self, body: bytes, queue_id: int, answered: Callable[[bool], None]) -> int | None:
        """The end of the message in the log; None if it is refused at once."""
        if self.stopping or self.role.refusal(self.process.time()) is not None or self.waiting.full:
            return None
        try:
            appended = self.store.append(Draft(topic=b"T", queue_id=queue_id, body=body), 1)
        except StoreError:
            return None
        self.role.appended(appended.end, self.process.time())
        self.replica.log_grew()
        self.waiting.add(appended.end, cast("Any", Sender(answered)), _REQUEST, PUT_OK)
        return appended.end


def _never(error: OSError) -> None:
    raise Violation(f"NoBugs: a disk that never fails failed: {error}")


STEPS = ("StopReplication", "Prepare", "BeginEpoch", "Grant", "1001")
"""What a replica does once it knows that it was elected, in this order."""


def _step(action: Action) -> str | None:
    match action:
        case StopReplication() | BeginEpoch():
            return type(action).__name__
        case SendToBroker(message=Prepare() | Grant() as message):
            return type(message).__name__
        case Request(code=RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET):
            return "1001"
        case _:
            return None


class _Agent(Agent):
    """Asks its replica before each of the `STEPS`."""

    replica: "SimReplica"
    dead = False

    def _do(self, action: Action) -> None:
        machine, step = self.machine, _step(action)
        if step is not None and machine is not None and machine.session.is_master and not self.dead:
            self.dead = self.replica.dies_before(step)
        if not self.dead:
            super()._do(action)


class SimReplica:
    """Disk and place stay, processes and address come and go."""

    def __init__(self, number: int, host: Host, schedule: Schedule, network: Network, options: dict[str, Any]) -> None:
        self.number, self.host, self.schedule, self.network = number, host, schedule, network
        self.name = host.name
        self.options = options
        self.disk = ReplicaDisk(options["mapped_file_size_commit_log"])
        self.sidecar: Half | None = None
        self.broker_process: Half | None = None
        self.agent: Agent | None = None
        self.broker: Broker | None = None
        self.on_gone: Callable[[Half, str], None] = lambda _process, _reason: None
        self.on_power_cut: Callable[[], None] = lambda: None
        self.lives = 0
        self.fence: Fence | None = None
        """What an operator ordered; kept."""
        self.dies_before: Callable[[str], bool] = lambda _step: False
        """Asked before each of the `STEPS` of a replica that was elected; True: its sidecar does nothing any more."""

    # Starting

    def _process(self, name: str) -> Half:
        self.lives += 1
        process = Half(f"{self.name}.{name}", self.host, self.schedule, self.network)
        process.disk = self.disk
        process.on_power_cut = self.on_power_cut
        return process

    def start_sidecar(self, controllers: str) -> None:
        if self.sidecar is not None:
            return
        process = self.sidecar = self._process("sidecar")
        keys = {key: value for key, value in self.options.items() if key in SidecarSettings.__struct_fields__}
        settings = SidecarSettings(controller_addr=controllers, broker_ip1=self.host.address, **keys)

        async def main() -> None:
            agent = self.agent = _Agent(settings, lambda agent: _replication(settings, agent), clock=process.time)
            agent.replica = self
            await agent.start(self.fence)

        process.run(lambda: process.create_task(self._main(process, main)))

    def start_broker(self) -> None:
        if self.broker_process is not None:
            return
        process = self.broker_process = self._process("broker")
        keys = {key: value for key, value in self.options.items() if key in BrokerSettings.__struct_fields__}
        settings = BrokerSettings(broker_ip1=self.host.address, **keys)

        async def main() -> None:
            broker = Broker(settings, process)
            try:
                await broker.start()
            except WriterLockHeldError as error:
                self.on_gone(process, str(error))  # the sidecar lets go of it when it hears that the broker is dead
                return
            self.broker = broker

        process.run(lambda: process.create_task(self._main(process, main)))

    async def _main(self, process: Half, main: Any) -> None:
        try:
            await main()
        except Exception as error:
            raise Violation(f"NoCrashLoop: {process.name} does not start: {type(error).__name__}: {error}") from error

    # Operators

    def hand_over(self, broker_id: int | None, seconds: float, told: Callable[[HandedOver], None]) -> bool:
        """Request it from the sidecar; False without one that runs."""
        agent, process = self.agent, self.sidecar
        if agent is None or process is None or agent.machine is None:
            return False

        async def main() -> None:
            told(await agent.hand_over(broker_id, seconds))

        process.run(lambda: process.create_task(main()))
        return True

    def set_fence(self, fence: Fence | None, done: Callable[[], None]) -> None:
        """Keep the order, and tell the sidecar, if there is one; `done` when its broker refuses sends."""
        self.fence = fence
        agent, process = self.agent, self.sidecar
        if agent is None or process is None:
            return

        async def main() -> None:
            with suppress(TimeoutError):  # the broker hangs
                await agent.fence(fence)
                done()

        process.run(lambda: process.create_task(main()))

    # Ending

    def stop(self, process: Half) -> None:
        """SIGTERM."""
        app: Any = self.agent if process is self.sidecar else self.broker
        if app is None:
            self.on_gone(process, "stopped while it started")
            return

        async def main() -> None:
            await app.stop()
            self.on_gone(process, "stopped")

        process.run(lambda: process.create_task(main()))

    def kill(self, process: Half, *, silent: bool = False) -> None:
        if process is self.sidecar:
            self.sidecar = self.agent = None
        elif process is self.broker_process:
            self.broker_process = self.broker = None
        self.network.close_all(process, silent=silent)
        process.kill()
        if process.name.endswith("sidecar"):
            self.disk.small.kill()

    @property
    def broker_id(self) -> int | None:
        agent = self.agent
        return None if agent is None or agent.machine is None else agent.machine.session.broker_id

    @property
    def halves(self) -> list[Half]:
        return [half for half in (self.broker_process, self.sidecar) if half is not None]


def _replication(settings: SidecarSettings, agent: Agent) -> Replication:
    return SidecarApp._replication(cast("SidecarApp", SimpleNamespace(settings=settings)), agent)


# What stands for the operating system


def _epoch_store(path: Path) -> EpochStore:
    return EpochStore(path, filesystem=here().disk.small)


def _log_mark(path: Path) -> LogMark:
    return LogMark(path, filesystem=here().disk.small)


def _log_cut(root: Path) -> LogCut:
    return LogCut(root, filesystem=here().disk.small)


def _given_up_file(folder: Path) -> GivenUpFile:
    return GivenUpFile(folder, filesystem=here().disk.small)


def _boot_file(path: Path, *, sync_flush: bool, boot_id: object) -> BootFile:
    del boot_id  # the real machine's
    disk, name = here().disk, here().host.name
    return BootFile(path, sync_flush=sync_flush, filesystem=disk.small, boot_id=lambda: f"{name}-{disk.boots}")


class SimAckedOffsetFile:
    """As `acked_offset_file.AckedOffsetFile`; what it says is on disk at once."""

    cached = True
    """A power cut brings another boot id here."""

    def __init__(self, _path: Path) -> None:
        self._disk = here().disk

    @property
    def offset(self) -> int:
        return self._disk.acked

    def open(self) -> None:
        pass

    def raise_to(self, offset: int) -> None:
        self._disk.acked = max(self._disk.acked, offset)

    def lower(self, offset: int) -> None:
        self._disk.acked = min(self._disk.acked, offset)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


def _identity_files(folder: Path, **names: Any) -> IdentityFiles:
    return IdentityFiles(folder, disk=here().disk.small, **names)


def _ha_listen(server: Any, host: str, port: int) -> int:
    process = here()
    listener = process.network.listen(process, format_address(process.host.address, port))
    server._listeners = [listener]
    server.loop.add_reader(listener, server._accept, listener)
    return port


async def _ha_open(follower: Any, host: str, port: int) -> Any:
    process = here()
    async with asyncio.timeout(rocketmq_sidecar.replication.follower.CONNECT_TIMEOUT):
        return await process.network.connect_socket(process, format_address(host, port))


async def _link_listen(link: Any) -> None:
    process = here()
    address = f"unix:{process.host.name}:1"
    link._server = process.network.listen_transport(
        process, address, lambda: rocketmq_sidecar.control.broker_link._Connection(link)
    )


async def _link_open(link: Any) -> Any:
    process = here()
    address = f"unix:{process.host.name}:1"
    _, connection = await process.network.connect_transport(
        process, address, lambda: rocketmq_broker.replica.link._Connection(link._lost)
    )
    return connection


async def _nothing_compared(_audit: Any, _link: Any, _files: Any, _end: int, **_options: Any) -> None:
    """Disks that change a byte by themselves are not simulated."""


async def _no_questions(_address: str, _challenge: Any) -> Any:
    return nullcontext()


def _time() -> float:
    return asyncio.get_running_loop().time()


@contextmanager
def shims() -> Iterator[None]:
    """The operating system is a simulated one."""
    clock = SimpleNamespace(time=_time, time_ns=lambda: int(_time() * 1e9), monotonic=_time, perf_counter=_time)
    with ExitStack() as stack:
        for module, name, stand_in in (
            (rocketmq_sidecar.replication.replica_log, "EpochStore", _epoch_store),
            (rocketmq_sidecar.replication.replica_log, "LogMark", _log_mark),
            (rocketmq_sidecar.replication.replica_log, "LogCut", _log_cut),
            (rocketmq_sidecar.evidence.log_proof, "BootFile", _boot_file),
            (rocketmq_sidecar.evidence.log_proof, "AckedOffsetFile", SimAckedOffsetFile),
            (rocketmq_sidecar.evidence.log_proof, "GivenUpFile", _given_up_file),
            (rocketmq_sidecar.replication.replica_log, "MappedFiles", SimFiles),
            (rocketmq_sidecar.replication.replica_log, "WriterLock", SimWriterLock),
            (rocketmq_sidecar.control.agent, "IdentityFiles", _identity_files),
            (rocketmq_sidecar.audit.log_audit.LogAudit, "compare", _nothing_compared),
            (rocketmq_sidecar.audit.log_audit.LogAudit, "load", lambda _audit: None),
            (rocketmq_sidecar.audit.audit_link.AuditLink, "open", _no_questions),
            (rocketmq_sidecar.control.agent, "time", clock),
            (rocketmq_sidecar.replication.status, "time", clock),
            (rocketmq_sidecar.replication.follower.Follower, "_open", _ha_open),
            (rocketmq_sidecar.replication.ha_server.HaServer, "listen", _ha_listen),
            (rocketmq_sidecar.control.broker_link.BrokerLink, "start", _link_listen),
            (rocketmq_broker.replica.link.SidecarLink, "_open", _link_open),
            (rocketmq_broker.replica.replica, "time", clock),
            (rocketmq_runtime.remoting.server, "_raise_file_limit", lambda connections: connections),
            (rocketmq_runtime.remoting.server, "time", clock),
            (rocketmq_store.message_store, "LogCut", _log_cut),
            (rocketmq_store.message_store, "MappedFiles", SimFiles),
            (rocketmq_store.message_store, "WriterLock", SimWriterLock),
            (rocketmq_store.message_store, "ConsumeQueues", SimQueues),
            (rocketmq_store.message_store, "CheckpointFile", SimCheckpoint),
            (rocketmq_store.message_store, "RootFiles", SimRootFiles),
            (rocketmq_store.message_store, "QueueEndsFile", SimQueueEnds),
            (rocketmq_store.log.torn_records, "SECTOR", PAGE),
        ):
            stack.enter_context(mock.patch.object(module, name, stand_in))
        yield
