"""BrokerGroup: replicas of one broker, one master among them."""

from typing import Annotated, ClassVar, Final, Literal, Required, TypedDict

import msgspec
from msgspec import Meta

from rocketmq_formats.remoting.controller import LONGEST_WRITE_LEASE_MS
from rocketmq_resources import names
from rocketmq_resources.reserved_keys import BROKER, BROKER_CREATION_ONLY
from rocketmq_resources.schema.common import (
    CONDITIONS,
    Condition,
    ConditionType,
    Config,
    Image,
    ImagePull,
    ObservedGeneration,
    PhaseReason,
    ReclaimPolicy,
    Reference,
    Replicas,
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
from rocketmq_resources.schema.verification import Verification, VerificationStatus
from rocketmq_settings.declare import Millis
from rocketmq_settings.replica import DEFAULT_CLUSTER, DURABILITY, Durability
from rocketmq_settings.sidecar import (
    ENGINE,
    HANG_MS,
    LEASE_MS,
    NOT_CAUGHT_UP_MS,
    Engine,
    HangMillis,
    LeaseMillis,
    Priority,
)

UpdateStrategy = Literal["supervised", "unsupervised"]
ActingMaster = Literal["off", "reads", "readsAndEscape"]
"""The keys of each: `manifests.groups.config_file`."""
JvmSize = Annotated[str, Meta(max_length=16, pattern="^[1-9][0-9]{0,6}([kmgKMG]|[KMG]i)$")]
JvmOption = Annotated[str, Meta(max_length=512, pattern=r"^-[A-Za-z]\S*$")]
RocketMQName = Annotated[str, Meta(min_length=1, max_length=127, pattern="^[A-Za-z0-9][-A-Za-z0-9._]*$")]

_HOST_PORT = r"(\[[0-9a-fA-F:.]+\]|[-A-Za-z0-9._]+):[0-9]{1,5}"
Addresses = Annotated[str, Meta(max_length=1024, pattern=f"^{_HOST_PORT}(;{_HOST_PORT})*$")]
"""`host:port;host:port`."""

HeartbeatMillis = Annotated[int, Meta(ge=50, le=5000)]
HEARTBEAT_MS: Final = 500
"""Both differ from the key's: see `differences`."""

STRICT_COPIES = 2
"""A strict group acknowledges nothing that fewer replicas have."""


class BrokerImages(ImagePull, frozen=True, rename="camel", kw_only=True):
    """Images of the containers."""

    broker: Annotated[
        Image | None, field("Image of the container broker; absent means the operator's default for the engine.")
    ] = None
    sidecar: Annotated[
        Image | None, field("Image of the container sidecar; absent means the operator's own version.")
    ] = None


class CommitLogVolume(msgspec.Struct, frozen=True, rename="camel"):
    """A volume of its own for the commit log."""

    RULES: ClassVar = (fixed_optional("storageClassName", "storageClassName cannot change"),)

    size: Annotated[StorageSize, field("Size of the volume. May grow where the StorageClass allows it, never shrink.")]
    storage_class_name: StorageClassName = None


class BrokerStorage(msgspec.Struct, frozen=True, rename="camel"):
    """The volume of each replica."""

    RULES: ClassVar = (
        fixed_optional(
            "storageClassName", "storageClassName cannot change: create another group and move the producers to it"
        ),
        Rule(
            "has(self.commitLog) == has(oldSelf.commitLog)",
            "commitLog cannot be added or removed: the log would have to move to another volume",
            "commitLog",
        ),
    )

    size: Annotated[
        StorageSize,
        field(
            "Size of the volume with commit log, queues and identity. May grow where the StorageClass allows it, "
            "never shrink."
        ),
    ] = "10Gi"
    storage_class_name: StorageClassName = None
    reclaim_policy: Annotated[
        ReclaimPolicy,
        field(
            "What happens to volumes when the group is deleted or scaled down. Retain: they are kept, and a group of "
            "the same name uses them again; Delete: they are deleted."
        ),
    ] = "Retain"
    commit_log: Annotated[
        CommitLogVolume | None,
        field(
            "A second volume for the commit log alone; the first then holds queues and identity. Cannot be added or "
            "removed later."
        ),
    ] = None


class BrokerResources(msgspec.Struct, frozen=True, rename="camel"):
    """ResourceRequirements of each container."""

    broker: Annotated[
        Resources,
        field(
            "Resources of the container broker. The memory limit (else the request) also sizes the JVM of engine "
            "apache. Leave room for the page cache, which serves reads."
        ),
    ] = {}
    sidecar: Annotated[Resources, field("Resources of the container sidecar.")] = {}


class Jvm(msgspec.Struct, frozen=True, rename="camel"):
    """The JVM of an Apache broker. Sizes: `2g` or `2Gi`."""

    heap: Annotated[
        JvmSize | None, field("-Xms and -Xmx, for example 4g or 4Gi; absent means a part of the container's memory.")
    ] = None
    direct_memory: Annotated[
        JvmSize | None, field("-XX:MaxDirectMemorySize; absent means a part of the container's memory.")
    ] = None
    options: Annotated[
        tuple[JvmOption, ...], Meta(max_length=64), field("Further options of java, one per entry.")
    ] = ()


class Failover(msgspec.Struct, frozen=True, rename="camel"):
    """How soon dead and slow replicas are noticed; milliseconds."""

    lease_timeout_ms: Annotated[
        LeaseMillis,
        field(
            "How long a master needs no further answer from the controllers. With durability relaxed it then refuses "
            "messages; strict, it continues as long as every member of the SyncStateSet acknowledges. Should be less "
            "than the controllers' brokerSuspectTimeoutMs; at most "
            f"{LONGEST_WRITE_LEASE_MS} with durability relaxed. Native engine."
        ),
    ] = LEASE_MS
    hang_timeout_ms: Annotated[
        HangMillis,
        field("How long a broker process may not respond before it counts as dead. Native engine."),
    ] = HANG_MS
    heartbeat_interval_ms: Annotated[
        HeartbeatMillis,
        field(
            "Time between two heartbeats of a replica to the controllers; at most a quarter of leaseTimeoutMs is used."
        ),
    ] = HEARTBEAT_MS
    max_time_slave_not_catchup_ms: Annotated[
        Millis, field("How long a slave may lag before it is removed from the SyncStateSet.")
    ] = NOT_CAUGHT_UP_MS


class BrokerGroupSpec(Spec, frozen=True, rename="camel", kw_only=True):
    """What a user writes."""

    RULES: ClassVar = (
        fixed_optional("brokerName", "brokerName cannot change: it is part of the identity of every replica"),
        fixed_optional(
            "replicationSecretName",
            "replicationSecretName cannot change: replicas with different secrets refuse each other",
        ),
        Rule(
            "!has(self.replicationSecretName) || self.engine == 'native'",
            "replicationSecretName is for engine native: official brokers replicate without a secret",
            "replicationSecretName",
        ),
        Rule(
            "has(self.controllerRef) != has(self.controllerAddr)",
            "set either controllerRef (a ControllerCluster) or controllerAddr (controllers outside)",
        ),
        Rule(
            "!has(self.controllerGrpcAddr) || has(self.controllerAddr)",
            "controllerGrpcAddr goes with controllerAddr: a ControllerCluster publishes its own address",
            "controllerGrpcAddr",
        ),
        Rule("!(has(self.nameServerRef) && has(self.namesrvAddr))", "set nameServerRef or namesrvAddr, not both"),
        Rule(
            "has(self.controllerRef) || has(self.nameServerRef) || has(self.namesrvAddr)",
            "set nameServerRef or namesrvAddr: only a ControllerCluster can host the name servers",
        ),
        Rule(
            "self.engine != 'native' || self.durability != 'relaxed' || "
            f"self.failover.leaseTimeoutMs <= {LONGEST_WRITE_LEASE_MS}",
            f"failover.leaseTimeoutMs must be at most {LONGEST_WRITE_LEASE_MS} with durability relaxed: a new leading "
            "controller waits only that long before it elects another master",
            "failover.leaseTimeoutMs",
        ),
        Rule(
            "self.durability != 'strict' || self.replicas >= 2",
            "durability strict acknowledges only what two replicas have: set replicas to 2 or more, or durability to "
            "relaxed",
            "replicas",
        ),
        Rule(
            "!has(self.minInSyncReplicas) || self.minInSyncReplicas <= self.replicas",
            "minInSyncReplicas must not be more than replicas: no message would ever be accepted",
            "minInSyncReplicas",
        ),
        Rule(
            "!has(self.minInSyncReplicas) || self.durability != 'strict' || self.minInSyncReplicas >= 2",
            "minInSyncReplicas is at least 2 with durability strict: set it to 2 or more, or durability to relaxed",
            "minInSyncReplicas",
        ),
        Rule(
            "!has(self.priorities) || size(self.priorities) <= self.replicas",
            "priorities must not be longer than replicas: each entry belongs to one replica",
            "priorities",
        ),
        Rule(
            "self.durability != 'strict' || !('allAckInSyncStateSet' in self.config)",
            "config.allAckInSyncStateSet cannot be set with durability strict, which always implies it",
            "config",
        ),
        Rule(
            "self.engine == 'native' || !('lockInStrictMode' in self.config) || self.config.lockInStrictMode != 'true' "
            "|| self.actingMaster != 'off'",
            "config.lockInStrictMode needs actingMaster: reads (or readsAndEscape) with engine apache: without it "
            "official brokers do not know each other, and lock no queue",
            "config",
        ),
        Rule(
            "self.engine == 'apache' || !has(self.jvm)",
            "jvm is for engine apache: the native engine has no JVM",
            "jvm",
        ),
    )

    engine: Annotated[
        Engine,
        field(
            "What runs in the broker's container. native: rocketmq-broker of this project, replicated by its sidecar; "
            "apache: an official Apache RocketMQ 5 broker, which replicates itself and is elected by our controllers. "
            "Cannot change.",
            rules=(fixed("engine cannot change: create another group and move the producers to it"),),
        ),
    ] = ENGINE
    cluster_name: Annotated[
        RocketMQName,
        field(
            "RocketMQ's cluster (brokerClusterName), the name that mqadmin -c takes. Cannot change.",
            rules=(fixed("clusterName cannot change: it is part of the identity of every replica"),),
        ),
    ] = DEFAULT_CLUSTER
    broker_name: Annotated[
        RocketMQName | None, field("The group's name in RocketMQ; absent means metadata.name. Cannot change.")
    ] = None
    replicas: Annotated[
        Replicas,
        field(
            "Copies of the log, each in its own pod. Can be changed with kubectl scale; scaling down never removes the "
            "master. With config.lockInStrictMode a change restarts the replicas one by one."
        ),
    ] = 3
    image: Annotated[
        BrokerImages,
        field("Images of the pods' containers. A new image is rolled out one replica at a time, the master last."),
    ] = BrokerImages()
    controller_ref: Annotated[
        Reference | None,
        field("The ControllerCluster that elects this group's master. Either this or controllerAddr."),
    ] = None
    controller_addr: Annotated[
        Addresses | None,
        field("All controllers outside: host:port;host:port;host:port. Either this or controllerRef."),
    ] = None
    controller_grpc_addr: Annotated[
        Addresses | None,
        field(
            "Where the controllers of controllerAddr serve gRPC, in the same form. Without it the status has only what "
            "the sidecars report."
        ),
    ] = None
    name_server_ref: Annotated[
        Reference | None,
        field(
            "The NameServer where brokers register. When this and namesrvAddr are absent, brokers register at the name "
            "servers embedded in the ControllerCluster."
        ),
    ] = None
    namesrv_addr: Annotated[
        Addresses | None, field("Name servers outside: host:port;host:port. Either this or nameServerRef.")
    ] = None
    durability: Annotated[
        Durability,
        field(
            "strict: a message is acknowledged when every member of the SyncStateSet, at least two, has it in memory; "
            "acknowledged messages survive any failover. After a power cut of some members the group waits for one "
            "that kept everything. A power cut of all loses what the default flushDiskType, ASYNC_FLUSH, has not "
            "synced (half a second); with SYNC_FLUSH in config it loses nothing. relaxed: "
            "RocketMQ's keys in config decide (allAckInSyncStateSet, inSyncReplicas); by default a message is "
            "acknowledged when the master has it."
        ),
    ] = DURABILITY
    min_in_sync_replicas: Annotated[
        Replicas | None,
        field(
            "Replicas that must be in sync; with fewer, messages are refused. Absent means 2 with durability strict "
            "and 1 with relaxed."
        ),
    ] = None
    acting_master: Annotated[
        ActingMaster,
        field(
            "What happens to consumers while the group has no master and none can be elected. off (in quotes: YAML "
            "reads the bare word as false): they wait. reads: the slave with the lowest brokerId serves them; messages "
            "are refused, and delayed ones wait. readsAndEscape: as reads, and delayed messages that are due go to a "
            "master of another group that has their topic. Needs name servers that show it: those of this operator "
            "do, others with supportActingMaster=true. A change restarts the replicas one by one, the master last."
        ),
    ] = "off"
    storage: Annotated[BrokerStorage, field("The volumes of each replica.")] = BrokerStorage()
    resources: Annotated[
        BrokerResources, field("Requests and limits of each container, as in a container's resources.")
    ] = BrokerResources()
    jvm: Annotated[Jvm | None, field("The JVM of engine apache. Refused with engine native.")] = None
    config: Annotated[
        Config,
        config_keys(
            "RocketMQ's configuration keys for every replica's broker and sidecar, for example "
            '{fileReservedTime: "48"}. Keys that a field or the operator sets are refused. mappedFileSizeCommitLog '
            "(268435456 if absent) can be set only when the group is created. Other changes restart the replicas one "
            "by one, the master last.",
            BROKER,
            example="fileReservedTime",
            creation_only=BROKER_CREATION_ONLY,
        ),
    ] = msgspec.field(default_factory=dict)
    priorities: Annotated[
        tuple[Priority, ...],
        Meta(max_length=9),
        field(
            "Preference as master by the number of the pod: the first entry is that of pod 0. Among replicas that are "
            "equally up to date the one with the lowest number is elected (brokerElectionPriority); replicas without "
            "an entry come last."
        ),
    ] = ()
    failover: Annotated[
        Failover,
        field(
            "How soon dead and slow replicas are noticed, in milliseconds. Smaller values fail over sooner and are "
            "more likely to take a busy machine for a dead one."
        ),
    ] = Failover()
    fenced: Annotated[
        bool,
        field(
            "While true every replica refuses messages and still answers reads. Kept on disk, so it survives restarts."
        ),
    ] = False
    hibernated: Annotated[
        bool,
        field("While true the group has no pods; volumes and identities are kept. false starts the pods again."),
    ] = False
    update_strategy: Annotated[
        UpdateStrategy,
        field(
            "How a change that needs a restart reaches the master. unsupervised: the operator switches over and "
            "restarts the old master last; supervised: the operator restarts the slaves, and the master only after a "
            "user has switched over."
        ),
    ] = "unsupervised"
    replication_secret_name: Annotated[
        ObjectName | None,
        field(
            "Secret of this namespace with the key replication.secret, by which replicas authenticate each other "
            "before they replicate; absent: the operator creates one. For engine native. Cannot change."
        ),
    ] = None
    grpc_tls_secret_name: Annotated[
        ObjectName | None,
        field(
            "Secret of this namespace with tls.crt, tls.key and ca.crt, the certificate for the pods' names "
            "(*.NAME.NAMESPACE.svc): the sidecars' gRPC then accepts only clients with a certificate of that "
            "authority. The operator, the plugin and the verification use the same Secret. Absent: gRPC without TLS."
        ),
    ] = None
    verification: Annotated[
        Verification | None,
        field(
            "When and how the replicas' logs are compared byte by byte, by a Spark job that reads every replica "
            "through its sidecar; absent means never."
        ),
    ] = None


class ReplicaStatus(TypedDict, total=False):
    """One replica."""

    pod: Required[Annotated[str, field("Name of the pod.")]]
    brokerId: Annotated[int, field("The replica's identity within the group, assigned once by the controllers.")]
    role: Annotated[str, field("master, slave or none.")]
    address: Annotated[str, field("Where clients reach the broker.")]
    node: Annotated[str, field("Node that the pod runs on.")]
    maxOffset: Annotated[int, field("End of its log, in bytes.")]
    lag: Annotated[int, field("Bytes that its log is shorter than the master's.")]
    inSync: Annotated[bool, field("Whether it is in the SyncStateSet.")]
    alive: Annotated[bool, field("Whether the controllers receive its heartbeats.")]
    ready: Annotated[bool, field("Whether the pod is ready.")]
    upToDate: Annotated[bool, field("Whether the pod has the newest revision.")]
    fenced: Annotated[bool, field("Whether it refuses messages because of spec.fenced.")]


class BrokerGroupCondition(Condition, total=False):
    """With the types of this kind."""

    type: Required[
        Annotated[
            ConditionType,
            field(
                "Ready (takes messages, every replica in sync), Available (takes messages), ActingMaster (there is no "
                "master, and a slave serves consumers), SyncStateSetHealthy (as many in sync as wanted), LogsAligned "
                "(the last comparison found no difference), Progressing (a change is under way), Paused, Degraded "
                "(something is missing or was refused)."
            ),
        ]
    ]


class BrokerGroupStatus(TypedDict, total=False):
    """What the operator writes."""

    observedGeneration: ObservedGeneration
    phase: Annotated[
        str,
        field(
            "What the operator is doing: Pending, Creating, Running, Degraded, Updating, SwitchingOver, Scaling, "
            "Rebuilding, Hibernating, Hibernated, Waking or Deleting."
        ),
    ]
    phaseReason: PhaseReason
    master: Annotated[str, field("Name of the master's pod; absent without a master.")]
    actingMaster: Annotated[
        str, field("Name of the pod whose slave serves consumers because there is no master; absent if none does.")
    ]
    masterBrokerId: Annotated[int, field("brokerId of the master.")]
    masterEpoch: Annotated[int, field("Grows by one with each election.")]
    syncStateSetEpoch: Annotated[int, field("Grows by one with each change of the SyncStateSet.")]
    inSync: Annotated[str, field("Replicas in the SyncStateSet, of those wanted, for example 3/3.")]
    inSyncReplicas: Annotated[Int32, field("Replicas in the SyncStateSet.")]
    replicas: Annotated[Int32, field("Pods that exist.")]
    readyReplicas: Annotated[Int32, field("Pods that are ready.")]
    selector: Annotated[str, field("Selects the pods; for kubectl scale and autoscalers.")]
    image: Annotated[str, field("Image of the broker's container in the newest revision.")]
    currentRevision: Annotated[str, field("Revision of every pod while no update is under way.")]
    updateRevision: Annotated[str, field("Revision that pods should have.")]
    replicaStatuses: Annotated[tuple[ReplicaStatus, ...], field("Every replica.", list_type="map", list_keys=("pod",))]
    retiredBrokerIds: Annotated[
        tuple[int, ...],
        field("Ids of replicas that were scaled down or rebuilt; they are never assigned again.", list_type="set"),
    ]
    verification: Annotated[
        VerificationStatus, field("The last comparison of the replicas' logs. Written by the job that made it.")
    ]
    conditions: Annotated[tuple[BrokerGroupCondition, ...], Meta(max_length=32), CONDITIONS]


BROKER_GROUP: Final = CustomResource(
    kind="BrokerGroup",
    short_name="bg",
    description=(
        "BrokerGroup is one RocketMQ broker as a group of replicas, each with its own copy of the log. One of them is "
        "master and takes messages; when it fails, the controllers elect another that has every acknowledged message. "
        "Each replica is a pod with a lasting identity (brokerName and brokerId) and its own volume."
    ),
    longest_name=names.MAX_GROUP_NAME,
    rules=(
        Rule(
            "!self.metadata.name.endsWith('-controller') && !self.metadata.name.endsWith('-namesrv') "
            "&& !self.metadata.name.endsWith('-verify')",
            "metadata.name must not end in -controller, -namesrv or -verify: objects of ControllerClusters, "
            "NameServers and the verification have such names",
        ),
        Rule(
            f"!has(self.spec.verification) || size(self.metadata.name) <= {names.MAX_VERIFIED_GROUP_NAME}",
            f"spec.verification needs a metadata.name of at most {names.MAX_VERIFIED_GROUP_NAME} characters: names of "
            "CronJobs and their pods contain it",
        ),
    ),
    spec=BrokerGroupSpec,
    status=BrokerGroupStatus,
    status_description="The observed state. Written by the operator; verification by its job.",
    columns=(
        Column(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            description="Whether the group takes messages and every replica is in sync.",
        ),
        Column("Master", ".status.master", description="The pod that takes messages."),
        Column("Epoch", ".status.masterEpoch", "integer", "How often a master was elected."),
        Column("InSync", ".status.inSync", description="Replicas in the SyncStateSet, of those wanted."),
        PHASE,
        AGE,
        Column(
            "Acting",
            ".status.actingMaster",
            description="The slave that serves consumers while there is no master.",
            wide=True,
        ),
        Column("Engine", ".spec.engine", wide=True),
        Column("Replicas", ".spec.replicas", "integer", wide=True),
        Column("Durability", ".spec.durability", wide=True),
        Column("Cluster", ".spec.clusterName", wide=True),
        Column("Image", ".status.image", description="Image of the broker's container.", wide=True),
        Column(
            "Logs",
            '.status.conditions[?(@.type=="LogsAligned")].reason',
            description="What the last comparison of the replicas' logs found.",
            wide=True,
        ),
    ),
    scale=True,
)
