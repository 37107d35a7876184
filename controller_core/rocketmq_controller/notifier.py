"""Tells brokers of a new master (NOTIFY_BROKER_ROLE_CHANGED, 1008) at their own address, oneway.

Java sends it once and leaves the rest to the brokers' five-second poll. A lost notice is five seconds without writes,
so ours is tried again until it has been handed to the broker's connection, the broker is no longer alive, or a newer
epoch made it stale.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from rocketmq_formats.remoting.bodies import encode_body
from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import NotifyBrokerRoleChangedRequestHeader, SyncStateSet
from rocketmq_runtime.client import ConnectError, RemotingClient

log = structlog.get_logger(__name__)

RETRY_DELAYS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0)
"""Seconds between tries: about the time after which the broker's own poll has found out."""


class RoleNotifier:
    """One per process; used in the event loop only."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        # Newest epoch being told, by broker address: an older notice still trying gives up.
        self._newest: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def notify(
        self,
        header: NotifyBrokerRoleChangedRequestHeader,
        body: SyncStateSet,
        addresses: Iterable[str],
        still_wanted: Callable[[str], bool],
    ) -> None:
        """Start telling every address; returns at once. `still_wanted` says whether the broker at an address is still
        alive."""
        epoch = header.master_epoch or 0
        for address in addresses:
            if epoch < self._newest.get(address, 0):
                continue
            self._newest[address] = epoch
            task = asyncio.get_running_loop().create_task(self._tell(address, epoch, header, body, still_wanted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Give up on everything not yet told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell(
        self,
        address: str,
        epoch: int,
        header: NotifyBrokerRoleChangedRequestHeader,
        body: SyncStateSet,
        still_wanted: Callable[[str], bool],
    ) -> None:
        payload = encode_body(body)
        for delay in (*RETRY_DELAYS, None):
            try:
                await self._client.send_oneway(
                    address, request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, payload, oneway=True)
                )
            except ConnectError as error:
                if delay is None or self._newest.get(address) != epoch or not still_wanted(address):
                    log.warning(
                        "role change not told, the broker will find out by polling",
                        broker=address,
                        epoch=epoch,
                        reason=str(error),
                    )
                    break
                await asyncio.sleep(delay)
            else:
                log.debug("role change told", broker=address, epoch=epoch)
                break
        if self._newest.get(address) == epoch:
            del self._newest[address]
