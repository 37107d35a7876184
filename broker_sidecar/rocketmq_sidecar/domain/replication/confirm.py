"""How far the log is acknowledged and confirmed, from what the replicas hold. Pure; for `ha_master`.

Offsets are ends of logs in bytes. `acks` holds the last acknowledgement of each slave that is connected, learners too.
Source: rocketmq-all-5.3.3: CommitLog.java, AutoSwitchHAService.java, GroupTransferService.java; invariant AckedSurvives
in docs/architecture.md for `durability=strict`.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_sidecar.domain.replication.sync_set import SyncSet

_KEYS: Final = SidecarKeys()


class AckRule(msgspec.Struct, frozen=True, kw_only=True):
    """Whose copies a message needs before it is acknowledged."""

    strict: bool
    """Every member's, at least two; the rest of the rule does not count."""
    all_ack_in_sync_state_set: bool = _KEYS.all_ack_in_sync_state_set
    in_sync_replicas: int = _KEYS.in_sync_replicas
    min_in_sync_replicas: int = _KEYS.min_in_sync_replicas
    enable_auto_in_sync_replicas: bool = _KEYS.enable_auto_in_sync_replicas

    def needed(self, in_sync: int) -> int:
        """Copies, the master's included, that a message needs with `in_sync` replicas in sync.

        With enableAutoInSyncReplicas the number shrinks with the SyncStateSet, but not below minInSyncReplicas. 5.3.3
        does that only without controllers (rocketmq-all-5.3.3: CommitLog.java); a user who sets the key expects it here
        too.
        """
        if not self.enable_auto_in_sync_replicas:
            return self.in_sync_replicas
        return max(min(self.in_sync_replicas, in_sync), self.min_in_sync_replicas)


def members_hold(own_id: int, own_max: int, members: AbstractSet[int], acks: Mapping[int, int]) -> int | None:
    """The offset up to which every member holds the log; None if one is not connected or has not acknowledged yet."""
    least = own_max
    for member in members:
        if member != own_id:
            ack = acks.get(member, 0)
            if ack <= 0:
                return None
            least = min(least, ack)
    return least


def offsets(rule: AckRule, sync_set: SyncSet, own_max: int, acks: Mapping[int, int]) -> tuple[int | None, int | None]:
    """What is acknowledged and what is confirmed; None: as before. Computed for every message.

    Messages that end at or before the first have the copies that `rule` requires. The second is the high watermark:
    what consumers may see. It is the whole log if the rule does not wait for the whole set: then fewer copies
    acknowledge a message, and consumers see it as soon.
    """
    if rule.strict or rule.all_ack_in_sync_state_set:
        # The agreed set and the proposed one: the next master may be elected from either and must have the message.
        held = members_hold(sync_set.own_id, own_max, sync_set.union, acks)
        return (None if rule.strict and len(sync_set.members) < 2 else held), held
    needed = rule.needed(sync_set.size)
    if needed <= 1:
        return own_max, own_max
    if len(acks) < needed - 1:
        return None, own_max
    return min(own_max, sorted(acks.values(), reverse=True)[needed - 2]), own_max
