"""A stranger with access to the ports of a native group, with real processes: it causes no mastership and no
acknowledgement, neither of a message nor of an administrator's change."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.replica import Config
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import NotifyBrokerRoleChangedRequestHeader, SyncStateSet
from rocketmq_formats.replication.frames import SlaveHandshake, encode_ack, encode_slave_handshake
from rocketmq_formats.table_copies import CopyTablesRequestHeader
from rocketmq_runtime.remoting.client import RemotingClient
from tests.processes.replica_group import PATIENCE, Group, Sender, complete, group
from tests.topic_requests import topic_request

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


def report(number: int, token: str, serial: int) -> RemotingCommand:
    """Of tables that a slave would have copied."""
    header = CopyTablesRequestHeader(broker_id=number, token=token, topics=serial, groups=serial, offsets=serial)
    return request(RequestCode.COPY_TABLES, header)


async def acknowledged(client: RemotingClient, address: str, topic: str) -> None:
    """Send the change until it is acknowledged, as its answers tell."""
    async with asyncio.timeout(PATIENCE):
        while (await client.call(address, topic_request(topic), timeout=10)).code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("secret", [True, False], ids=["secret", "no secret"])
async def test_copies_that_a_stranger_reports_do_not_count(tmp_path: Path, ports: PortPool, secret: bool) -> None:
    config: Config = {} if secret else {"haReplicationSecretFile": ""}
    async with group(tmp_path, ports, config=config) as replicas:
        master = await replicas.settled()
        address, slaves = master.replica.address, replicas.others(master)
        ids = [(await slave.client.get_replica()).broker_id for slave in slaves]
        client = RemotingClient()
        await acknowledged(client, address, "before")
        # made-up ids fill no table: a slave that was away comes back
        for number in range(1000, 1300):
            answer = await client.call(address, report(number, "", -1), timeout=5)
            assert answer.code == ResponseCode.CONTROLLER_INVALID_REPLICAS, answer.remark
        slaves[0].kill()
        slaves[0].start_again()
        await replicas.settled()
        await acknowledged(client, address, "between")
        for slave in slaves:
            slave.replica.process.suspend()
        token = ""
        for number in ids:
            answer = await client.call(address, report(number, token, -1), timeout=5)
            token = (answer.ext_fields or {}).get("token", token)
            assert bool(token) != secret, "only a replica is told"
            answer = await client.call(address, report(number, token, 2**62), timeout=5)
            refused = ResponseCode.NO_PERMISSION if secret else ResponseCode.INVALID_PARAMETER
            assert answer.code == refused, answer.remark
        answer = await client.call(address, topic_request("forged"), timeout=10)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "of the SyncStateSet have not copied it" in (answer.remark or "")
        for slave in slaves:
            slave.replica.process.resume()
        await acknowledged(client, (await replicas.settled()).replica.address, "after")
        await client.close()
