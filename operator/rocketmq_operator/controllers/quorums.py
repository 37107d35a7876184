"""Watches the controllers: one watch of all groups per quorum that some group refers to.

A watch that ends (leader or network failed) is restarted with the addresses that the members have then. Used by
`observe`; `changed(broker_name)` queues the affected groups.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from rocketmq_api.channels import ApiError
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.controllers import ControllersClient
from rocketmq_api.group_view import GroupView, QuorumView
from rocketmq_runtime import background

FIRST_RETRY: Final = 0.2
LAST_RETRY: Final = 3.0
"""Seconds between two attempts to watch; shorter when `members` has found a leader."""
UNREACHABLE_AFTER: Final = 3.0
"""Seconds without a watch after which the last state is not used any longer; an election takes less than one."""
ANSWER_SECONDS: Final = 3.0
"""Seconds that a reconcile waits for the first answer of a quorum."""
ROUND: Final = 1.0
"""Seconds in which one attempt to watch tries to find the leader."""
RETIRE_AFTER: Final = 30.0
"""Seconds that a client for former addresses is kept open."""

log = structlog.get_logger(__name__)


class Address(msgspec.Struct, frozen=True):
    """The current addresses of a quorum."""

    grpc: tuple[str, ...]
    tls: ClientTls | None = None


Locate = Callable[[], Awaitable[Address | None]]
"""None: no address is known yet."""


class Quorum:
    """One set of controllers: a client, and what the leader reports of all groups."""

    def __init__(self, name: str, locate: Locate, changed: Callable[[str | None], None]) -> None:
        """`changed(broker_name)` is called for a changed group; with None when all of them may have changed."""
        self.name = name
        self.groups: dict[str, GroupView] = {}
        self.synced = False
        self._locate = locate
        self._changed = changed
        self._client: ControllersClient | None = None
        self._address: Address | None = None
        self._unreachable_timer: asyncio.TimerHandle | None = None
        self._tried = asyncio.Event()
        self._again = asyncio.Event()
        self._retired: list[ControllersClient] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._task = background.start(self._run(), f"watch {name}")

    async def wait_for_answer(self) -> None:
        """Wait for the first answer or failure: else every group would look abandoned when the operator starts."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._tried.wait()

    async def client(self) -> ControllersClient | None:
        """A client for the current addresses; None: no address is known yet."""
        address = await self._locate()
        if address is None or not address.grpc:
            return None
        if self._client is None or address != self._address:
            old, self._client = self._client, ControllersClient(address.grpc, tls=address.tls)
            self._address = address
            if old is not None:
                # A caller may still wait for an answer from it.
                self._retired.append(old)
                asyncio.get_running_loop().call_later(RETIRE_AFTER, self._close_oldest)
        return self._client

    async def members(self) -> QuorumView | None:
        """The quorum as its members report it; None: no member answers."""
        try:
            client = await self.client()
            view = None if client is None else await client.members()
        except (ApiError, OSError):
            return None
        if view is not None and view.leader_id and not self.synced:
            self._again.set()
        return view

    async def refresh(self) -> None:
        """Read all groups with their offsets, which the watch does not report."""
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
        if self._unreachable_timer is not None:
            self._unreachable_timer.cancel()
        for client in (*self._retired, *(() if self._client is None else (self._client,))):
            await client.close()
        self._retired.clear()

    async def _run(self) -> None:
        delay = FIRST_RETRY
        logged = ""
        while True:
            try:
                await self._watch()
            except (ApiError, OSError) as error:
                if self.synced or str(error) != logged:
                    logged = str(error)
                    log.info("cannot watch the controllers", quorum=self.name, error=logged)
            if self.synced:
                delay = FIRST_RETRY
            self._tried.set()
            self._watch_ended()
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
                        self._replace_groups(fresh)
                        fresh = None
                    elif change.group is not None:
                        fresh[change.broker_name] = _ageless(change.group)
                elif change is not None:
                    self._update_group(change.broker_name, change.group)

    def _replace_groups(self, fresh: dict[str, GroupView]) -> None:
        self._cancel()
        self._tried.set()
        before, self.groups = self.groups, fresh
        if not self.synced:
            self.synced = True
            log.info("watching the controllers", quorum=self.name, groups=len(fresh))
            self._changed(None)
            return
        for name in before.keys() | fresh.keys():
            if before.get(name) != fresh.get(name):
                self._changed(name)
        self._changed(None)  # there may be another leader

    def _update_group(self, name: str, group: GroupView | None) -> None:
        if group is None:
            self.groups.pop(name, None)
        else:
            self.groups[name] = _ageless(group)
        self._changed(name)

    def _watch_ended(self) -> None:
        """The watch has ended: its last state is used a little longer."""
        if self.synced and self._unreachable_timer is None:
            self._unreachable_timer = asyncio.get_running_loop().call_later(UNREACHABLE_AFTER, self._mark_unreachable)

    def _mark_unreachable(self) -> None:
        self._unreachable_timer = None
        self.synced = False
        log.warning("controllers are unreachable", quorum=self.name, seconds=UNREACHABLE_AFTER)
        self._changed(None)

    def _close_oldest(self) -> None:
        if self._retired:
            task = background.start(self._retired.pop(0).close(), "end of a connection to controllers")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _cancel(self) -> None:
        if self._unreachable_timer is not None:
            self._unreachable_timer.cancel()
            self._unreachable_timer = None


def _ageless(group: GroupView) -> GroupView:
    """Without the ages of heartbeats, which would make every view different."""
    replicas = tuple(msgspec.structs.replace(replica, heartbeat_age_millis=None) for replica in group.replicas)
    return msgspec.structs.replace(group, replicas=replicas)
