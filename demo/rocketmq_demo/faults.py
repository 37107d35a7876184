"""The faults of the story, each as: hit somebody, wait until the group has coped, heal, wait until it is whole.

Only signals to processes that the demo started; the group finds out by itself.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.engine import Broker, Engine
from rocketmq_demo.observer import GroupView, Observer
from rocketmq_demo.replica import Replica
from rocketmq_demo.timeline import Kind, Timeline

RHYTHM_KNOWN = 5.0
"""Seconds after which the controllers have heard enough heartbeats of everybody to miss one; before that, silence
counts only after the time-out that the broker itself declares, 10 s."""


class Stage:
    """What a fault can reach."""

    def __init__(self, engine: Engine, controllers: ControllerCluster, observer: Observer, timeline: Timeline) -> None:
        self.engine = engine
        self.controllers = controllers
        self.observer = observer
        self.timeline = timeline
        self.whole_at = time.monotonic()
        """When the group was last seen whole after a change, in monotonic seconds."""
        self.struck_at = self.whole_at
        """When the last blow fell."""

    @property
    def group(self) -> GroupView:
        """The latest picture; LookupError while there is none."""
        if self.observer.group is None:
            raise LookupError("no broker has registered yet")
        return self.observer.group

    def broker_of(self, broker_id: int | None) -> Broker:
        """Who has this id now."""
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

    def hit(self, text: str) -> None:
        """Note a blow, right before it falls."""
        self.struck_at = time.monotonic()
        self.timeline.add(Kind.FAULT, text)

    def step(self, text: str) -> None:
        """Note a step of the story."""
        self.timeline.add(Kind.STEP, text)

    async def restart(self, broker: Broker) -> None:
        """Start a broker again when the others have coped; it gets other ports."""
        await self.others_in_sync(broker)
        before = broker.address
        await asyncio.to_thread(broker.start)
        self.step(f"{broker.label} started again: {broker.address} instead of {before}")

    async def others_in_sync(self, broker: Broker) -> None:
        """Wait until all but `broker` are in the SyncStateSet.

        Healed sooner, a Java slave may find the old master back before the name server has told it of the new one, and
        then replicates from it, a slave by now, for as long as that connection lasts: it never gets in sync.
        """
        others = [one for one in self.engine.brokers if one is not broker]

        def in_sync() -> bool:
            views = [self.group.by_address(one.address) for one in others]
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

    async def leader(self) -> str:
        """Wait until a controller decides."""
        return await asyncio.to_thread(self.controllers.wait_leader, self.engine.patience)


Heal = Callable[[], Awaitable[None]]
Strike = Callable[[Stage], Awaitable[tuple[str, Heal]]]
"""Hits, waits until the group has coped; who was hit, and how to heal it."""


async def kill_master(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of the master: its connections close at once."""
    epoch, broker_id = stage.group.master_epoch, stage.group.master_id
    broker = stage.broker_of(broker_id)
    stage.hit(f"kill -9 of the master: broker {broker_id} ({broker.label}, pid {broker.process.pid})")
    await asyncio.to_thread(broker.process.kill9)
    await stage.another_master(epoch)
    await stage.writes()
    return broker.label, lambda: stage.restart(broker)


async def hang_master(stage: Stage) -> tuple[str, Heal]:
    """SIGSTOP of the master: its connections stay open, only its silence tells."""
    await asyncio.sleep(stage.whole_at + RHYTHM_KNOWN - time.monotonic())
    epoch, broker_id = stage.group.master_epoch, stage.group.master_id
    broker = stage.broker_of(broker_id)
    process = broker.process
    stage.hit(f"SIGSTOP of the master: broker {broker_id} ({broker.label}, pid {process.pid})")
    process.suspend()

    async def heal() -> None:
        try:
            await stage.others_in_sync(broker)
        finally:
            process.resume()
        stage.step(f"SIGCONT of {broker.label}: it still believes to be master")

    try:
        await stage.another_master(epoch)
        await stage.writes()
    except BaseException:
        process.resume()
        raise
    return broker.label, heal


async def kill_slave(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of a slave: the SyncStateSet shrinks, nobody is elected."""
    broker, broker_id = stage.slave()
    stage.hit(f"kill -9 of a slave: broker {broker_id} ({broker.label}, pid {broker.process.pid})")
    await asyncio.to_thread(broker.process.kill9)
    await stage.observer.wait(
        f"broker {broker_id} to leave the SyncStateSet",
        lambda: broker_id not in stage.group.in_sync,
        stage.engine.patience,
    )
    await stage.writes()
    return broker.label, lambda: stage.restart(broker)


async def kill_half(stage: Stage, part: str) -> tuple[str, Heal]:
    """kill -9 of one of the master's two processes: the other one must give up, and another replica take over."""
    epoch, broker_id = stage.group.master_epoch, stage.group.master_id
    replica = stage.broker_of(broker_id)
    if not isinstance(replica, Replica):
        raise LookupError(f"{replica.label} is one process: there is no {part} to be killed alone")  # noqa: TRY004
    process = replica.process.broker if part == "broker" else replica.process.sidecar
    stage.hit(f"kill -9 of the master's {part} alone: broker {broker_id} ({replica.label}, pid {process.pid})")
    await asyncio.to_thread(process.kill9)
    await stage.another_master(epoch)
    await stage.writes()

    async def heal() -> None:
        await stage.others_in_sync(replica)
        await asyncio.to_thread(replica.restart_broker if part == "broker" else replica.restart_sidecar)
        stage.step(f"{part} of {replica.label} started again")

    return f"{replica.label}'s {part}", heal


async def kill_controller(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of the leading controller: another one decides within a second, writes go on meanwhile."""
    member = await stage.leader()
    stage.hit(f"kill -9 of the leading controller: {member} (pid {stage.controllers[member].pid})")
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
    stage.hit(f"SIGSTOP of the leading controller: {member} (pid {process.pid})")
    process.suspend()

    async def heal() -> None:
        stage.step(f"SIGCONT of controller {member}")
        process.resume()
        await asyncio.to_thread(process.wait_ready, stage.engine.patience)

    try:
        await stage.observer.wait(
            "another controller to decide",
            lambda: any(one.role == "leader" and one.member != member for one in stage.observer.controllers),
            stage.engine.patience,
        )
        await stage.writes()
    except BaseException:
        process.resume()
        raise
    return member, heal


async def kill_controllers(stage: Stage) -> tuple[str, Heal]:
    """kill -9 of all controllers: the master goes on, and they find their state on disk."""
    members = list(stage.controllers.processes)
    stage.hit(f"kill -9 of all controllers: {', '.join(members)}")
    for member in members:
        await asyncio.to_thread(stage.controllers[member].kill9)
    await stage.writes()
    stage.step("all controllers started again")
    await asyncio.to_thread(stage.controllers.start)
    await asyncio.to_thread(stage.controllers.wait_ready, stage.engine.patience)

    async def heal() -> None:
        stage.step("all controllers are back")

    return " ".join(members), heal


FAULTS: dict[str, Strike] = {
    "kill-master": kill_master,
    "hang-master": hang_master,
    "kill-slave": kill_slave,
    "kill-broker": lambda stage: kill_half(stage, "broker"),
    "kill-sidecar": lambda stage: kill_half(stage, "sidecar"),
    "kill-controller": kill_controller,
    "hang-controller": hang_controller,
    "kill-controllers": kill_controllers,
}
DEFAULT_FAULTS = ("kill-master", "hang-master", "kill-controller", "kill-controllers")
