"""What tests of single stories share: a quorum that has begun, and what is done to it by hand."""

from pysyncobj.node import Node

from tests.sim.quorum.member import Member
from tests.sim.quorum.world import World


def three(seed: int, seconds: float = 5.0) -> tuple[World, list[Member]]:
    """A quorum of three that has begun; the leader comes first."""
    world = World(seed)
    while len(world.members) != 3:
        seed += 1000
        world = World(seed)
    world.after(0.0, world.client)
    world.run_for(seconds)
    return world, sorted(world.members.values(), key=lambda m: m.machine is None or not m.machine.is_leader)


def leaders(world: World) -> list[str]:
    return [m.name for m in world.members.values() if m.machine is not None and m.machine.is_leader]


def down(world: World, *members: Member) -> None:
    """Killed for good."""
    for member in members:
        member.end(power=False)
        world.checker.forget(member.name)
        for other in member.others:
            world.network.disconnect_end(member.name, other)
            world.network.disconnect_end(other, member.name)
            machine = world.members[other].machine
            if machine is not None:
                machine.on_disconnected(Node(member.name))


def isolate(world: World, member: Member) -> None:
    world.network.blocked |= {
        (a, b) for a in world.members for b in world.members if (a == member.name) != (b == member.name)
    }


def left_alone_with_an_older_disk(seed: int, *, story: bool = False) -> tuple[World, Member]:
    """Two of three acknowledged, and the whole disk of one becomes an older one. The third has heard how far they had
    got, but was behind when the other one, which comes second here, went away: it could tell that the disk is an older
    one."""
    del story
    world, (truth, old, behind) = three(seed)
    copy = old.disk.snapshot()
    down(world, behind)
    world.run_for(3)
    assert truth.machine is not None
    commit = truth.machine.commit_index
    down(world, truth, old)
    old.set_back(copy)
    world.checker.forget_votes(old.name)
    for member in (behind, truth):
        world.start(member)
    world.run_for(0.1)  # they have met
    assert behind.machine is not None
    assert commit > behind.machine.last_index
    down(world, truth, behind)
    for member in (behind, old):
        world.start(member)
    world.run_for(8)
    return world, truth
