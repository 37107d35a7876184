"""The state that each replica's sidecar reports: read once per pod, and after each change by the operator.

A sidecar keeps its fence through restarts of its pod, so there is nothing to watch, unless a slave may act for a
missing master, or the group has no controllers. Used by `observe` and `execute`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import structlog

from rocketmq_api.channels import ApiError
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.replica_view import NewMaster, ReplicaView
from rocketmq_api.sidecars import TIMEOUT, SidecarClient
from rocketmq_operator.domain.observed import Pod, SidecarState
from rocketmq_operator.domain.plan.groups.state import sidecar_address

POLL_TIMEOUT: Final = 1.0
"""Seconds to wait for an answer; a pod that starts has no sidecar yet."""
POLL_INTERVAL: Final = 0.5
"""Seconds between two calls to a sidecar; after each call without an answer twice as many, up to `LAST_INTERVAL`."""
LAST_INTERVAL: Final = 8.0

log = structlog.get_logger(__name__)


class _NextPoll(msgspec.Struct, frozen=True):
    """`at` in the loop's time. A pod whose readiness is not `ready` any more is polled at once."""

    at: float
    interval: float
    ready: bool


class Sidecars:
    """States by uid of the pod."""

    def __init__(self) -> None:
        self._known: dict[str, SidecarState] = {}
        self._next_polls: dict[str, _NextPoll] = {}
        self._tls: dict[str, tuple[str, ClientTls | None]] = {}
        """By uid of the pod: its sidecar's address, and the certificate for calls to it."""

    async def poll(
        self, pods: Iterable[Pod], tls: ClientTls | None = None, *, again: bool = False
    ) -> Mapping[str, SidecarState]:
        """Poll sidecars that have not answered yet; returns all known states.

        Args:
            tls: for sidecars that require it.
            again: poll the others too. Those that do not answer are not taken to act any longer.
        """
        wanted = [pod for pod in pods if pod.running and pod.ip and not pod.deleting]
        self._tls.update((pod.uid, (sidecar_address(pod), tls if pod.grpc_tls else None)) for pod in wanted)
        asked = [pod for pod in wanted if (again or not self._complete(pod.uid)) and self._due(pod)]
        if asked:
            await asyncio.gather(*(self._poll_pod(pod) for pod in asked))
        return {pod.uid: self._known[pod.uid] for pod in wanted if pod.uid in self._known}

    async def set_fenced(self, uid: str, address: str, *, fenced: bool, reason: str) -> None:
        """Raises ApiError."""
        async with self._client(address) as client:
            self._keep(uid, await client.set_fenced(fenced, reason))

    async def hand_over(self, address: str, broker_id: int, seconds: float) -> NewMaster:
        """Raises ApiError."""
        async with self._client(address) as client:
            return await client.hand_over(broker_id, seconds=seconds)

    def retain(self, uids: set[str]) -> None:
        """Forget deleted pods."""
        for uid in self._known.keys() - uids:
            del self._known[uid]
        for uid in self._tls.keys() - uids:
            del self._tls[uid]
        for uid in self._next_polls.keys() - uids:
            del self._next_polls[uid]

    def _complete(self, uid: str) -> bool:
        state = self._known.get(uid)
        return state is not None and state.broker_id is not None

    def _due(self, pod: Pod) -> bool:
        last = self._next_polls.get(pod.uid)
        return last is None or last.ready != pod.ready or asyncio.get_running_loop().time() >= last.at

    async def _poll_pod(self, pod: Pod) -> None:
        began, last = asyncio.get_running_loop().time(), self._next_polls.get(pod.uid)
        # A reconcile waits for the call. One without an answer, a second long, must not be part of each of them.
        interval = POLL_INTERVAL if last is None or last.ready != pod.ready else min(2 * last.interval, LAST_INTERVAL)
        try:
            async with self._client(sidecar_address(pod), POLL_TIMEOUT) as client:
                self._keep(pod.uid, await client.get_replica())
                interval = POLL_INTERVAL
        except (ApiError, OSError) as error:
            log.debug("sidecar does not answer", pod=pod.name, error=str(error))
            if (known := self._known.get(pod.uid)) is not None:
                # A ready pod has answered its kubelet: one call that takes too long must not make it look dead.
                replica = known.replica if pod.ready else None
                self._known[pod.uid] = msgspec.structs.replace(known, acting=False, replica=replica)
        finally:
            self._next_polls[pod.uid] = _NextPoll(at=began + interval, interval=interval, ready=pod.ready)

    def _client(self, address: str, timeout: float = TIMEOUT) -> SidecarClient:
        tls = next((tls for at, tls in self._tls.values() if at == address), None)
        return SidecarClient(address, tls=tls, timeout=timeout)

    def _keep(self, uid: str, replica: ReplicaView) -> None:
        self._known[uid] = SidecarState(
            broker_id=replica.broker_id, fenced=replica.fenced, acting=replica.acting_master, replica=replica
        )
