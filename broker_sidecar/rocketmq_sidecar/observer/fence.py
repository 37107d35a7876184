"""Keeps the Java broker fenced or not, as wanted: every poll compares its settings and changes what differs.

Used by the observer. `domain.observing.fence` explains the two settings, and what survives a restart of the broker.
"""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.domain.observing import fence as observer_fence
from rocketmq_sidecar.domain.observing.status import BrokerStatus
from rocketmq_sidecar.observer.files import ReplicaFiles
from rocketmq_sidecar.observer.hand_over import Brokers

log = structlog.get_logger(__name__)

CONFIGURATION_PERIOD = 60.0
"""Seconds after which the broker's configuration is read again."""


class FenceKeeper:
    """Of the broker at one address."""

    def __init__(self, brokers: Brokers, address: str, files: ReplicaFiles) -> None:
        self.configuration: Mapping[str, str] = {}
        """The broker's, as last read."""
        self._brokers, self._address, self._files = brokers, address, files
        self._loop = asyncio.get_running_loop()
        self._read: tuple[int, float] | None = None
        """Start time of the broker process that `configuration` is from, and when it was read."""
        self._turn = asyncio.Lock()

    async def keep(self, broker: BrokerStatus, *, reread: bool = False) -> BrokerStatus:
        """Make the broker fenced or not, as wanted; returns its status after that. `reread`: its configuration may have
        changed.

        Raises:
            BrokerError: the change failed, or its result is not known.
        """
        async with self._turn:
            now, read = self._loop.time(), self._read
            if reread or read is None or read[0] != broker.started_ms or now - read[1] > CONFIGURATION_PERIOD:
                self.configuration = await self._brokers.configuration(self._address)
                self._read = (broker.started_ms, now)
            return await self._change(broker)

    async def _change(self, broker: BrokerStatus) -> BrokerStatus:
        files = self._files
        if files.damaged is not None:
            return broker
        fenced, observed = files.fence is not None, files.observed
        permission = observer_fence.permission(self.configuration)
        needed = observer_fence.changes(
            fenced=fenced,
            refuses_until_ms=broker.refuses_until_ms,
            permission=permission,
            before=observed.broker_permission,
        )
        if not needed:
            return broker
        before = observed.broker_permission if fenced else None
        try:
            if fenced:
                before = observer_fence.to_remember(
                    refuses_until_ms=broker.refuses_until_ms, permission=permission, before=before
                )
                files.save(msgspec.structs.replace(observed, broker_permission=before))
            await self._brokers.configure(self._address, needed)
            files.save(msgspec.structs.replace(files.observed, broker_permission=before))
        except StorageError as error:
            log.error("cannot save the broker's permission from before the fence", reason=str(error))
            return broker
        log.info("broker fenced" if fenced else "broker accepts sends again", **needed)
        self.configuration = {**self.configuration, **needed}
        return msgspec.structs.replace(broker, refuses_until_ms=int(needed[observer_fence.START_ACCEPT]))
