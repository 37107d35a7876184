"""Runs the operator's plan against the model world, as `reconciler` would, and holds every action against what is
promised."""

from collections.abc import Callable

from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain.actions import Action
from rocketmq_operator.domain.plan.groups.objects import ObjectMemory
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_resources import names
from tests.operator.model.world import NOW, RefusedError, World

MOST_STEPS = 3000


class KilledError(Exception):
    """The operator's process ended between two effects."""


class Driver:
    """One operator, which may be killed and restarted; `effects` counts its changes of the world."""

    def __init__(self, world: World, *, kill_after: int | None = None) -> None:
        self.world = world
        self.effects = 0
        self.kill_after = kill_after
        self.now = NOW
        self.memory = ObjectMemory()
        self.last: Plan | None = None
        self.user_took: set[int] = set()
        """Ids whose volumes the user, not the operator, has deleted."""

    def reconcile(self) -> Plan:
        """One reconcile."""
        world = self.world
        self.now += 1.0
        plan = plan_group(world.observe(), PlanSettings(), self.now, self.memory)
        self.last = plan
        changed = False
        try:
            changed = self._perform(plan)
        except KilledError:
            return plan
        except RefusedError:
            pass  # the status is written even if a step fails
        if plan.status is not None and not world.gone and not changed:
            world.status = plan.status
            self._check_status()
        return plan

    def _perform(self, plan: Plan) -> bool:
        """Whether objects were applied: the next reconcile then writes the status."""
        world, before = self.world, self.world.replicas
        had = world.stateful_set is not None
        changed = world.apply(plan)
        if changed:
            if had and world.replicas < before and not world.group.spec.hibernated:
                self._check_scaled_down(before)
            self._effect()
        for action in plan.actions:
            if action.disruptive and changed:
                continue
            self._check(action)
            world.perform(action)
            self._effect()
        return changed

    def _effect(self) -> None:
        self.effects += 1
        if self.effects == self.kill_after:
            # What was applied is not remembered by the next process: it applies everything again.
            raise KilledError

    def churn(self, steps: int, faults: Callable[[World], None], *, often: float, eager: float = 0.5) -> None:
        """So many turns in which things go wrong as well."""
        for _ in range(steps):
            chance = self.world.random.random()
            if chance < often:
                faults(self.world)
            elif self.world.random.random() < eager:
                self.reconcile()
            else:
                self.world.step()
            self.check_world()

    def run(self, done: Callable[[World], bool], *, eager: float = 0.5) -> None:
        """Looks and the world's own steps in turns, until nothing changes any more and `done`."""
        for _ in range(MOST_STEPS):
            if self.world.random.random() < eager:
                self.reconcile()
            else:
                self.world.step()
            self.check_world()
            if self.world.quiet() and done(self.world) and self.idle():
                return
        raise AssertionError(f"not done after {MOST_STEPS} steps: {self.describe()}")

    def idle(self) -> bool:
        """The operator has nothing to do."""
        if self.world.gone:
            return True
        effects = self.effects
        self.kill_after = None
        plan = self.reconcile()
        return self.effects == effects and not plan.actions

    # The promises

    def check_world(self) -> None:
        world = self.world
        newest = max((disk.log for disk in world.disks.values()), default=0)
        if world.group.metadata.deleting:
            return
        assert newest >= world.acked, f"AckedSurvives: nobody has {world.acked}: {self.describe()}"

    def _check_status(self) -> None:
        """A status that says Running of this generation is what scripts and other controllers wait for."""
        world, status = self.world, self.world.status
        if status.get("phase") != "Running" or world.group.spec.paused:
            return
        if status.get("observedGeneration") == world.group.metadata.generation:
            old = [ordinal for ordinal, pod in world.pods.items() if pod.revision != world.template]
            assert not old, f"Running, but {old} run an older template: {self.describe()}"

    def _check(self, action: Action) -> None:
        match action:
            case act.DeletePod():
                self._check_delete(action)
            case act.CleanBrokerData(broker_ids=ids):
                for ordinal, disk in self.world.disks.items():
                    if ids is not None and disk.broker_id in ids:
                        assert ordinal >= self.world.replicas, f"id {disk.broker_id} is in use: {self.describe()}"
            case act.DeleteClaim():
                self._check_claim(action)
            case _:
                pass

    def _check_delete(self, action: act.DeletePod) -> None:
        world, ordinal = self.world, names.ordinal_of(action.name)
        pod = world.pods.get(ordinal)
        if pod is None or pod.uid != action.uid:
            return
        served = pod.registered and not pod.deleting
        broker_id = world.disks[ordinal].broker_id
        if served and broker_id == world.master and world.replicas > 1:
            assert not world.group.fails_over, f"the master was deleted before it handed over: {self.describe()}"
            old = [one for one in world.pods if one != ordinal and world.pods[one].revision != world.template]
            assert not old, f"the master was deleted before {old}: {self.describe()}"
            assert not world.disks[ordinal].deleting, f"the master's volume goes with its pod: {self.describe()}"
        if not served or broker_id not in world.in_sync:
            return
        others = [one for one in range(world.replicas) if one != ordinal]
        down = [one for one in others if one not in world.pods or not world.is_ready(one) or world.pods[one].deleting]
        assert not down, f"two down at a time: g-{ordinal} beside {down}: {self.describe()}"
        left = len([one for one in world.in_sync if world.records[one].alive]) - 1
        least = min(world.group.min_in_sync_replicas, world.replicas - 1)
        assert left >= least, f"{left} copies left, {least} needed: {self.describe()}"

    def _check_scaled_down(self, before: int) -> None:
        world = self.world
        for ordinal in range(world.replicas, before):
            disk, pod = world.disks.get(ordinal), world.pods.get(ordinal)
            served = disk is not None and pod is not None and pod.registered
            assert not (served and disk.broker_id == world.master), f"the master was scaled away: {self.describe()}"
        staying = {disk.broker_id for ordinal, disk in world.disks.items() if ordinal < world.replicas}
        left = [one for one in world.in_sync if one in staying and world.records[one].alive]
        assert not world.in_sync or len(left) >= min(world.group.min_in_sync_replicas, world.replicas), (
            f"scaled down to {len(left)} copies: {self.describe()}"
        )

    def _check_claim(self, action: act.DeleteClaim) -> None:
        world, ordinal = self.world, names.ordinal_of(action.name)
        disk = world.disks.get(ordinal)
        if disk is None or disk.uid != action.uid or world.group.metadata.deleting:
            return
        if ordinal >= world.replicas:
            assert disk.broker_id not in world.in_sync, f"a copy in sync was deleted: {self.describe()}"
            return
        assert disk.broker_id != world.master, f"the master's volume was deleted: {self.describe()}"
        others = [one for one in world.in_sync if one != disk.broker_id and world.records[one].alive]
        assert others, f"the last copy was deleted: {self.describe()}"

    def describe(self) -> str:
        world = self.world
        pods = {
            ordinal: (pod.revision[:4], "D" if pod.deleting else "", pod.running, pod.registered)
            for ordinal, pod in world.pods.items()
        }
        disks = {
            ordinal: (disk.broker_id, disk.log, "D" if disk.deleting else "", disk.annotations)
            for ordinal, disk in world.disks.items()
        }
        records = {one: (record.alive, record.address) for one, record in world.records.items()}
        phase = (
            None
            if self.last is None or self.last.status is None
            else (self.last.status.get("phase"), self.last.status.get("phaseReason"))
        )
        return (
            f"replicas={world.replicas} template={world.template[:4]} settled={world.settled} pods={pods} "
            f"disks={disks} records={records} in_sync={world.in_sync} master={world.master} phase={phase} "
            f"last={world.history[-6:]}"
        )


def well(world: World) -> bool:
    """Everything is as the spec has it."""
    wanted = world.group.pods_wanted
    return (
        world.replicas == wanted
        and sorted(world.pods) == list(range(wanted))
        and all(pod.revision == world.template and not pod.deleting for pod in world.pods.values())
        and all(world.is_ready(ordinal) for ordinal in world.pods)
        and (not wanted or len(world.in_sync) == wanted)
        and all(not disk.deleting for disk in world.disks.values())
    )
