"""The SyncStateSet at the master: the set that the controllers agreed to, and the one that it proposes. Pure.

The agreed set changes only when the controllers agree. From a proposal until its result is known, a message needs the
copies of both sets, because the next master may be elected from either. `now` is monotonic seconds.

Controllers refuse a whole set for one replica that they do not know to be alive (2006). So a proposal adds one slave at
most, as Java's do, and none before those that left are out: a slave that is connected here but dead to the controllers
keeps no other one out, nor in. Slaves take turns. Java's controllers refuse for a dead member too, even if it stays:
then the next proposal is without it.
Source: rocketmq-all-5.3.3: AutoSwitchHAService.java, ReplicasManager.java; RIP-44, section SyncStateSet change.
"""

from collections.abc import Set as AbstractSet

from rocketmq_formats.remoting.controller import SyncStateSet


class SyncSet:
    """The SyncStateSet of one mastership."""

    def __init__(self, own_id: int, agreed: SyncStateSet, now: float, *, strict: bool = False) -> None:
        """`agreed` is the controllers' set when this replica becomes master; its members get time to connect.

        `strict`: every member has all that was acknowledged, and nothing is acknowledged without all of them, so no
        member is dropped without need. An election leaves them in the set. They stay until two replicas, this one
        included, have acknowledged the epoch; then the others leave at once. A slave is proposed when it has the
        master's tables (`copied`), whose changes are acknowledged like messages.
        """
        self.own_id = own_id
        self.members = agreed.sync_state_set | {own_id}
        self.epoch = agreed.sync_state_set_epoch
        self.union = self.members
        """Members of the agreed set, and of proposed sets whose result is not known."""
        self.size = len(self.members)
        """inSyncReplicasNums: of the larger set, while a change is under way."""
        self.present = 1
        """Replicas, this one included, that were caught up, or next to join, at the last `propose`."""
        self.changed = False
        """A member has acknowledged the epoch since the last `propose`."""
        self.joins: dict[int, int] = {}
        """Slaves outside the set with a member's log, each with a number of its own. The first one that is ready is
        proposed."""
        self._joined = 0
        self._copied: AbstractSet[int] = frozenset()
        """Numbers out of `joins`: a strict master proposes only those."""
        self.strict = strict
        self._caught_up = {} if strict else dict.fromkeys(self.members - {own_id}, now)
        self._without_data: frozenset[int] = frozenset()
        self._proposed: SyncStateSet | None = None
        """The last proposal, told apart by its identity."""
        self._dead: frozenset[int] = frozenset()
        """Members for which the controllers refused what this master still wants to change."""

    def adopt(self, agreed: SyncStateSet, now: float) -> bool:
        """Apply what the controllers agreed to; False if it is not newer."""
        if agreed.sync_state_set_epoch <= self.epoch:
            return False
        self.epoch = agreed.sync_state_set_epoch
        self.members = agreed.sync_state_set | {self.own_id}
        for member in self.joins.keys() & self.members:  # not those that have disconnected since
            self._caught_up.setdefault(member, now)
            del self.joins[member]
        self._without_data &= self.members
        self._dead = frozenset()
        self._drop_proposal()  # it names the epoch before
        return True

    def proposed(self, wanted: frozenset[int]) -> SyncStateSet:
        """The proposal of `wanted`, which `propose` returned: it goes to the controllers now."""
        proposal = SyncStateSet(sync_state_set=wanted, sync_state_set_epoch=self.epoch)
        if proposal == self._proposed:  # nothing has decided it since: the next turn is another slave's
            for slave in wanted & self.joins.keys():
                self.joins[slave] = self.joins.pop(slave)
        self._proposed = proposal
        return proposal

    def proposal_refused(self, proposal: SyncStateSet, dead: int | None = None) -> bool:
        """The controllers certainly refused `proposal` and those before it; `dead`: because of this replica. False if
        it is not the last one: what was proposed since, even the same set, may still be agreed to, and its result
        decides. Its slaves have to qualify again, so others are first, and their tables are not waited for until then;
        not if a member is dead."""
        if proposal is not self._proposed:
            return False
        if dead in self.members - {self.own_id}:
            self._dead |= {dead}
        else:
            self._dead = frozenset()
            for slave in self.union - self.members:
                self.joins.pop(slave, None)
        self._drop_proposal()
        return True

    def caught_up(self, broker_id: int, at: float) -> None:
        """At `at`, slave `broker_id` had all that the master had."""
        if at > self._caught_up.get(broker_id, float("-inf")):
            self._caught_up[broker_id] = at

    def awaits(self, broker_id: int) -> bool:
        """Whether it is a member that has not acknowledged the epoch over its present connection."""
        return self.strict and broker_id in self.members and broker_id not in self._caught_up

    def acknowledged_epoch(self, broker_id: int, now: float) -> None:
        """A member has acknowledged the epoch and has what a member must have."""
        self._caught_up[broker_id] = now
        self._without_data -= {broker_id}
        self.changed = True

    def lost_data(self, broker_id: int) -> None:
        """A slave has less than it had acknowledged: it must not be elected."""
        self.disconnected(broker_id)
        self._without_data |= {broker_id} & self.members
        self.changed = True

    def qualified(self, broker_id: int) -> None:
        """A slave outside the set has the log that a member must have, at this moment."""
        if broker_id not in self.members and broker_id not in self.joins:
            self._joined += 1
            self.joins[broker_id] = self._joined

    def copied(self, joins: AbstractSet[int]) -> None:
        """Exactly the slaves with these numbers have the tables that a member must have."""
        self._copied = joins

    def disconnected(self, broker_id: int) -> None:
        """A slave's connection is closed."""
        self._caught_up.pop(broker_id, None)
        self.joins.pop(broker_id, None)

    def excuse_silence(self, now: float) -> None:
        """This process did not run until now: the slaves' silence proves nothing."""
        self._caught_up = dict.fromkeys(self._caught_up, now)

    def propose(self, now: float, timeout: float, holders: AbstractSet[int]) -> frozenset[int] | None:
        """The set to propose to the controllers; None if they have it already. From now on its members count too.

        It contains this replica and the members that were caught up within `timeout` seconds; if these are all members,
        or too few for a strict master, also a qualified slave in `holders`, which have everything that is acknowledged
        now. A strict master that would be alone can acknowledge nothing, so it keeps all members that still have what
        they acknowledged. Members that are dead to controllers which refuse for that are left out of what changes
        anyway: they cannot be elected, and join again.
        """
        times = self._caught_up
        staying = {m for m in self.members if m != self.own_id and now - times.get(m, float("-inf")) <= timeout}
        wanted = frozenset({self.own_id, *staying})
        if wanted == self.members or (self.strict and len(wanted) < 2):
            wanted |= self._next_to_join(holders)
        self.present, self.changed = len(wanted), False
        if self.strict and self.present < 2:
            wanted = self.members - self._without_data
        if wanted == self.members:
            self._dead = frozenset()
            return None
        living = wanted - self._dead
        if len(living) >= 2 or not self.strict:
            wanted = living
        self.union = self.union | wanted
        self.size = max(self.size, len(wanted))
        return wanted

    def _next_to_join(self, holders: AbstractSet[int]) -> frozenset[int]:
        for slave, join in self.joins.items():
            if slave in holders and (join in self._copied or not self.strict):
                return frozenset({slave})
        return frozenset()

    def _drop_proposal(self) -> None:
        self.union = self.members
        self.size = len(self.members)
