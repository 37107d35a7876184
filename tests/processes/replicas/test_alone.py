"""A group without controllers (RIP-32): its master dies, a slave serves consumers, and nothing goes back; its master
returns with an empty disk, and a slave keeps what it has."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from rocketmq_api.group_view import GroupView, Liveness
from rocketmq_api.replica_view import ReplicaRole
from rocketmq_client.consumer import Consumer
from rocketmq_demo.ports import PortPool
from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.store.config_files import SubscriptionGroupsFile, TopicsFile, decode_config
from rocketmq_operator.domain.observed import Pod, SidecarState
from rocketmq_operator.domain.plan.groups.without_controllers import view_of_sidecars
from rocketmq_resources.broker_group import parse_broker_group
from rocketmq_runtime.remoting.client import RemotingClient
from tests.processes.acting_kit import ACTING, NOTIFYING, QUEUES, Reader, all_see, ends, refused_by
from tests.processes.replica_group import PATIENCE, TOPIC, Group, Member, Sender, complete, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


async def committed(client: RemotingClient, member: Member) -> list[int]:
    """The offset of group G in each queue."""
    found = []
    for queue_id in range(QUEUES):
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=TOPIC, queue_id=queue_id)
        answer = await client.call(member.replica.address, request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        found.append(decode_header(OffsetResponseHeader, answer.ext_fields or {}).offset)
    return found


async def is_slave(member: Member) -> None:
    """Soon, and without a master that could be asked."""
    async with asyncio.timeout(PATIENCE):
        while (view := await member.view()) is None or view.role is not ReplicaRole.SLAVE:
            await asyncio.sleep(0.02)


def tables(member: Member) -> tuple[TopicsFile, SubscriptionGroupsFile]:
    """Topics and groups as they are in its files."""
    folder = member.replica.folder / "store" / "config"
    topics, groups = (folder / name for name in ("topics.json", "subscriptionGroup.json"))
    return decode_config(TopicsFile, topics.read_bytes()), decode_config(SubscriptionGroupsFile, groups.read_bytes())


async def has_tables(member: Member) -> None:
    """Topic T and group G are in its files, soon."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(FileNotFoundError):
                topics, groups = tables(member)
                if TOPIC in topics.topic_config_table and "G" in groups.subscription_group_table:
                    return
            await asyncio.sleep(0.02)


async def refuses_the_log(member: Member) -> None:
    """It keeps its log and asks for an operator, soon."""
    async with asyncio.timeout(PATIENCE):
        while (view := await member.view()) is None or "nothing is cut" not in (view.ready_reason or ""):
            await asyncio.sleep(0.02)


def becomes(member: Member, broker_id: int, role: str) -> None:
    """What an operator writes into its file."""
    file = member.replica.folder / "broker.conf"
    changed = {"brokerId": str(broker_id), "brokerRole": role}
    file.write_bytes(properties.dump({**properties.parse(file.read_bytes()), **changed}))


async def seen_by_the_operator(replicas: Group) -> GroupView:
    """What it makes of the sidecars' answers."""
    spec = {"namesrvAddr": "n:9876", "failover": {"mode": "none"}}
    pods = [Pod(name=f"g-{number}", ordinal=number, uid=f"u{number}") for number in range(len(replicas.members))]
    answers = [await member.view() for member in replicas.members]
    sidecars = {pod.uid: SidecarState(replica=answer) for pod, answer in zip(pods, answers, strict=True)}
    view = view_of_sidecars(
        parse_broker_group({"metadata": {"name": "g", "namespace": "ns"}, "spec": spec}), pods, sidecars
    )
    assert view is not None
    return view


async def test_the_operator_sees_master_and_slave(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports, count=2, alone=True) as replicas:
        master, slave = replicas.members
        assert await replicas.settled() is master
        view = await seen_by_the_operator(replicas)
        assert (view.master_broker_id, view.master_epoch, view.master_address) == (0, 1, master.replica.address)
        assert [(one.broker_id, one.address, one.in_sync, one.liveness) for one in view.replicas] == [
            (0, master.replica.address, True, Liveness.ALIVE),
            (1, slave.replica.address, True, Liveness.ALIVE),
        ]
        master.kill()
        [left] = (await seen_by_the_operator(replicas)).replicas
        assert (left.broker_id, left.in_sync, left.liveness) == (1, False, Liveness.ALIVE)


async def test_a_slave_keeps_its_tables_with_its_log(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports, count=2, alone=True) as replicas:
        master, slave = replicas.members
        assert await replicas.settled() is master
        async with Sender(replicas.name_server) as sender:
            await sender.more(50)
        async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
            consumer.done(await anext(consumer))
            await consumer.commit()
            await has_tables(slave)
        for member in (slave, master):
            member.replica.process.stop()
        kept = tables(slave)

        shutil.rmtree(master.replica.folder / "store")
        master.start_again()
        slave.start_again()
        await refuses_the_log(slave)
        slave.replica.restart_sidecar()  # the broker is told again what to copy
        await refuses_the_log(slave)
        for member in (slave, master):
            member.replica.process.stop()
        assert tables(slave) == kept

        becomes(slave, 0, "SYNC_MASTER")
        becomes(master, 1, "SLAVE")
        for member in (slave, master):
            member.start_again()
        assert await replicas.settled() is slave
        await complete(sender)
        await has_tables(master)


async def test_the_master_dies_and_comes_back(tmp_path: Path, ports: PortPool) -> None:
    client = RemotingClient()
    try:
        async with group(tmp_path, ports, config=ACTING, name_server_config=NOTIFYING, alone=True) as replicas:
            master = await replicas.settled()
            assert master is replicas.members[0]
            acting, other = replicas.members[1:]
            async with Sender(replicas.name_server) as sender:
                await sender.more(200)
            await all_see(client, replicas, master)
            async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
                done = set()
                for _ in range(20):
                    message = await anext(consumer)
                    consumer.done(message)
                    done.add(int(message.body))
                await consumer.commit()
            before, log = await committed(client, master), await ends(client, acting)

            master.kill()
            await refused_by(client, acting, ResponseCode.SERVICE_NOT_AVAILABLE)
            await refused_by(client, other, ResponseCode.SYSTEM_BUSY)
            other.kill()
            other.start_again()
            await is_slave(other)
            async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
                reader = Reader(consumer)
                await reader.until(set(sender.acknowledged) - done)
                assert not done & set(reader.read)
                await consumer.commit()
                await reader.close()
            newer = await committed(client, acting)
            assert newer != before
            assert await ends(client, acting) == log, "nothing was appended"

            master.start_again()
            assert await replicas.settled() is master
            assert await committed(client, master) == newer, "taken over before it served"
            async with Sender(replicas.name_server, after=sender) as after:
                await after.more(50)
                async with Consumer([replicas.name_server], TOPIC, group="G") as consumer:
                    reader = Reader(consumer)
                    await reader.until(set(after.acknowledged))
                    assert not set(sender.acknowledged) & set(reader.read), "consumed before"
                    await reader.close()
            after.acknowledged += sender.acknowledged
            await complete(after)
    finally:
        await client.close()
