"""Disks of replicas that are slow, fail, are full; stores that are damaged, wiped or set back."""

import asyncio
import shutil
import signal

from tests.campaign.cluster import Replica
from tests.campaign.faults import damage
from tests.campaign.judge import bodies, log_bytes
from tests.campaign.nemesis import Nemesis, NeverSettledError

REPORT_SECONDS = 120.0
"""Within which a replica has to report damage after an unclean stop."""


async def slow_sync(nemesis: Nemesis) -> None:
    await nemesis.slow_sync(nemesis.replica(), (20, 200, 1000), most=6)


async def failing_sync(nemesis: Nemesis) -> None:
    replica = nemesis.replica()
    await nemesis.failing_sync(replica)
    await nemesis.crash([replica])


async def disk_full(nemesis: Nemesis) -> None:
    await _full(nemesis, [nemesis.replica()])


async def all_full(nemesis: Nemesis) -> None:
    await _full(nemesis, list(nemesis.cluster.replicas))


async def _full(nemesis: Nemesis, replicas: list[Replica]) -> None:
    nemesis.note("full " + " ".join(replica.name for replica in replicas))
    nemesis.load.history.disk_was_full = True
    disks = [replica.disk for replica in replicas if replica.disk is not None]
    for disk in disks:
        disk.fill(left=nemesis.rng.choice((0, 4096, 200_000)))
    await nemesis.wait(1, 6)
    if nemesis.rng.random() < 0.5:
        await nemesis.crash(replicas, most=1)
    for disk in disks:
        disk.free()


# Damage to one replica while the others are whole


async def wipe_slave(nemesis: Nemesis) -> None:
    """Its log is deleted, its identity is not."""
    slave = await _stopped_slave(nemesis)
    nemesis.note(f"wipe {slave.name}")
    await asyncio.to_thread(shutil.rmtree, slave.commit_log)
    shutil.rmtree(slave.store / "consumequeue", ignore_errors=True)
    slave.start()
    await nemesis.whole()


async def lose_volume(nemesis: Nemesis) -> None:
    """Everything is deleted: it comes back as a new replica."""
    slave = await _stopped_slave(nemesis)
    nemesis.note(f"empty the disk of {slave.name}")
    await asyncio.to_thread(shutil.rmtree, slave.store)
    slave.start()
    await nemesis.whole()


async def set_back(nemesis: Nemesis) -> None:
    """A slave gets the store of some seconds ago, as from a restored snapshot of its disk."""
    slave = await _stopped_slave(nemesis)
    nemesis.note(f"set back {slave.name}")
    kept = await asyncio.to_thread(damage.keep, slave.store)
    slave.start()
    await nemesis.whole()
    await nemesis.wait(0, 3)
    if await nemesis.master() is slave:
        nemesis.note("it has become master")
        shutil.rmtree(kept)
        return
    slave.signal(signal.SIGKILL)
    await asyncio.to_thread(damage.put_back, kept, slave.store)
    slave.start()
    await nemesis.whole()


async def zero_tail(nemesis: Nemesis) -> None:
    slave = await _stopped_slave(nemesis)
    start, data = log_bytes(slave.commit_log)
    length = min(len(data), nemesis.rng.randrange(1, 30_000))
    end = start + len(data)
    nemesis.note(f"zeros at {slave.name} from {end - length} to {end}")
    damage.overwrite(slave.commit_log, end - length, end, zero=True)
    slave.start()
    await nemesis.whole()


async def flip(nemesis: Nemesis) -> None:
    """A bit of a message's body flips. The replica repairs it, or reports it and is rebuilt by an operator."""
    slave = await _stopped_slave(nemesis)
    start, data = log_bytes(slave.commit_log)
    at = _in_a_body(nemesis, data)
    if at is None:
        slave.start()
        return
    nemesis.note(f"flip byte {start + at} of {slave.name}")
    damage.overwrite(slave.commit_log, start + at, start + at + 1, zero=False)
    slave.start()
    until = nemesis.now() + REPORT_SECONDS
    while damage.read(slave.commit_log, start + at) != data[at]:
        if not slave.alive or any("damaged" in process.output() for process in slave.processes.values()):
            nemesis.note("it reports the damage; rebuilt")
            slave.signal(signal.SIGKILL)
            await asyncio.to_thread(shutil.rmtree, slave.commit_log)
            shutil.rmtree(slave.store / "consumequeue", ignore_errors=True)
            slave.start()
            break
        if nemesis.now() > until:
            raise NeverSettledError(f"{slave.name} did not report damaged byte {start + at} in {REPORT_SECONDS:g} s")
        await asyncio.sleep(0.2)
    await nemesis.whole()


def _in_a_body(nemesis: Nemesis, data: bytes) -> int | None:
    """The place of a byte in one of the last messages; None if the log has no message."""
    found = [place for place in bodies(data) if len(place) and place.start > len(data) - 200_000]
    return nemesis.rng.choice(nemesis.rng.choice(found)) if found else None


async def _stopped_slave(nemesis: Nemesis) -> Replica:
    await nemesis.whole()
    slave = nemesis.rng.choice(await nemesis.slaves())
    slave.signal(signal.SIGKILL)
    return slave
