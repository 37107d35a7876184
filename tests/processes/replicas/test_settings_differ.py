"""Settings that must be equal in a group and are not, with real processes: what is acknowledged does not depend on the
replica that differs."""

from pathlib import Path

import pytest

from rocketmq_api.replica_view import ReplicaRole, ReplicaView
from rocketmq_demo.ports import PortPool
from tests.processes.replica_group import Group, Sender, complete, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

SIZE, OTHER_SIZE = 1 << 20, 2 << 20
OTHER_PROMISES = {"lockInStrictMode": True, "haMaxTimeSlaveNotCatchup": 14_000, "minInSyncReplicas": 2}
"""A key of the broker, one of the sidecar, one of both."""
DIFFERENCE = f"mappedFileSizeCommitLog is {OTHER_SIZE} here and {SIZE} at the master"


def two_in_sync(views: list[ReplicaView]) -> bool:
    return any(view.role is ReplicaRole.MASTER and len(view.sync_state_set) == 2 for view in views)


async def test_a_replica_with_files_of_another_size_is_not_in_sync_and_never_elected(
    tmp_path: Path, ports: PortPool
) -> None:
    """It was in sync and elected at once when the master was killed. Then it cut its log behind the first file."""
    config, differs = {"mappedFileSizeCommitLog": SIZE}, {"mappedFileSizeCommitLog": OTHER_SIZE}
    async with group(tmp_path, ports, config=config, differs={**differs, "brokerElectionPriority": 0}) as replicas:
        good, odd = Group(replicas.members[:-1], replicas.name_server), replicas.members[-1]
        master = await good.settled()
        odd.replica.launch()
        await replicas.until(
            lambda views: two_in_sync(views) and DIFFERENCE in views[-1].ready_reason,
            "two in sync, and the third says why it is not",
        )
        async with Sender(replicas.name_server, size=50_000) as sender:
            await sender.more(60)
            master.kill()
            views = await Group([good.others(master)[0], odd], "").until(
                lambda views: views[0].role is ReplicaRole.MASTER, "the other good replica is elected"
            )
            assert views[1].role is not ReplicaRole.MASTER
            master.start_again()
            await good.settled()
            await sender.more()
        await complete(sender)


async def test_a_replica_that_promises_something_else_is_in_sync_and_says_what(tmp_path: Path, ports: PortPool) -> None:
    """It must be in sync and ready, or a rolling update would stop at the first replica."""
    async with group(tmp_path, ports, differs=OTHER_PROMISES) as replicas:
        good, odd = Group(replicas.members[:-1], replicas.name_server), replicas.members[-1]
        await good.settled()
        odd.replica.launch()
        await replicas.settled()
        (view,) = await Group([odd], "").until(lambda views: bool(views[0].remark), "it says what differs")
    assert view.ready_reason == ""
    assert view.remark == "settings differ from the master's: " + "; ".join(
        (
            "haMaxTimeSlaveNotCatchup is '14000' here and '15000' at the master",
            "lockInStrictMode is 'true' here and 'false' at the master",
            "minInSyncReplicas is '2' here and '1' at the master",
        )
    )
