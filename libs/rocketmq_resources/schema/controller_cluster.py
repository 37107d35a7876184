"""ControllerCluster: the quorum that elects masters."""

from typing import Annotated, ClassVar, Final, Required, TypedDict

import msgspec
from msgspec import Meta

from rocketmq_resources import names
from rocketmq_resources.reserved_keys import CONTROLLER
from rocketmq_resources.schema.common import (
    CONDITIONS,
    Condition,
    ConditionType,
    Config,
    Image,
    ImagePull,
    ObservedGeneration,
    Phase,
    PhaseReason,
    ReclaimPolicy,
    Spec,
    StorageClassName,
    StorageSize,
    config_keys,
)
from rocketmq_resources.schema.declare import (
    AGE,
    PHASE,
    Column,
    CustomResource,
    Int32,
    Rule,
    field,
    fixed,
    fixed_optional,
)
from rocketmq_resources.schema.kubernetes import ObjectName, Resources
from rocketmq_settings.controller import (
    ELECTION_MS,
    LONGEST_ELECTION_MS,
    RAFT_HEARTBEAT_MS,
    SCAN_MS,
    SUSPECT_MS,
    ElectionMillis,
    RaftHeartbeatMillis,
    ScanMillis,
    SuspectMillis,
)


class ControllerImages(ImagePull, frozen=True, rename="camel", kw_only=True):
    """Images of the containers."""

    controller: Annotated[
        Image | None,
        field(
            "Image of the container controller (with embeddedInNameServer: one with rocketmq-namesrv); absent means "
            "the operator's own version."
        ),
    ] = None


class ControllerStorage(msgspec.Struct, frozen=True, rename="camel"):
    """The volume of each member."""

    RULES: ClassVar = (fixed_optional("storageClassName", "storageClassName cannot change"),)

    size: Annotated[
        StorageSize, field("Size of the volume. May grow where the StorageClass allows it, never shrink.")
    ] = "1Gi"
    storage_class_name: StorageClassName = None
    reclaim_policy: Annotated[
        ReclaimPolicy,
        field(
            "What happens to the volumes when the ControllerCluster is deleted. Retain: they are kept, and a "
            "ControllerCluster of the same name uses them again. Delete: they are deleted, and with them the record of "
            "which replicas may become master."
        ),
    ] = "Retain"


class Tuning(msgspec.Struct, frozen=True, rename="camel"):
    """Times in milliseconds."""

    RULES: ClassVar = (
        Rule(
            "self.raftElectionTimeoutMs > 3 * self.raftHeartbeatIntervalMs",
            "raftElectionTimeoutMs must be more than three times raftHeartbeatIntervalMs: one late heartbeat would "
            "depose the leader",
            "raftElectionTimeoutMs",
        ),
    )

    raft_heartbeat_interval_ms: Annotated[
        RaftHeartbeatMillis, field("Time between two heartbeats of the leader to the other members.")
    ] = RAFT_HEARTBEAT_MS
    raft_election_timeout_ms: Annotated[
        ElectionMillis,
        field(
            "Shortest silence of a leader after which a member starts an election. While members are slow (CPU "
            "limits, slow disks, a slow network) the timeout grows, up to config.raftElectionTimeoutMaxMs "
            f"({LONGEST_ELECTION_MS})."
        ),
    ] = ELECTION_MS
    broker_suspect_timeout_ms: Annotated[
        SuspectMillis,
        field(
            "Silence after which a replica counts as dead. Should be more than failover.leaseTimeoutMs of every "
            "BrokerGroup."
        ),
    ] = SUSPECT_MS
    scan_inactive_master_interval_ms: Annotated[
        ScanMillis,
        field("Time between two checks of every group for a dead master, in case an event was missed."),
    ] = SCAN_MS
    enable_elect_unclean_master: Annotated[
        bool,
        field(
            "Whether a replica outside the SyncStateSet may become master when no member of the set is alive. Loses "
            "acknowledged messages."
        ),
    ] = False


class ControllerClusterSpec(Spec, frozen=True, rename="camel", kw_only=True):
    """What a user writes."""

    RULES: ClassVar = (
        fixed_optional(
            "raftSecretName", "raftSecretName cannot change: members with different secrets refuse each other"
        ),
    )

    members: Annotated[
        int,
        Meta(ge=3, le=5),
        field(
            "Size of the quorum: 3 tolerate the loss of one member, 5 the loss of two. It can change: members join and "
            "leave one at a time.",
            rules=(
                Rule(
                    "self % 2 == 1",
                    "members must be 3 or 5: 4 tolerate one loss, as 3 do, and need a larger majority",
                ),
            ),
        ),
    ] = 3
    embedded_in_name_server: Annotated[
        bool,
        field(
            "Whether the members run in the processes of name servers (port 9876 beside the controller's), which saves "
            "pods in a small installation. BrokerGroups that refer to this ControllerCluster then need no name server "
            "of their own. Cannot change.",
            rules=(fixed("embeddedInNameServer cannot change: create another ControllerCluster"),),
        ),
    ] = False
    image: Annotated[
        ControllerImages,
        field("Image of the pods' container. A new image is rolled out one member at a time, the leader last."),
    ] = ControllerImages()
    storage: Annotated[
        ControllerStorage, field("The volume of each member, with Raft journal, vote and snapshots.")
    ] = ControllerStorage()
    raft_secret_name: Annotated[
        ObjectName | None,
        field(
            "Secret of this namespace with the key raft.secret, which all members share; absent means that the "
            "operator creates one. Cannot change."
        ),
    ] = None
    grpc_tls_secret_name: Annotated[
        ObjectName | None,
        field(
            "Secret of this namespace with tls.crt, tls.key and ca.crt; absent means gRPC without TLS. gRPC then "
            "accepts only clients with a certificate of that authority."
        ),
    ] = None
    resources: Annotated[
        Resources, field("Requests and limits of the members' container, as in a container's resources.")
    ] = msgspec.field(default_factory=dict)
    config: Annotated[
        Config,
        config_keys(
            "Configuration keys of the controllers (and of embedded name servers), for example {logLevel: debug}. Keys "
            "that a field or the operator sets are refused. supportActingMaster and notifyMinBrokerIdChanged of "
            "embedded name servers are true unless they are set here. A change restarts the members one by one.",
            CONTROLLER,
            example="isProcessReadEvent",
        ),
    ] = msgspec.field(default_factory=dict)
    tuning: Annotated[Tuning, field("How soon failures are noticed, in milliseconds.")] = Tuning()


class MemberStatus(TypedDict, total=False):
    """One member."""

    id: Required[Annotated[str, field("Its id in controllerDLegerPeers, for example n0.")]]
    pod: Annotated[str, field("Name of the pod.")]
    address: Annotated[str, field("Where brokers reach it.")]
    leader: Annotated[bool, field("Whether it is the leader.")]
    connected: Annotated[bool, field("Whether the leader receives its messages.")]


class ControllerClusterCondition(Condition, total=False):
    """With the types of this kind."""

    type: Required[
        Annotated[
            ConditionType,
            field(
                "What the condition is about. Ready: all that this generation of the spec asks for was carried out, "
                "and every member is connected. Available: there is a leader with a majority. Progressing: a change "
                "is under way. Paused: spec.paused is true. Degraded: something is missing or was refused."
            ),
        ]
    ]


class ControllerClusterStatus(TypedDict, total=False):
    """What the operator writes."""

    observedGeneration: ObservedGeneration
    phase: Phase
    phaseReason: PhaseReason
    leader: Annotated[str, field("Name of the leader's pod; absent without a leader.")]
    term: Annotated[int, field("Raft's term, which grows with each election of a leader.")]
    members: Annotated[str, field("Connected members, of all, for example 3/3.")]
    readyMembers: Annotated[Int32, field("Pods that are ready.")]
    connectedMembers: Annotated[Int32, field("Members that the leader receives messages from, itself included.")]
    replicas: Annotated[Int32, field("Pods that exist.")]
    selector: Annotated[str, field("Selects the pods.")]
    image: Annotated[str, field("Image of the members' container in the newest revision.")]
    controllerAddr: Annotated[str, field("Where brokers find the controllers: host:port;host:port;host:port.")]
    controllerGrpcAddr: Annotated[str, field("Where the members serve gRPC, in the same form.")]
    namesrvAddr: Annotated[
        str, field("Addresses of the embedded name servers, in the same form; absent without embedded name servers.")
    ]
    memberStatuses: Annotated[tuple[MemberStatus, ...], field("Every member.", list_type="map", list_keys=("id",))]
    conditions: Annotated[tuple[ControllerClusterCondition, ...], Meta(max_length=32), CONDITIONS]


CONTROLLER_CLUSTER: Final = CustomResource(
    kind="ControllerCluster",
    short_name="cc",
    description=(
        "ControllerCluster is the quorum that elects the masters of broker groups and agrees to every change of a "
        "SyncStateSet. While a majority of its members is down no master is elected. Native masters with durability "
        "strict then continue as long as every member of their SyncStateSet acknowledges; relaxed ones refuse messages "
        "once their lease has ended. One ControllerCluster serves any number of groups."
    ),
    longest_name=names.MAX_CONTROLLER_CLUSTER_NAME,
    spec=ControllerClusterSpec,
    status=ControllerClusterStatus,
    columns=(
        Column(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            description="Whether the newest spec was carried out and every member is connected.",
        ),
        Column("Leader", ".status.leader", description="The pod that decides."),
        Column("Term", ".status.term", "integer", "How often a leader was elected."),
        Column("Members", ".status.members", description="Connected members, of all."),
        PHASE,
        AGE,
        Column("Embedded", ".spec.embeddedInNameServer", "boolean", wide=True),
        Column("Image", ".status.image", description="Image of the members' container.", wide=True),
    ),
    scale=False,
)
