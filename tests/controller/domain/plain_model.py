"""One broker group as a deliberately dumb model: mutable dicts and sets, every rule written out once more by hand.

The stateful test plays the same requests to this and to the domain and compares answers and states. It shares no code
with the domain; keep it so.
"""


class PlainGroup:
    """The rules of docs/protocol.md with our differences, for one broker-set."""

    def __init__(self) -> None:
        self.next_id = 1
        self.members: dict[int, list[str]] = {}  # id -> [address, check code]
        self.master: int | None = None
        self.epoch = 0
        self.in_sync: set[int] = set()
        self.set_epoch = 0
        # the world, as the leader sees it
        self.alive: dict[int, tuple[int, int, int]] = {}  # id -> epoch, max offset, priority
        self.unheard: set[int] = set()
        self.unclean = False

    def as_tuple(self) -> tuple[object, ...]:
        members = {i: tuple(m) for i, m in self.members.items()}
        return (self.next_id, members, self.master, self.epoch, self.in_sync, self.set_epoch)

    def apply_id(self, broker_id: int, code: str) -> int:
        if broker_id in self.members and self.members[broker_id][1] == code:
            return 0
        if broker_id != self.next_id:
            return 2014
        self.members[broker_id] = [code.split(";", maxsplit=1)[0], code]
        self.next_id = broker_id + 1
        return 0

    def register(self, broker_id: int, address: str, *, same_connection: bool) -> tuple[int, int | None]:
        """Code, and the master that the answer names."""
        if broker_id not in self.members:
            return 2010, None
        self.members[broker_id][0] = address
        if self.master == broker_id and not (broker_id in self.alive and same_connection):
            self.master = None
            return 0, None
        if self.master in self.alive or self.master in self.unheard:
            return 0, self.master
        return 0, None

    def alter(self, master: int, epoch: int, wanted: set[int], set_epoch: int) -> int:
        refusals = [
            (not self.members or wanted == self.in_sync, 2013),
            (self.master is None or self.master != master, 2002),
            (epoch != self.epoch, 2000),
            (set_epoch != self.set_epoch, 2001),
        ]
        for broker_id in sorted(wanted):
            refusals.append((broker_id not in self.members, 2003))
            dead = broker_id not in self.alive and broker_id not in self.unheard
            refusals.append((dead and (broker_id == self.master or broker_id not in self.in_sync), 2006))
        refusals.append((master not in wanted, 2013))
        for refused, code in refusals:
            if refused:
                return code
        self.in_sync = set(wanted)
        self.set_epoch += 1
        return 0

    def elect(self, broker_id: int, *, designate: bool) -> int:
        if not self.members:
            return 2010
        nobody = 2004 if broker_id == -1 else 2012
        winner: int | None = None
        if not self.in_sync and broker_id != -1:
            if broker_id not in self.members:
                return 2012
            winner = broker_id
        else:
            if self.master is not None and self.master in self.unheard:
                return nobody
            preferred = broker_id if designate else None
            winner = self._choose(self.in_sync, preferred)
            if winner is None and self.unclean:
                winner = self._choose(set(self.members), preferred)
        if winner is None:
            return nobody
        if winner == self.master:
            return 2011
        self.master = winner
        self.epoch += 1
        self.in_sync = {winner}
        self.set_epoch += 1
        return 0

    def _choose(self, ids: set[int], preferred: int | None) -> int | None:
        living = ids & set(self.alive)
        if preferred is not None:
            return preferred if preferred in living else None
        if self.master in living:
            return self.master
        best: int | None = None
        for broker_id in sorted(living):
            if best is None or self._better(self.alive[broker_id], self.alive[best]):
                best = broker_id
        return best

    @staticmethod
    def _better(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
        if one[0] != other[0]:
            return one[0] > other[0]
        if one[1] != other[1]:
            return one[1] > other[1]
        return one[2] < other[2]

    def clean(self, ids: set[int] | None, *, forced: bool) -> int:
        looked_at = set(self.members) if ids is None else ids
        if not forced and looked_at & (set(self.alive) | self.unheard):
            return 2009
        if not self.members:
            return 2009
        gone = set(self.members) if ids is None else ids & set(self.members)
        if gone != set(self.members):
            if self.in_sync and not self.in_sync - gone:
                return 2009
            if self.master in gone and not forced:
                return 2009
        for broker_id in gone:
            del self.members[broker_id]
        if self.in_sync & gone:
            self.in_sync -= gone
            self.set_epoch += 1
        if self.master in gone:
            self.master = None
        return 0

    def needs_election(self) -> bool:
        if not self.in_sync or (self.master is not None and (self.master in self.alive or self.master in self.unheard)):
            return False
        candidates = set(self.members) if self.unclean else self.in_sync
        return bool(candidates & set(self.alive))
