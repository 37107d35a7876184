"""Operators' requests to the replica with a Java broker (`replica_admin.ReplicaAdmin`), and the hand-over at the end.

Built by `app`; uses what `observer` has seen of the replica.
"""

import asyncio
from collections.abc import Callable

import structlog

from rocketmq_api.replica_view import NewMaster, ReplicaView
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.observing import fence as observer_fence
from rocketmq_sidecar.domain.observing.verdict import Role
from rocketmq_sidecar.observer.broker import BrokerError
from rocketmq_sidecar.observer.hand_over import Brokers, Controllers, HandOver
from rocketmq_sidecar.observer.observer import Observer
from rocketmq_sidecar.observer.view import replica_view
from rocketmq_sidecar.ports.replica_admin import NotDoneError, NotNowError, UnderWayError

log = structlog.get_logger(__name__)

FENCE_TIMEOUT = 4.0
"""Seconds to fence or release a broker while the caller waits; clients wait for 5."""
STOP_HAND_OVER = 4.0
"""Seconds that a hand-over may take when the sidecar stops."""


class ObserverAdmin:
    """One per process; used in the event loop only."""

    def __init__(
        self, observer: Observer, *, brokers: Brokers, controllers: Controllers, now_ms: Callable[[], int]
    ) -> None:
        """`brokers` uses other connections than the observer: a poll that times out closes its own, which must not end
        a hand-over's calls."""
        self._observer = observer
        self._brokers, self._controllers = brokers, controllers
        self._now_ms = now_ms
        self._fencing = asyncio.Lock()
        self._handing_over: asyncio.Task[NewMaster] | None = None

    def get_replica(self) -> ReplicaView:
        """See `ReplicaAdmin`; as of the last poll."""
        observer = self._observer
        return replica_view(
            observer.settings,
            broker_id=observer.broker_id,
            standing=observer.standing,
            remark=observer.remark(),
            broker=observer.last,
            group=observer.group,
            fence=observer.files.fence,
            confirm_offset=observer.confirm_offset,
            epochs=observer.files.epochs,
        )

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        # Shielded: a caller that leaves must not leave file and broker with different states.
        await background.shielded(self._set_fenced(fenced=fenced, reason=reason), "fence")
        return self.get_replica()

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        observer = self._observer
        if self._handing_over is None and observer.standing.role is not Role.MASTER:
            await observer.poll()  # it may have been elected just now
        own, fence = observer.broker_id, observer.files.fence
        if self._handing_over is not None:
            raise UnderWayError("a hand-over is under way")
        if observer.standing.role is not Role.MASTER or own is None:
            raise NotNowError(f"this replica is not master: {observer.standing.text}")
        if fence is not None:
            raise NotNowError(f"fenced ({fence.reason}): end the fence first")
        work = HandOver(
            self._brokers,
            self._controllers,
            address=observer.address,
            broker_id=own,
            seconds=seconds,
            now_ms=self._now_ms(),
        )
        self._handing_over = background.awaited(self._hand_over(work, broker_id), "hand-over")
        # Shielded: it continues even if the caller leaves.
        return await background.shielded(self._handing_over, "hand-over")

    async def hand_over_at_stop(self) -> None:
        """The sidecar stops: wait for a hand-over under way, or begin one if this is a master."""
        observer = self._observer
        try:
            if self._handing_over is None:
                await observer.poll()  # it may have been elected just now
            if self._handing_over is not None:
                await self._handing_over
            elif observer.standing.role is Role.MASTER and observer.files.fence is None:
                await self.hand_over(None, STOP_HAND_OVER)
        except (NotNowError, NotDoneError) as error:
            log.warning(
                "mastership not handed over: the controllers elect another master when the broker stops",
                reason=str(error),
            )

    async def _set_fenced(self, *, fenced: bool, reason: str) -> None:
        observer, files = self._observer, self._observer.files
        async with self._fencing:
            if files.damaged is not None:
                raise NotNowError(files.damaged)
            since = self._now_ms() if files.fence is None else files.fence.since_millis
            wanted = Fence(reason, since) if fenced else None
            if wanted != files.fence:
                try:
                    await files.save_fence(wanted)
                except StorageError as error:
                    raise NotNowError(str(error)) from error
                log.info("fence saved" if fenced else "fence ended", reason=reason)
            try:
                async with asyncio.timeout(FENCE_TIMEOUT):
                    await observer.poll_and_keep_fence()
            except (BrokerError, TimeoutError) as error:
                reason = str(error) or f"the broker has not answered within {FENCE_TIMEOUT:g} s"
                raise NotDoneError(f"the fence is saved and will be applied again; for now {reason}") from error

    async def _hand_over(self, work: HandOver, broker_id: int | None) -> NewMaster:
        try:
            try:
                return await work.run(broker_id)
            finally:
                if work.refusing:
                    await self._end_refusal()
        finally:
            self._handing_over = None
            self._observer.poll_soon()

    async def _end_refusal(self) -> None:
        """Have the broker accept sends again; the refusal ends by itself, so one attempt is enough."""
        observer = self._observer
        try:
            changes = observer_fence.end_refusal(fenced=observer.files.fence is not None)
            await self._brokers.configure(observer.address, changes)
        except BrokerError as error:
            log.warning(
                "could not make the broker accept sends again: it does so by itself at the deadline", reason=str(error)
            )
