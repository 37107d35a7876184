"""Partitions of every shape, in both directions or one; connections that are reset from outside."""

import itertools

from tests.campaign.nemesis import Nemesis


async def isolate(nemesis: Nemesis) -> None:
    name = nemesis.replica().name
    await nemesis.split([name], _others(nemesis, name), 0.5, 8)


async def one_way(nemesis: Nemesis) -> None:
    name = nemesis.replica().name
    inward = nemesis.rng.random() < 0.5
    nemesis.note(f"one way {name} {'in' if inward else 'out'}")
    for other in _others(nemesis, name):
        nemesis.cluster.network.cut(*((other, name) if inward else (name, other)))
    await nemesis.wait(0.5, 6)
    nemesis.cluster.network.heal()


async def pair(nemesis: Nemesis) -> None:
    one, other = nemesis.rng.sample(nemesis.cluster.replicas, 2)
    await nemesis.split([one.name], [other.name], 0.5, 8)


async def slaves_cut(nemesis: Nemesis) -> None:
    master = await nemesis.master()
    await nemesis.split([master.name], [slave.name for slave in await nemesis.slaves()], 1, 10)


async def from_controllers(nemesis: Nemesis) -> None:
    master = await nemesis.master()
    await nemesis.split([master.name], [controller.name for controller in nemesis.cluster.controllers], 0.5, 8)


async def from_clients(nemesis: Nemesis) -> None:
    """The client is cut off from the master, which all others reach."""
    await nemesis.split([(await nemesis.master()).name], ["client"], 0.5, 5)


async def halves(nemesis: Nemesis) -> None:
    """Two sides, any node on either."""
    names = _servers(nemesis)
    nemesis.rng.shuffle(names)
    middle = nemesis.rng.randrange(1, len(names))
    await nemesis.split(names[:middle], names[middle:], 0.5, 8)


async def bridge(nemesis: Nemesis) -> None:
    """Two sides, and one node that sees both."""
    names = _servers(nemesis)
    nemesis.rng.shuffle(names)
    names.pop()
    middle = nemesis.rng.randrange(1, len(names))
    await nemesis.split(names[:middle], names[middle:], 0.5, 8)


async def holes(nemesis: Nemesis) -> None:
    """Some directions between some nodes, each by itself."""
    ways = [way for way in itertools.permutations(_servers(nemesis), 2) if nemesis.rng.random() < 0.25]
    nemesis.note("holes " + " ".join(f"{source}>{target}" for source, target in ways))
    for source, target in ways:
        nemesis.cluster.network.cut(source, target)
    await nemesis.wait(0.5, 8)
    nemesis.cluster.network.heal()


async def flap(nemesis: Nemesis) -> None:
    name = nemesis.replica().name
    for _ in range(6):
        await nemesis.split([name], _others(nemesis, name), 0.05, 0.5)
        await nemesis.wait(0.05, 0.5)


async def reset(nemesis: Nemesis) -> None:
    """Kill connections from outside their processes."""
    names = [node.name for node in (*nemesis.cluster.replicas, *nemesis.cluster.controllers)]
    for _ in range(5):
        one, other = nemesis.rng.sample(names, 2)
        if not nemesis.cluster.network.reset(one, other):
            nemesis.note("this kernel resets no connections")
        await nemesis.wait(0, 0.3)


def _others(nemesis: Nemesis, name: str) -> list[str]:
    return [other for other in nemesis.cluster.network.addresses if other != name]


def _servers(nemesis: Nemesis) -> list[str]:
    return [name for name in nemesis.cluster.network.addresses if name not in {"client", "stranger"}]
