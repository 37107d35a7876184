"""The replicated state: what every controller holds after applying the same events.

A broker group (Java: broker-set) is the unit of consistency; the state is a dict of them by brokerName, as in Java the
cluster's name is kept but is not part of the key. Everything here is a frozen value; `evolve` makes the next one.
Liveness is not part of it: every controller keeps its own heartbeat table (`liveness`).

None of these values can be part of a cycle, so the garbage collector does not visit them (`gc=False`): with 10,000
groups it would hold the event loop for 50 ms each time.
"""

from collections.abc import Mapping
from typing import NewType, Protocol

import msgspec

from rocketmq_controller.domain.forms import shortened
from rocketmq_formats.remoting import controller

BrokerId = NewType("BrokerId", int)
"""A controller id: >= 1, permanent, never given twice (the id 0 of masters in routes does not occur here)."""
MasterEpoch = NewType("MasterEpoch", int)
SyncStateSetEpoch = NewType("SyncStateSetEpoch", int)
"""The version of a syncStateSet: grows by one with each change of the set, elections included."""

FIRST_BROKER_ID = BrokerId(1)
MAX_EPOCH = 2**31 - 1
"""Epochs are Java ints on the wire and in brokers' epoch files."""
MAX_BROKER_ID = 2**63 - 1


class Replica(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One registered member; `address` is ip:port of its remoting server and may change, the rest never does."""

    broker_id: BrokerId
    address: str
    register_check_code: str


class BrokerGroup(msgspec.Struct, frozen=True, gc=False):
    """One broker-set.

    `sync_state_set` is empty if and only if no master was ever elected among the present members.
    A group without replicas is the tombstone of a cleaned one: it only remembers which ids and epochs were used.
    """

    cluster_name: str
    broker_name: str
    next_broker_id: BrokerId = FIRST_BROKER_ID
    replicas: Mapping[BrokerId, Replica] = {}
    master_broker_id: BrokerId | None = None
    master_epoch: MasterEpoch = MasterEpoch(0)
    sync_state_set: frozenset[BrokerId] = frozenset()
    sync_state_set_epoch: SyncStateSetEpoch = SyncStateSetEpoch(0)
    strict: bool = False
    """The master of `master_epoch` acknowledges only what every member of the syncStateSet has (durability=strict), so
    each of them may be elected, whether it lives or not."""
    host: str = ""
    """That registered the first member that the group ever had; "" if it is not known (`room`)."""
    hosts: Mapping[BrokerId, str] = {}
    """That registered the members, if they are known."""

    def address_of(self, broker_id: BrokerId | None) -> str | None:
        """The member's address; None for None and for ids that are not registered."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    @property
    def never_elected(self) -> bool:
        """Whether the next election is the first one among these members (Java asks for masterEpoch 0)."""
        return not self.sync_state_set


State = Mapping[str, BrokerGroup]
"""All groups by brokerName."""


class GroupRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A group as it is written down: what has no order in memory is sorted, so equal groups are equal bytes."""

    cluster_name: str
    broker_name: str
    next_broker_id: BrokerId
    replicas: tuple[Replica, ...]
    master_broker_id: BrokerId | None
    master_epoch: MasterEpoch
    sync_state_set: tuple[BrokerId, ...]
    sync_state_set_epoch: SyncStateSetEpoch
    strict: bool
    host: str = ""
    hosts: tuple[tuple[BrokerId, str], ...] = ()

    @classmethod
    def of(cls, group: BrokerGroup) -> "GroupRecord":
        return cls(
            group.cluster_name,
            group.broker_name,
            group.next_broker_id,
            tuple(replica for _, replica in sorted(group.replicas.items())),
            group.master_broker_id,
            group.master_epoch,
            tuple(sorted(group.sync_state_set)),
            group.sync_state_set_epoch,
            group.strict,
            group.host,
            tuple(sorted(group.hosts.items())),
        )

    def group(self) -> BrokerGroup:
        return BrokerGroup(
            self.cluster_name,
            self.broker_name,
            self.next_broker_id,
            {replica.broker_id: replica for replica in self.replicas},
            self.master_broker_id,
            self.master_epoch,
            frozenset(self.sync_state_set),
            self.sync_state_set_epoch,
            self.strict,
            self.host,
            dict(self.hosts),
        )


_record_encoder = msgspec.msgpack.Encoder()


def record_bytes(group: BrokerGroup) -> bytes:
    """The group's record in msgpack: equal groups give equal bytes."""
    return _record_encoder.encode(shortened(GroupRecord.of(group)))


def joined_records(records: Mapping[str, bytes]) -> bytes:
    """The bytes of a state from its groups' `record_bytes` by name."""
    return _record_encoder.encode([msgspec.Raw(records[name]) for name in sorted(records)])


def canonical_bytes(state: State) -> bytes:
    """The groups' records in msgpack, by name: equal states give equal bytes. For snapshots and digests."""
    return joined_records({name: record_bytes(group) for name, group in state.items()})


class Options(msgspec.Struct, frozen=True):
    """Settings that change what is decided; each key as in Java's controller configuration."""

    enable_elect_unclean_master: bool = False
    last_resort: bool = False
    """Of one election, not of the configuration: a replica outside the syncStateSet may be elected if no member
    of the set lives. Asked for by name and confirmed (kubectl rocketmq elect-master --force-unclean)."""


class BrokerLiveInfo(msgspec.Struct, frozen=True):
    """What a broker last reported; the defaults stand for fields that it did not send."""

    epoch: int = -1
    max_offset: int = -1
    election_priority: int = controller.MAX_ELECTION_PRIORITY
    connection_id: int | None = None
    lease: float = 0.0
    """Seconds for which it may still acknowledge alone, as master with durability=relaxed."""
    connected: bool = True
    """Whether the connection of its last heartbeat is open; one without is not replaced yet, nor elected."""
    strict: bool = False
    """As master it acknowledges only what every member of the syncStateSet has (durability=strict)."""
    unproven: bool = False
    """Its machine lost power, and its log may lack what it acknowledged."""
    learner: bool = False
    """It copies the log and is never elected (asyncLearner)."""


class LivenessView(Protocol):
    """One controller's heartbeat table at one instant. Used on the leader only, never while applying."""

    def alive(self, broker_name: str, broker_id: int) -> bool:
        """Whether it was heard recently, on a connection that is still open."""
        ...

    def unheard(self, broker_name: str, broker_id: int) -> bool:
        """Whether nothing is known of it because this controller has not listened for long enough."""
        ...

    def info(self, broker_name: str, broker_id: int) -> BrokerLiveInfo | None:
        """Its last report; None unless it is alive."""
        ...


def presumed_alive(view: LivenessView, broker_name: str, broker_id: int) -> bool:
    """Alive, or not silent for long enough to be called dead: for refusals. Candidates must be `alive`."""
    return view.alive(broker_name, broker_id) or view.unheard(broker_name, broker_id)
