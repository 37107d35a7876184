"""Notifies brokers of a new master (NOTIFY_BROKER_ROLE_CHANGED, 1008) at their own address, oneway.

The master is notified at once, the others when its heartbeat shows that it has begun the epoch. A Java slave asks the
name server for the master's HA address as soon as it is notified. If that is too early it gets the old master's
address, connects there, and stays in its handshake while the old master hangs.

Java sends each notice once and leaves the rest to the brokers' five-second poll. A lost notice costs five seconds of
writes, so ours is retried until it is on the broker's connection, the broker is no longer alive, or a newer epoch made
it stale.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from rocketmq_controller.domain.model import BrokerId
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import (
    BrokerHeartbeatRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
    SyncStateSet,
)
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient

log = structlog.get_logger(__name__)

RETRY_DELAYS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0)
"""Seconds between tries: about the time after which the broker's own poll has found the new master."""

MASTER_TIMEOUT = 3.0
"""Seconds after which the others are notified although the master has not sent its epoch: three heartbeats."""
SETTLE = 0.1
"""Seconds between the master's first heartbeat in its epoch and the notices to the others: it registers at the name
servers right after it has begun the epoch."""

Alive = Callable[[BrokerId], bool]


class Announcement(msgspec.Struct, frozen=True):
    """The outcome of an election, and the members to notify of it."""

    broker_name: str
    header: NotifyBrokerRoleChangedRequestHeader
    body: SyncStateSet
    addresses: Mapping[BrokerId, str]
    """The members that live, the master among them."""

    @property
    def epoch(self) -> int:
        return self.header.master_epoch or 0


class RoleNotifier:
    """One per process; used in the event loop only."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        # Newest epoch being sent, by broker address: the retries of an older notice give up.
        self._newest: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Groups whose new master has not sent a heartbeat in its epoch yet.
        self._held: dict[str, tuple[Announcement, Alive, asyncio.TimerHandle]] = {}

    def announce(self, announcement: Announcement, alive: Alive) -> None:
        """Notify the master now and the others as soon as it has begun its epoch; returns at once."""
        name = announcement.broker_name
        held = self._held.pop(name, None)
        if held is not None:
            held[2].cancel()
        self._notify(announcement, alive, to_master=True)
        timer = self._loop.call_later(MASTER_TIMEOUT, self._release, name)
        self._held[name] = (announcement, alive, timer)

    def on_heartbeat(self, header: BrokerHeartbeatRequestHeader) -> None:
        """A broker has reported its epoch."""
        held = self._held.get(header.broker_name)
        if held is None:
            return
        announcement, alive, timer = held
        if header.broker_id == announcement.header.master_broker_id and (header.epoch or 0) >= announcement.epoch:
            timer.cancel()
            soon = self._loop.call_later(SETTLE, self._release, header.broker_name)
            self._held[header.broker_name] = (announcement, alive, soon)

    def _release(self, broker_name: str) -> None:
        announcement, alive, _ = self._held.pop(broker_name)
        self._notify(announcement, alive, to_master=False)

    def _notify(self, announcement: Announcement, alive: Alive, *, to_master: bool) -> None:
        for broker_id, address in announcement.addresses.items():
            is_master = broker_id == announcement.header.master_broker_id
            if is_master is not to_master or announcement.epoch < self._newest.get(address, 0):
                continue
            self._newest[address] = announcement.epoch
            task = background.start(self._send(announcement, broker_id, address, alive), f"notice to {address}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Give up on all notices that are not sent yet."""
        for _, _, timer in self._held.values():
            timer.cancel()
        self._held.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, announcement: Announcement, broker_id: BrokerId, address: str, alive: Alive) -> None:
        header, epoch = announcement.header, announcement.epoch
        payload = encode_body(announcement.body)
        for delay in (*RETRY_DELAYS, None):
            command = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, payload, oneway=True)
            try:
                await self._client.send_oneway(address, command)
            except ConnectError as error:
                if delay is None or self._newest.get(address) != epoch or not alive(broker_id):
                    log.warning(
                        "role change not sent, the broker will find it by polling",
                        broker=address,
                        epoch=epoch,
                        reason=str(error),
                    )
                    break
                await asyncio.sleep(delay)
            else:
                log.debug("role change sent", broker=address, epoch=epoch)
                break
        if self._newest.get(address) == epoch:
            del self._newest[address]
