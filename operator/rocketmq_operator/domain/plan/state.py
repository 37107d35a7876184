"""What follows from an `ObservedGroup`: who each pod is to the controllers, and how well the group is.

Every part of a group's plan is asked with one `GroupState`; nothing here decides anything.
"""

from functools import cached_property

from rocketmq_api.group_view import GroupView, Liveness, ReplicaStanding
from rocketmq_operator.domain import names
from rocketmq_operator.domain.observed import Claim, ObservedGroup, Pod, SidecarState, StatefulSet
from rocketmq_operator.domain.spec.broker_group import BrokerGroup

DEFAULT_PRIORITY = 2**31 - 1
"""RocketMQ's brokerElectionPriority of who has none: after everyone with a number."""


class Member:
    """One ordinal of the StatefulSet: pod, volumes, and the replica that lives there."""

    def __init__(
        self,
        ordinal: int,
        *,
        pod: Pod | None,
        claims: tuple[Claim, ...],
        sidecar: SidecarState | None,
        view: GroupView | None,
        update_revision: str,
    ) -> None:
        self.ordinal = ordinal
        self.pod = pod
        self.claims = claims
        self.sidecar = sidecar
        self.written_id = next((claim.broker_id for claim in claims if claim.broker_id is not None), None)
        """As the volume has it written on it."""
        self.present_id = _present_id(pod, sidecar, view)
        """As the replica that runs now says, or the controllers of its address."""
        standings = {standing.broker_id: standing for standing in (() if view is None else view.replicas)}
        self.standing: ReplicaStanding | None = None if self.broker_id is None else standings.get(self.broker_id)
        self.is_master = view is not None and self.broker_id is not None and view.master_broker_id == self.broker_id
        self.doomed = any(claim.deleting for claim in claims)
        """Its volume goes as soon as its pod does."""
        self.outdated = pod is not None and (
            self.doomed or bool(pod.revision and update_revision and pod.revision != update_revision)
        )

    @property
    def broker_id(self) -> int | None:
        return self.written_id if self.present_id is None else self.present_id

    @property
    def alive(self) -> bool:
        """The controllers hear it, at the address this pod has."""
        return (
            self.pod is not None
            and self.standing is not None
            and self.standing.liveness is Liveness.ALIVE
            and self.standing.address == broker_address(self.pod)
        )

    @property
    def in_sync(self) -> bool:
        return self.standing is not None and self.standing.in_sync

    @property
    def available(self) -> bool:
        """It does its whole part: a copy that counts, on a pod that stays."""
        return self.alive and self.in_sync and self.pod is not None and self.pod.ready and not self.pod.deleting

    @property
    def contributes(self) -> bool:
        """It may hold messages or serve somebody; else its pod can be replaced whenever we like."""
        return self.pod is not None and self.pod.running and (self.broker_id is not None or self.pod.ready)

    @property
    def gone(self) -> bool:
        return self.pod is None

    @property
    def max_offset(self) -> int:
        return -1 if self.standing is None or self.standing.max_offset is None else self.standing.max_offset

    def what_is_missing(self) -> str:
        """Why it is not `available`, for people."""
        if self.pod is None:
            return "has no pod"
        if self.pod.deleting:
            return "is stopping"
        if self.pod.trouble:
            return f"does not start: {self.pod.trouble}"
        if not self.pod.running:
            return "is starting"
        if not self.alive:
            return "is not registered at the controllers"
        return "is not ready" if self.in_sync else "is catching up"


class GroupState:
    """One group at one moment."""

    def __init__(self, world: ObservedGroup) -> None:
        self.world = world
        self.group: BrokerGroup = world.group
        self.stateful_set: StatefulSet | None = world.stateful_set
        self.reachable = world.controllers.reachable
        self.view = world.controllers.group if self.reachable else None
        """None as long as the controllers are not heard, or know nobody."""
        pods = {pod.ordinal: pod for pod in world.pods}
        self.current = 0 if self.stateful_set is None else self.stateful_set.replicas
        """Replicas that the StatefulSet has been told to have."""
        update = "" if self.stateful_set is None else self.stateful_set.update_revision

        def member(ordinal: int) -> Member:
            pod = pods.get(ordinal)
            return Member(
                ordinal,
                pod=pod,
                claims=tuple(claim for claim in world.claims if claim.ordinal == ordinal),
                sidecar=None if pod is None else world.sidecars.get(pod.uid),
                view=self.view,
                update_revision=update,
            )

        self.members = tuple(member(ordinal) for ordinal in range(self.current))
        """One for each ordinal that shall run now."""
        beyond = {ordinal for ordinal in pods if ordinal >= self.current}
        beyond |= {claim.ordinal for claim in world.claims if claim.ordinal >= self.current}
        self.others = tuple(member(ordinal) for ordinal in sorted(beyond))
        """Pods that are on their way out, and volumes without a pod."""

    @property
    def everyone(self) -> tuple[Member, ...]:
        return self.members + self.others

    @cached_property
    def settled(self) -> bool:
        """The StatefulSet is there and what we applied last has been seen."""
        return self.stateful_set is not None and self.stateful_set.settled and not self.stateful_set.deleting

    @cached_property
    def master(self) -> Member | None:
        """Whoever the controllers record, alive or not; None also where that one has no pod here."""
        return next((member for member in self.everyone if member.is_master and member.pod is not None), None)

    @property
    def living_master(self) -> Member | None:
        master = self.master
        return master if master is not None and master.alive else None

    @cached_property
    def in_sync(self) -> tuple[Member, ...]:
        """Members of the SyncStateSet that live and stay."""
        return tuple(member for member in self.everyone if member.available)

    @property
    def all_available(self) -> bool:
        return bool(self.members) and all(member.available for member in self.members)

    def candidates(self, among: tuple[Member, ...]) -> tuple[Member, ...]:
        """Who could be master instead of the present one, best first: up to date before outdated, so that mastership
        moves once; then by priority, log and ordinal."""

        def rank(member: Member) -> tuple[bool, int, int, int]:
            return member.outdated, priority_of(self.group, member.ordinal), -member.max_offset, member.ordinal

        return tuple(sorted((one for one in among if one.available and not one.is_master), key=rank))

    def known_ids(self) -> frozenset[int]:
        """Ids that some pod or volume of the group carries."""
        ids = {member.present_id for member in self.everyone}
        ids |= {member.written_id for member in self.everyone}
        return frozenset(broker_id for broker_id in ids if broker_id is not None)


def priority_of(group: BrokerGroup, ordinal: int) -> int:
    """Lower is better."""
    priority = group.priority(ordinal)
    return DEFAULT_PRIORITY if priority is None else priority


def broker_address(pod: Pod) -> str:
    """As the broker in this pod registers."""
    return f"{pod.ip}:{names.PORT_BROKER}"


def sidecar_address(pod: Pod) -> str:
    """Of the pod's sidecar."""
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"{host}:{names.PORT_SIDECAR_GRPC}"


def _present_id(pod: Pod | None, sidecar: SidecarState | None, view: GroupView | None) -> int | None:
    if pod is None or not pod.ip:
        return None
    if sidecar is not None and sidecar.broker_id is not None:
        return sidecar.broker_id
    address = broker_address(pod)
    alive = [
        standing.broker_id
        for standing in (() if view is None else view.replicas)
        # An address may be another pod's by now: only a living replica is where its record says.
        if standing.address == address and standing.liveness is Liveness.ALIVE
    ]
    return alive[0] if len(alive) == 1 else None
