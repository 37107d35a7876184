"""Topics that messages made, until every member of the SyncStateSet has them (NothingGoesBack).

The log has the message, and no queue numbers and no permission. A next master whose copy of the topics is older would
have to guess them (`log_topics.py`). So with strict durability messages of such a topic are acknowledged when the
members have it, as what a tool makes. `send_targets.py` and `send_back.py` make topics, `waiting_sends.py` waits.
"""

from collections.abc import Iterable
from functools import partial

from rocketmq_broker.tables.table_file import Barrier, MakeBarrier, no_barrier


class NewTopics:
    """One per broker."""

    def __init__(self, *, strict: bool) -> None:
        self.replication_barrier: MakeBarrier = no_barrier
        self._strict = strict
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def made(self, name: str) -> None:
        """A message made it just now."""
        if self._strict:
            self._names.add(name)

    def barrier(self, names: Iterable[str]) -> Barrier | None:
        """What the answer to a message of these topics waits for; None: nothing."""
        new = self._names.intersection(names)
        return partial(self._wait, new, self.replication_barrier()) if new else None

    async def _wait(self, names: set[str], barrier: Barrier) -> str | None:
        problem = await barrier()
        if problem is None:
            self._names -= names
        return problem
