"""Controllers that crash, hang or are cut off; their disks and stores."""

import asyncio
import shutil
import signal

from tests.campaign import quotas
from tests.campaign.faults import damage
from tests.campaign.nemesis import ELECTED, Nemesis


async def controller_kill(nemesis: Nemesis) -> None:
    controller = nemesis.controller()
    nemesis.note(f"kill -9 {controller.name}")
    controller.signal(signal.SIGKILL)
    await nemesis.wait(0, 3)
    controller.start()


async def controller_hang(nemesis: Nemesis) -> None:
    controller = nemesis.controller()
    nemesis.note(f"hang {controller.name}")
    controller.signal(signal.SIGSTOP)
    await nemesis.wait(0.2, 4)
    controller.signal(signal.SIGCONT)


async def controller_deposed(nemesis: Nemesis) -> None:
    """The leader is cut off from its peers only, and the master dies: another leader elects another master, while
    brokers and clients still reach the old one. It steps down only some time after its lease has ended."""
    any_controller = nemesis.controller()
    leader = await nemesis.cluster.leader() or any_controller
    master = await nemesis.master()
    peers = [controller.name for controller in nemesis.cluster.controllers if controller is not leader]
    nemesis.note(f"cut {leader.name} from {peers}, kill -9 {master.name}")
    nemesis.cluster.network.split([leader.name], peers)
    master.signal(signal.SIGKILL)
    await nemesis.successor(master, ELECTED)
    await nemesis.wait(0, 2)
    nemesis.cluster.network.heal()
    master.start()


async def controller_stutter(nemesis: Nemesis) -> None:
    await nemesis.stutter(nemesis.controller(), most=0.6)


async def controllers_starved(nemesis: Nemesis) -> None:
    processes = [controller.processes["controller"] for controller in nemesis.cluster.controllers]
    percent, period = nemesis.rng.choice(((10, 0.1), (5, 0.5), (10, 1.0)))
    nemesis.note(f"controllers get {percent} % of a core, each {period:g} s")
    with quotas.starved(processes, percent, period):
        await nemesis.wait(3, 15)


async def controllers_stutter(nemesis: Nemesis) -> None:
    """All of them, each in its own time."""
    processes = [controller.processes["controller"] for controller in nemesis.cluster.controllers]
    with quotas.stuttering(processes):
        await nemesis.wait(3, 15)


async def controllers_all(nemesis: Nemesis) -> None:
    for controller in nemesis.cluster.controllers:
        controller.signal(signal.SIGKILL)
    await nemesis.wait(0, 4)
    for controller in nemesis.cluster.controllers:
        controller.start()


async def controller_cut(nemesis: Nemesis) -> None:
    name = nemesis.controller().name
    peers = [controller.name for controller in nemesis.cluster.controllers if controller.name != name]
    all_others = [other for other in nemesis.cluster.network.addresses if other != name]
    await nemesis.split([name], peers if nemesis.rng.random() < 0.5 else all_others, 0.5, 5)


async def controller_slow_sync(nemesis: Nemesis) -> None:
    await nemesis.slow_sync(nemesis.controller(), (50, 450, 1500), most=5)


async def controller_failing_sync(nemesis: Nemesis) -> None:
    controller = nemesis.controller()
    await nemesis.failing_sync(controller)
    controller.signal(signal.SIGKILL)
    controller.start()


async def controller_disk_full(nemesis: Nemesis) -> None:
    controller = nemesis.controller()
    assert controller.disk is not None
    nemesis.note(f"full {controller.name}")
    controller.disk.fill(left=nemesis.rng.choice((0, 4096, 20_000)))
    await nemesis.wait(1, 6)
    controller.disk.free()
    controller.signal(signal.SIGKILL)
    controller.start()


async def controller_wipe(nemesis: Nemesis) -> None:
    await nemesis.whole()
    controller = nemesis.controller()
    nemesis.note(f"wipe {controller.name}")
    controller.signal(signal.SIGKILL)
    await asyncio.to_thread(shutil.rmtree, controller.store)
    controller.start()
    await nemesis.whole()


async def controller_set_back(nemesis: Nemesis) -> None:
    """A controller gets the store of some seconds ago, as from a restored snapshot of its disk."""
    await nemesis.whole()
    controller = nemesis.controller()
    nemesis.note(f"set back {controller.name}")
    controller.signal(signal.SIGKILL)
    kept = damage.keep(controller.store)
    controller.start()
    await nemesis.whole()
    # Elections, so that there is something to set back.
    await nemesis.crash([await nemesis.master()])
    await nemesis.whole()
    controller.signal(signal.SIGKILL)
    damage.put_back(kept, controller.store)
    controller.start()
    await nemesis.whole()


async def controller_flip(nemesis: Nemesis) -> None:
    """A bit of a controller's store flips. It may refuse its start; then an operator empties its folder."""
    await nemesis.whole()
    controller = nemesis.controller()
    controller.signal(signal.SIGKILL)
    files = sorted(path for path in controller.store.rglob("*") if path.is_file() and path.stat().st_size)
    path = nemesis.rng.choice(files)
    at = nemesis.rng.randrange(path.stat().st_size)
    nemesis.note(f"flip byte {at} of {path.relative_to(controller.folder.parent)}")
    damage.flip(path, at)
    controller.start()
    for _ in range(50):
        await asyncio.sleep(0.2)
        if not controller.alive:
            nemesis.note(f"{controller.name} refuses its store")
            await asyncio.to_thread(shutil.rmtree, controller.store)
            controller.start()
            break
    await nemesis.whole()
