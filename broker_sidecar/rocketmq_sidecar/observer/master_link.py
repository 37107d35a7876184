"""Keeps a Java slave connected to its master's HA port. Used by the observer.

A slave learns its master's HA address late from a name server; after an election that the old master survives it may
learn the old one's and keep it forever, or keep a connection to it (`domain.observing.link`). Java has no request that
ends a connection. It ends one that has been silent for haHousekeepingInterval, so that key is changed for a moment.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from rocketmq_sidecar.domain.observing.link import LinkCheck
from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus
from rocketmq_sidecar.observer.broker import BrokerError
from rocketmq_sidecar.observer.hand_over import Brokers

log = structlog.get_logger(__name__)

HOUSEKEEPING: Final = "haHousekeepingInterval"
AT_ONCE: Final = "-1"
"""Any connection has been silent for longer. No user sets this value, so it is ours wherever it is found."""
JAVA_DEFAULT: Final = "20000"
ROUNDS: Final = 30
ROUND_SECONDS: Final = 0.1
"""The slave looks at its connection once a second."""


class SlaveBrokers(Brokers, Protocol):
    """`observer.broker.BrokerCalls`."""

    async def ha_address(self, address: str, seconds: float = ...) -> str | None: ...
    async def set_master(self, address: str, *, ha_address: str, master_address: str) -> None: ...


class MasterLink:
    """Of the broker at one address."""

    def __init__(self, brokers: SlaveBrokers, address: str) -> None:
        self._brokers, self._address = brokers, address
        self._loop = asyncio.get_running_loop()
        self._check = LinkCheck()
        self._usual = JAVA_DEFAULT
        """HOUSEKEEPING, as the user has it."""
        self._changed = False
        """HOUSEKEEPING may be AT_ONCE in the broker."""

    async def keep(
        self, broker: BrokerStatus, broker_id: int | None, group: GroupStatus | None, configuration: Mapping[str, str]
    ) -> None:
        """Set a slave's master address, and have it connect again if it follows another broker.

        Args:
            group: the controllers' answer of this poll; None: they did not answer.
            configuration: the broker's, as last read.

        Raises:
            BrokerError: a change failed, or its result is not known.
        """
        known = configuration.get(HOUSEKEEPING, self._usual)
        if known == AT_ONCE:
            self._changed = True  # a sidecar before this one died in between
        else:
            self._usual = known
        if self._changed:
            await self._restore()
        if group is None or group.master_id is None or broker.outward_id != broker_id:
            return
        if broker_id in group.in_sync or group.master_id == broker_id:
            self._check.reset()
            return
        master_address = group.addresses.get(group.master_id)
        if master_address is None:
            return
        try:
            ha_address = await self._brokers.ha_address(master_address)
        except BrokerError:
            return  # the master's own sidecar reports that
        if ha_address is None:
            return
        if ha_address != broker.master_ha_address:
            await self._brokers.set_master(self._address, ha_address=ha_address, master_address=master_address)
            log.info("slave's master address set", ha_address=ha_address, before=broker.master_ha_address)
        elif configuration.get("asyncLearner") != "true" and self._check.due(broker, group, self._loop.time()):
            await self._verify(broker, master_address)

    async def _verify(self, broker: BrokerStatus, master_address: str) -> None:
        try:
            master = await self._brokers.status(master_address)
        except BrokerError:
            return
        if self._check.must_reconnect(broker, master, self._loop.time()):
            log.warning("slave does not follow its master: it connects again", ha_address=broker.master_ha_address)
            await self._reconnect(master_address, len(master.slaves))

    async def _reconnect(self, master_address: str, connections: int) -> None:
        """Until the master has another connection; several slaves may share one address."""
        self._changed = True
        await self._brokers.configure(self._address, {HOUSEKEEPING: AT_ONCE})
        try:
            for _ in range(ROUNDS):
                await asyncio.sleep(ROUND_SECONDS)
                if len((await self._brokers.status(master_address)).slaves) > connections:
                    break
        except BrokerError as error:
            log.info("cannot see whether the slave is connected to its master", reason=str(error))
        finally:
            await self._restore()

    async def _restore(self) -> None:
        await self._brokers.configure(self._address, {HOUSEKEEPING: self._usual})
        self._changed = False
