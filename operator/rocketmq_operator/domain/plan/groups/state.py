"""Facts derived from an `ObservedGroup`: which replica each pod is for the controllers, and the health of the group.

Every part of a group's plan gets the same `GroupState`. Nothing is decided here.
"""

from functools import cached_property

from rocketmq_api.group_view import GroupView, Liveness, ReplicaStanding
from rocketmq_formats.addresses import format_address
from rocketmq_operator.domain.observed import Claim, ObservedGroup, Pod, SidecarState, StatefulSet
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup

DEFAULT_PRIORITY = 2**31 - 1
"""RocketMQ's default for brokerElectionPriority: after all replicas with a number."""


class Member:
    """One ordinal of the StatefulSet: pod, volumes, and the replica on them."""

    def __init__(
        self,
        ordinal: int,
        *,
        pod: Pod | None,
        claims: tuple[Claim, ...],
        sidecar: SidecarState | None,
        view: GroupView | None,
        update_revision: str,
        fails_over: bool,
        refused: str,
    ) -> None:
        """`refused`: why the API server refuses its pod."""
        self.ordinal = ordinal
        self.pod = pod
        self.claims = claims
        self.sidecar = sidecar
        self.recorded_id = next((claim.broker_id for claim in claims if claim.broker_id is not None), None)
        """brokerId from the annotation of its volume."""
        self.running_id = _running_id(pod, sidecar, view)
        """brokerId that the running replica reports, or that the controllers have for its address."""
        standings = {standing.broker_id: standing for standing in (() if view is None else view.replicas)}
        self.standing: ReplicaStanding | None = None if self.broker_id is None else standings.get(self.broker_id)
        self._fails_over = fails_over
        self._refused = refused
        self.is_master = view is not None and self.broker_id is not None and view.master_broker_id == self.broker_id
        self.volume_deleting = any(claim.deleting for claim in claims)
        """Its volume is removed as soon as its pod stops."""
        self.outdated = pod is not None and (
            self.volume_deleting or bool(pod.revision and update_revision and pod.revision != update_revision)
        )

    @property
    def broker_id(self) -> int | None:
        return self.recorded_id if self.running_id is None else self.running_id

    @property
    def alive(self) -> bool:
        """The controllers receive its heartbeats from the address of this pod."""
        return (
            self.pod is not None
            and self.standing is not None
            and self.standing.liveness is Liveness.ALIVE
            and is_address_of(self.pod, self.standing.address)
        )

    @property
    def in_sync(self) -> bool:
        return self.standing is not None and self.standing.in_sync

    @property
    def available(self) -> bool:
        """It is a full replica: in the SyncStateSet, on a ready pod that is not being deleted."""
        return self.alive and self.in_sync and self.pod is not None and self.pod.ready and not self.pod.deleting

    @property
    def contributes(self) -> bool:
        """It may hold messages or serve clients; else its pod can be replaced at any time."""
        return self.pod is not None and self.pod.running and (self.broker_id is not None or self.pod.ready)

    @property
    def max_offset(self) -> int:
        return -1 if self.standing is None or self.standing.max_offset is None else self.standing.max_offset

    def problem(self) -> str:
        """Why it is not `available`, in words."""
        if self.pod is None:
            return "has no pod" + (f": {self._refused}" if self._refused else "")
        if self.pod.deleting:
            return "is stopping"
        if self.pod.problem:
            return f"does not start: {self.pod.problem}"
        if not self.pod.running:
            return "is starting"
        return self._problem_by_controllers() if self._fails_over else self._problem_by_sidecar()

    def _problem_by_controllers(self) -> str:
        if not self.alive:
            return "is not registered at the controllers"
        return "is not ready" if self.in_sync else "is catching up"

    def _problem_by_sidecar(self) -> str:
        """With its reason, as a user may have to decide something."""
        what = "has no role" if not self.alive else "is not ready" if self.in_sync else "is not in sync"
        replica = None if self.sidecar is None else self.sidecar.replica
        why = "its sidecar does not answer" if replica is None else replica.ready_reason
        return f"{what}: {why}" if why else what


class GroupState:
    """One group at one moment."""

    def __init__(self, observed: ObservedGroup) -> None:
        self.observed = observed
        self.group: BrokerGroup = observed.group
        self.stateful_set: StatefulSet | None = observed.stateful_set
        self.reachable = observed.controllers.reachable
        self.view = observed.controllers.group if self.reachable else None
        """None while the controllers are unreachable, or have no replica registered; without controllers: while no
        sidecar answers."""
        pods = {pod.ordinal: pod for pod in observed.pods}
        self.current = 0 if self.stateful_set is None else self.stateful_set.replicas
        """spec.replicas of the StatefulSet."""
        update = "" if self.stateful_set is None else self.stateful_set.update_revision
        refused = {} if self.stateful_set is None else self.stateful_set.refused_pods

        def member(ordinal: int) -> Member:
            pod = pods.get(ordinal)
            return Member(
                ordinal,
                pod=pod,
                claims=tuple(claim for claim in observed.claims if claim.ordinal == ordinal),
                sidecar=None if pod is None else observed.sidecars.get(pod.uid),
                view=self.view,
                update_revision=update,
                fails_over=self.group.fails_over,
                refused=refused.get(names.pod_name(self.group.name, ordinal), ""),
            )

        self.members = tuple(member(ordinal) for ordinal in range(self.current))
        """One for each ordinal that should run now."""
        beyond = {ordinal for ordinal in pods if ordinal >= self.current}
        beyond |= {claim.ordinal for claim in observed.claims if claim.ordinal >= self.current}
        self.scaled_down = tuple(member(ordinal) for ordinal in sorted(beyond))
        """Scaled-down pods that are stopping, and volumes without a pod."""

    @property
    def all_members(self) -> tuple[Member, ...]:
        return self.members + self.scaled_down

    @cached_property
    def settled(self) -> bool:
        """The StatefulSet exists, and its controller has processed the last apply."""
        return self.stateful_set is not None and self.stateful_set.settled and not self.stateful_set.deleting

    @cached_property
    def master(self) -> Member | None:
        """The recorded master, alive or not; None also if it has no pod here."""
        return next((member for member in self.all_members if member.is_master and member.pod is not None), None)

    @property
    def live_master(self) -> Member | None:
        master = self.master
        return master if master is not None and master.alive else None

    @property
    def no_view(self) -> str:
        """Why there is no view, in words."""
        if not self.group.fails_over:
            return "no sidecar answers"
        if not self.reachable:
            return "the controllers are unreachable"
        return "the controllers have no replica of this group"

    @property
    def no_master(self) -> str:
        """Why there is no living master, in words."""
        if self.group.fails_over:
            return "no replica is master"
        problem = self.members[0].problem() if self.members else "has no pod"
        return f"{names.pod_name(self.group.name, 0)} is always master and {problem}"

    @cached_property
    def in_sync(self) -> tuple[Member, ...]:
        """Members of the SyncStateSet that are available."""
        return tuple(member for member in self.all_members if member.available)

    @property
    def all_available(self) -> bool:
        return bool(self.members) and all(member.available for member in self.members)

    def candidates(self, among: tuple[Member, ...]) -> tuple[Member, ...]:
        """Replicas that could become master instead, best first: up to date before outdated, so that mastership moves
        only once; then by priority, log and ordinal."""

        def rank(member: Member) -> tuple[bool, int, int, int]:
            return member.outdated, priority_of(self.group, member.ordinal), -member.max_offset, member.ordinal

        return tuple(sorted((member for member in among if member.available and not member.is_master), key=rank))

    def known_ids(self) -> frozenset[int]:
        """Ids of pods and volumes of the group."""
        ids = {member.running_id for member in self.all_members}
        ids |= {member.recorded_id for member in self.all_members}
        return frozenset(broker_id for broker_id in ids if broker_id is not None)


def priority_of(group: BrokerGroup, ordinal: int) -> int:
    """Lower is better."""
    priority = group.priority(ordinal)
    return DEFAULT_PRIORITY if priority is None else priority


def broker_address(pod: Pod) -> str:
    """The address that the broker in this pod registers."""
    return format_address(pod.ip, names.PORT_BROKER)


def is_address_of(pod: Pod, registered: str) -> bool:
    """Whether the broker in this pod registered so. Official brokers write an IPv6 address without brackets."""
    return registered in (broker_address(pod), f"{pod.ip}:{names.PORT_BROKER}")


def sidecar_address(pod: Pod) -> str:
    """gRPC address of the pod's sidecar."""
    return format_address(pod.ip, names.PORT_SIDECAR_GRPC)


def _running_id(pod: Pod | None, sidecar: SidecarState | None, view: GroupView | None) -> int | None:
    if pod is None or not pod.ip:
        return None
    if sidecar is not None and sidecar.broker_id is not None:
        return sidecar.broker_id
    alive = [
        standing.broker_id
        for standing in (() if view is None else view.replicas)
        # A recorded address may belong to another pod by now: only a living replica's address is valid.
        if is_address_of(pod, standing.address) and standing.liveness is Liveness.ALIVE
    ]
    return alive[0] if len(alive) == 1 else None
