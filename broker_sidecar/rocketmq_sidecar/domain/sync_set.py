"""Who is in sync, as the master sees it: the set the controllers agreed to, and the one it would like. Pure.

The agreed set changes only when the controllers say so. From the moment another set is wished for until its fate is
known, a message needs the copies of both, because either may be the one that the next master is elected from. `now` is
monotonic seconds. Source: ha reference, section 4; RIP-44, SyncStateSet.
"""

from rocketmq_formats.remoting.controller import SyncStateSet


class SyncSet:
    """Of one mastership."""

    def __init__(self, own_id: int, agreed: SyncStateSet, now: float) -> None:
        """`agreed` as the controllers have it when this replica becomes master; its members get time to connect."""
        self.own_id = own_id
        self.members = agreed.sync_state_set | {own_id}
        self.epoch = agreed.sync_state_set_epoch
        self.union = self.members
        """Members of the agreed set, and of those wished for whose fate is not known."""
        self.size = len(self.members)
        """inSyncReplicasNums: of the larger set, while a change is under way."""
        self._caught_up = dict.fromkeys(self.members - {own_id}, now)
        self._joining: frozenset[int] = frozenset()

    def adopt(self, agreed: SyncStateSet, now: float) -> bool:
        """Take what the controllers agreed to; False if it is not newer."""
        if agreed.sync_state_set_epoch <= self.epoch:
            return False
        self.epoch = agreed.sync_state_set_epoch
        self.members = agreed.sync_state_set | {self.own_id}
        for member in self._joining & self.members:  # not those who have left meanwhile: they are not waited for
            self._caught_up.setdefault(member, now)
        self._joining -= self.members
        self._forget_wish()  # it names the epoch before
        return True

    def refused(self) -> None:
        """The controllers refused the last wish for good."""
        self._joining = frozenset()
        self._forget_wish()

    def caught_up(self, broker_id: int, at: float) -> None:
        """Slave `broker_id` had at `at` all that the master had."""
        if at > self._caught_up.get(broker_id, float("-inf")):
            self._caught_up[broker_id] = at

    def qualified(self, broker_id: int) -> None:
        """A slave outside the set has what a member must have."""
        if broker_id not in self.members:
            self._joining |= {broker_id}

    def left(self, broker_id: int) -> None:
        """A slave's connection is closed."""
        self._caught_up.pop(broker_id, None)
        self._joining -= {broker_id}

    def forgive(self, now: float) -> None:
        """This process did not run until now: silence meanwhile proves nothing."""
        self._caught_up = dict.fromkeys(self._caught_up, now)

    def wish(self, now: float, timeout: float) -> frozenset[int] | None:
        """The set to ask the controllers for, None if they have it already. From now on its members count too.

        This replica, the members that were caught up within `timeout` seconds, and those who qualified since.
        """
        times = self._caught_up
        staying = {m for m in self.members if m != self.own_id and now - times.get(m, float("-inf")) <= timeout}
        wanted = frozenset({self.own_id, *staying, *self._joining})
        if wanted == self.members:
            return None
        self.union = self.union | wanted
        self.size = max(self.size, len(wanted))
        return wanted

    def _forget_wish(self) -> None:
        self.union = self.members
        self.size = len(self.members)
