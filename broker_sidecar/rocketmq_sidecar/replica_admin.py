"""What operators may ask of one replica, without gRPC: the seam between the gRPC door and who answers.

`grpc_door` serves any `ReplicaAdmin`: the native replica's, and the one beside an Apache broker. What each promises
is written in rocketmq_api/sidecar_admin.proto. All calls come in the event loop.
"""

from typing import Protocol

from rocketmq_api.replica_view import NewMaster, ReplicaView


class AdminError(Exception):
    """Asked in vain; the text says why and what to do."""


class NotNowError(AdminError):
    """Refused, nothing was done: the state of the replica does not allow it (FAILED_PRECONDITION)."""


class UnderWayError(AdminError):
    """Refused, nothing was done: the same is under way already (ALREADY_EXISTS)."""


class NotDoneError(AdminError):
    """Tried, and not come about (ABORTED)."""


class StartingError(AdminError):
    """The replica cannot be asked yet, or not any more (UNAVAILABLE)."""


class ReplicaAdmin(Protocol):
    """One replica."""

    def get_replica(self) -> ReplicaView:
        """As it is now; at any time, also before the start is over."""

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        """Durable, and the broker told, when it returns. `reason` is not empty where `fenced`, and within its bounds.

        Raises:
            AdminError: one of its kinds.
        """

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        """Over, one way or the other, after `seconds`. The caller may be gone by then: it is not undone.

        Raises:
            AdminError: one of its kinds.
        """
