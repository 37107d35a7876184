"""What goes wrong in a simulated broker group; each fault undoes itself after a while."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rocketmq_broker.domain.role import Role
from rocketmq_sidecar.control import meta_files
from rocketmq_sidecar.domain.actions import HandedOver
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.evidence import log_mark
from tests.sim.groups.disk import ROOT
from tests.sim.groups.ends import Weather
from tests.sim.groups.loop import Process
from tests.sim.groups.replica import STEPS, SimReplica

if TYPE_CHECKING:
    from tests.sim.groups.world import GroupWorld

_EMPTYING = 6.0
"""Seconds that it takes: longer than the controllers believe that a replica lives which they do not hear."""
_LENGTHS = (0.05, 0.3, 1.0, 3.0, 5.0)


class Storm:
    """Faults at random moments."""

    def __init__(self, world: "GroupWorld") -> None:
        self.world, self.rng = world, world.rng
        self.over = False
        self.empties = self.cuts = False
        """Whether a disk was or will be emptied."""
        self.mean_pause = self.rng.choice((0.2, 0.6, 1.5))
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill_half, 4),
            (self.kill_both, 4),
            (self.terminate, 3),
            (self.stop_half, 4),
            (self.stop_both, 2),
            (self.split, 3),
            (self.one_way, 3),
            (self.seclude, 2),
            (self.reset, 3),
            (self.weather, 3),
            (self.slow_disk, 2),
            (self.empty, 3),
            (self.kill_controller, 2),
            (self.stop_controller, 2),
            (self.move_leader, 2),
            (self.hand_over, 4),
            (self.fence, 2),
        ]
        if world.gentle:
            gentle = {self.terminate, self.weather, self.slow_disk, self.move_leader, self.hand_over, self.fence}
            kinds = [(kind, weight) for kind, weight in kinds if kind in gentle] + [(self.leave_behind, 4)]
        if world.outages:
            kinds += [(self.lose_controllers, 12), (self.part, 6), (self.stumble, 8), (self.elect, 4)]
        if world.sync and not world.gentle:  # otherwise what is acknowledged may be in the memory of machines only
            kinds += [(self.power, 3), (self.crash_at_write, 3), (self.power_all, 1)]
        elif world.strict and not world.gentle:
            kinds += [(self.power_some, 3)]
        # Each run favours some kinds and leaves out others: rare meetings of two faults become common in some runs.
        self.kinds = [(kind, weight * self.rng.choice((0, 1, 1, 5))) for kind, weight in kinds]
        if not any(weight for _, weight in self.kinds):
            self.kinds = [(self.hand_over if world.gentle else self.kill_both, 1)]

    def blow(self) -> None:
        if self.over:
            return
        kinds, weights = zip(*self.kinds, strict=True)
        self.rng.choices(kinds, weights)[0]()
        self.world.schedule.after(self.rng.expovariate(1 / self.mean_pause), self.blow)

    def end(self) -> None:
        """Everything works from here on."""
        self.over = True
        self._heal()
        world = self.world
        world.network.weather = Weather()
        group = world.checker.group
        copies = 0 if group is None else len(group.sync_state_set)
        if (
            world.strict
            and len(world.replicas) > 2
            and copies > 1
            and not (self.empties or self.cuts)
            and self.rng.random() < 0.4
        ):
            world.bury(self._replica())
        for replica in world.replicas:
            self._unfence(replica)
            replica.disk.small.crash_at = None
            replica.dies_before = lambda _step: False
            replica.host.disk_delay = 0.001

    # Whom

    def _replica(self) -> SimReplica:
        masters = [r for r in self.world.replicas if r.broker is not None and r.broker.role.role is Role.MASTER]
        if masters and self.rng.random() < 0.5:
            return self.rng.choice(masters)
        return self.rng.choice(self.world.replicas)

    def _after(self) -> float:
        return self.rng.choice((0.05, 0.5, 3.0)) * self.rng.uniform(0.3, 1.0)

    def _length(self) -> float:
        return self.rng.choice(_LENGTHS) * self.rng.uniform(0.5, 1.2)

    # Replicas

    def kill_half(self) -> None:
        replica = self._replica()
        if replica.halves:
            self.world.kill(replica, self.rng.choice(replica.halves), after=self._after())

    def kill_both(self) -> None:
        replica = self._replica()
        for process in replica.halves:
            self.world.kill(replica, process, after=self._after())
        if self.rng.random() < 0.5:
            self.world.move(replica)

    def terminate(self) -> None:
        replica = self._replica()
        both = self.rng.random() < 0.5
        for process in replica.halves if both else self.rng.sample(replica.halves, min(1, len(replica.halves))):
            self.world.log("%s gets SIGTERM", process.name)
            replica.stop(process)

    def stop_half(self) -> None:
        replica = self._replica()
        if replica.halves:
            self.world.pause(self.rng.choice(replica.halves), self._length())

    def stop_both(self) -> None:
        length = self._length()
        for process in self._replica().halves:
            self.world.pause(process, length)

    def power(self) -> None:
        self.world.power_cut(self._replica(), after=self._after())

    def power_some(self) -> None:
        """As many as may be: one member of the SyncStateSet keeps everything."""
        replicas = list(self.world.replicas)
        self.rng.shuffle(replicas)
        self.cuts = True
        for replica in replicas:
            if self.world.checker.may_be_cut(replica) and not self.empties:
                self.world.power_cut(replica, after=self._after())

    def power_all(self) -> None:
        for replica in self.world.replicas:
            self.world.power_cut(replica, after=self._after())

    def crash_at_write(self) -> None:
        replica = self._replica()
        replica.disk.small.crash_at = replica.disk.small.calls + self.rng.randint(1, 15)
        self.world.log("%s will lose power in a write", replica.name)

    def empty(self) -> None:
        """rm: of everything, or all but the names with a dot; the identity is put back. Often while all are down."""
        if self.cuts:
            return
        self.empties = self.world.checker.ever_lost = True
        replica = self._replica()
        for one in self.world.replicas if self.rng.random() < 0.7 else [replica]:
            after = _EMPTYING + self._after() + (0.0 if one is replica else self.rng.choice((0.0, 2.0)))
            for process in one.halves:
                self.world.kill(one, process, after=after)
        self.world.schedule.after(_EMPTYING, lambda: self._empty(replica))

    def _empty(self, replica: SimReplica) -> None:
        if replica.halves or replica.name in self.world.network.dark or not self.world.checker.may_be_emptied(replica):
            return
        keep = {meta_files.FILE_NAME, meta_files.TEMPORARY_FILE_NAME}
        mark = replica.disk.small.files().get(ROOT / log_mark.FILE_NAME, b"0")
        if self.rng.random() < 0.7:
            if int(mark) == 0:
                return  # the first message has arrived just before the end
            keep.add(log_mark.FILE_NAME)
        self.world.log("the disk of %s is emptied, except %s", replica.name, sorted(keep))
        self.world.checker.emptied.add(replica.name)
        replica.disk.empty(keep)
        self.world.checker.check_replica(replica)

    def slow_disk(self) -> None:
        replica = self._replica()
        replica.host.disk_delay = self.rng.choice((0.02, 0.2, 0.8))
        self.world.log("%s: slow disk, %s", replica.name, replica.host.disk_delay)

        def good() -> None:
            replica.host.disk_delay = 0.001

        self.world.schedule.after(self._length(), good)

    # Operators

    def hand_over(self) -> None:
        ids = [other.broker_id for other in self.world.replicas if other.broker_id is not None]
        self._hand_over(self._replica(), self.rng.choice([None, *ids]))

    def _hand_over(self, replica: SimReplica, to: int | None) -> None:
        seconds = self.rng.choice((0.1, 0.5, 2.0))

        def told(ended: HandedOver) -> None:
            self.world.handed[ended.outcome] += 1
            self.world.log("%s: hand-over to %s: %s %s", replica.name, to, ended.outcome, ended.reason)

        if replica.hand_over(to, seconds, told):
            self.world.log("%s is asked to hand over to %s within %s", replica.name, to, seconds)

    def fence(self) -> None:
        replica = self._replica()
        if replica.fence is not None:
            return
        fence = Fence("maintenance", 0)

        def fenced() -> None:
            if replica.fence is fence:
                self.world.checker.fenced.add(replica.name)

        self.world.log("%s is fenced", replica.name)
        replica.set_fence(fence, fenced)
        self.world.schedule.after(self._length(), lambda: self._unfence(replica))

    def _unfence(self, replica: SimReplica) -> None:
        if replica.fence is not None:
            self.world.log("%s is not fenced any more", replica.name)
            self.world.checker.fenced.discard(replica.name)
            replica.set_fence(None, lambda: None)

    def leave_behind(self) -> None:
        """A slave gets nothing for a while, and often the master is then asked to hand over to it."""
        masters = [r for r in self.world.replicas if r.broker is not None and r.broker.role.role is Role.MASTER]
        slave = self.rng.choice(self.world.replicas)
        if slave in masters or not masters:
            return
        self.world.network.block({(masters[0].name, slave.name)})
        self.world.log("%s gets nothing from %s", slave.name, masters[0].name)
        length = self._length() / 3
        self.world.schedule.after(length, self._heal)
        if self.rng.random() < 0.7:
            self.world.schedule.after(length * self.rng.random(), lambda: self._hand_over(masters[0], slave.broker_id))

    # The network

    def _hosts(self) -> list[str]:
        return [r.name for r in self.world.replicas] + [m.name for m in self.world.quorum.members]

    def split(self) -> None:
        names = self._hosts()
        side = {self._replica().name} if self.rng.random() < 0.6 else set(self.rng.sample(names, len(names) // 2))
        self._block({(a, b) for a in names for b in names if (a in side) != (b in side)})

    def seclude(self) -> None:
        """Controllers and other replicas see each other and it, but no other replica sees it."""
        one = self._replica().name
        others = {replica.name for replica in self.world.replicas} - {one}
        self._block({(one, other) for other in others} | {(other, one) for other in others})

    def part(self) -> None:
        """Two replicas, in one direction or both."""
        one, other = self.rng.sample([replica.name for replica in self.world.replicas], 2)
        self._block({(one, other)} if self.rng.random() < 0.5 else {(one, other), (other, one)})

    def one_way(self) -> None:
        names = self._hosts()
        one = self._replica().name
        others = self.rng.sample(names, self.rng.randint(1, len(names)))
        pairs = {(one, other) for other in others if other != one}
        self._block(pairs if self.rng.random() < 0.5 else {(b, a) for a, b in pairs})

    def _block(self, pairs: set[tuple[str, str]]) -> None:
        self.world.network.block(pairs)
        self.world.log("blocked: %s", " ".join(f"{a}>{b}" for a, b in sorted(pairs)))
        self.world.schedule.after(self._length(), self._heal)

    def _heal(self) -> None:
        if self.world.network.blocked:
            self.world.log("links are back")
        self.world.network.heal()

    def reset(self) -> None:
        replica = self._replica()
        for process in replica.halves:
            self.world.log("%s: %d connections are reset", process.name, self.world.network.reset(process))

    def weather(self) -> None:
        self.world.network.weather = self.rng.choice(
            (
                Weather(),
                Weather(delay=0.01),
                Weather(delay=0.00005, split_share=0.5),
                Weather(slow_share=0.05, slow_delay=0.5),
                Weather(slow_share=0.01, slow_delay=2.0),
            )
        )
        self.world.log("%s", self.world.network.weather)

    # Controllers

    def kill_controller(self) -> None:
        quorum = self.world.quorum
        leads = quorum.leader is not None and self.rng.random() < 0.6
        member = quorum.leader if leads else self.rng.choice(quorum.members)
        assert member is not None
        self.world.log("controller %s is killed", member.name)
        quorum.kill(member)
        self.world.schedule.after(self._after(), lambda: member.start(quorum.schedule, quorum.network))

    def lose_controllers(self) -> None:
        """All of them are killed."""
        quorum = self.world.quorum
        self.world.log("all controllers are killed")
        length = self.rng.choice((1.0, 3.0, 8.0)) * self.rng.uniform(0.5, 1.2)
        for member in quorum.members:
            quorum.kill(member)
            self.world.schedule.after(length, partial(member.start, quorum.schedule, quorum.network))

    def stumble(self) -> None:
        """A new master's sidecar dies on its way."""
        for replica in self.world.replicas:
            self.world.stumble(replica, self.rng.choice(STEPS))

    def elect(self) -> None:
        """electMaster by an operator."""
        self.world.elect(self._replica())

    def stop_controller(self) -> None:
        process: Process | None = self.rng.choice(self.world.quorum.members).process
        leader = self.world.quorum.leader
        if leader is not None and self.rng.random() < 0.6:
            process = leader.process
        if process is not None:
            self.world.pause(process, self._length())

    def move_leader(self) -> None:
        self.world.log("leadership of the controllers moves")
        self.world.quorum.depose()
