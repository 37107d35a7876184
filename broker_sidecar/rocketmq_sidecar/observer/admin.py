"""What operators may ask of the replica beside a Java broker (`replica_admin.ReplicaAdmin`), and what its end does.

Built by `app`; knows of the replica what `observer` has seen.
"""

import asyncio
from collections.abc import Callable

import structlog

from rocketmq_api.replica_view import NewMaster, ReplicaView
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain import observer_fence
from rocketmq_sidecar.domain.fence import Fence
from rocketmq_sidecar.domain.observing import Role
from rocketmq_sidecar.observer.broker import BrokerError
from rocketmq_sidecar.observer.hand_over import Brokers, Controllers, HandOver
from rocketmq_sidecar.observer.observer import Observer
from rocketmq_sidecar.observer.view import replica_view
from rocketmq_sidecar.replica_admin import NotDoneError, NotNowError, UnderWayError

log = structlog.get_logger(__name__)

TELL = 4.0
"""Seconds for a broker to be fenced or let go while the caller waits; clients wait for 5."""
FAREWELL = 4.0
"""Seconds that a hand-over may take at the sidecar's end."""


class ObserverAdmin:
    """One per process; used in the event loop only."""

    def __init__(
        self, observer: Observer, *, brokers: Brokers, controllers: Controllers, now_ms: Callable[[], int]
    ) -> None:
        """`brokers` are reached over other connections than the observer's: a look that gives up closes its own, and
        must not take a hand-over's calls with it."""
        self._observer = observer
        self._brokers, self._controllers = brokers, controllers
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._fencing = asyncio.Lock()
        self._handing_over: asyncio.Task[NewMaster] | None = None

    def get_replica(self) -> ReplicaView:
        """See `ReplicaAdmin`; as last seen."""
        observer = self._observer
        return replica_view(
            observer.settings,
            broker_id=observer.broker_id,
            standing=observer.standing,
            broker=observer.last,
            group=observer.group,
            fence=observer.files.fence,
            confirm_offset=observer.confirm_offset,
            epochs=observer.files.epochs,
        )

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        """See `ReplicaAdmin`."""
        # Shielded: a caller that goes away must not leave file and broker at odds.
        await asyncio.shield(self._loop.create_task(self._set_fenced(fenced=fenced, reason=reason)))
        return self.get_replica()

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        """See `ReplicaAdmin`."""
        observer = self._observer
        if self._handing_over is None and observer.standing.role is not Role.MASTER:
            await observer.look()  # perhaps it was elected just now
        own, fence = observer.broker_id, observer.files.fence
        if self._handing_over is not None:
            raise UnderWayError("a hand-over is under way")
        if observer.standing.role is not Role.MASTER or own is None:
            raise NotNowError(f"this replica is no master: {observer.standing.text}")
        if fence is not None:
            raise NotNowError(f"fenced ({fence.reason}): let it take sends first")
        work = HandOver(
            self._brokers,
            self._controllers,
            address=observer.address,
            broker_id=own,
            seconds=seconds,
            now_ms=self._now_ms(),
        )
        self._handing_over = self._loop.create_task(self._hand_over(work, broker_id))
        # Shielded: it is not undone because whoever asked has gone.
        return await asyncio.shield(self._handing_over)

    async def farewell(self) -> None:
        """The sidecar ends: hand over if this is a master, and let what is under way come to its end."""
        observer = self._observer
        try:
            if self._handing_over is None:
                await observer.look()  # perhaps it was elected just now
            if self._handing_over is not None:
                await self._handing_over
            elif observer.standing.role is Role.MASTER and observer.files.fence is None:
                await self.hand_over(None, FAREWELL)
        except (NotNowError, NotDoneError) as error:
            log.warning("mastership not handed over: the controllers elect when the broker goes", reason=str(error))

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
                log.info("fence kept" if fenced else "fence ended", reason=reason)
            try:
                async with asyncio.timeout(TELL):
                    await observer.look_and_keep_fence()
            except (BrokerError, TimeoutError) as error:
                reason = str(error) or f"the broker has not answered within {TELL:g} s"
                raise NotDoneError(f"kept, and tried again until it is done; for now {reason}") from error

    async def _hand_over(self, work: HandOver, broker_id: int | None) -> NewMaster:
        try:
            try:
                return await work.run(broker_id)
            finally:
                if work.refusing:
                    await self._let_go()
        finally:
            self._handing_over = None
            self._observer.look_soon()

    async def _let_go(self) -> None:
        """Sends are taken again, if this is the master; the refusal ends by itself, so one try is enough."""
        observer = self._observer
        try:
            changes = observer_fence.let_go(fenced=observer.files.fence is not None)
            await self._brokers.configure(observer.address, changes)
        except BrokerError as error:
            log.warning("the broker was not told to take sends again: it does so by itself", reason=str(error))
