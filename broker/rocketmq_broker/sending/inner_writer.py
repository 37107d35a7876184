"""Appends messages that the broker itself makes (retries, dead letters, due delayed messages), under the same
conditions as a producer's. Used by `send_back.py` and `delay_service.py`.
"""

from collections.abc import Callable

import msgspec

from rocketmq_broker.domain.role import Refusal, ReplicaRole
from rocketmq_broker.host import now_ms
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.replica_link import Hold
from rocketmq_runtime.clocks import boot_clock
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Appended, Draft


class InnerWriter:
    """Writes to the log without the send path."""

    def __init__(
        self,
        *,
        role: ReplicaRole,
        store: MessageStore,
        store_host: bytes,
        traffic: Traffic,
        on_appended: Callable[[], None],
        clock: Callable[[], float] = boot_clock,
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
        """The hold, if the refusal is HELD."""
        return self._role.held

    def append(self, draft: Draft) -> Appended:
        """Store one message again; `refusal` was asked in this turn of the loop. Raises as `MessageStore.append`.

        It was acknowledged once, so it must not be lost to a bound that did not hold then: it may be longer than
        maxMessageSize, and zeros in its properties, which an official master accepts, are removed.
        """
        if 0 in draft.properties:
            draft = msgspec.structs.replace(draft, properties=draft.properties.replace(b"\0", b""))
        appended = self._store.append(draft, now_ms(), again=True)
        self._role.appended(appended.end, self._clock())
        self._traffic.put(draft.topic.decode("utf-8", "replace"), 1, appended.end - appended.offset)
        self._on_appended()
        return appended
