"""What a plan may ask for. Each action is safe to repeat: it names by uid what it changes, or says a level.

`disruptive` ones take a replica or a master away; the executor leaves them for the next look at the world when it has
just changed an object, so that none is decided on what was true before. The others never make anything worse.
"""

from typing import ClassVar

import msgspec


class Action(msgspec.Struct, frozen=True, tag=True):
    """Base of all."""

    disruptive: ClassVar[bool] = False

    @property
    def memory_key(self) -> str | None:
        """Under which a refusal by the API server is remembered for a while; None: it is simply tried again."""
        return None


class DeletePod(Action, frozen=True, tag=True):
    """The StatefulSet makes it anew, from its newest template."""

    disruptive: ClassVar[bool] = True
    name: str
    uid: str
    reason: str
    """Of the Event: CamelCase."""
    message: str


class HandOver(Action, frozen=True, tag=True):
    """Planned switchover, asked of the master's sidecar."""

    disruptive: ClassVar[bool] = True
    pod: str
    address: str
    """`host:port` of the master's sidecar."""
    target_pod: str
    target_id: int
    message: str


class SetFenced(Action, frozen=True, tag=True):
    """Have one replica refuse sends, or accept them again."""

    pod: str
    pod_uid: str
    address: str
    fenced: bool


class CleanBrokerData(Action, frozen=True, tag=True):
    """Have the controllers forget replicas, or (None) the whole group."""

    broker_name: str
    broker_ids: tuple[int, ...] | None
    message: str


class LabelPod(Action, frozen=True, tag=True):
    """Role and broker id, for selectors and for people."""

    name: str
    uid: str
    labels: dict[str, str | None]
    """None takes a label off."""


class AnnotateClaim(Action, frozen=True, tag=True):
    """Whose log a PVC holds."""

    name: str
    uid: str
    annotations: dict[str, str | None]


class ResizeClaim(Action, frozen=True, tag=True):
    """Ask for a larger volume."""

    name: str
    uid: str
    size: str

    @property
    def memory_key(self) -> str | None:
        return f"resize {self.uid} {self.size}"


class DeleteClaim(Action, frozen=True, tag=True):
    """It goes when its pod does."""

    disruptive: ClassVar[bool] = True
    name: str
    uid: str
    reason: str
    message: str


class DeleteStatefulSet(Action, frozen=True, tag=True):
    """With its pods, or (`orphan`) leaving them alone for the next one of that name."""

    disruptive: ClassVar[bool] = True
    name: str
    uid: str
    orphan: bool
    reason: str
    message: str


class SetFinalizer(Action, frozen=True, tag=True):
    """Keep the resource until what is outside of Kubernetes has been undone, or let it go."""

    present: bool
    message: str = ""
    warning: bool = False


class RemoveAnnotation(Action, frozen=True, tag=True):
    """A request on the resource has been carried out."""

    key: str
    value: str


class TransferLeadership(Action, frozen=True, tag=True):
    """Have another controller lead."""

    disruptive: ClassVar[bool] = True
    target_id: str
    message: str


class MakeRaftSecret(Action, frozen=True, tag=True):
    """See that it is there; made once, of random bytes, and never changed."""

    name: str
    may_make: bool = True
    """False: members run on one that is gone; somebody has to bring it back."""


class Notice(msgspec.Struct, frozen=True):
    """A Kubernetes Event, and the same as a log line."""

    reason: str
    message: str
    warning: bool = False
