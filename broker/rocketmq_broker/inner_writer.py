"""Appends messages that the broker itself makes (retries, dead letters, delayed ones whose time has come), under the
same conditions as a producer's. Used by `send_back.py` and `delay.py`.
"""

import time
from collections.abc import Callable

from rocketmq_broker.domain.role import Refusal, ReplicaRole
from rocketmq_broker.host import now_ms
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.replica_link import Hold
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Appended, Draft


class InnerWriter:
    """The way into the log past the send path."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        store: MessageStore,
        store_host: bytes,
        traffic: Traffic,
        on_appended: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store_host`: this broker's address as records hold it. `on_appended`: the log grew. `clock`: what leases
        are in."""
        self.store_host = store_host
        self._role = role
        self._store = store
        self._traffic = traffic
        self._on_appended = on_appended
        self._clock = clock

    def refusal(self) -> Refusal | None:
        """Why nothing may be appended now; None if it may."""
        return self._role.refusal(self._clock())

    @property
    def held(self) -> Hold | None:
        """What says so, where the refusal is HELD."""
        return self._role.held

    def append(self, draft: Draft) -> Appended:
        """Store one message; `refusal` was asked in this turn of the loop. Raises as `MessageStore.append`."""
        appended = self._store.append(draft, now_ms())
        self._traffic.put_messages += 1
        self._traffic.put_bytes += appended.end - appended.offset
        self._on_appended()
        return appended
