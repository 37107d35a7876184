"""Makes messages visible to consumers as far as the sidecar confirms them: on a master what the SyncStateSet has, on a
slave what its master says. Used by `replica.py`.

The store gets the offsets at once: none is kept here that a change of role could make outdated or lose. Messages
become visible once per turn of the loop, after the answers that have become due in it, and in portions. A place where
it does not get past is reported: as master this replica could not serve what follows.
"""

import asyncio
from collections.abc import Callable, Collection

from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_store.errors import StoreError, StoreFullError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Stop

RETRY_SECONDS = 1.0
"""After a full disk kept messages from becoming visible."""

STOP_SECONDS = 1.0
"""Dispatching that stops at one place for this long is reported."""

Visible = Callable[[Collection[tuple[str, int]]], None]
"""Takes the (topic, queue id) that have new messages for consumers."""


class Dispatching:
    def __init__(
        self,
        store: MessageStore,
        role: ReplicaRole,
        *,
        on_visible: Visible,
        on_stop: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_stop`: `stopped` has changed. `on_failed`: a step failed for another reason than a full disk."""
        self._store = store
        self._role = role
        self._on_visible = on_visible
        self._on_stop = on_stop
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None
        self.stopped: Stop | None = None
        """Where dispatching stops, for longer than a moment."""
        self._stop_timer: asyncio.TimerHandle | None = None

    def confirmed(self, confirm_offset: int) -> None:
        """As master."""
        self._store.confirm(confirm_offset)
        self.soon()

    def replicated(self, max_offset: int, confirm_offset: int) -> None:
        """As slave; the sidecar has appended up to `max_offset`. Raises `StoreError`, `OSError`."""
        if self._role.role is Role.SLAVE:
            self._store.extend(max_offset, confirm_offset)
            self.soon()

    def stop_at(self, stop: Stop) -> None:
        """No whole record is there, although the log has to continue: this replica must not be master."""
        self.stopped = stop
        self._on_stop()

    def cut(self, offset: int) -> None:
        """The log is about to be cut at `offset`."""
        if self._stop_timer is not None:
            self._stop_timer.cancel()
            self._stop_timer = None
        if self.stopped is not None and self.stopped.offset >= offset:
            self.stopped = None
            self._on_stop()

    def soon(self) -> None:
        """Once per turn of the loop, after the answers that have become due in it."""
        if self._next is None:
            self._next = self._loop.call_soon(self._dispatch)

    def _dispatch(self, stopped_before: Stop | None = None) -> None:
        self._next = None
        if self._role.role not in {Role.MASTER, Role.SLAVE}:
            return
        try:
            visible = self._store.dispatch()
        except StoreFullError:  # the store has logged it
            self._next = self._loop.call_later(RETRY_SECONDS, self._dispatch)
        except (StoreError, OSError) as error:
            self._on_failed(error)
        else:
            if visible:
                self._on_visible(visible)
            if self._store.unfinished:
                # let others run before the next portion; the last one shows whether dispatching stops
                self._next = self._loop.call_later(0, self._dispatch, stopped_before)
            else:
                self._note_stop(stopped_before)

    def _note_stop(self, before: Stop | None) -> None:
        """`before`: where dispatching had stopped `STOP_SECONDS` ago. Once is not enough: a file that the sidecar has
        just made may not be there yet."""
        stopped = self._store.dispatch_stopped
        if stopped is None and self.stopped is not None and self._store.is_damaged(self.stopped.offset):
            # dispatching has not come there again, or does not compare its checksum
            return
        if stopped is None or stopped == before:
            if stopped != self.stopped:
                self.stopped = stopped
                self._on_stop()
        elif stopped != self.stopped and self._stop_timer is None:
            self._stop_timer = self._loop.call_later(STOP_SECONDS, self._dispatch_again, stopped)

    def _dispatch_again(self, before: Stop) -> None:
        self._stop_timer = None
        if self._next is not None:
            self._next.cancel()
        self._dispatch(before)
