"""What is attacked: controllers, a name server and a native group on loopback, with honest clients that go on."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketmq_api.channels import ApiError
from rocketmq_api.replica_view import ReplicaRole
from rocketmq_demo.calls import call
from rocketmq_demo.ports import PortPool
from rocketmq_demo.processes import OwnedProcess
from rocketmq_formats.addresses import parse_address
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import GetReplicaInfoRequestHeader
from tests.fuzz import frames
from tests.processes.replica_group import Group, Sender, group

SERVED_SECONDS = 60.0
"""In which an honest client must get what it asks for: generous, the machine is busy with strangers."""


@dataclass(frozen=True)
class Port:
    name: str
    number: int
    frames: Callable[[random.Random], Iterator[bytes]]
    elects: bool = False
    """Whether masters are elected while strangers send."""


class Target:
    """The group and its honest clients."""

    def __init__(self, group: Group, sender: Sender, ports: list[Port], processes: list[OwnedProcess]) -> None:
        self.group, self._sender = group, sender
        self.ports, self.processes = ports, processes
        self.beats = 0
        self.elected = 0
        self._missing = ""

    @property
    def sends(self) -> int:
        """Acknowledged."""
        return len(self._sender.acknowledged)

    def trouble(self) -> str:
        """Why `served` is False."""
        return self._missing

    async def served(self) -> bool:
        """Whether sends are acknowledged and a controller names the living master, now."""
        wanted = self.sends + 5
        self._missing = "the honest producer's sends are not acknowledged"
        try:
            async with asyncio.timeout(SERVED_SECONDS):
                while self.sends < wanted:
                    await asyncio.sleep(0.05)
                self._missing = "no controller names a master"
                while not await asyncio.to_thread(self._master_known):
                    await asyncio.sleep(0.05)
                self._missing = "no sidecar says that it is master"
                while not any(
                    view is not None and view.role is ReplicaRole.MASTER
                    for view in [await member.view() for member in self.group.members]
                ):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True

    async def elections(self) -> bool:
        """Whether the controllers elect another master, and then the first one again, now."""
        for _ in range(2):
            self._missing = "the controllers elect no master"
            try:
                async with asyncio.timeout(SERVED_SECONDS):
                    while not await self._elected():
                        await asyncio.sleep(0.2)
            except TimeoutError:
                return False
            self.elected += 1
        return True

    async def _elected(self) -> bool:
        for member in self.group.members:
            view = await member.view()
            if view is not None and view.role is ReplicaRole.MASTER:
                with contextlib.suppress(ApiError):  # the slave is not in sync again yet
                    await member.client.hand_over()
                    return True
        return False

    def _master_known(self) -> bool:
        """The master is there only as long as its heartbeats are heard."""
        assert self.group.controllers is not None
        for process in self.group.controllers:
            header = GetReplicaInfoRequestHeader(broker_name="broker-a")
            try:
                answer = call(process.address, request(RequestCode.CONTROLLER_GET_REPLICA_INFO, header), timeout=5.0)
            except OSError:
                continue
            if answer.code == 0 and (answer.ext_fields or {}).get("masterBrokerId"):
                self.beats += 1
                return True
        return False


@asynccontextmanager
async def target(folder: Path, ports: PortPool) -> AsyncIterator[Target]:
    """All of it, in sync and serving."""
    probes = ports.single()
    config = {"metricsPromExporterPort": probes, "logFormat": "json"}
    async with group(folder, ports, count=2, config={"logFormat": "json"}, name_server_config=config) as made:
        master = await made.settled()
        async with Sender(made.name_server) as sender:
            await sender.more(5)
            assert made.controllers is not None
            assert made.name_server_process is not None
            controllers = list(made.controllers)
            leader = made.controllers[made.controllers.wait_leader()]
            broker = _port(master.replica.address)
            http2, http = frames.http2, frames.http
            attacked = [
                Port("namesrv", _port(made.name_server), frames.remoting),
                Port("namesrv probes", probes, http),
                Port("controller", leader.port, frames.remoting, elects=True),
                Port("controller raft", leader.port + 1, frames.raw, elects=True),
                Port("controller grpc", leader.port + 2, http2),
                Port("controller probes", leader.port + 3, http),
                Port("broker", broker, frames.remoting),
                Port("broker vip", broker - 2, frames.remoting),
                Port("ha", broker + 1, lambda rng: frames.raw(rng, b"\x00\x00\x00\x01", b"\x00" * 8)),
                Port("sidecar grpc", _port(master.client.address), http2),
            ]
            processes: list[OwnedProcess] = [*controllers, made.name_server_process]
            for member in made.members:
                processes += [member.replica.process.broker, member.replica.process.sidecar]
            yield Target(made, sender, attacked, processes)


def _port(address: str) -> int:
    return parse_address(address)[1]
