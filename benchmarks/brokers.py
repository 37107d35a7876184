"""Brokers that hold nothing: they register, send heartbeats and change SyncStateSets, as the load on a controller
quorum.

The same client drives ours and the Java controller, so what it costs is on both sides of every ratio.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_formats.remoting.headers import Header, decode_header
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient, RemotingError
from rocketmq_runtime.remoting.server import Peer, RemotingServer

CLUSTER = "bench"


class BenchError(Exception):
    """The system under test answered something that makes the measurement meaningless."""


def expect(answer: RemotingCommand, *codes: int) -> RemotingCommand:
    """`answer` if its code is one of `codes` (SUCCESS by default)."""
    if answer.code not in (codes or (ResponseCode.SUCCESS,)):
        raise BenchError(f"code {answer.code}: {answer.remark}")
    return answer


async def find_leader(client: RemotingClient, controllers: Sequence[str], *, patience: float = 60.0) -> str:
    """Address of the controller that answers what only the leader answers; Java's 1005 says so too early."""
    probe = GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name="nobody")
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        for address in controllers:
            with contextlib.suppress(RemotingError):
                command = request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, probe)
                answer = await client.call(address, command, timeout=1.0)
                if answer.code == ResponseCode.SUCCESS:
                    return address
        await asyncio.sleep(0.02)
    raise BenchError("no controller leads")


@dataclass
class Group:
    """One group of two replicas: 1 is master, 2 in the SyncStateSet or not."""

    name: str
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    both_in_sync: bool = False
    master_client: RemotingClient | None = field(default=None, repr=False)


class Sink:
    """Takes role notices at the brokers' address and forgets them."""

    def on_request(self, request: RemotingCommand, peer: Peer) -> None:
        del request, peer

    def on_close(self, peer: Peer) -> None:
        del peer


class Brokers:
    """`count` groups that send heartbeats each second at every controller until `close`."""

    def __init__(self, controllers: Sequence[str], count: int) -> None:
        self.controllers = tuple(controllers)
        self.groups = [Group(f"broker-{number:04d}") for number in range(count)]
        self.client = RemotingClient()
        self.leader = ""
        self._offsets = itertools.count(1)
        self._heartbeats: asyncio.Task[None] | None = None
        self._sink: RemotingServer | None = None

    async def start(self) -> None:
        """Register every group and bring both replicas into its SyncStateSet."""
        self._sink = RemotingServer(Sink(), host="127.0.0.1", port=0)
        await self._sink.start()
        self.leader = await find_leader(self.client, self.controllers)
        for group in self.groups:
            group.master_client = RemotingClient()
        await asyncio.gather(*(self._register(group) for group in self.groups))
        await self.send_heartbeats()
        self._heartbeats = asyncio.create_task(self._keep_sending_heartbeats())
        await asyncio.sleep(0.5)
        await asyncio.gather(*(self._elect(group) for group in self.groups))
        await asyncio.gather(*(self.alter(group) for group in self.groups))

    async def close(self) -> None:
        """End heartbeats and connections."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
        for group in self.groups:
            if group.master_client is not None:
                await group.master_client.close()
        await self.client.close()
        if self._sink is not None:
            await self._sink.stop()

    async def call(self, header: Header | None, code: int, body: bytes = b"", *, via: str = "") -> RemotingCommand:
        """One call to the leader (or `via`)."""
        return await self.client.call(via or self.leader, request(code, header, body), timeout=10.0)

    async def alter(self, group: Group, *, via: str = "", patience: float = 10.0) -> RemotingCommand:
        """Put replica 2 into the SyncStateSet, or take it out."""
        wanted = SyncStateSet(
            sync_state_set=frozenset({1} if group.both_in_sync else {1, 2}),
            sync_state_set_epoch=group.sync_state_set_epoch,
        )
        header = AlterSyncStateSetRequestHeader(
            broker_name=group.name, master_broker_id=1, master_epoch=group.master_epoch
        )
        command = request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, encode_body(wanted))
        answer = await self.client.call(via or self.leader, command, timeout=patience)
        if answer.code == ResponseCode.SUCCESS:
            changed = decode_header(AlterSyncStateSetResponseHeader, answer.ext_fields or {})
            group.sync_state_set_epoch = changed.new_sync_state_set_epoch
            group.both_in_sync = not group.both_in_sync
        return answer

    async def send_heartbeats(self) -> None:
        """One heartbeat of every broker to every controller; controllers that are away are left out."""
        for controller in self.controllers:
            try:
                for group in self.groups:
                    await self.client.send_oneway(controller, self.heartbeat(group, 2))
                    if group.master_client is not None:
                        await group.master_client.send_oneway(controller, self.heartbeat(group, 1))
            except ConnectError:
                continue

    def heartbeat(self, group: Group, broker_id: int, *, oneway: bool = True) -> RemotingCommand:
        """A heartbeat of one replica."""
        header = BrokerHeartbeatRequestHeader(
            cluster_name=CLUSTER,
            broker_addr=self.address,
            broker_name=group.name,
            broker_id=broker_id,
            epoch=max(1, group.master_epoch),
            max_offset=next(self._offsets),
            confirm_offset=0,
            heartbeat_timeout_mills=10_000,
            election_priority=broker_id,
        )
        return request(RequestCode.BROKER_HEARTBEAT, header, oneway=oneway)

    @property
    def address(self) -> str:
        """Where every broker here takes role notices."""
        assert self._sink is not None
        return f"127.0.0.1:{self._sink.port}"

    async def _register(self, group: Group) -> None:
        for broker_id in (1, 2):
            apply = ApplyBrokerIdRequestHeader(
                cluster_name=CLUSTER,
                broker_name=group.name,
                applied_broker_id=broker_id,
                register_check_code=f"{self.address};{broker_id}",
            )
            expect(await self.call(apply, RequestCode.CONTROLLER_APPLY_BROKER_ID))
            register = RegisterBrokerToControllerRequestHeader(
                cluster_name=CLUSTER, broker_name=group.name, broker_id=broker_id, broker_address=self.address
            )
            expect(await self.call(register, RequestCode.CONTROLLER_REGISTER_BROKER))

    async def _elect(self, group: Group) -> None:
        header = ElectMasterRequestHeader(cluster_name=CLUSTER, broker_name=group.name, broker_id=1)
        answer = expect(
            await self.call(header, RequestCode.CONTROLLER_ELECT_MASTER),
            ResponseCode.SUCCESS,
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        )
        elected = decode_header(ElectMasterResponseHeader, answer.ext_fields or {})
        if elected.master_broker_id != 1 or elected.master_epoch is None or elected.sync_state_set_epoch is None:
            raise BenchError(f"{group.name}: replica 1 was not elected: {elected}")
        group.master_epoch, group.sync_state_set_epoch = elected.master_epoch, elected.sync_state_set_epoch

    async def _keep_sending_heartbeats(self) -> None:
        while True:
            began = time.monotonic()
            await self.send_heartbeats()
            await asyncio.sleep(max(0.05, 1.0 - (time.monotonic() - began)))
