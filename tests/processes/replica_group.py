"""A native group of real processes, and a producer that checks what it was promised."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from rocketmq_api.channels import ApiError
from rocketmq_api.replica_view import ReplicaRole, ReplicaView
from rocketmq_api.sidecars import SidecarClient
from rocketmq_client.errors import ClientError, SendError
from rocketmq_client.producer import Producer
from rocketmq_client.reading import read_all
from rocketmq_client.routes import Routes
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import make_secret
from rocketmq_demo.replica import Config, NameServer, Replica
from rocketmq_formats.addresses import format_address
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from tests.gate.patience import patient

PATIENCE = patient(90.0)
TOPIC = "T"


class Member:
    """One replica and the client of its sidecar."""

    def __init__(self, replica: Replica, grpc_port: int) -> None:
        self.replica = replica
        self.client = SidecarClient(format_address(replica.host, grpc_port), timeout=20.0)

    async def view(self) -> ReplicaView | None:
        """What its sidecar says; None: no one answers."""
        try:
            return await self.client.get_replica()
        except ApiError:
            return None

    def kill(self) -> None:
        """kill -9 of both processes."""
        self.replica.process.broker.close()
        self.replica.process.sidecar.close()

    def start_again(self) -> None:
        self.replica.restart_sidecar()
        self.replica.restart_broker()


class Group:
    """A broker group of `members`, under `controllers`."""

    def __init__(
        self,
        members: list[Member],
        name_server: str,
        controllers: ControllerCluster | None = None,
        name_server_process: NameServer | None = None,
    ) -> None:
        self.members, self.name_server = members, name_server
        self.controllers, self.name_server_process = controllers, name_server_process

    async def until(self, condition: Callable[[list[ReplicaView]], bool], what: str) -> list[ReplicaView]:
        """Wait until all sidecars answer and `condition` holds of what they say."""
        views: list[ReplicaView | None] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    views = await asyncio.gather(*(member.view() for member in self.members))
                    answered = [view for view in views if view is not None]
                    if len(answered) == len(self.members) and condition(answered):
                        return answered
                    await asyncio.sleep(0.02)
        raise AssertionError(f"{what}: {views}")

    async def settled(self) -> Member:
        """The master, once everybody is in sync."""
        count = len(self.members)

        def in_order(views: list[ReplicaView]) -> bool:
            roles = [view.role for view in views]
            return (
                roles.count(ReplicaRole.MASTER) == 1
                and roles.count(ReplicaRole.SLAVE) == count - 1
                and all(len(view.sync_state_set) == count for view in views if view.role is ReplicaRole.MASTER)
                and not any(view.ready_reason for view in views)
            )

        views = await self.until(in_order, "one master, all in sync")
        return self.members[[view.role for view in views].index(ReplicaRole.MASTER)]

    def others(self, member: Member) -> list[Member]:
        return [one for one in self.members if one is not member]

    def lose(self, member: Member) -> None:
        """`member` and the controllers are killed: if it was master, no one is elected."""
        assert self.controllers is not None
        self.controllers.close()
        member.kill()

    async def regain(self, *members: Member) -> Member:
        """`members` and the controllers start again; the master, once everybody is in sync."""
        assert self.controllers is not None
        self.controllers.start()
        for member in members:
            member.start_again()
        return await self.settled()


@asynccontextmanager
async def group(
    tmp_path: Path,
    ports: PortPool,
    *,
    count: int = 3,
    durability: str = "strict",
    config: Config | None = None,
    differs: Config | None = None,
    name_server_config: Config | None = None,
    alone: bool = False,
    host: str = HOST,
) -> AsyncIterator[Group]:
    """`differs`: more configuration of the last member, which is not started yet. `alone`: without controllers; the
    first member is master. `host`: a loopback address."""
    async with AsyncExitStack() as stack:
        cluster = None
        if not alone:
            cluster = stack.enter_context(ControllerCluster(tmp_path / "controllers", ports=ports, host=host))
            cluster.start()
        name_server = NameServer(tmp_path / "namesrv", port=ports.single(), config=name_server_config, host=host)
        stack.callback(name_server.close)
        members = []
        for number in range(count):
            port = ports.single()
            replica = Replica(
                f"r{number}",
                folder=tmp_path / f"r{number}",
                ports=ports,
                controllers=() if cluster is None else cluster.addresses,
                nameservers=[name_server.address],
                cluster="C",
                name="broker-a",
                host=host,
                config={
                    "sidecarGrpcPort": port,
                    "durability": durability,
                    "haReplicationSecretFile": make_secret(tmp_path / "replication.secret"),
                    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
                    **(_fixed(number) if alone else {}),
                    **(config or {}),
                    **((differs or {}) if number == count - 1 else {}),
                },
            )
            stack.callback(replica.close)
            members.append(Member(replica, port))
        for member in members if differs is None else members[:-1]:
            member.replica.launch()
        for member in members:
            stack.push_async_callback(member.client.close)
        yield Group(members, name_server.address, cluster, name_server)


def _fixed(number: int) -> Config:
    role = "SLAVE" if number else "SYNC_MASTER"
    return {"enableControllerMode": False, "brokerId": number, "brokerRole": role}


class Sender:
    """Sends numbers, one after another, each once; notes which were acknowledged."""

    def __init__(self, name_server: str, *, size: int = 0, after: "Sender | None" = None) -> None:
        """`size`: of a body in bytes, if that is more than its number needs. `after`: the numbers follow those of this
        one."""
        self._size = size
        self.acknowledged: list[int] = []
        self.refusals: list[SendError] = []
        self._producer = Producer([name_server], group="P", attempts=1, timeout=2.0)
        self._name_server = name_server
        self.number = 0 if after is None else after.number

    async def __aenter__(self) -> Self:
        self._producer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self._producer.close()

    async def stop(self) -> None:
        """Send no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self.number += 1
            try:
                result = await self._producer.send(TOPIC, (b"%d" % self.number).ljust(self._size))
            except (ClientError, RemotingError) as error:
                if isinstance(error, SendError):
                    self.refusals.append(error)
                await asyncio.sleep(0.005)
                continue
            if result.acknowledged:
                self.acknowledged.append(self.number)
            await asyncio.sleep(0)

    async def more(self, count: int = 50) -> None:
        """Until so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.acknowledged) < wanted:
                await asyncio.sleep(0.01)

    async def read_back(self) -> dict[int, list[int]]:
        """The numbers in each queue, in the queue's order."""
        client = RemotingClient()
        try:
            found: dict[int, list[int]] = {}
            for message in await read_all(client, Routes(client, [self._name_server]), TOPIC):
                found.setdefault(message.queue_id, []).append(int(message.body))
        finally:
            await client.close()
        return found


async def complete(sender: Sender) -> None:
    """Everything acknowledged is there, once, in order."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        queues = await sender.read_back()
        numbers = [number for queue in queues.values() for number in queue]
        missing = set(sender.acknowledged) - set(numbers)
        if not missing or asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(0.1)  # what was sent last becomes visible a moment after its answer
    assert not missing
    assert len(numbers) == len(set(numbers)), "stored twice"
    for queue in queues.values():
        assert queue == sorted(queue), "the order is that of the sends"
