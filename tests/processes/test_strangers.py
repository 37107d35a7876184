"""A stranger with access to the ports of a native group, with real processes: it causes no mastership and no
acknowledgement."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import NotifyBrokerRoleChangedRequestHeader, SyncStateSet
from rocketmq_formats.replication.frames import SlaveHandshake, encode_ack, encode_slave_handshake
from rocketmq_runtime.remoting.client import RemotingClient
from tests.processes.replica_group import Group, Sender, complete, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


async def standing(replicas: Group) -> list[tuple[object, ...]]:
    """The known and durable role of each replica."""
    found: list[tuple[object, ...]] = []
    for member in replicas.members:
        view = await member.client.get_replica()
        epochs = (member.replica.folder / "store" / "epochFileCheckpoint").read_text()
        found.append((view.role, view.broker_id, view.master_epoch, view.ready_reason, epochs))
    return found


async def sent(sender: Sender, count: int) -> None:
    """Wait until so many more were answered, acknowledged or not."""
    wanted = sender.number + count
    while sender.number < wanted:
        await asyncio.sleep(0.02)


async def test_1008_of_a_stranger_changes_no_role(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports) as replicas:
        await replicas.settled()
        away = NotifyBrokerRoleChangedRequestHeader(f"{HOST}:1", 2**31 - 1, 2**31 - 1, 99)
        client = RemotingClient()
        async with Sender(replicas.name_server) as sender:
            await sender.more()
            await replicas.settled()
            before, refused = await standing(replicas), len(sender.refusals)
            for _ in range(20):
                for member, (_, broker_id, *_) in zip(replicas.members, before, strict=True):
                    assert isinstance(broker_id, int)
                    itself = NotifyBrokerRoleChangedRequestHeader(
                        member.replica.address, 2**31 - 2, 2**31 - 2, broker_id
                    )
                    for header, members in ((away, {99}), (itself, {broker_id})):
                        body = encode_body(SyncStateSet(sync_state_set=frozenset(members)))
                        notice = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)
                        answer = await client.call(member.replica.address, notice, timeout=5)
                        assert answer.code == ResponseCode.SUCCESS
                await sender.more(10)
            assert len(sender.refusals) == refused
            assert await standing(replicas) == before
            for member in replicas.members:
                member.kill()
            for member in replicas.members:
                member.start_again()
            await replicas.settled()
            await sender.more(10)
        await client.close()
        await complete(sender)


async def test_acknowledgements_of_a_stranger_do_not_count(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports, config={"slaveTimeout": 300}) as replicas:
        master = await replicas.settled()
        views = {member: await member.client.get_replica() for member in replicas.members}
        slaves = replicas.others(master)
        port = int(master.replica.address.rpartition(":")[2]) + 1
        async with Sender(replicas.name_server) as sender:
            await sender.more()
            for slave in slaves:
                slave.replica.process.sidecar.suspend()
            acknowledged = -1
            async with asyncio.timeout(10):
                while acknowledged != len(sender.acknowledged):
                    acknowledged = len(sender.acknowledged)
                    await sent(sender, 2)
            for slave in slaves:
                words = encode_slave_handshake(SlaveHandshake(views[slave].broker_id)) + encode_ack(2**30)
                reader, writer = await asyncio.open_connection(HOST, port)
                with contextlib.suppress(ConnectionError):
                    writer.write(words)
                    assert await reader.read(1) == b""
                writer.close()
            await sent(sender, 2)
            assert len(sender.acknowledged) == acknowledged
            for slave in slaves:
                slave.replica.process.sidecar.resume()
            await sender.more()
        await complete(sender)
