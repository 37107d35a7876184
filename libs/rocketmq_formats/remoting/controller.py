"""Headers and bodies of the controller API (codes 904, 1001-1013), as 5.3.3 spells them.

Epochs are Java ints, ids and offsets longs, times milliseconds. Most structs have the names of their Java classes.
Source: rocketmq-all-5.3.3: ControllerRequestProcessor.java.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from rocketmq_formats.json.bodies import Body, Int32, Int64
from rocketmq_formats.remoting.headers import Header

# Java puts no bound on names; 255 characters is what its topics and files can carry.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]

NO_BROKER_ID = -1
"""What electMaster carries when no broker asks: the controller itself does."""
MAX_ELECTION_PRIORITY = 2**31 - 1
"""Default electionPriority; a lower number is preferred."""

NEW_LEADER_WAITS_MS = 5000
"""How long a controller that begins to lead waits for brokers that it has not heard of (invariant OneWriter)."""
CLOCKS_DIFFER = 1.05
"""How much faster the clock may run by which another process measures the same time."""
LONGEST_WRITE_LEASE_MS = int(NEW_LEADER_WAITS_MS / CLOCKS_DIFFER)
"""The longest write lease of a master with durability relaxed. Its heartbeats announce CLOCKS_DIFFER times the lease,
so controllers accept at most NEW_LEADER_WAITS_MS."""


class SyncStateSet(Body, frozen=True):
    """Body of 1001, 1003, 1004, 1008: `{"syncStateSet":[1,2],"syncStateSetEpoch":3}`."""

    sync_state_set: frozenset[Int64] = frozenset()
    sync_state_set_epoch: Int32 = 0


# 1001 CONTROLLER_ALTER_SYNC_STATE_SET


class AlterSyncStateSetRequestHeader(Header, frozen=True):
    broker_name: Name
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 = 0
    renew_epoch: bool | None = None
    """Ours, unknown to 5.3.3: the set may be the present one. Only its epoch grows then, so that requests which name
    the one before are refused whenever they arrive."""


class AlterSyncStateSetResponseHeader(Header, frozen=True):
    new_sync_state_set_epoch: Int32 = 0


# 1002 CONTROLLER_ELECT_MASTER


class ElectMasterRequestHeader(Header, frozen=True):
    broker_name: Name
    cluster_name: str = ""
    broker_id: Int64 = NO_BROKER_ID
    designate_elect: bool = False
    invoke_time: Int64 = 0
    designate_among: str | None = None
    """Ours, unknown to 5.3.3: with designateElect, that one of these ids (`2,3`) which the controllers prefer, instead
    of `broker_id`. A master that hands over has checked that they all have everything."""
    strict_durability: bool | None = None
    """Ours, unknown to 5.3.3: as in heartbeats (904), of the broker that asks."""


class ElectMasterResponseHeader(Header, frozen=True):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class BrokerMemberGroup(Body, frozen=True):
    """All registered members, alive or not; Java writes the ids as unquoted keys."""

    broker_addrs: dict[Int64, str]
    broker_name: str
    cluster: str


class ElectMasterResponseBody(Body, frozen=True, omit_defaults=True):
    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: frozenset[Int64] | None = None


# 1003 CONTROLLER_REGISTER_BROKER


class RegisterBrokerToControllerRequestHeader(Header, frozen=True):
    cluster_name: Name
    broker_name: Name
    broker_id: Int64
    broker_address: Name
    invoke_time: Int64 = 0


class RegisterBrokerToControllerResponseHeader(Header, frozen=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


# 1004 CONTROLLER_GET_REPLICA_INFO


class GetReplicaInfoRequestHeader(Header, frozen=True):
    broker_name: Name


class GetReplicaInfoResponseHeader(Header, frozen=True):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


# 1005 CONTROLLER_GET_METADATA_INFO


class GetMetaDataResponseHeader(Header, frozen=True):
    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str = ""
    feature_level: Int32 | None = None
    """Ours, unknown to 5.3.3: the forms of events that this member reads. Absent: 1."""


# 1006 CONTROLLER_GET_SYNC_STATE_DATA; the request's body is a JSON list of broker names


class InSyncReplica(Body, frozen=True, omit_defaults=True):
    """One replica in `BrokerReplicasInfo`; `alive` is this controller's view."""

    alive: bool
    broker_address: str
    broker_id: Int64
    broker_name: str
    unheard: bool = False
    """Ours, unknown to 5.3.3: it may live, since this controller has not led for long enough to tell."""


class ReplicasInfo(Body, frozen=True, omit_defaults=True):
    in_sync_replicas: Sequence[InSyncReplica]
    not_in_sync_replicas: Sequence[InSyncReplica]
    master_epoch: Int32
    sync_state_set_epoch: Int32
    master_address: str | None = None
    master_broker_id: Int64 | None = None


class BrokerReplicasInfo(Body, frozen=True):
    replicas_info_table: dict[str, ReplicasInfo]


# 1007 GET_BROKER_EPOCH_CACHE, answered by brokers


class EpochEntry(Body, frozen=True):
    """One master term's byte range of the commit log; the current term's `end_offset` is Java's Long.MAX_VALUE."""

    epoch: Int32
    start_offset: Int64
    end_offset: Int64 = 2**63 - 1


class EpochEntryCache(Body, frozen=True):
    broker_id: Int64
    broker_name: str
    cluster_name: str
    epoch_list: Sequence[EpochEntry] = ()
    max_offset: Int64 = 0


# 1008 NOTIFY_BROKER_ROLE_CHANGED, controller to broker, oneway


class NotifyBrokerRoleChangedRequestHeader(Header, frozen=True):
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


# 1011 CLEAN_BROKER_DATA


class CleanControllerBrokerDataRequestHeader(Header, frozen=True):
    broker_name: Name
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 = 0


# 1012 CONTROLLER_GET_NEXT_BROKER_ID


class GetNextBrokerIdRequestHeader(Header, frozen=True):
    cluster_name: Name
    broker_name: Name


class GetNextBrokerIdResponseHeader(Header, frozen=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


# 1013 CONTROLLER_APPLY_BROKER_ID


class ApplyBrokerIdRequestHeader(Header, frozen=True):
    cluster_name: Name
    broker_name: Name
    applied_broker_id: Int64
    register_check_code: Name


class ApplyBrokerIdResponseHeader(Header, frozen=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    former_broker_ids: str | None = None
    """Our own: the other members with the address of the one that applied, `1;4`; none: absent."""


# 904 BROKER_HEARTBEAT


class BrokerHeartbeatRequestHeader(Header, frozen=True, gc=False):
    cluster_name: Name
    broker_addr: Name
    broker_name: Name
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None
    write_lease_millis: Int64 | None = None
    """Ours, unknown to 5.3.3: how long after it sent this the broker may acknowledge writes that no other replica has
    (durability relaxed). 0 gives the lease back; absent: no lease."""
    strict_durability: bool | None = None
    """Ours, unknown to 5.3.3: as master it acknowledges only what every member of the SyncStateSet has, at least two
    (durability strict). An election from one such master to another keeps the members of the set."""
    unproven: bool | None = None
    """Ours, unknown to 5.3.3: its machine lost power and its log may lack what it acknowledged."""
    is_learner: bool | None = None
    """Ours, unknown to 5.3.3: it copies the log and is never elected (asyncLearner)."""


# 990002 CONTROLLER_LOG_DOUBT: ours, unknown to 5.3.3


class LogDoubtRequestHeader(Header, frozen=True):
    """A sidecar reports what the official broker beside it does not report itself. Counts for the broker that sends
    from the same host."""

    cluster_name: Name
    broker_name: Name
    broker_id: Int64
    unproven: bool
    """As in 904."""
