"""Which replicas hold a master's tables as they are now, and waits for those that must (NothingGoesBack).

With strict durability an administrator's change is acknowledged when every member of the SyncStateSet has it, like a
message. That is as safe as a message, because waiting for a member begins before it joins. The sidecar first names a
slave that could enter the set (`Replication.joins`). It proposes it to the controllers when this broker has reported
that the slave holds everything acknowledged, and that nothing is acknowledged without it from then on (`Copied`).

Replicas of official brokers copy by themselves every 10 s and are not waited for; the sidecar reports which these are.
`table_copies.py` sends the tables, and says what a slave has confirmed.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_broker.domain.tables.copy_reports import NO_COPY, Serials
from rocketmq_broker.tables.table_file import Barrier
from rocketmq_formats.replica_link import Copied

POLL_SECONDS: Final = 0.05
"""The SyncStateSet may change during a wait."""
NO_MEMBERS: Final = "the sidecar has not sent the SyncStateSet yet"


class _Join(NamedTuple):
    """A slave on its way into the SyncStateSet."""

    number: int
    wanted: Serials | None
    """The tables' state at its first request; from then on answers wait for it. None: no request yet."""


class TableHolders:
    """One per broker, for each mastership in turn."""

    def __init__(
        self, *, role: ReplicaRole, serials: Callable[[], Serials], on_copied: Callable[[Copied], None]
    ) -> None:
        """`serials`: of the tables as they are now. `on_copied`: informs the sidecar."""
        self._role = role
        self._serials = serials
        self._on_copied = on_copied
        self._loop = asyncio.get_running_loop()
        self._mastership = 0
        """Counts them."""
        self._held: dict[int, Serials] = {}
        """By broker id, what slaves have confirmed since this mastership began."""
        self._joins: dict[int, _Join] = {}
        """By broker id."""
        self._copied = frozenset[int]()
        """Last reported."""
        self._progressed = asyncio.Event()

    def begin(self) -> None:
        """Another role or epoch: slaves have to confirm again what they hold."""
        self._mastership += 1
        self._held.clear()
        self._joins.clear()
        self._copied = frozenset()
        self._progressed.set()

    def on_members(self, replicas: AbstractSet[int]) -> list[int]:
        """The sidecar has sent the SyncStateSet and the slaves that may enter it, together `replicas`. Returns the
        slaves that have to confirm again: what they held before they left proves nothing."""
        for slave in self._held.keys() - replicas:
            del self._held[slave]
        self._joins = {
            slave: join
            if (join := self._joins.get(slave)) is not None and join.number == number
            else _Join(number, None)
            for slave, number in self._role.joins.items()
        }
        unheard = [slave for slave, join in self._joins.items() if join.wanted is None]
        for slave in unheard:
            self._held.pop(slave, None)
        self._report_copied()
        return unheard

    def confirmed(self, slave: int, held: Serials) -> None:
        """It holds this."""
        self._held[slave] = held
        join = self._joins.get(slave)
        if join is not None:
            if join.wanted is None:
                self._joins[slave] = join._replace(wanted=self._serials())
            self._report_copied()
        self._progressed.set()

    def problem(self, wanted: Serials) -> str | None:
        """The replicas that lack this, in words."""
        role = self._role
        if role.members is None:
            return NO_MEMBERS
        joining = {slave for slave, join in self._joins.items() if join.wanted is not None}
        others = (role.members | joining) - {role.broker_id} - self._officials
        missing = sorted(number for number in others if not self._held.get(number, NO_COPY).reaches(wanted))
        return f"replicas {missing} of the SyncStateSet have not copied it" if missing else None

    def barrier(self, seconds: float) -> Barrier:
        """A wait until every member of the SyncStateSet holds the tables as they are now."""
        return partial(self._wait, self._mastership, self._serials(), seconds)

    async def _wait(self, mastership: int, wanted: Serials, seconds: float) -> str | None:
        until = self._loop.time() + seconds
        while mastership == self._mastership:
            problem = self.problem(wanted)
            if problem is None:
                return None
            left = until - self._loop.time()
            if left <= 0:
                return (
                    f"it is applied here, but {problem} within {seconds:g} s and a failover could undo it:"
                    " send the request again"
                )
            self._progressed.clear()
            try:
                async with asyncio.timeout(min(left, POLL_SECONDS)):
                    await self._progressed.wait()
            except TimeoutError:
                pass
        return "this broker ceased to be master: check whether the next master has it, or send it there again"

    @property
    def _officials(self) -> frozenset[int]:
        return self._role.officials - self._held.keys()

    def _report_copied(self) -> None:
        ready = frozenset(
            join.number
            for slave, join in self._joins.items()
            if slave in self._officials
            or (join.wanted is not None and self._held.get(slave, NO_COPY).reaches(join.wanted))
        )
        if ready != self._copied:
            self._copied = ready
            self._on_copied(Copied(self._role.epoch, ready))
