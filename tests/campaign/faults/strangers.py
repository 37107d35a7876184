"""Attacks from a node that is no member: forged peers, odd messages, noise."""

from tests.campaign import wire
from tests.campaign.faults import hostile
from tests.campaign.load import QUEUES, TOPIC
from tests.campaign.nemesis import Nemesis


async def forged_slave(nemesis: Nemesis) -> None:
    state = await nemesis.cluster.state()
    master = await nemesis.master()
    if state is not None:
        slaves = sorted(set(state.addresses) - {state.master})
        seconds = nemesis.rng.uniform(0.5, 3)
        await hostile.forged_slave(nemesis.cluster, master.address, nemesis.rng.choice(slaves), seconds)


async def forged_notice(nemesis: Nemesis) -> None:
    state = await nemesis.cluster.state()
    if state is not None:
        await hostile.forged_notices(nemesis.cluster, state)


async def forged_heartbeat(nemesis: Nemesis) -> None:
    state = await nemesis.cluster.state()
    if state is not None:
        await hostile.forged_heartbeats(nemesis.cluster, state, nemesis.rng.randrange(1, 5))


async def odd_messages(nemesis: Nemesis) -> None:
    """Most are accepted and stay in the log; then all replicas may have to read it again."""
    for number in range(10):
        fields, body = hostile.odd_messages(TOPIC, number % QUEUES, nemesis.rng.randrange(1000))
        try:
            connection = await nemesis.load.master.connection()
            await connection.ask(wire.SEND, fields, body, timeout=2.0)
        except (OSError, wire.RemotingError):
            nemesis.load.master.forget()
    if nemesis.rng.random() < 0.5:
        await nemesis.crash(list(nemesis.cluster.replicas), most=1.5)


async def noise(nemesis: Nemesis) -> None:
    """Random bytes and huge lengths, to every port of every server."""
    await hostile.noise(nemesis.cluster, nemesis.rng)
