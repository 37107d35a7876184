"""Operators' requests to one replica, without gRPC: the interface between the gRPC port and the two kinds of sidecar.

`grpc_port` serves any `ReplicaAdmin`: the native replica's, and the one beside an Apache broker.
rocketmq_api/sidecar_admin.proto documents the requests. All calls come in the event loop.
"""

from typing import Protocol

from rocketmq_api.replica_view import NewMaster, ReplicaView


class ReplicaAdminError(Exception):
    """The request failed; the text says why and what to do."""


class NotNowError(ReplicaAdminError):
    """Refused, nothing was done: the state of the replica does not allow it (FAILED_PRECONDITION)."""


class UnderWayError(ReplicaAdminError):
    """Refused, nothing was done: the same request is under way already (ALREADY_EXISTS)."""


class NotDoneError(ReplicaAdminError):
    """It was tried and failed (ABORTED)."""


class StartingError(ReplicaAdminError):
    """The replica is starting or stopping (UNAVAILABLE)."""


class ReplicaAdmin(Protocol):
    def get_replica(self) -> ReplicaView:
        """Its present state; at any time, even before the start is complete."""

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        """When it returns, the fence is durable and the broker obeys it. If `fenced`, `reason` is not empty.

        Raises:
            ReplicaAdminError: one of its kinds.
        """

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        """Ends, with or without success, after at most `seconds`, even if the caller leaves.

        Raises:
            ReplicaAdminError: one of its kinds.
        """
