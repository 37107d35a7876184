"""The actions of a plan. Each is safe to repeat: it names its object by uid, or sets an absolute value.

`disruptive` actions stop a replica or move mastership. The executor skips them when it has just changed an object, so
that the next reconcile decides on the new state. The other actions cannot reduce availability.
"""

from typing import ClassVar

import msgspec


class Action(msgspec.Struct, frozen=True, tag=True):
    """Base of all actions."""

    disruptive: ClassVar[bool] = False

    @property
    def memory_key(self) -> str | None:
        """The key under which a refusal by the API server is remembered for a while; None: the action is retried."""
        return None


class DeletePod(Action, frozen=True, tag=True):
    """The StatefulSet creates the pod again, from its newest template."""

    disruptive: ClassVar[bool] = True
    name: str
    uid: str
    reason: str
    """The reason of the Event, in CamelCase."""
    message: str


class HandOver(Action, frozen=True, tag=True):
    """Planned switchover, by a call to the master's sidecar."""

    disruptive: ClassVar[bool] = True
    pod: str
    address: str
    """`host:port` of the master's sidecar."""
    target_pod: str
    target_id: int
    message: str


class SetFenced(Action, frozen=True, tag=True):
    """Make one replica refuse sends, or accept them again."""

    pod: str
    pod_uid: str
    address: str
    fenced: bool


class CleanBrokerData(Action, frozen=True, tag=True):
    """Make the controllers forget replicas, or (None) the whole group."""

    broker_name: str
    broker_ids: tuple[int, ...] | None
    message: str


class LabelPod(Action, frozen=True, tag=True):
    """Write role and broker id on a pod, for selectors and users."""

    name: str
    uid: str
    labels: dict[str, str | None]
    """None removes a label."""


class AnnotateClaim(Action, frozen=True, tag=True):
    """Write on a PVC which replica's log it holds."""

    name: str
    uid: str
    annotations: dict[str, str | None]


class ResizeClaim(Action, frozen=True, tag=True):
    """Request a larger volume."""

    name: str
    uid: str
    size: str

    @property
    def memory_key(self) -> str | None:
        return f"resize {self.uid} {self.size}"


class DeleteClaim(Action, frozen=True, tag=True):
    """Kubernetes removes the PVC when its pod has stopped."""

    disruptive: ClassVar[bool] = True
    name: str
    uid: str
    reason: str
    message: str


class DeleteStatefulSet(Action, frozen=True, tag=True):
    """With its pods, or (`orphan`) without them, so that the next StatefulSet of that name adopts them."""

    disruptive: ClassVar[bool] = True
    name: str
    uid: str
    orphan: bool
    reason: str
    message: str


class SetFinalizer(Action, frozen=True, tag=True):
    """Keep the resource until its state outside of Kubernetes is cleaned up, or release it."""

    present: bool
    message: str = ""
    warning: bool = False


class RemoveAnnotation(Action, frozen=True, tag=True):
    """A request on the resource has been carried out."""

    key: str
    value: str


class TransferLeadership(Action, frozen=True, tag=True):
    """Make another controller the leader."""

    disruptive: ClassVar[bool] = True
    target_id: str
    message: str


class AddMember(Action, frozen=True, tag=True):
    """Add a controller to the quorum. It votes once it has caught up."""

    disruptive: ClassVar[bool] = True
    member_id: str
    address: str
    """`host:port` of its remoting port."""


class RemoveMember(Action, frozen=True, tag=True):
    """Remove a controller from the quorum permanently."""

    disruptive: ClassVar[bool] = True
    member_id: str


class EnsureRaftSecret(Action, frozen=True, tag=True):
    """Create the Secret from random bytes if it does not exist. It never changes."""

    name: str
    may_create: bool = True
    """False: members still use a Secret that was deleted, so a user has to restore it."""


class EnsureReplicationSecret(Action, frozen=True, tag=True):
    """Create the Secret of a group's replicas if it does not exist."""

    name: str
    may_create: bool = True


class Event(msgspec.Struct, frozen=True):
    """A Kubernetes Event, which is also logged."""

    reason: str
    message: str
    warning: bool = False
