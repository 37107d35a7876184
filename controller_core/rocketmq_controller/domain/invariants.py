"""The invariants by name, checked in tests and in the simulation after every step; a broken one stops the run.

OneMasterPerEpoch   a group has at most one master in a masterEpoch, and masterEpoch only grows
MasterFromSyncSet   a new master was in the last committed SyncStateSet, unless unclean election is switched on
KeepsElectable      an election leaves the master alone in the SyncStateSet, or from strict to strict all members
IdentityForever     brokerName:brokerId is never given twice
ReplayEqual         controllers that applied the same index hold equal state
GroupShape          what any group must look like: the master in the SyncStateSet, that within the replicas, ...
"""

import hashlib
from collections.abc import Callable

from rocketmq_controller.domain import events
from rocketmq_controller.domain.model import (
    MAX_EPOCH,
    BrokerGroup,
    BrokerId,
    MasterEpoch,
    Options,
    State,
    canonical_bytes,
)

_Must = Callable[[bool, str, str], None]


class InvariantViolation(Exception):  # noqa: N818 - a bug of ours, never a peer's error
    """A promise was broken; `invariant` is its name, the text holds all values that were checked."""

    def __init__(self, invariant: str, what: str, **context: object) -> None:
        shown = "".join(f"\n  {name}: {value!r}" for name, value in context.items())
        super().__init__(f"{invariant}: {what}{shown}")
        self.invariant = invariant


def check_group(group: BrokerGroup) -> None:
    """GroupShape of one group, a tombstone included."""

    def must(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            raise InvariantViolation("GroupShape", what, group=group)

    must(all(key == replica.broker_id for key, replica in group.replicas.items()), "replicas are kept under their ids")
    must(all(1 <= broker_id < group.next_broker_id for broker_id in group.replicas), "ids are from 1 to below the next")
    must(group.hosts.keys() <= group.replicas.keys(), "hosts are those of replicas")
    must(group.sync_state_set <= group.replicas.keys(), "the SyncStateSet is registered")
    must(group.master_broker_id is None or group.master_broker_id in group.sync_state_set, "the master is in sync")
    must(0 <= group.master_epoch <= MAX_EPOCH and 0 <= group.sync_state_set_epoch <= MAX_EPOCH, "epochs are Java ints")
    must(group.master_epoch > 0 or group.never_elected, "an elected group has an epoch")
    must(group.sync_state_set_epoch > 0 or not group.sync_state_set, "a SyncStateSet has an epoch")


def check_transition(
    before: BrokerGroup | None, event: events.Event, after: BrokerGroup | None, options: Options
) -> None:
    """Everything that one applied event must keep, given the group before and after it."""

    def must(holds: bool, invariant: str, what: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            raise InvariantViolation(invariant, what, before=before, event=event, after=after, options=options)

    if after is None:
        must(before is None, "IdentityForever", "a group never vanishes, it leaves a tombstone")
        return
    check_group(after)
    old = before if before is not None else BrokerGroup(after.cluster_name, after.broker_name)
    must(after.broker_name == old.broker_name == event.broker_name, "GroupShape", "the event is the group's")

    must(after.master_epoch >= old.master_epoch, "OneMasterPerEpoch", "masterEpoch only grows")
    if after.master_broker_id not in {None, old.master_broker_id}:
        must(after.master_epoch > old.master_epoch, "OneMasterPerEpoch", "a new master has a new epoch")
    if after.master_epoch != old.master_epoch:
        _check_election(old, after, options, must)

    must(after.sync_state_set_epoch >= old.sync_state_set_epoch, "GroupShape", "syncStateSetEpoch only grows")
    if after.sync_state_set != old.sync_state_set:
        must(after.sync_state_set_epoch > old.sync_state_set_epoch, "GroupShape", "a new set has a new epoch")

    must(after.next_broker_id >= old.next_broker_id, "IdentityForever", "nextBrokerId only grows")
    for broker_id, replica in after.replicas.items():
        known = old.replicas.get(broker_id)
        if known is None:
            must(broker_id >= old.next_broker_id, "IdentityForever", f"id {broker_id} was not given before")
        else:
            same = known.register_check_code == replica.register_check_code
            must(same, "IdentityForever", f"id {broker_id} keeps its check code")


def _check_election(old: BrokerGroup, after: BrokerGroup, options: Options, must: _Must) -> None:
    master = after.master_broker_id
    must(master is not None, "OneMasterPerEpoch", "an epoch begins with a master")
    if after.sync_state_set != {master}:
        kept = old.strict and after.strict and after.sync_state_set == old.sync_state_set
        must(kept, "KeepsElectable", "a new master begins alone, or both it and the last one are strict and all stay")
    if not old.never_elected and not options.enable_elect_unclean_master and not options.last_resort:
        must(master in old.sync_state_set, "MasterFromSyncSet", "the new master was in the SyncStateSet")


class History:
    """What was true at any time of a run, over all members and restarts: feed it each applied group of each member."""

    def __init__(self) -> None:
        self._masters: dict[tuple[str, MasterEpoch], BrokerId] = {}
        self._identities: dict[tuple[str, BrokerId], str] = {}
        self._digests: dict[int, bytes] = {}

    def observe(self, group: BrokerGroup) -> None:
        """OneMasterPerEpoch and IdentityForever across the whole run."""
        if group.master_broker_id is not None:
            first = self._masters.setdefault((group.broker_name, group.master_epoch), group.master_broker_id)
            if first != group.master_broker_id:
                raise InvariantViolation("OneMasterPerEpoch", f"master {first} had this epoch before", group=group)
        for broker_id, replica in group.replicas.items():
            code = self._identities.setdefault((group.broker_name, broker_id), replica.register_check_code)
            if code != replica.register_check_code:
                raise InvariantViolation("IdentityForever", f"id {broker_id} was given to {code} before", group=group)

    def observe_state(self, index: int, state: State) -> None:
        """ReplayEqual: any two members that applied up to `index` hold the same state."""
        digest = state_digest(state)
        if self._digests.setdefault(index, digest) != digest:
            raise InvariantViolation("ReplayEqual", f"members differ after index {index}", state=dict(state))


def state_digest(state: State) -> bytes:
    """16 bytes that are equal for equal states, whatever way they came about."""
    return hashlib.blake2b(canonical_bytes(state), digest_size=16).digest()
