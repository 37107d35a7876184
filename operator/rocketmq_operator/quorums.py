"""What the controllers say, heard all the time: one watch of all groups for each quorum that some group refers to.

A watch that ends (its leader is gone, or the network) is begun again at whatever addresses the members have then.
Used by `observe`; `changed(broker_name)` wakes the groups that are concerned.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from rocketmq_api.channels import ApiError, ClientTls
from rocketmq_api.controllers import ControllersClient
from rocketmq_api.group_view import GroupView, QuorumView

FIRST_RETRY: Final = 0.2
LAST_RETRY: Final = 3.0
"""Seconds between two attempts to watch; a look at members that have a leader cuts them short."""
SILENT_AFTER: Final = 3.0
"""Seconds without a watch after which what was heard counts for nothing; an election takes less than one."""
FIRST_WORD: Final = 3.0
"""Seconds that a look waits for a quorum nobody has asked yet."""
ROUND: Final = 1.0
"""Seconds in which one attempt to watch looks for the leader."""
RETIRE_AFTER: Final = 30.0
"""Seconds that a client to former addresses is kept."""

log = structlog.get_logger(__name__)


class Address(msgspec.Struct, frozen=True):
    """Where a quorum is now."""

    grpc: tuple[str, ...]
    tls: ClientTls | None = None


Locate = Callable[[], Awaitable[Address | None]]
"""None: there is nobody to ask yet."""


class Quorum:
    """One set of controllers: a client, and what its leader says of all groups."""

    def __init__(self, name: str, locate: Locate, changed: Callable[[str | None], None]) -> None:
        """`changed(broker_name)`: something is new of a group; None: of all of them, or of the quorum itself."""
        self.name = name
        self.groups: dict[str, GroupView] = {}
        self.synced = False
        self._locate = locate
        self._changed = changed
        self._client: ControllersClient | None = None
        self._address: Address | None = None
        self._silent: asyncio.TimerHandle | None = None
        self._tried = asyncio.Event()
        self._again = asyncio.Event()
        self._retired: list[ControllersClient] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._run(), name=f"watch {name}")

    async def first_word(self) -> None:
        """Until it has been heard, or could not be: else every group would look abandoned when the operator starts."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WORD):
                await self._tried.wait()

    async def client(self) -> ControllersClient | None:
        """To call the quorum where it is now; None: there is nobody to ask yet."""
        address = await self._locate()
        if address is None or not address.grpc:
            return None
        if self._client is None or address != self._address:
            old, self._client = self._client, ControllersClient(address.grpc, tls=address.tls)
            self._address = address
            if old is not None:
                # Somebody may still wait for an answer through it.
                self._retired.append(old)
                asyncio.get_running_loop().call_later(RETIRE_AFTER, self._close_oldest)
        return self._client

    async def members(self) -> QuorumView | None:
        """The quorum as it sees itself; None: nobody answers."""
        try:
            client = await self.client()
            view = None if client is None else await client.members()
        except (ApiError, OSError):
            return None
        if view is not None and view.leader_id and not self.synced:
            self._again.set()
        return view

    async def refresh(self) -> None:
        """Take all groups over as they are now, with their offsets, which no watch tells of."""
        try:
            client = await self.client()
            if client is None or not self.synced:
                return
            for group in map(_ageless, await client.snapshot()):
                if self.groups.get(group.broker_name, group) != group:
                    self.groups[group.broker_name] = group
        except (ApiError, OSError) as error:
            log.debug("offsets not refreshed", quorum=self.name, error=str(error))

    async def stop(self) -> None:
        """End the watch."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._silent is not None:
            self._silent.cancel()
        for client in (*self._retired, *(() if self._client is None else (self._client,))):
            await client.close()
        self._retired.clear()

    async def _run(self) -> None:
        delay = FIRST_RETRY
        told = ""
        while True:
            try:
                await self._watch()
            except (ApiError, OSError) as error:
                if self.synced or str(error) != told:
                    told = str(error)
                    log.info("controllers are not heard", quorum=self.name, error=told)
            if self.synced:
                delay = FIRST_RETRY
            self._tried.set()
            self._lose()
            self._again.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._again.wait()
            delay = min(LAST_RETRY, 2 * delay)

    async def _watch(self) -> None:
        address = await self._locate()
        if address is None or not address.grpc:
            return
        fresh: dict[str, GroupView] | None = {}
        async with (
            ControllersClient(address.grpc, tls=address.tls, timeout=ROUND) as client,
            contextlib.aclosing(client.watch_groups()) as changes,
        ):
            async for change in changes:
                if fresh is not None:
                    if change is None:
                        self._take_over(fresh)
                        fresh = None
                    elif change.group is not None:
                        fresh[change.broker_name] = _ageless(change.group)
                elif change is not None:
                    self._take(change.broker_name, change.group)

    def _take_over(self, fresh: dict[str, GroupView]) -> None:
        self._cancel()
        self._tried.set()
        before, self.groups = self.groups, fresh
        if not self.synced:
            self.synced = True
            log.info("controllers are heard", quorum=self.name, groups=len(fresh))
            self._changed(None)
            return
        for name in before.keys() | fresh.keys():
            if before.get(name) != fresh.get(name):
                self._changed(name)
        self._changed(None)  # there may be another leader

    def _take(self, name: str, group: GroupView | None) -> None:
        if group is None:
            self.groups.pop(name, None)
        else:
            self.groups[name] = _ageless(group)
        self._changed(name)

    def _lose(self) -> None:
        """The watch has ended: what it told is true for a little longer."""
        if self.synced and self._silent is None:
            self._silent = asyncio.get_running_loop().call_later(SILENT_AFTER, self._silence)

    def _silence(self) -> None:
        self._silent = None
        self.synced = False
        log.warning("controllers have not been heard for a while", quorum=self.name, seconds=SILENT_AFTER)
        self._changed(None)

    def _close_oldest(self) -> None:
        if self._retired:
            task = asyncio.create_task(self._retired.pop(0).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _cancel(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None


def _ageless(group: GroupView) -> GroupView:
    """Without the ages of heartbeats, which would make every view a new one."""
    replicas = tuple(msgspec.structs.replace(one, heartbeat_age_millis=None) for one in group.replicas)
    return msgspec.structs.replace(group, replicas=replicas)
