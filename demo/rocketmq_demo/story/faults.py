"""The faults of the story. Each one hits a process, waits until the group has recovered, heals, and waits for all
replicas.

A fault is only a signal to a process that the demo started; the group has to detect it.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.engines.engine import MOMENT, Broker, Engine
from rocketmq_demo.replica import Replica
from rocketmq_demo.story.observer import GroupView, Observer, longest_gap
from rocketmq_demo.story.timeline import Kind, Timeline

HEARTBEATS_KNOWN = 5.0
"""Seconds after which the controllers have enough heartbeats of all brokers to notice a missing one; before that, only
the timeout that the broker itself declares counts, 10 s."""

WITHOUT_MASTER = 10.0
"""Seconds at least between the loss of quorum and master and the return of the controllers."""
POLL = 0.1
T = TypeVar("T")


class PromiseBrokenError(Exception):
    """The group recovered, and did not do what it promises until then."""


class Stage:
    """The objects that a fault works on."""

    def __init__(self, engine: Engine, controllers: ControllerCluster, observer: Observer, timeline: Timeline) -> None:
        self.engine = engine
        self.controllers = controllers
        self.observer = observer
        self.timeline = timeline
        self.whole_at = time.monotonic()
        """When the group was last seen whole after a change, in monotonic seconds."""
        self.struck_at = self.whole_at
        """When the last fault began."""

    @property
    def group(self) -> GroupView:
        """The latest state; LookupError without one."""
        if self.observer.group is None:
            raise LookupError("no broker has registered yet")
        return self.observer.group

    def broker_of(self, broker_id: int | None) -> Broker:
        """The broker with this id; LookupError without one."""
        for broker in self.engine.brokers:
            view = self.group.by_address(broker.address)
            if view is not None and view.broker_id == broker_id:
                return broker
        raise LookupError(f"no broker of ours has the id {broker_id}")

    def slave(self) -> tuple[Broker, int]:
        """A member of the SyncStateSet that is not master, and its id."""
        slaves = self.group.in_sync - {self.group.master_id}
        if not slaves:
            raise LookupError("no slave is in sync")
        broker_id = min(slaves)
        return self.broker_of(broker_id), broker_id

    def record_fault(self, text: str) -> None:
        """Record a fault, right before it begins."""
        self.struck_at = time.monotonic()
        self.timeline.add(Kind.FAULT, text)

    def step(self, text: str) -> None:
        """Record a step of the story."""
        self.timeline.add(Kind.STEP, text)

    async def restart(self, broker: Broker) -> None:
        """Start a broker again when the others are in sync; it gets other ports."""
        await self.others_in_sync(broker)
        before = broker.address
        await asyncio.to_thread(broker.start)
        self.step(f"{broker.label} started again: {broker.address} instead of {before}")

    async def others_in_sync(self, broker: Broker) -> None:
        """Wait until all except `broker` are in the SyncStateSet.

        If the old master came back earlier, a Java slave might connect to it before the name server announces the new
        one. It would replicate from a slave while that connection lasts, and never get in sync.
        """
        others = [other for other in self.engine.brokers if other is not broker]

        def in_sync() -> bool:
            views = [self.group.by_address(other.address) for other in others]
            return all(view is not None and view.in_sync for view in views)

        await self.observer.wait(f"all but {broker.label} in sync", in_sync, self.engine.patience)

    async def another_master(self, epoch_before: int) -> None:
        """Wait for an election."""
        await self.observer.wait(
            f"a master of an epoch above {epoch_before}",
            lambda: self.group.master_epoch > epoch_before and self.group.master_id is not None,
            self.engine.patience,
        )

    async def writes(self) -> None:
        """Wait until a send is acknowledged that began after now, surely: the second one from now."""
        load = self.engine.load
        count = len(load.acknowledgements())
        await self.observer.wait(
            "acknowledged sends", lambda: len(load.acknowledgements()) > count + 1, self.engine.patience
        )

    async def until(self, ask: Callable[[], Awaitable[T]], done: Callable[[T], bool]) -> T:
        """What `ask` returns as soon as it is `done`; after the engine's patience, whatever it returns."""
        deadline = time.monotonic() + self.engine.patience
        while True:
            last = time.monotonic() > deadline
            found = await ask()
            if last or done(found):
                return found
            await asyncio.sleep(POLL)

    async def leader(self) -> str:
        """Wait until a controller decides."""
        return await asyncio.to_thread(self.controllers.wait_leader, self.engine.patience)


Heal = Callable[[], Awaitable[None]]
Strike = Callable[[Stage], Awaitable[tuple[str, Heal]]]
"""Injects the fault and waits until the group has recovered; returns what was hit, and how to heal it."""


async def kill_master(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of the master: its connections close at once."""
    epoch, broker_id = stage.group.master_epoch, stage.group.master_id
    broker = stage.broker_of(broker_id)
    stage.record_fault(f"kill -9 of the master: broker {broker_id} ({broker.label}, pid {broker.process.pid})")
    await asyncio.to_thread(broker.process.kill9)
    await stage.another_master(epoch)
    await stage.writes()
    return broker.label, lambda: stage.restart(broker)


async def hang_master(stage: Stage) -> tuple[str, Heal]:
    """SIGSTOP of the master: its connections stay open, it only stops answering."""
    await asyncio.sleep(stage.whole_at + HEARTBEATS_KNOWN - time.monotonic())
    epoch, broker_id = stage.group.master_epoch, stage.group.master_id
    broker = stage.broker_of(broker_id)
    process = broker.process
    stage.record_fault(f"SIGSTOP of the master: broker {broker_id} ({broker.label}, pid {process.pid})")
    process.suspend()

    async def heal() -> None:
        try:
            await stage.others_in_sync(broker)
        finally:
            process.resume()
        stage.step(f"SIGCONT of {broker.label}: it still acts as master")

    try:
        await stage.another_master(epoch)
        await stage.writes()
    except BaseException:
        process.resume()
        raise
    return broker.label, heal


async def kill_slave(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of a slave: the SyncStateSet shrinks, without an election."""
    broker, broker_id = stage.slave()
    stage.record_fault(f"kill -9 of a slave: broker {broker_id} ({broker.label}, pid {broker.process.pid})")
    await asyncio.to_thread(broker.process.kill9)
    await stage.observer.wait(
        f"broker {broker_id} to leave the SyncStateSet",
        lambda: broker_id not in stage.group.in_sync,
        stage.engine.patience,
    )
    await stage.writes()
    return broker.label, lambda: stage.restart(broker)


async def kill_half(stage: Stage, part: str) -> tuple[str, Heal]:
    """kill -9 of one of the master's two processes: the other one must step down, and another replica take over."""
    epoch, broker_id = stage.group.master_epoch, stage.group.master_id
    replica = stage.broker_of(broker_id)
    if not isinstance(replica, Replica):
        raise LookupError(f"{replica.label} is one process: its {part} cannot be killed alone")  # noqa: TRY004
    process = replica.process.broker if part == "broker" else replica.process.sidecar
    stage.record_fault(f"kill -9 of the master's {part} alone: broker {broker_id} ({replica.label}, pid {process.pid})")
    await asyncio.to_thread(process.kill9)
    await stage.another_master(epoch)
    await stage.writes()

    async def heal() -> None:
        await stage.others_in_sync(replica)
        await asyncio.to_thread(replica.restart_broker if part == "broker" else replica.restart_sidecar)
        stage.step(f"{part} of {replica.label} started again")

    return f"{replica.label}'s {part}", heal


async def kill_controller(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of the leading controller: another one decides within a second, writes continue."""
    member = await stage.leader()
    stage.record_fault(f"kill -9 of the leading controller: {member} (pid {stage.controllers[member].pid})")
    await asyncio.to_thread(stage.controllers[member].kill9)
    successor = await stage.leader()
    stage.step(f"controller {successor} decides")

    async def heal() -> None:
        process = await asyncio.to_thread(stage.controllers.start_member, member)
        await asyncio.to_thread(process.wait_ready, stage.engine.patience)
        stage.step(f"controller {member} is back")

    return member, heal


async def hang_controller(stage: Stage) -> tuple[str, Heal]:
    """SIGSTOP of the leading controller: its lease ends, another one decides."""
    member = await stage.leader()
    process = stage.controllers[member]
    stage.record_fault(f"SIGSTOP of the leading controller: {member} (pid {process.pid})")
    process.suspend()

    async def heal() -> None:
        stage.step(f"SIGCONT of controller {member}")
        process.resume()
        await asyncio.to_thread(process.wait_ready, stage.engine.patience)

    try:
        await stage.observer.wait(
            "another controller to decide",
            lambda: any(view.role == "leader" and view.member != member for view in stage.observer.controllers),
            stage.engine.patience,
        )
        await stage.writes()
    except BaseException:
        process.resume()
        raise
    return member, heal


async def kill_controllers(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of all controllers: the master continues, and they read their state from disk."""
    members = list(stage.controllers.processes)
    stage.record_fault(f"kill -9 of all controllers: {', '.join(members)}")
    for member in members:
        await asyncio.to_thread(stage.controllers[member].kill9)
    await stage.writes()
    stage.step("all controllers started again")
    await asyncio.to_thread(stage.controllers.start)
    await asyncio.to_thread(stage.controllers.wait_ready, stage.engine.patience)

    async def heal() -> None:
        stage.step("all controllers are back")

    return " ".join(members), heal


async def kill_controllers_for(stage: Stage, *, seconds: int) -> tuple[str, Heal]:
    """kill -9 of all controllers, for this time: the master continues all the time.

    Raises:
        PromiseBrokenError: a send failed later than a `MOMENT` after the blow, or they paused for longer than that.
    """
    members, load = list(stage.controllers.processes), stage.engine.load
    stage.record_fault(f"kill -9 of all controllers for {seconds} s: {', '.join(members)}")
    with load.patient():
        for member in members:
            await asyncio.to_thread(stage.controllers[member].kill9)
        await asyncio.sleep(min(MOMENT, seconds))
        began, failed, acknowledged = time.monotonic(), load.failures(), len(load.acknowledgements())
        await asyncio.sleep(stage.struck_at + seconds - began)
        ended, failed = time.monotonic(), load.failures() - failed
    times = [sent.at for sent in load.acknowledgements()]
    gap = longest_gap(times, began, ended)
    stage.step(
        f"{len(times) - acknowledged} sends acknowledged without a controller, {failed} failed; they start again"
    )
    await asyncio.to_thread(stage.controllers.start)
    await asyncio.to_thread(stage.controllers.wait_ready, stage.engine.patience)
    if failed or gap > MOMENT:
        raise PromiseBrokenError(f"without controllers {failed} sends failed, and they paused for {gap:.3f} s")

    async def heal() -> None:
        stage.step("all controllers are back")

    return " ".join(members), heal


async def lose_quorum_and_master(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of most controllers and of the master: no master can be elected until the controllers are back. A native
    group has an acting master for consumers, and delayed messages that are due leave for another group (RIP-32).

    Raises:
        PromiseBrokenError: sends were acknowledged without a master, consumers got nothing, or a delayed message was
            not delivered, or too early. Without a master there is time for that: no controller returns before.
    """
    delayed = stage.engine.delayed
    if delayed is not None:
        stage.step("another group starts, for delayed messages that are due without a master")
        await delayed.start()
        await delayed.send()
    epoch, broker_id, load = stage.group.master_epoch, stage.group.master_id, stage.engine.load
    broker = stage.broker_of(broker_id)
    members = list(stage.controllers.processes)
    lost = members[: len(members) // 2 + 1]
    stage.record_fault(f"kill -9 of the controllers {', '.join(lost)} and of the master: broker {broker_id}")
    for member in lost:
        await asyncio.to_thread(stage.controllers[member].kill9)
    await asyncio.to_thread(broker.process.kill9)
    await asyncio.sleep(MOMENT)
    acknowledged, reader, found = len(load.acknowledgements()), stage.engine.reader, None
    if reader is not None:
        # a slave begins to act when name servers and sidecars have noticed
        found = await stage.until(reader.read_again, lambda messages: messages > 0)
        stage.step(f"no master: another consumer gets {found} messages")
    await asyncio.sleep(stage.struck_at + WITHOUT_MASTER - time.monotonic())
    due = None
    if delayed is not None:
        due = await stage.until(delayed.delivered, lambda result: result.delivered == result.sent)
        stage.step(f"{due.delivered} of {due.sent} delayed messages were delivered without a master")
    acknowledged = len(load.acknowledgements()) - acknowledged
    stage.step(f"{acknowledged} sends acknowledged without a master; the controllers start again")
    await asyncio.to_thread(stage.controllers.start)
    await asyncio.to_thread(stage.controllers.wait_ready, stage.engine.patience)
    await stage.another_master(epoch)
    await stage.writes()
    if acknowledged:
        raise PromiseBrokenError(f"{acknowledged} sends acknowledged without a master")
    if found == 0:
        raise PromiseBrokenError("consumers got nothing without a master")
    if due is not None and due.problem:
        raise PromiseBrokenError(due.problem)
    return f"{' '.join(lost)} {broker.label}", lambda: stage.restart(broker)


FAULTS: dict[str, Strike] = {
    "kill-master": kill_master,
    "hang-master": hang_master,
    "kill-slave": kill_slave,
    "kill-broker": lambda stage: kill_half(stage, "broker"),
    "kill-sidecar": lambda stage: kill_half(stage, "sidecar"),
    "kill-controller": kill_controller,
    "hang-controller": hang_controller,
    "kill-controllers": kill_controllers,
    "lose-quorum-and-master": lose_quorum_and_master,
}
KNOWN = (*FAULTS, "kill-controllers-for-60s (or any seconds)")
DEFAULT_FAULTS = ("kill-master", "hang-master", "kill-controller", "kill-controllers")


def fault_named(name: str) -> Strike | None:
    """The fault of this name; None without one."""
    away = re.fullmatch(r"kill-controllers-for-(\d{1,4})s", name)
    return partial(kill_controllers_for, seconds=int(away[1])) if away else FAULTS.get(name)
