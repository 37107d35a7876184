"""What each replica's sidecar says: asked once in a pod's life, and whenever it was told something.

A sidecar keeps what it is told through restarts of its pod, so there is nothing to watch. Used by `observe` and
`execute`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from rocketmq_api.channels import ApiError
from rocketmq_api.replica_view import NewMaster, ReplicaView
from rocketmq_api.sidecars import SidecarClient
from rocketmq_operator.domain.observed import Pod, SidecarState
from rocketmq_operator.domain.plan.state import sidecar_address

ASK_SECONDS: Final = 1.0
"""How long an answer is waited for; a pod that starts has no sidecar yet."""
ASK_AGAIN: Final = 0.5
"""Seconds between two questions to a sidecar that does not answer."""

log = structlog.get_logger(__name__)


class Sidecars:
    """Answers by uid of the pod."""

    def __init__(self) -> None:
        self._known: dict[str, SidecarState] = {}
        self._asked: dict[str, float] = {}

    async def look(self, pods: Iterable[Pod]) -> Mapping[str, SidecarState]:
        """Ask those that have not answered yet; what is known of all of them."""
        wanted = [pod for pod in pods if pod.running and pod.ip and not pod.deleting]
        silent = [pod for pod in wanted if not self._complete(pod.uid) and self._due(pod.uid)]
        if silent:
            await asyncio.gather(*(self._ask(pod) for pod in silent))
        return {pod.uid: self._known[pod.uid] for pod in wanted if pod.uid in self._known}

    async def set_fenced(self, uid: str, address: str, *, fenced: bool, reason: str) -> None:
        """Raises ApiError."""
        async with SidecarClient(address) as client:
            self._keep(uid, await client.set_fenced(fenced, reason))

    async def hand_over(self, address: str, broker_id: int, seconds: float) -> NewMaster:
        """Raises ApiError."""
        async with SidecarClient(address) as client:
            return await client.hand_over(broker_id, seconds=seconds)

    def forget_all_but(self, uids: set[str]) -> None:
        """Pods that are gone."""
        for uid in self._known.keys() - uids:
            del self._known[uid]
        for uid in self._asked.keys() - uids:
            del self._asked[uid]

    def _complete(self, uid: str) -> bool:
        state = self._known.get(uid)
        return state is not None and state.broker_id is not None

    def _due(self, uid: str) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._asked.get(uid, -ASK_AGAIN) < ASK_AGAIN:
            return False
        self._asked[uid] = now
        return True

    async def _ask(self, pod: Pod) -> None:
        try:
            async with SidecarClient(sidecar_address(pod), timeout=ASK_SECONDS) as client:
                self._keep(pod.uid, await client.get_replica())
        except ApiError as error:
            log.debug("sidecar does not answer", pod=pod.name, error=str(error))

    def _keep(self, uid: str, replica: ReplicaView) -> None:
        self._known[uid] = SidecarState(broker_id=replica.broker_id, fenced=replica.fenced)
