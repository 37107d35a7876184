"""The connections between members, as their transports make them: who connects, who closes, and when each end learns of
it. `Network` says what a connection carries."""

from typing import TYPE_CHECKING

from pysyncobj.node import Node

from rocketmq_controller.raft.consensus.machine import RaftMachine
from tests.sim.quorum.member import Member

if TYPE_CHECKING:
    from tests.sim.quorum.world import World


class Connections:
    """Those of one `World`."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def follow_members(self, member: Member, machine: RaftMachine) -> None:
        """Connections to the members that the machine talks to, and to no others."""
        before, member.connects_to = member.connects_to, machine.peers
        if before is machine.peers:
            return
        world = self._world
        for node in sorted(set(before) - set(machine.peers), key=str):
            if world.network.disconnect_end(member.name, node.id):
                self.notice_end(node.id, member.name, world.rng.uniform(0.001, 0.1))
        for node in sorted(set(machine.peers) - set(before), key=str):
            self.connect_later(member.name, node.id)

    def connect_later(self, one: str, other: str) -> None:
        """Either of them tries to connect, again and again where it cannot yet."""
        self._world.after(self._world.rng.uniform(0.0005, 0.1), lambda: self._connect(one, other))

    def _connect(self, one: str, other: str) -> None:
        world = self._world
        ends = (world.members[one], world.members[other])
        if any(end.machine is None for end in ends) or world.network.whole(one, other):
            return
        if any(world.stores.keeps_from(end, peer) for end, peer in ((one, other), (other, one))):
            self.connect_later(one, other)
            return
        if not all(self._knows(end, peer) for end, peer in ((ends[0], other), (ends[1], one))):
            return  # the handshake is refused; tried again when one of them thinks otherwise
        if any(end.paused for end in ends) or self._is_blocked(one, other):
            self.connect_later(one, other)
            return
        for end, peer in ((one, other), (other, one)):
            self._end_of_connection(end, peer)
        world.network.connect(one, other)
        for end, peer in ((ends[0], other), (ends[1], one)):
            machine = end.machine
            if machine is not None:
                node = next(node for node in machine.peers if node.id == peer)
                world.guarded(end, lambda machine=machine, node=node: machine.on_connected(node))
                world.wake(end)

    @staticmethod
    def _knows(member: Member, peer: str) -> bool:
        return member.machine is not None and Node(peer) in member.machine.peers

    def _is_blocked(self, one: str, other: str) -> bool:
        blocked = self._world.network.blocked
        return (one, other) in blocked or (other, one) in blocked

    def reset(self, closer: str, other: str) -> None:
        """`closer` closes its connection to `other`, which learns of it later."""
        if not self._world.network.whole(closer, other) or self._world.members[closer].paused:
            return
        self._world.log("%s closes its connection to %s", closer, other)
        self._end_of_connection(closer, other)
        self.notice_end(other, closer, self._world.rng.uniform(0.0005, 0.2))

    def cut(self, first: str, later: str) -> None:
        """Neither side closed the connection, and each believes that the other did; one of them soon."""
        rng = self._world.rng
        if self._world.network.whole(first, later):
            self._world.log("somebody cuts %s from %s", first, later)
            self.notice_end(first, later, rng.uniform(0.0, 0.01))
            self.notice_end(later, first, rng.choice((0.01, 3.0)) * rng.random())

    def notice_end(self, end: str, peer: str, delay: float) -> None:
        """After `delay` seconds `end` learns that its present connection to `peer` has ended."""
        generation = self._world.network.view(end, peer)
        if generation is not None:
            self._world.after(delay, lambda: self._notice(end, peer, generation))

    def _notice(self, end: str, peer: str, generation: int) -> None:
        if self._world.network.view(end, peer) == generation:
            self._end_of_connection(end, peer)
            self.connect_later(end, peer)

    def _end_of_connection(self, end: str, peer: str) -> None:
        member = self._world.members[end]
        if not self._world.network.disconnect_end(end, peer) or member.machine is None:
            return

        def notice(machine: RaftMachine) -> None:
            machine.on_disconnected(Node(peer))

        if member.paused:
            member.notices.append(notice)
        else:
            machine = member.machine
            self._world.guarded(member, lambda: notice(machine))
            self._world.wake(member)
