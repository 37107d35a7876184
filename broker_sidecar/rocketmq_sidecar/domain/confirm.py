"""How far the log is acknowledged and confirmed, from what the replicas hold. Pure; for `ha_master`.

Offsets are ends of logs in bytes. `acks` holds the last acknowledgement of each slave that is connected, learners too.
Source: ha reference, sections 7 and 8; DESIGN's invariant AckedSurvives for `durability=strict`.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from rocketmq_sidecar.domain.sync_set import SyncSet


class AckRule(msgspec.Struct, frozen=True, kw_only=True):
    """Whose copies a message needs before it is acknowledged."""

    strict: bool
    """Every member's, at least two; the rest of the rule does not count."""
    all_ack_in_sync_state_set: bool = False
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    enable_auto_in_sync_replicas: bool = False

    def needed(self, in_sync: int) -> int:
        """Copies, the master's included, that `in_sync_replicas` asks for with so many in sync.

        With enableAutoInSyncReplicas the number sinks with the SyncStateSet, to minInSyncReplicas at least. 5.3.3 does
        that only without controllers (ha reference, 8.3), where a user who sets the key expects it here too.
        """
        if not self.enable_auto_in_sync_replicas:
            return self.in_sync_replicas
        return max(min(self.in_sync_replicas, in_sync), self.min_in_sync_replicas)


def members_hold(own_id: int, own_max: int, members: AbstractSet[int], acks: Mapping[int, int]) -> int | None:
    """The end of what every member holds; None if one is not connected or has not acknowledged yet."""
    least = own_max
    for member in members:
        if member != own_id:
            ack = acks.get(member, 0)
            if ack <= 0:
                return None
            least = min(least, ack)
    return least


def confirm_offset(rule: AckRule, sync_set: SyncSet, own_max: int, acks: Mapping[int, int]) -> int | None:
    """What consumers may see; None: as before.

    Everything, if the rule does not wait for the whole set: there a message is acknowledged by fewer, and consumers see
    it as soon.
    """
    if not rule.strict and not rule.all_ack_in_sync_state_set:
        return own_max
    return members_hold(sync_set.own_id, own_max, sync_set.union, acks)


def acked_offset(rule: AckRule, sync_set: SyncSet, own_max: int, acks: Mapping[int, int]) -> int | None:
    """A message that ends here or before has the copies that `rule` asks for; None: as before."""
    if rule.strict:
        # Both the agreed set and the one under way: whoever is elected from either must have the message.
        return members_hold(sync_set.own_id, own_max, sync_set.union, acks) if len(sync_set.members) > 1 else None
    if rule.all_ack_in_sync_state_set:
        return members_hold(sync_set.own_id, own_max, sync_set.union, acks)
    needed = rule.needed(sync_set.size)
    if needed <= 1:
        return own_max
    if len(acks) < needed - 1:
        return None
    return min(own_max, sorted(acks.values(), reverse=True)[needed - 2])
