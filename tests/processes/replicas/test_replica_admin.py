"""A replica's gRPC operations, with real processes and a running producer: hand-overs lose and repeat nothing and keep
the order, a fence survives kill -9 of both processes."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_api.channels import RefusedError
from rocketmq_api.replica_view import NewMaster, ReplicaRole
from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import ResponseCode
from tests.processes.replica_group import PATIENCE, Sender, complete, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
async def test_hand_overs_under_load(tmp_path: Path, ports: PortPool, durability: str) -> None:
    async with group(tmp_path, ports, durability=durability) as replicas:
        master = await replicas.settled()
        async with Sender(replicas.name_server) as sender:
            await sender.more()
            for named in (True, False, True):
                before = await master.client.get_replica()
                target = (await replicas.others(master)[0].client.get_replica()).broker_id
                new = await master.client.hand_over(target if named else None, seconds=20.0)
                assert isinstance(new, NewMaster)
                assert new.master_broker_id != before.broker_id
                assert new.master_epoch == before.master_epoch + 1
                if named:
                    assert new.master_broker_id == target
                await sender.more()
                master = await replicas.settled()
                assert (await master.client.get_replica()).broker_id == new.master_broker_id
        await complete(sender)


async def test_hand_over_asked_of_the_wrong_one_changes_nothing(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports, count=2) as replicas:
        master = await replicas.settled()
        (slave,) = replicas.others(master)
        for asked, to, says in ((slave, None, "is not master"), (master, 99, "not in the SyncStateSet")):
            with pytest.raises(RefusedError, match=says):
                await asked.client.hand_over(to, seconds=1.0)
        view = await master.client.get_replica()
        assert view.role is ReplicaRole.MASTER
        assert [one.epoch for one in view.epochs] == [view.master_epoch]
        assert view.epochs[-1].end_offset == view.max_offset


async def test_fence_outlives_both_processes(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports, count=1, durability="relaxed") as replicas:
        (member,) = replicas.members
        await replicas.settled()
        async with Sender(replicas.name_server) as sender:
            await sender.more(20)
            view = await member.client.set_fenced(True, "moving house")
            assert (view.fenced, view.role, view.fence_reason) == (True, ReplicaRole.MASTER, "moving house")
            count, refused = len(sender.acknowledged), len(sender.refusals)
            member.kill()
            member.start_again()
            after = (await replicas.until(lambda views: views[0].role is ReplicaRole.MASTER, "master again"))[0]
            assert (after.fenced, after.fence_reason) == (True, "moving house")
            assert after.fenced_at_millis == view.fenced_at_millis
            async with asyncio.timeout(PATIENCE):
                while not any(error.code == ResponseCode.NO_PERMISSION for error in sender.refusals[refused:]):
                    await asyncio.sleep(0.01)
            assert len(sender.acknowledged) - count <= 1, "one answer may have been on its way"
            assert (await member.client.set_fenced(False)).fenced is False
            await sender.more(20)
        await complete(sender)


async def test_orderly_end_of_the_master_under_load(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports) as replicas:
        master = await replicas.settled()
        async with Sender(replicas.name_server) as sender:
            await sender.more()
            assert await asyncio.to_thread(master.replica.process.sidecar.stop, 30.0) == 0
            await sender.more()
            replicas.members.remove(master)
            await replicas.until(
                lambda views: [view.role for view in views].count(ReplicaRole.MASTER) == 1, "another is master"
            )
        await complete(sender)
