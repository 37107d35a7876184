"""A whole broker group in virtual time, from one seed: replicas of two processes each, controllers, producers, faults,
and the checks after each step.

`run(seed)` is what the tests and `python -m tests.sim --kind groups` call. After the time of faults everything works
and must become well: one master that acknowledges, everybody in sync, all logs equal, nothing acknowledged lost.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import structlog

from rocketmq_broker.domain.role import Role
from rocketmq_formats.addresses import format_address
from rocketmq_formats.remoting.controller import ElectMasterRequestHeader
from rocketmq_sidecar.control import meta_files
from tests.sim.checks import Violation
from tests.sim.groups.checks import GroupChecker, Promise, accepts, follows
from tests.sim.groups.controllers import HOSTS, PORT, Quorum
from tests.sim.groups.disk import Half
from tests.sim.groups.faults import Storm
from tests.sim.groups.loop import Host, Process, Schedule
from tests.sim.groups.net import Network
from tests.sim.groups.replica import CLUSTER, GROUP, SimReplica, shims

STORM_SECONDS = 5.0
CALM_SECONDS = 30.0
"""Within which everything must be well again: the declared time-out of a silent broker is 10 s."""
QUIET_SECONDS = 2.0
BACKLOG_SECONDS = 5.0


class Outcome(msgspec.Struct, frozen=True):
    """What a run amounted to."""

    seed: int
    replicas: int
    steps: int
    sent: int
    acked: int
    epochs: int
    calm: float
    """Seconds until all was well."""
    log: int
    handed: dict[str, int]
    """How often hand-overs that were asked for ended how."""


_SECRET = Path(__file__)
"""What the replicas of every other seed prove themselves by: the bytes of any file that stays as it is."""


class GroupWorld:
    """See the module's docstring."""

    def __init__(
        self, seed: int, *, story: bool = False, gentle: bool = False, outages: bool = False, **options: Any
    ) -> None:
        """`options` instead of what the seed has; `replicas`: how many; `learners`: the numbers of those that are
        learners; `unclean`: enableElectUncleanMaster. `gentle`: without anything that kills or cuts
        off; `outages`: all controllers are away again and again."""
        self.rng = rng = Random(seed)
        self.story: list[str] | None = [] if story else None
        self.family = 6 if seed % 3 == 0 else 4
        """IP version of all addresses."""
        self.schedule = Schedule(Random(rng.random()))
        self.network = Network(self.schedule, Random(rng.random()))
        self.gentle, self.outages = gentle, outages
        self.options = _options(rng)
        if gentle:
            self.options["durability"] = rng.choice(("strict", "relaxed", "relaxed"))
        count = options.pop("replicas", None) or rng.choices((2, 3, 4), (1, 8, 1))[0]
        self.learners: frozenset[int] = frozenset(options.pop("learners", ()))
        unclean = options.pop("unclean", False)
        self.options |= options
        if seed % 2:
            self.options["ha_replication_secret_file"] = str(_SECRET)
        self.strict = self.options["durability"] == "strict"
        self.handed: Counter[str] = Counter()
        """How hand-overs ended."""
        self.sync = self.options["flush_disk_type"] == "SYNC_FLUSH"
        self.replicas = [self._replica(number) for number in range(1, count + 1)]
        self._of = {replica.name: replica for replica in self.replicas}
        copies = 2 if self.strict else 1 if self.options["all_ack_in_sync_state_set"] else 0
        self.checker = GroupChecker(self.replicas, Promise(copies, not self.strict, gentle))
        self.quorum = Quorum(self.schedule, self.network, self._on_group, unclean=unclean, family=self.family)
        self.controllers = ";".join(format_address(host, PORT) for host in HOSTS[self.family].values())
        self.bugs: list[str] = []
        self.schedule.after_turn = self._after_turn
        self.sent = 0
        self.stumbled = 0
        """How many new masters died on their way."""
        self.clients_stop = False
        self.calm = False
        for replica in self.replicas:
            self.schedule.after(rng.choice((0.0, rng.uniform(0, 2))), lambda replica=replica: self.start(replica))  # type: ignore[misc]

    def _replica(self, number: int) -> SimReplica:
        host = Host(f"r{number}", f"fd00::{number}" if self.family == 6 else f"10.0.0.{number}", self.rng)
        replica = SimReplica(
            number, host, self.schedule, self.network, self.options | {"async_learner": number in self.learners}
        )
        self.network.hosts[host.address] = host
        replica.on_gone = lambda process, reason: self._gone(replica, process, reason)
        replica.on_power_cut = lambda: self._power_fails(replica)
        return replica

    def log(self, text: str, *values: object) -> None:
        if self.story is not None:
            self.story.append(f"{self.schedule.now:9.4f} {text % values}")

    def _on_group(self, group: Any) -> None:
        self.log(
            "committed: master %s epoch %s set %s/%s",
            group.master_broker_id,
            group.master_epoch,
            sorted(group.sync_state_set),
            group.sync_state_set_epoch,
        )
        self.checker.on_group(group)

    def _after_turn(self, process: Process) -> None:
        if isinstance(process, Half):
            self.checker.check_replica(self._of[process.host.name])
        if self.bugs:
            raise Violation(f"NoBugs: {self.bugs[0]}")

    # Replicas

    def start(self, replica: SimReplica) -> None:
        """Start what does not run."""
        if replica not in self.replicas:
            return
        if replica.name in self.network.dark:
            self.schedule.after(0.2, lambda: self.start(replica))
            return
        if replica.sidecar is None:
            self.log("%s: sidecar starts", replica.name)
            replica.start_sidecar(self.controllers)
        if replica.broker_process is None:
            self.log("%s: broker starts", replica.name)
            replica.start_broker()

    def kill(self, replica: SimReplica, process: Half, *, after: float) -> None:
        """kill -9; started again after a while."""
        self.log("%s is killed", process.name)
        replica.kill(process)
        self.schedule.after(after, lambda: self.start(replica))

    def stumble(self, replica: SimReplica, step: str) -> None:
        """At its next election the sidecar is killed before this one of the `STEPS`; started again after a while."""

        def dies(now: str) -> bool:
            process = replica.sidecar
            if now != step or process is None:
                return False
            self.stumbled += 1
            self.log("%s dies before %s", process.name, step)
            replica.dies_before = lambda _step: False
            process.pause()
            self.network.close_all(process, silent=False)
            self.schedule.after(0.0, lambda: self.kill(replica, process, after=self.rng.choice((0.1, 1.0, 4.0))))
            return True

        replica.dies_before = dies

    def bury(self, replica: SimReplica) -> None:
        """It dies for good."""
        self.log("%s dies for good", replica.name)
        for process in replica.halves:
            replica.kill(process)
        self.replicas.remove(replica)
        self.checker.buried += 1

    def power_cut(self, replica: SimReplica, *, after: float) -> None:
        """The machine loses its power: what was not synced may be lost."""
        self.log("%s loses power", replica.name)
        for process in replica.halves:
            replica.kill(process, silent=True)
        if not self.sync:
            self.checker.cut.add(replica.name)
            self.checker.ever_lost = True
        replica.disk.power_cut(self.rng)
        self.checker.check_replica(replica)
        self.network.dark.add(replica.name)
        self.schedule.after(after, lambda: self._power_back(replica))

    def _power_fails(self, replica: SimReplica) -> None:
        """In the middle of a write."""
        for process in replica.halves:
            process.pause()
        self.schedule.after(0.0, lambda: self.power_cut(replica, after=self.rng.uniform(0.05, 2)))

    def _power_back(self, replica: SimReplica) -> None:
        self.network.dark.discard(replica.name)
        self.start(replica)

    def give_up_old_logs(self) -> None:
        """What an operator does with durability=relaxed: a replica whose whole log no master has is rebuilt. It was
        master alone from the first message on, and it never deletes a whole log by itself."""
        for replica in () if self.strict else self.replicas:
            trouble = "" if replica.agent is None else replica.agent.trouble or ""
            if trouble.startswith("the master's log ends or diverges from this one at 0,"):
                self.log("%s is rebuilt", replica.name)
                for process in replica.halves:
                    replica.kill(process)
                replica.disk.empty({meta_files.FILE_NAME, meta_files.TEMPORARY_FILE_NAME})
                self.start(replica)

    def move(self, replica: SimReplica) -> None:
        """While nothing of it runs: the replica gets another address."""
        if replica.halves:
            return
        host = replica.host
        del self.network.hosts[host.address]
        number = self.rng.randint(1, 250)
        place = replica.number, number, replica.lives % 250 + 1
        host.address = "fd00::{}:{}:{}".format(*place) if self.family == 6 else "10.{}.{}.{}".format(*place)
        self.network.hosts[host.address] = host
        self.log("%s is at %s now", replica.name, host.address)

    def pause(self, process: Process, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if process.paused or not process.alive:
            return
        self.log("%s is stopped for %.3f", process.name, seconds)
        process.pause()

        def resume() -> None:
            if process.alive:
                self.log("%s continues", process.name)
                process.resume()

        self.schedule.after(seconds, resume)

    def _gone(self, replica: SimReplica, process: Half, reason: str) -> None:
        def end() -> None:
            if process.alive:
                self.kill(replica, process, after=self.rng.uniform(0.1, 1.0))

        self.log("%s ends: %s", process.name, reason)
        self.schedule.after(0.0, end)

    # Scripts

    def until(self, what: Callable[[], bool], seconds: float) -> float:
        """Advance the time until `what`; how long it took. Raises Violation."""
        began = self.schedule.now
        while not what():
            if self.schedule.now - began > seconds:
                raise Violation(f"Alive: not within {seconds} s\n{self.describe()}")
            self.schedule.run_until(self.schedule.now + 0.02)
        return self.schedule.now - began

    def master(self) -> SimReplica | None:
        """The replica that the controllers name, if it is master of their epoch."""
        for replica in self.replicas:
            broker, group = replica.broker, self.checker.group
            if broker is not None and group is not None and replica.broker_id == group.master_broker_id:
                return replica if (broker.role.role, broker.role.epoch) == (Role.MASTER, group.master_epoch) else None
        return None

    def elect(self, replica: SimReplica) -> None:
        """An operator asks the leading controller to elect it (electMaster)."""
        leader, broker_id = self.quorum.leader, replica.broker_id
        if leader is None or leader.process is None or leader.failover is None or broker_id is None:
            return
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER, broker_name=GROUP, broker_id=broker_id, designate_elect=True
        )
        failover = leader.failover
        self.log("an operator asks for %s as master", replica.name)
        leader.process.run(lambda: failover.elect(header))

    # Clients

    def client(self) -> None:
        """A producer with some messages, at some broker; then the next one."""
        if self.clients_stop:
            return
        rng = self.rng
        self.schedule.after(rng.expovariate(1 / 0.08), self.client)
        masters = [r for r in self.replicas if r.broker is not None and r.broker.role.role is Role.MASTER]
        if not masters:
            return
        replica = rng.choice(masters)
        process = replica.broker_process
        if process is None:
            return
        count = rng.choice((1, 1, 2, 6))
        process.run(lambda: self._send(replica, process, count))

    def _send(self, replica: SimReplica, process: Half, count: int) -> None:
        broker = replica.broker
        if broker is None or replica.broker_process is not process:
            return
        for _ in range(count):
            self.sent += 1
            body = b"%d" % self.sent + b"." * self.rng.choice((0, 5, 40, 400))
            place: list[tuple[int, int]] = []

            def answered(ok: bool, body: bytes = body, place: list[tuple[int, int]] = place) -> None:
                if ok:
                    self.checker.on_ack(replica, body, *place[0])

            start = broker.store.max_offset
            end = broker.send(body, self.rng.randint(0, 1), answered)
            if end is None:
                return
            place.append((start, end))

    # The run

    def record_log_line(self, _logger: object, _method: str, event: dict[str, Any]) -> Any:
        """What the processes log goes into the story; what a last line of defence caught is a bug."""
        text = event.pop("event")
        process = asyncio._get_running_loop()
        values = " ".join(f"{key}={value}" for key, value in event.items())
        self.log("%s: %s %s", getattr(process, "name", "?"), text, values)
        if event.get("exc_info") and getattr(process, "alive", False):
            self.bugs.append(f"{process}: {text} {values}")
        raise structlog.DropEvent

    def end(self) -> None:
        """Unwind all processes."""
        for replica in self.replicas:
            for process in replica.halves:
                replica.kill(process)
        for member in self.quorum.members:
            self.quorum.kill(member)

    def well(self) -> bool:
        """One accepts, everybody else follows it, and all are in sync. Who has lost its log is a member for some time
        before the master notices, and follows no one; who follows in a past epoch is one until controllers are back."""
        group = self.checker.group
        if any(len(r.halves) < 2 or r.broker is None or any(half.paused for half in r.halves) for r in self.replicas):
            return False
        return (
            sum(map(accepts, self.replicas)) == 1
            and sum(map(follows, self.replicas)) == len(self.replicas) - 1
            and group is not None
            and len(group.sync_state_set) == len(self.replicas) - len(self.learners)
            and all(r.broker is not None and r.broker.role.epoch == group.master_epoch for r in self.replicas)
        )

    def describe(self) -> str:
        lines = [f"controllers: leader {self.quorum.leader and self.quorum.leader.name}, {self.quorum.group}"]
        for r in self.replicas:
            machine = None if r.agent is None else r.agent.machine
            broker = r.broker
            lines.append(
                f"{r.name}: {machine and (machine.role.broker, machine.role.replicating, machine.wanted)}"
                f" {machine and machine.unready(r.sidecar.time() if r.sidecar else 0)} {r.agent and r.agent.trouble}"
                f" broker {broker and (broker.role.role, broker.role.epoch, broker.store.max_offset)}"
            )
        return "\n".join(lines)


def _options(rng: Random) -> dict[str, Any]:
    strict = rng.random() < 0.85
    return {
        "broker_cluster_name": CLUSTER,
        "broker_name": GROUP,
        "store_path_root_dir": "/",
        "mapped_file_size_commit_log": rng.choice((4096, 4096, 16384)),
        "durability": "strict" if strict else "relaxed",
        "all_ack_in_sync_state_set": rng.random() < 0.7,
        "flush_disk_type": rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        "flush_interval_commit_log": rng.choice((50, 500)),
        "ha_send_heartbeat_interval": 1000,
        "ha_housekeeping_interval": 3000,
        "ha_max_time_slave_not_catchup": rng.choice((600, 1500, 5000)),
        "check_sync_state_set_period": 1000,
        "ha_transfer_batch_size": rng.choice((200, 32 * 1024)),
        "slave_timeout": rng.choice((300, 3000)),
        "broker_hang_timeout_ms": rng.choice((1000, 3000)),
        "shutdown_wait_ms": 500,
        "max_connections": 100,
    }


def run(
    seed: int, *, story: bool = False, seconds: float = STORM_SECONDS, gentle: bool = False, outages: bool = False
) -> Outcome:
    """One story; `gentle`, `outages` as `GroupWorld`. Raises Violation, with the world's story in its notes if asked
    for."""
    with staged(seed, story=story, gentle=gentle, outages=outages) as world:
        return _run(world, seed, seconds)


@contextmanager
def staged(seed: int, *, story: bool = False, **options: Any) -> Iterator[GroupWorld]:
    """A world for a script of the test's own; `options` as `GroupWorld`."""
    with shims():
        world = GroupWorld(seed, story=story, **options)
        before = structlog.get_config()
        level = logging.ERROR if world.story is None else logging.INFO
        structlog.configure(
            processors=[world.record_log_line], wrapper_class=structlog.make_filtering_bound_logger(level)
        )
        try:
            yield world
        except Exception as error:
            error.add_note(f"seed {seed}: python -m tests.sim --kind groups --seed {seed}")
            if world.story is not None:
                error.add_note("\n".join(world.story[-400:]))
                error.add_note(world.describe())
            raise
        finally:
            world.end()
            structlog.configure(**before)


def _run(world: GroupWorld, seed: int, seconds: float) -> Outcome:
    schedule = world.schedule
    storm = Storm(world)
    schedule.after(world.rng.uniform(0, 1), world.client)
    schedule.after(world.rng.uniform(0, 3), storm.blow)
    schedule.run_until(seconds)
    storm.end()
    world.log("the storm is over")
    if world.gentle:  # all may be well at once, except for a disk that still works off what it got while it was slow
        schedule.run_until(schedule.now + BACKLOG_SECONDS)
    count = len(world.replicas)
    calm = finish(world)
    checker = world.checker
    return Outcome(
        seed,
        count,
        schedule.steps,
        world.sent,
        len(checker.acked),
        max(checker.granted, default=0),
        round(calm, 3),
        len(checker.truth),
        dict(world.handed),
    )


def finish(world: GroupWorld) -> float:
    """Nothing goes wrong any more: all must become well, everything acknowledged must be there. Returns the seconds
    that it took."""
    schedule = world.schedule
    began = schedule.now
    while not world.well():
        if schedule.now - began > CALM_SECONDS:
            raise Violation(f"Alive: not well in calm times\n{world.describe()}")
        world.give_up_old_logs()
        schedule.run_until(schedule.now + 0.5)
    calm = schedule.now - began
    acked = len(world.checker.acked)
    while len(world.checker.acked) == acked:
        if schedule.now - began > CALM_SECONDS:
            raise Violation(f"Alive: nothing is acknowledged in calm times\n{world.describe()}")
        schedule.run_until(schedule.now + 1.0)
    world.clients_stop = True
    schedule.run_until(schedule.now + QUIET_SECONDS)
    world.checker.finish()
    return calm
