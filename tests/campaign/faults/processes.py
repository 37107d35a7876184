"""Processes that crash, hang, stutter or are stopped."""

import asyncio
import signal

from tests.campaign import quotas
from tests.campaign.nemesis import ELECTED, Nemesis


async def kill(nemesis: Nemesis) -> None:
    await nemesis.crash([nemesis.replica()])


async def kill_half(nemesis: Nemesis) -> None:
    replica = nemesis.replica()
    part = nemesis.rng.choice(replica.parts)
    nemesis.note(f"kill -9 {replica.name} {part}")
    replica.signal(signal.SIGKILL, part)
    await nemesis.wait(0, 2)
    replica.restart(part)


async def kill_master(nemesis: Nemesis) -> None:
    await nemesis.crash([await nemesis.master()])


async def kill_successor(nemesis: Nemesis) -> None:
    """The master, and the one elected in its place before others are in sync with it. Where a new master begins alone
    in the SyncStateSet, the replica that lives is none that may be elected."""
    master = await nemesis.master()
    nemesis.note(f"kill -9 {master.name}")
    master.signal(signal.SIGKILL)
    successor = await nemesis.successor(master, ELECTED)
    await nemesis.wait(0, 0.2)
    await nemesis.crash([master] if successor is None else [master, successor])


async def kill_two(nemesis: Nemesis) -> None:
    await nemesis.crash(nemesis.rng.sample(nemesis.cluster.replicas, 2))


async def kill_all(nemesis: Nemesis) -> None:
    await nemesis.crash(list(nemesis.cluster.replicas), most=1.5)


async def hang(nemesis: Nemesis) -> None:
    replica = nemesis.replica()
    part = nemesis.rng.choice((None, *replica.parts))
    nemesis.note(f"hang {replica.name} {part or 'whole'}")
    replica.signal(signal.SIGSTOP, part)
    await nemesis.wait(0.3, 6)
    replica.signal(signal.SIGCONT, part)


async def hang_all(nemesis: Nemesis) -> None:
    for replica in nemesis.cluster.replicas:
        replica.signal(signal.SIGSTOP)
    await nemesis.wait(0.3, 6)
    for replica in nemesis.rng.sample(nemesis.cluster.replicas, len(nemesis.cluster.replicas)):
        replica.signal(signal.SIGCONT)
        await nemesis.wait(0, 0.5)


async def stutter(nemesis: Nemesis) -> None:
    await nemesis.stutter(nemesis.replica(), most=0.4)


async def starved(nemesis: Nemesis) -> None:
    """One replica, or each, gets too little processor, as under a container's limit."""
    replicas = nemesis.rng.choice(([nemesis.replica()], list(nemesis.cluster.replicas)))
    percent, period = nemesis.rng.choice(((30, 0.1), (20, 0.5), (30, 1.0)))
    nemesis.note(f"{' '.join(replica.name for replica in replicas)} get {percent} % of a core, each {period:g} s")
    processes = [process for replica in replicas for process in replica.processes.values() if process.alive]
    with quotas.starved(processes, percent, period):
        await nemesis.wait(3, 10)


async def stop(nemesis: Nemesis) -> None:
    of_master = nemesis.rng.random() < 0.6
    replica = await nemesis.master() if of_master else nemesis.replica()
    nemesis.note(f"SIGTERM {replica.name}")
    for part in replica.parts:
        await asyncio.to_thread(replica.signal, signal.SIGTERM, part)
    await nemesis.wait(0, 1)
    replica.start()


async def restart_namesrv(nemesis: Nemesis) -> None:
    server = nemesis.cluster.name_server
    server.signal(signal.SIGKILL)
    await nemesis.wait(0, 2)
    server.run("namesrv", "rocketmq_namesrv", server.folder / "namesrv.conf")
