"""What the tests of the gRPC door share: a controller without Raft, its door on a loopback port, certificates."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.failover import Failover
from rocketmq_controller.log.proposals import Proposals
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.metrics import ControllerMetrics
from rocketmq_controller.notifier import RoleNotifier
from rocketmq_controller.ports.grpc_port import GrpcApi
from rocketmq_controller.raft import Change, MemberStatus, NotLeaderError, RaftError, RaftStatus, Role
from rocketmq_controller.raft.configuration import of_voters
from rocketmq_controller.service import ControllerService
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
)
from rocketmq_runtime.grpc.server import GrpcLimits
from rocketmq_runtime.remoting.client import RemotingClient
from tests.needed import unavailable
from tests.ports import free_ports

NAME = "broker-a"
LEADER, OTHER = "n0", "n1"
LIMITS = GrpcLimits()
REMOTING_PORTS = {"n0": 29878, "n1": 29868, "n2": 29858}


class FakeReplica:
    """Raft as one member sees it, said by the test: what is proposed commits in the next turn, unless `hold`."""

    def __init__(self, machine: ControllerStateMachine) -> None:
        self._machine = machine
        self.leader_id: str | None = LEADER
        self.lease = True
        self.index = 0
        self.hold: list[tuple[bytes, asyncio.Future[object]]] | None = None
        self.barriers = 0
        self.barrier_error: RaftError | None = None
        self.transfer_error: RaftError | None = None
        self.new_leader: str | None = OTHER
        self.configuration = of_voters({name: ("127.0.0.1", port + 1) for name, port in REMOTING_PORTS.items()})
        self.changes: list[Change] = []
        self.change_error: Exception | None = None

    @property
    def is_leader(self) -> bool:
        return self.leader_id == LEADER and self.lease

    def propose(self, command: bytes) -> "asyncio.Future[object]":
        if not self.is_leader:
            raise NotLeaderError(self.leader_id)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self.hold is None:
            asyncio.get_running_loop().call_soon(self._commit, command, future)
        else:
            self.hold.append((command, future))
        return future

    def release(self) -> None:
        for command, future in self.hold or ():
            self._commit(command, future)
        self.hold = None

    def _commit(self, command: bytes, future: "asyncio.Future[object]") -> None:
        self.index += 1
        result = self._machine.apply(self.index, command)
        future.set_result(result)

    async def barrier(self) -> None:
        self.barriers += 1
        if self.barrier_error is not None:
            raise self.barrier_error

    async def transfer_leadership(self, target: str | None) -> None:
        if self.transfer_error is not None:
            raise self.transfer_error
        self.leader_id = target or self.new_leader

    async def change_members(self, change: Change) -> None:
        if self.change_error is not None:
            raise self.change_error
        self.changes.append(change)

    def status(self) -> RaftStatus:
        return RaftStatus(
            self_id=LEADER,
            role=Role.LEADER if self.leader_id == LEADER else Role.FOLLOWER,
            is_leader=self.is_leader,
            is_serving=self.leader_id == LEADER,
            term=7,
            leader_id=self.leader_id,
            commit_index=self.index,
            last_applied=self.index,
            first_index=1,
            last_index=self.index,
            durable_index=self.index,
            snapshot_index=0,
            pending=0,
            configuration=self.configuration,
            members=(
                MemberStatus(id="n1", connected=True, match_index=self.index, next_index=self.index + 1),
                MemberStatus(id="n2", connected=False, match_index=None, next_index=None),
            ),
        )


class Door:
    """A controller and its gRPC port; `now` of its heartbeat table is the loop's time."""

    def __init__(self, folder: Path, extra: Mapping[str, str], limits: GrpcLimits) -> None:
        (self.port,) = free_ports(1)
        peers = ";".join(f"{name}-127.0.0.1:{port}" for name, port in REMOTING_PORTS.items())
        self.config = LiveConfig(
            {
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": LEADER,
                "controllerStorePath": str(folder),
                "controllerRaftSecretFile": "unused",
                "controllerListenHost": "127.0.0.1",
                "controllerGrpcPort": str(self.port),
                "metricsPromExporterPort": "0",
                **extra,
            },
            {},
        )
        self.machine = ControllerStateMachine()
        self.replica = FakeReplica(self.machine)
        self.heartbeats = HeartbeatTable()
        self.client = RemotingClient()
        self.trouble: str | None = None
        metrics = ControllerMetrics(address="a", group="g", peer_id=LEADER, extra_labels={})
        self.proposals = Proposals(self.replica, self.machine, metrics)
        self.failover = Failover(
            config=self.config,
            replica=self.replica,
            machine=self.machine,
            proposals=self.proposals,
            heartbeats=self.heartbeats,
            notifier=RoleNotifier(self.client),
            metrics=metrics,
        )
        self.service = ControllerService(
            config=self.config,
            replica=self.replica,
            machine=self.machine,
            proposals=self.proposals,
            failover=self.failover,
            metrics=metrics,
        )
        self.api = GrpcApi(self.service, self.heartbeats, lambda: self.trouble, limits)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def heartbeat(self, broker_id: int, name: str = NAME, **said: int) -> None:
        """A heartbeat of a replica, over a connection that has its id as number."""
        header = BrokerHeartbeatRequestHeader(
            cluster_name="C", broker_addr=address(broker_id), broker_name=name, broker_id=broker_id, **said
        )
        self.heartbeats.on_heartbeat(header, broker_id, asyncio.get_running_loop().time())

    def hang_up(self, broker_id: int) -> None:
        self.heartbeats.on_connection_closed(broker_id, asyncio.get_running_loop().time())

    async def register(self, *ids: int, name: str = NAME, cluster: str = "C") -> None:
        """Give the group these replicas; all beat."""
        for broker_id in ids:
            await self.service.apply_broker_id(
                ApplyBrokerIdRequestHeader(
                    cluster_name=cluster,
                    broker_name=name,
                    applied_broker_id=broker_id,
                    register_check_code=f"{address(broker_id)};{broker_id}",
                )
            )
            self.heartbeat(broker_id, name)

    async def make_group(self, name: str = NAME, cluster: str = "C") -> None:
        """Replicas 1, 2, 3, of which 1 is master."""
        await self.register(1, 2, 3, name=name, cluster=cluster)
        await self.service.failover.elect(ElectMasterRequestHeader(broker_name=name, broker_id=1))


@asynccontextmanager
async def open_door(
    folder: Path, extra: Mapping[str, str] | None = None, limits: GrpcLimits = LIMITS
) -> AsyncIterator[Door]:
    door = Door(folder, extra or {}, limits)
    await door.api.start()
    try:
        yield door
    finally:
        await door.api.stop()
        await door.failover.stop()
        await door.client.close()


def address(broker_id: int) -> str:
    return f"127.0.0.{broker_id}:10911"


class Authority:
    """A certificate authority of one test, by the openssl command."""

    def __init__(self, folder: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            unavailable("openssl is missing")
        self._folder = folder
        self.cert, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        self._openssl("req", "-x509", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.cert)

    def issue(self, name: str, subject: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """Certificate and key of `subject`, for servers and clients; replaces those of the same name."""
        cert, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        signed_by = ("-CA", self.cert, "-CAkey", self._key, "-addext", f"subjectAltName={subject}")
        self._openssl("req", "-x509", "-subj", f"/CN={name}", "-keyout", key, "-out", cert, *signed_by)
        return cert, key

    @staticmethod
    def _openssl(*arguments: object) -> None:
        fresh = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
        subprocess.run(["openssl", *map(str, arguments), *fresh], check=True, capture_output=True)


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Status, details, and the trailing metadata of ours."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    error = caught.value
    metadata = {key: value for key, value in error.trailing_metadata() if key.startswith("rocketmq-")}
    return error.code(), error.details(), metadata


def code(number: ResponseCode) -> dict[str, str]:
    """The trailing metadata of a refusal with this code."""
    return {"rocketmq-code": str(int(number))}
