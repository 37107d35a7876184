"""Real controllers killed, hung and restarted in a loop while clients record every answer; then the record is checked.

`KILL9_SECONDS` sets how long, `KILL9_SEED` repeats the faults of a run (their timing against the requests
differs).
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool
from tests.processes.clients import GroupClients
from tests.processes.faults import Faults
from tests.processes.history import falling, violations
from tests.processes.kit import metric, wait_until
from tests.processes.stores import state_on_disk

SECONDS = float(os.environ.get("KILL9_SECONDS", "20"))
GROUPS = 5
CONFIG = {"raftSnapshotEntries": "500"}
"""Low, so that members that were away catch up by snapshots too."""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(SECONDS + 300)]


async def test_every_answer_holds_whatever_is_killed(tmp_path: Path, ports: PortPool) -> None:
    seed = int(os.environ.get("KILL9_SEED", random.SystemRandom().randrange(10**6)))
    print(f"KILL9_SEED={seed}")
    rng = random.Random(seed)
    with ControllerCluster(tmp_path, ports=ports, config=CONFIG) as cluster:
        cluster.start()
        await asyncio.to_thread(cluster.wait_ready, 60.0)
        dead_port = ports.single()
        groups = [
            GroupClients(f"g{number}", cluster.addresses, random.Random(rng.random()), dead_port)
            for number in range(GROUPS)
        ]
        await asyncio.gather(*(group.found() for group in groups))
        faults = Faults(cluster, rng)
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(group.run())
            await faults.run(SECONDS)
            await asyncio.sleep(1.0)  # some work of a whole quorum at the end
            for group in groups:
                group.stopping.set()
        await asyncio.gather(*(group.read_group() for group in groups))
        await asyncio.to_thread(cluster[await asyncio.to_thread(cluster.wait_leader)].stop)
        await asyncio.to_thread(cluster.wait_leader, 60.0)
        await asyncio.gather(*(group.read_group() for group in groups))  # from another leader
        for group in groups:
            await group.close()
        cluster.start()
        await asyncio.to_thread(wait_until, lambda: _all_applied_the_same(cluster), "equal applied indexes")
        for member in cluster.ports:
            assert await asyncio.to_thread(cluster[member].stop) == 0, cluster[member].tail()
        others = list(cluster.ports)
        states = {
            member: state_on_disk(tmp_path / member / "store", member, [name for name in others if name != member])
            for member in others
        }

    print(dict(faults.done), sum((group.counts for group in groups[1:]), groups[0].counts))
    for group in groups:
        assert not group.unexpected
        troubles = violations(group.history)
        assert not troubles, "\n".join(troubles[:20])
        assert falling(group.epochs) == [], group.name
    written = {seen.register.split()[1] for group in groups for seen in group.history if seen.wrote}
    assert written == {"set", "master", "ids"}
    # ReplayEqual: what the members hold on disk makes the same state
    assert len(set(states.values())) == 1


def _all_applied_the_same(cluster: ControllerCluster) -> bool:
    pages = [process.http("/metrics") for process in cluster]
    return (
        all(status == 200 for status, _ in pages)
        and len(
            {
                metric(page, f"rocketmq_controller_raft_{kind}_index")
                for _, page in pages
                for kind in ("applied", "commit", "last")
            }
        )
        == 1
    )
