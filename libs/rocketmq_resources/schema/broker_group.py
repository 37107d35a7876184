"""BrokerGroup: replicas of one broker, one master among them."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from rocketmq_formats.broker_identity import MAX_NAME_LENGTH, NAME_PATTERN
from rocketmq_formats.remoting.controller import LONGEST_WRITE_LEASE_MS
from rocketmq_resources import names
from rocketmq_resources.reserved_keys import BROKER, BROKER_CREATION_ONLY
from rocketmq_resources.schema.broker_group_parts import BrokerImages, BrokerResources, BrokerStorage, Failover, Jvm
from rocketmq_resources.schema.broker_group_status import BrokerGroupStatus
from rocketmq_resources.schema.common import Config, Reference, Replicas, Spec, config_keys
from rocketmq_resources.schema.declare import AGE, PHASE, Column, CustomResource, Rule, field, fixed, fixed_optional
from rocketmq_resources.schema.kubernetes import ObjectName
from rocketmq_resources.schema.verification import Verification
from rocketmq_settings.replica import DEFAULT_CLUSTER, DURABILITY, Durability
from rocketmq_settings.sidecar import ENGINE, Engine, Priority

UpdateStrategy = Literal["supervised", "unsupervised"]
ActingMaster = Literal["off", "reads", "readsAndEscape"]
"""The keys of each: `manifests.groups.config_file`."""
RocketMQName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=f"^{NAME_PATTERN}$")]

_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST_PORT = rf"(\[[0-9a-fA-F:.]+\]|[-A-Za-z0-9._]+):{_PORT}"
Addresses = Annotated[str, Meta(max_length=1024, pattern=f"^{_HOST_PORT}(;{_HOST_PORT})*$")]
"""`host:port;host:port`; what no pattern can express is checked by `rocketmq_formats.addresses`."""

STRICT_COPIES = 2
"""A strict group acknowledges nothing that fewer replicas have."""


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
            "self.failover.mode == 'none' || has(self.controllerRef) != has(self.controllerAddr)",
            "set either controllerRef (a ControllerCluster) or controllerAddr (controllers outside)",
        ),
        Rule(
            "self.failover.mode != 'none' || !(has(self.controllerRef) || has(self.controllerAddr))",
            "failover.mode none has no controllers: remove controllerRef and controllerAddr",
            "failover.mode",
        ),
        Rule(
            "self.failover.mode != 'none' || self.engine == 'native'",
            "failover.mode none is for engine native: official brokers without controllers run without a sidecar",
            "failover.mode",
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
            "self.engine == 'native' || !('enableBuildConsumeQueueConcurrently' in self.config) || "
            "self.config.enableBuildConsumeQueueConcurrently != 'true'",
            "config.enableBuildConsumeQueueConcurrently must not be true with engine apache: an official broker can "
            "then give a queue offset twice when it becomes master",
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
            "What runs in the broker's container. Cannot change. native: rocketmq-broker of this project, replicated "
            "by its sidecar. apache: an official Apache RocketMQ 5 broker, which replicates itself and is elected by "
            "our controllers.",
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
        field(
            "The ControllerCluster that elects this group's master. Either this or controllerAddr; neither with "
            "failover.mode none."
        ),
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
            "When a message is acknowledged. strict: when every member of the SyncStateSet, at least two, has it in "
            "memory. It then survives any failover. After a power cut of some members the group waits for one that "
            "kept everything. A power cut of all loses what the default flushDiskType, ASYNC_FLUSH, has not synced "
            "(half a second); with SYNC_FLUSH in config it loses nothing. relaxed: when RocketMQ's keys in config say "
            "so (allAckInSyncStateSet, inSyncReplicas), by default when the master has it."
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
            "What happens to consumers while the group has no master and none can be elected. Values other than off "
            "need name servers that show an acting master: those of this operator do, others with "
            "supportActingMaster=true. A change restarts the replicas one by one, the master last. off: consumers "
            "wait. Write it in quotes, because YAML reads the bare word as false. reads: the slave with the lowest "
            "brokerId serves consumers; messages are refused, and delayed ones wait. readsAndEscape: as reads, and "
            "delayed messages that are due go to a master of another group that has their topic."
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
            "Preference as master of each pod: the first entry is that of pod 0. Among replicas that are "
            "equally up to date the one with the lowest number is elected (brokerElectionPriority); replicas without "
            "an entry come last."
        ),
    ] = ()
    failover: Annotated[
        Failover,
        field(
            "Whether another replica takes a dead master's place, and how soon dead and slow replicas are noticed, in "
            "milliseconds. Smaller values fail over sooner and are more likely to take a busy machine for a dead one."
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
            "How a change that needs a restart reaches the master. With failover.mode none nothing switches over: "
            "the master restarts last, or when a user deletes its pod. unsupervised: the operator switches over and "
            "restarts the old master last. supervised: the operator restarts the slaves, and the master only after a "
            "user has switched over."
        ),
    ] = "unsupervised"
    replication_secret_name: Annotated[
        ObjectName | None,
        field(
            "Secret of this namespace with the key replication.secret, by which replicas authenticate each other "
            "before they replicate; absent means that the operator creates one. For engine native. Cannot change."
        ),
    ] = None
    grpc_tls_secret_name: Annotated[
        ObjectName | None,
        field(
            "Secret of this namespace with tls.crt, tls.key and ca.crt, the certificate for the pods' names "
            "(*.NAME.NAMESPACE.svc); absent means gRPC without TLS. The sidecars' gRPC then accepts only clients with "
            "a certificate of that authority. The operator, the plugin and the verification use the same Secret."
        ),
    ] = None
    verification: Annotated[
        Verification | None,
        field(
            "When and how the replicas' logs are compared byte by byte, by a Spark job that reads every replica "
            "through its sidecar; absent means never."
        ),
    ] = None


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
            description="Whether the newest spec was carried out, sends are accepted, and all are in sync.",
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
