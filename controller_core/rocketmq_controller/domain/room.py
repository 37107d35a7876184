"""How many groups and members there are and which hosts registered them, so that one host cannot take all the room that
there is for them. Pure; `state_machine` keeps the tally of what is committed, `pipeline` that of what will be.

The host is the one that the connection of applyBrokerId came from, not the address that the broker names. It is part of
the replicated state, so the shares are the same after a restart and at the next leader. What was registered before
all members could read it has no host (""): it counts as one host's.
"""

import msgspec

from rocketmq_controller.domain.model import BrokerGroup, BrokerId, State

MEMBERS_PER_GROUP = 5
"""Members of all groups, for each group that there may be. Each heartbeat table may hold all of them."""
LEAST_MEMBERS = 1000
"""There may be as many even if there may be few groups."""


class ByHost:
    """A number of each host; none of them is zero."""

    __slots__ = ("of_host", "total")

    def __init__(self) -> None:
        self.of_host: dict[str, int] = {}
        self.total = 0

    def add(self, host: str, number: int) -> None:
        """`number` more, or fewer if it is negative."""
        self.total += number
        now = self.of_host.get(host, 0) + number
        if now:
            self.of_host[host] = now
        else:
            self.of_host.pop(host, None)

    def subtract(self, other: "ByHost") -> None:
        for host, number in other.of_host.items():
            self.add(host, -number)


class Tally:
    """Groups, cleaned ones included, and members, by the host that registered them; or by how much they change."""

    __slots__ = ("groups", "members")

    def __init__(self) -> None:
        self.groups = ByHost()
        self.members = ByHost()

    @classmethod
    def of(cls, state: State) -> "Tally":
        tally = cls()
        for group in state.values():
            tally.change(None, group)
        return tally

    def change(self, before: BrokerGroup | None, after: BrokerGroup | None) -> None:
        """A group changed; none is ever forgotten."""
        if after is None or before is after:
            return
        if before is None:
            self.groups.add(after.host, 1)
        elif before.replicas is after.replicas:
            return
        known = frozenset[BrokerId]() if before is None else before.replicas.keys()
        for broker_id in after.replicas.keys() - known:
            self.members.add(after.hosts.get(broker_id, ""), 1)
        if before is not None:
            for broker_id in known - after.replicas.keys():
                self.members.add(before.hosts.get(broker_id, ""), -1)

    def subtract(self, other: "Tally") -> None:
        self.groups.subtract(other.groups)
        self.members.subtract(other.members)


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What there is when a broker asks for an id, and how much of it its host has put there."""

    max_groups: int = 1
    """maxBrokerGroups."""
    groups: int = 0
    groups_of_host: int = 0
    members: int = 0
    """Of all groups."""
    members_of_host: int = 0

    @property
    def max_members(self) -> int:
        return max(self.max_groups * MEMBERS_PER_GROUP, LEAST_MEMBERS)

    @classmethod
    def of(cls, host: str, max_groups: int, *tallies: Tally) -> "Room":
        """For a broker of `host`, where the state is the sum of `tallies`."""
        return cls(
            max_groups=max_groups,
            groups=sum(tally.groups.total for tally in tallies),
            groups_of_host=sum(tally.groups.of_host.get(host, 0) for tally in tallies),
            members=sum(tally.members.total for tally in tallies),
            members_of_host=sum(tally.members.of_host.get(host, 0) for tally in tallies),
        )


NO_GROUPS = Room()
"""No group yet, and room for one."""
