"""Power cuts: what was never synced is lost."""

import asyncio
import signal
from collections.abc import Sequence

from tests.campaign.cluster import Controller, Replica
from tests.campaign.nemesis import Nemesis


async def power_one(nemesis: Nemesis) -> None:
    await _power(nemesis, [nemesis.replica()])


async def power_all(nemesis: Nemesis) -> None:
    """All replicas."""
    await _power(nemesis, nemesis.cluster.replicas)


async def power_everything(nemesis: Nemesis) -> None:
    """All replicas and all controllers."""
    await _power(nemesis, [*nemesis.cluster.replicas, *nemesis.cluster.controllers])


async def power_controllers(nemesis: Nemesis) -> None:
    """One controller or all of them."""
    count = nemesis.rng.choice((1, len(nemesis.cluster.controllers)))
    await _power(nemesis, nemesis.rng.sample(nemesis.cluster.controllers, count))


async def power_slaves(nemesis: Nemesis) -> None:
    await _power(nemesis, await nemesis.slaves())


async def power_slaves_kill_master(nemesis: Nemesis) -> None:
    master = await nemesis.master()
    await _power(nemesis, [replica for replica in nemesis.cluster.replicas if replica is not master], killed=[master])


async def _power(
    nemesis: Nemesis, nodes: Sequence[Replica | Controller], *, killed: Sequence[Replica | Controller] = ()
) -> None:
    await nemesis.whole()
    reboots = nemesis.rng.random() < 0.5  # else the machine runs on, and only the volume was away
    what = "power cut " if reboots else "volume taken away "
    nemesis.note(what + " ".join(node.name for node in nodes))
    await nemesis.wait(0, 1.5)
    for node in nodes:
        assert node.disk is not None
        node.disk.cut_power()
    for node in (*nodes, *killed):
        node.signal(signal.SIGKILL)
    if any(isinstance(node, Replica) for node in nodes):
        nemesis.load.history.blackout = nemesis.now()
    nemesis.note_all_down([*nodes, *killed])
    for node in nodes:
        assert node.disk is not None
        await asyncio.to_thread(node.disk.power_up)
        if reboots:
            node.shim.another_boot()
    order = [*nodes, *killed]
    nemesis.rng.shuffle(order)
    for node in order:
        await nemesis.wait(0, 2)
        node.start()
    await nemesis.whole()
